"""The hop word of Pair1 and Star0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.wire.hops import HOP_WORDS, MALFORMED, read_hops, sift, step


@pytest.mark.parametrize(
    ("frame", "hops"),
    [
        ("00000001 61", 1),
        ("00000000", 0),
        ("000000ff", 255),
        ("00000100 61", MALFORMED),
        ("01000001 61", MALFORMED),
        ("00010001 61", MALFORMED),
        ("000000", MALFORMED),
        ("", MALFORMED),
    ],
)
def test_a_word_is_three_zero_bytes_and_a_count(frame: str, hops: int) -> None:
    assert read_hops(bytes.fromhex(frame)) == hops


def test_a_step_adds_one_and_keeps_the_body() -> None:
    assert step(HOP_WORDS[1] + b"body") == HOP_WORDS[2] + b"body"


@given(
    st.lists(st.binary(max_size=6) | st.integers(0, 255).map(lambda n: HOP_WORDS[n] + b"x")), st.booleans()
)
def test_sifting_accounts_for_every_frame_up_to_its_stop(frames: list[bytes], stop: bool) -> None:
    good, over_ttl, malformed = sift(frames, 8, stop=stop)
    seen = frames
    if stop and malformed:
        bad = [read_hops(frame) == MALFORMED for frame in frames]
        seen = frames[: bad.index(True) + 1]
        assert malformed == 1
    assert len(good) + over_ttl + malformed == len(seen)
    assert good == [frame for frame in seen if 0 <= read_hops(frame) <= 8]

"""The agreement of two programs of different versions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.wire.capabilities import FIRST, LINK, NAMES_MAX, SESSION, Offer, VersionMismatch, read_offer
from mesh.wire.fields import FieldError

OFFERS = st.builds(
    lambda oldest, more, names: Offer.of(oldest, oldest + more, names),
    st.integers(1, 9),
    st.integers(0, 9),
    st.sets(st.sampled_from("abcd")),
)


@given(OFFERS, OFFERS)
def test_both_sides_come_to_the_same_agreement(one: Offer, other: Offer) -> None:
    try:
        agreed = one.agree(other)
    except VersionMismatch:
        with pytest.raises(VersionMismatch):
            other.agree(one)
        assert one.newest < other.oldest or other.newest < one.oldest
        return
    assert agreed == other.agree(one)
    assert agreed.version == min(one.newest, other.newest)
    assert agreed.capabilities == one.capabilities & other.capabilities


@given(OFFERS, st.lists(st.none()))
def test_an_offer_is_read_as_it_was_packed_despite_later_fields(offer: Offer, later: list[None]) -> None:
    assert read_offer(offer.newest, [offer.packed(), *later]) == offer
    assert read_offer(offer.newest, [[*offer.packed(), *later]]) == offer


def test_a_frame_without_an_offer_speaks_that_version_alone_and_has_no_capability() -> None:
    assert read_offer(1, []) == FIRST


@pytest.mark.parametrize("ours", [LINK, SESSION])
def test_the_present_offers_agree_with_version_1_and_with_later_versions(ours: Offer) -> None:
    assert ours.agree(FIRST).version == 1
    assert ours.agree(FIRST).capabilities == frozenset()
    later = Offer.of(2, 7, [*ours.capabilities, "not known yet"])
    assert ours.agree(later).version == ours.newest
    assert ours.agree(later).capabilities == ours.capabilities


def test_an_error_about_no_common_version_names_the_versions_of_both() -> None:
    with pytest.raises(VersionMismatch, match="the peer speaks version 1, this side versions 2 to 3"):
        Offer.of(2, 3, []).agree(FIRST)


def test_a_missing_capability_is_refused_by_its_name() -> None:
    agreed = LINK.agree(FIRST)
    with pytest.raises(VersionMismatch, match="broker alpha speaks version 1 without 'later'"):
        agreed.require("later", "broker alpha")


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (None, "field offer is None"),
        ([1], r"field offer is \[1\]"),
        (["1", []], "field offer.oldest is '1'"),
        ([3, []], "names versions 3 to 2"),
        ([1, "names"], "field offer.capabilities is 'names'"),
        ([1, ["x" * 33]], "field offer.capabilities is 'xxx"),
        ([1, ["x"] * (NAMES_MAX + 1)], "a list of at most 64"),
    ],
)
def test_a_malformed_offer_is_refused_with_the_reason(packed: Any, complaint: str) -> None:
    with pytest.raises(FieldError, match=complaint):
        read_offer(2, [packed])

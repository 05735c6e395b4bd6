"""Every input that is kept, without the fuzzer: the corpus, and what once broke a rule."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.corpus import CORPUS, CRASHES, load, store, unpack
from tests.fuzz.targets import TARGETS, low_thresholds

MENDING: dict[str, str] = {}
"""Targets whose crashes are known and not fixed yet. An entry that is no longer true fails."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_keeps_the_rules(target: str) -> None:
    inputs = load(CORPUS / f"{target}.txt")
    assert len(inputs) > 10, f"the corpus of {target} is all but empty"
    with low_thresholds():
        for data in inputs:
            TARGETS[target](data)


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=[pytest.mark.xfail(reason=MENDING[target])] if target in MENDING else [])
        for target in TARGETS
    ],
)
def test_former_crashes_keep_the_rules(target: str) -> None:
    with low_thresholds():
        for data in load(CRASHES / f"{target}.txt"):
            TARGETS[target](data)


@pytest.mark.parametrize("target", TARGETS)
def test_spoilt_inputs_keep_the_rules(target: str) -> None:
    """A little of what the fuzzer does, where the fuzzer is not installed; the same every time."""
    rng = random.Random(20)
    inputs = load(CORPUS / f"{target}.txt")
    with low_thresholds():
        for _ in range(200):
            TARGETS[target](spoilt(rng.choice(inputs), rng))


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """The input with a byte changed, a piece repeated or its end cut off."""
    spot = rng.randrange(len(data))
    match rng.randrange(3):
        case 0:
            return (
                data[:spot]
                + bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))])
                + data[spot + 1 :]
            )
        case 1:
            return data[:spot] + data[spot // 2 :]
        case _:
            return data[:spot]


def test_every_file_has_a_target() -> None:
    names = {file.name for folder in (CORPUS, CRASHES) for file in folder.iterdir()}
    assert names <= {f"{target}.txt" for target in TARGETS}


def test_inputs_are_stored_once_short_ones_first_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "some.txt"
    assert store(file, [b"long", b"a", b"a", b""], "Some inputs.") == 2
    assert load(file) == [b"a", b"long"]
    assert file.read_text().startswith("# Some inputs.\n61\n")
    unpack(load(file), tmp_path / "files")
    assert sorted(each.read_bytes() for each in (tmp_path / "files").iterdir()) == [b"a", b"long"]


def test_a_line_that_is_no_hex_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    file.write_text("61  # good\nzz\n")
    with pytest.raises(ValueError, match="non-hexadecimal"):
        load(file)

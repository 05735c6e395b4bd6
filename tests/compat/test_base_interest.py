"""The maximum interest of a present broker is within what a broker of the base accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh.cluster.remote_interest import InterestTable
from mesh.limits import EXPORT_MOST, PATTERNS_MOST
from tests.compat.base import run_base

OWN = 10
"""Maximum number of patterns on which a broker itself answers."""
TAKE = """
import sys
from mesh.interest import InterestTable
from mesh.link import decode, LinkKind

table = InterestTable(2)
table.link_up(1, 7)
for line in open(sys.argv[1]):
    kind, *fields = decode(bytes.fromhex(line))
    received = table.whole_received if kind == LinkKind.INTEREST else table.change_received
    received(1, *fields)
print(len(table.patterns(1)))
"""
"""A program of the base that accepts frames of interest. It fails if one is too large."""


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1024, False)])
def test_a_base_accepts_the_largest_interest_of_clients_and_stock_subscribers(
    base: Path, tmp_path: Path, more: int, taken: bool
) -> None:
    """It dropped the link of a broker whose clients wanted 65 536 patterns beside a stock SUB's."""
    table = InterestTable(1)
    table.link_up(2, 7, names_owner=False)
    table.change_own([(f"t.{number}", 0) for number in range(PATTERNS_MOST)])
    frames = sent(table)
    beside = 2 * EXPORT_MOST + OWN + more
    table.change_own([(f"stock.{number}", 0) for number in range(beside)])
    frames += sent(table)
    path = tmp_path / "frames"
    path.write_text("".join(frame.hex() + "\n" for frame in frames))
    if taken:
        assert run_base(base, tmp_path, TAKE, str(path)) == f"{PATTERNS_MOST + beside}\n"
    else:
        with pytest.raises(AssertionError, match="interest has more than 65536 patterns"):
            run_base(base, tmp_path, TAKE, str(path))


def sent(table: InterestTable) -> list[bytes]:
    frames = []
    while (frame := table.pending(2)) is not None:
        frames.append(frame)
    return frames

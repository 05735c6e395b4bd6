"""The row classes match the rows that brokers and the simulator write."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from mesh.eventlog.rows import KINDS, decode
from simulations import Mesh, World
from simulations.evidence.truth import Truth, log_files


def test_every_line_of_simulated_brokers_is_a_row_and_has_no_column_that_is_not_defined() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        world.run_for(6)
        world.inject("crash", "broker-2")
        world.run_for(8)
        mesh.finish()
        lines = [line for content in log_files(world).values() for line in content.splitlines()]
        lines += [msgspec.json.encode(row) for row in Truth(world, run="r", scenario="s").rows()]
    kinds: Counter[str] = Counter()
    for line in lines:
        row = decode(line)
        written = msgspec.json.decode(line)
        kinds[written.pop("kind")] += 1
        assert set(written) <= {field.name for field in msgspec.structs.fields(row)}
    assert set(kinds) == set(KINDS) - {"heard"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_the_columns_of_its_kind_is_refused(kind: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        decode(f'{{"v":1,"run":"r","kind":"{kind}"}}')

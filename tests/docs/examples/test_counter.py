"""The counter converges: under loss, duplicates and any order, by whatever way its words come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations import Mesh, World
from tests.docs.examples.programs import program

counting = program("counter")
COPIES = 4
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "say", "hear"]), st.integers(0, COPIES - 1), st.integers(-5, 5))
)


@given(STEPS, st.randoms(use_true_random=False))
def test_all_copies_converge_to_the_sum_despite_loss_repetition_and_reordering(
    steps: list[tuple[str, int, int]], rng: random.Random
) -> None:
    copies = [counting.Counter(str(number)) for number in range(COPIES)]
    said: list[bytes] = []
    total = 0
    for what, copy, number in steps:
        if what == "add":
            copies[copy].add(number)
            total += number
        elif what == "say":
            said.append(copies[copy].packed())
        elif said:  # any of all that was ever said, so it comes late, again, or never
            copies[copy].merge(counting.unpacked(rng.choice(said)))
    last = [copy.packed() for copy in copies]
    for copy in copies:
        for word in rng.sample(said + last, len(said + last)):
            copy.merge(counting.unpacked(word))
    assert [copy.value for copy in copies] == [total] * COPIES


def test_copies_at_three_brokers_converge_after_partitions_and_crashes() -> None:
    with World(1) as world:
        mesh = Mesh(world, brokers=3)
        copies = [counting.Counter(str(number)) for number in range(6)]
        for number, copy in enumerate(copies):
            mesh.client(
                f"copy-{number}",
                lambda client, copy=copy: counting.replicate(client, "counters.visitors", copy),  # type: ignore[misc]
                at=mesh.brokers[number % 3],
            )
        rng, total = random.Random(1), 0
        for second in range(40):
            for copy in copies:
                number = rng.randint(-3, 5)
                copy.add(number)
                total += number
            if second == 5:
                world.inject("partition", ["broker-1"], ["broker-2", "broker-3"], for_s=10)
            if second == 20:
                world.inject("crash", ["broker-2"], for_s=5)
            if second == 30:
                world.inject("lossy_link", ["broker-1"], ["broker-3"], value=0.3, for_s=5)
            world.run_for(1)
            if second == 14:
                assert len({copy.value for copy in copies}) > 1, "they are apart"
        world.run_for(30)
        assert [copy.value for copy in copies] == [total] * 6
        newcomer = counting.Counter("newcomer")
        mesh.client("newcomer", lambda client: counting.replicate(client, "counters.visitors", newcomer))
        world.run_for(3)
        assert newcomer.value == total


@pytest.mark.parametrize(
    "body", [b"", b"{", b"5", b"[]", b'{"a": 5}', b'{"a": [1]}', b'{"a": [1, -1]}', b'{"a": ["1", "2"]}']
)
def test_a_malformed_message_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        counting.unpacked(body)

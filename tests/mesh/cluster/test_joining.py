"""When a broker that starts knows enough to route what is published at it."""

from __future__ import annotations

from mesh.cluster.joining import HOLD_S, JOIN_S, Joining
from mesh.wire.link_frames import RECORDS_MAX

A, B, C = 1, 2, 3
PERIOD_S = 1.0


def joining(*join: str, known: dict[int, str] | None = None) -> Joining:
    machine = Joining(join, (known or {}).items(), PERIOD_S)
    machine.begin(0.0)
    return machine


def test_a_broker_without_peers_to_join_holds_no_publishes() -> None:
    machine = joining()
    assert not machine.holds and machine.unheard == ()
    assert not machine.tick(1e9)


def test_joining_is_complete_with_the_tables_of_all_members_that_any_of_them_names() -> None:
    machine = joining("tcp://a:1")
    assert machine.holds and machine.unheard == ("tcp://a:1",)
    assert not machine.is_complete([])
    machine.linked(A, 0.1)
    assert machine.unheard == () and not machine.is_complete([A])
    assert machine.table_heard(A, [A, B])
    assert not machine.is_complete([A, B])  # B may know of C
    machine.linked(B, 0.2)
    machine.table_heard(B, [A, B, C])
    assert not machine.is_complete([A, B, C])
    machine.linked(C, 0.3)
    machine.table_heard(C, [A, B, C])
    assert machine.is_complete([A, B, C])


def test_a_table_in_parts_is_heard_with_its_last_one() -> None:
    machine = joining("tcp://a:1")
    machine.linked(A, 0.1)
    machine.table_heard(A, range(10, 10 + RECORDS_MAX))
    assert not machine.is_complete([A])
    machine.table_heard(A, [A])
    assert machine.is_complete([A])


def test_peers_of_the_last_run_are_waited_for_until_a_table_names_them_in_any_state() -> None:
    machine = joining(known={A: "a", B: "b", C: "c"})
    assert machine.holds and machine.unheard == ("a", "b", "c")
    machine.linked(A, 0.1)
    machine.table_heard(A, [A, B])
    assert machine.unheard == ("c",) and not machine.is_complete([A])
    assert machine.table_heard(A, [C])  # that it died, for example
    assert not machine.table_heard(A, [C])
    assert machine.is_complete([A])


def test_a_known_peer_that_no_table_names_counts_as_dead_in_the_end() -> None:
    machine = joining(known={A: "a", C: "c"})
    machine.linked(A, 0.1)
    machine.table_heard(A, [A])
    assert machine.next_deadline() == HOLD_S
    assert machine.tick(0.1 + JOIN_S) and machine.unheard == ()


def test_publishes_are_held_for_a_bounded_time_without_any_link() -> None:
    machine = joining(known={C: "c"})
    assert machine.tick(2 * PERIOD_S)
    assert machine.unheard == ("c",) and machine.holds
    assert not machine.tick(HOLD_S)
    assert not machine.holds and machine.unheard == ("c",)
    machine.linked(A, 9.0)
    assert machine.next_deadline() == 9.0 + JOIN_S


def test_a_join_url_is_named_as_unheard_until_it_answers() -> None:
    machine = joining("tcp://a:1")
    assert not machine.tick(HOLD_S)
    assert not machine.holds and machine.unheard == ("tcp://a:1",)
    assert not machine.tick(1e9)


def test_a_broker_whose_only_join_url_is_its_own_founds_a_mesh() -> None:
    machine = joining("tcp://me:1")
    machine.keep(["tcp://me:1"], 0.5)
    assert machine.unheard == ("tcp://me:1",)
    machine.keep([], 0.5)
    assert machine.unheard == () and not machine.tick(1.0)
    assert machine.tick(0.5 + 2 * PERIOD_S)

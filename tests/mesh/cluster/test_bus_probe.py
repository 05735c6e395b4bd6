"""A Bus that stays silent after a frame is dead; one at rest is not probed."""

from __future__ import annotations

from mesh.cluster.bus_probe import SILENT_ROUNDS_MAX, BusProbe


def test_a_bus_at_rest_is_not_probed() -> None:
    bus_probe = BusProbe()
    bus_probe.heard(4)
    assert not any(bus_probe.round(4, 100) for _ in range(50)) and not bus_probe.dead


def test_a_frame_without_an_echo_causes_probes_and_silence_is_death() -> None:
    bus_probe = BusProbe()
    bus_probe.heard(4)
    for said in range(5, 5 + SILENT_ROUNDS_MAX):
        assert bus_probe.round(said, 100) and not bus_probe.dead
    assert not bus_probe.round(5 + SILENT_ROUNDS_MAX, 100) and bus_probe.dead


def test_an_echo_ends_the_probing() -> None:
    bus_probe = BusProbe()
    assert bus_probe.round(1, 0)
    bus_probe.heard(2)
    assert not bus_probe.round(2, 10)
    assert bus_probe.round(3, 10), "another word, another PING"
    assert not bus_probe.dead


def test_a_slow_frame_counts_as_alive_while_its_bytes_arrive() -> None:
    bus_probe = BusProbe()
    assert all(bus_probe.round(9, number) for number in range(50)) and not bus_probe.dead


def test_two_that_answer_each_other_come_to_rest() -> None:
    """Each counts its PONG as an answer, not as a frame that needs a reply."""
    one, other = BusProbe(), BusProbe()
    assert one.round(1, 0), "it said something, and then PING"
    other.heard(1)  # and has sent PONG
    one.heard(2)
    assert not one.round(2, 10) and not other.round(1, 20)

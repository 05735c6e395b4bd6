"""False data for brokers: from strangers, which speak raw TCP, and from brokers of the mesh that lie.

``a`` names the brokers that are struck. ``b``, or else any other broker, tells the lie over its links, and
does not believe it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from mesh.broker.broker import Broker
from mesh.cluster.membership import MemberRecord, State
from mesh.wire.link_frames import LinkKind, encode, encode_record, members_frames
from simulations.faults import strangers
from simulations.faults.kind import Kind, Parameter
from simulations.faults.record import Fault
from simulations.kernel.scheduler import nanoseconds

if TYPE_CHECKING:
    from mesh.cluster.link import Link
    from simulations.world import Node, World

TIMES: Final = 3.0
TIMES_MAX: Final = 1000
REPLAY_S: Final = 5.0
BITS: Final = 62.0


def _send_stranger(world: World, fault: Fault) -> None:
    attempt: strangers.Attempt = getattr(strangers, fault.kind)
    for name in fault.a:
        node = world.node(name)
        broker = _broker(node)
        if broker is None:
            continue
        host, _, port = broker.url.partition("://")[2].rpartition(":")
        door = strangers.Door(host, int(port), broker.inspect().mesh, node.settings.mesh_key.encode())
        number = 1 + sum(node.startswith("stranger-") for node in world.nodes)
        main = strangers.stranger(attempt, door, int(fault.amount))
        world.add_node(f"stranger-{number}", main, once=True).start()


def _broker(node: Node) -> Broker | None:
    """The broker that runs there, if one is up."""
    return node.exposed if isinstance(node.exposed, Broker) else None


def _links(broker: Broker) -> list[Link]:
    """The links that are up. Brokers offer no interface for lies, so this reaches inside."""
    return list(broker._running.peering.link_manager.up.values())


def _forge_death(world: World, fault: Fault) -> None:
    _tell_all(world, fault, lambda record: members_frames([replace(record, state=State.DEAD)]))


def _claim_incarnation(world: World, fault: Fault) -> None:
    """Build the frames by hand: no broker's code would."""
    incarnation = (1 << int(fault.amount)) - 1

    def claim(record: MemberRecord) -> list[bytes]:
        fields = encode_record(record)
        fields[1] = incarnation
        return [encode(LinkKind.MEMBERS, 0, [fields])]

    _tell_all(world, fault, claim)


def _tell_all(world: World, fault: Fault, lie: Callable[[MemberRecord], list[bytes]]) -> None:
    """Tell the lie about each struck broker to all that are linked to the liar."""
    liar = _liar(world, fault)
    frames: list[bytes] = []
    for name in fault.a:
        broker = _broker(world.node(name))
        if broker is not None:
            frames += lie(broker.inspect().records[0])
    if liar is not None:
        _say(liar, frames)


def _liar(world: World, fault: Fault) -> Node | None:
    able = [node for node in world.nodes.values() if node.running and _broker(node) is not None]
    if fault.b:
        return next((node for node in able if node.name in fault.b), None)
    others = [node for node in able if node.name not in fault.a]
    return world.ongoing.stream(fault).choice(others) if others else None


def _say(liar: Node, frames: list[bytes], to: tuple[str, ...] = ()) -> None:
    """Tell the brokers of those names, or all that it has links to."""
    assert liar.process is not None

    def say() -> None:
        broker = _broker(liar)
        for link in _links(broker) if broker is not None else ():
            if not to or link.peer.name in to:
                link.say(frames)

    liar.process.loop.call_soon(say)


def _replay_news(world: World, fault: Fault) -> None:
    liar = _liar(world, fault)
    broker = None if liar is None else _broker(liar)
    if liar is None or broker is None:
        return
    frames = members_frames(list(broker.inspect().records))
    world.scheduler.after(nanoseconds(fault.amount), _say_if_up, liar, frames, fault.a)


def _say_if_up(liar: Node, frames: list[bytes], to: tuple[str, ...]) -> None:
    if liar.alive:
        _say(liar, frames, to)


_TIMES: Final = (Parameter("value", "how many times", TIMES, 1, TIMES_MAX),)


def _of_strangers(name: str, sentence: str) -> Kind:
    return Kind(name, f"strangers {sentence}", "processes", _send_stranger, None, _TIMES)


KINDS: Final = (
    _of_strangers("garbage", "send brokers random bytes, from the first on or as a frame"),
    _of_strangers("truncated_frame", "send brokers a greeting that ends too early"),
    _of_strangers("huge_frame", "announce a frame of 2^62 bytes to brokers"),
    _of_strangers("wrong_key", "ask brokers for admission with the key of another mesh"),
    _of_strangers("wrong_version", "greet brokers in a version of the protocol they do not know"),
    _of_strangers("replayed_admission", "repeat to brokers the admission of another broker"),
    Kind(
        "forged_dead",
        "another broker (b) tells all others that the brokers are dead",
        "processes",
        _forge_death,
        doers=True,
    ),
    Kind(
        "huge_incarnation",
        "another broker (b) tells all others an incarnation of the brokers that is too high to exceed",
        "processes",
        _claim_incarnation,
        None,
        (Parameter("value", "its bits, all ones; no record may have more than 62", BITS, 32, 64),),
        doers=True,
    ),
    Kind(
        "replayed_news",
        "another broker (b) tells the brokers after a while everything that it knows now",
        "processes",
        _replay_news,
        None,
        (Parameter("value", "seconds in between", REPLAY_S, 0.001, 3600),),
        doers=True,
    ),
)

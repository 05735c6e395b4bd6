"""``mesh device``: a forwarder between two raw sockets, or a reflector with one, until it is told to stop."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import protocols
from mesh.cli.cat_flags import Certificates, Flag, Texts, misuse
from mesh.cli.cat_job import check_certificate, with_tls
from mesh.cli.documents import to_json
from mesh.cli.exits import ExitCode
from mesh.cli.signals import leave_on_signal
from protocols.device import Device, DeviceStatistics
from protocols.options import TTL_MAX, SocketOptions
from protocols.patterns.relay import FlowStatistics
from protocols.raw_socket import RawSocket

Protocol = Literal["req", "survey", "push", "pub", "pair", "pair1", "bus", "star"]

SIDES: Final[dict[str, tuple[str, str]]] = {
    "req": ("Rep0", "Req0"),
    "survey": ("Respondent0", "Surveyor0"),
    "push": ("Pull0", "Push0"),
    "pub": ("Sub0", "Pub0"),
    "pair": ("Pair0", "Pair0"),
    "pair1": ("Pair1", "Pair1"),
    "bus": ("Bus0", "Bus0"),
    "star": ("Star0", "Star0"),
}
"""The sockets at the front, where peers ask, push or publish, and at the back."""

REFLECTED: Final = ("pair", "pair1", "bus", "star")


def device(
    *,
    proto: Protocol,
    front: Annotated[Texts | None, Parameter(negative=())] = None,
    back: Annotated[Texts | None, Parameter(negative=())] = None,
    front_dial: Annotated[Texts | None, Parameter(negative=())] = None,
    back_dial: Annotated[Texts | None, Parameter(negative=())] = None,
    ttl: Annotated[int, Parameter(validator=Number(gte=1, lte=TTL_MAX))] = 8,
    recv_maxsz: Annotated[int, Parameter(validator=Number(gte=0))] = 1 << 20,
    certificates: Certificates | None = None,
    json: Flag = False,
) -> int:
    """Forward between two sides, without a broker: requests and their answers, messages, topics.

    Parameters
    ----------
    proto
        The protocol. Sockets that ask, push or publish come to the front, those that answer, pull or
        subscribe to the back. The sides of pair, pair1, bus and star are alike. With a front alone, messages
        of one peer go to the others.
    front
        Listen here for the front; may be repeated.
    back
        Listen here for the back; may be repeated.
    front_dial
        Connect the front to this URL.
    back_dial
        Connect the back to this URL.
    ttl
        Drop what has passed more devices than this.
    recv_maxsz
        Largest message taken, in bytes; 0 takes any.
    json
        Print the counters as JSON at the end.
    """
    fronts, backs = (front or [], front_dial or []), (back or [], back_dial or [])
    if not any(fronts):
        raise misuse("say where the front is: --front URL or --front-dial URL")
    if not any(backs) and proto not in REFLECTED:
        raise misuse(f"say where the back is: --back URL or --back-dial URL; {proto} has two sides")
    check_certificate([*(front or []), *(back or [])], certificates or Certificates())
    options = SocketOptions(ttl=ttl, recv_size_max=recv_maxsz)
    if certificates is not None and certificates.given():
        options = with_tls(options, certificates, listens=bool(front or back))
    sides = [(SIDES[proto][0], *fronts), *([(SIDES[proto][1], *backs)] if any(backs) else [])]
    report = asyncio.run(forward(proto, sides, options))
    print(to_json(report) if json else line_of(report), flush=True)
    return ExitCode.OK


async def forward(
    proto: str, sides: list[tuple[str, list[str], list[str]]], options: SocketOptions
) -> dict[str, Any]:
    """Run until a signal ends it; returns the counters."""
    stop = asyncio.Event()
    leave_on_signal(stop)
    async with AsyncExitStack() as stack:
        sockets: list[RawSocket] = []
        where: list[str] = []
        for kind, listens, dials in sides:
            socket = RawSocket(getattr(protocols, kind), options=options)
            sockets.append(await stack.enter_async_context(socket))
            where.append(" ".join([*[(await socket.listen(url)).url for url in listens], *dials]))
            for url in dials:
                socket.dial(url)
        joined = Device(*sockets)
        running = asyncio.create_task(joined.run())
        names = ("front", "back")
        places = ", ".join(f"{name} {urls}" for name, urls in zip(names, where, strict=False))
        print(f"mesh device: ready, {proto}: {places}", file=sys.stderr, flush=True)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (running, stopping):
            task.cancel()
        await asyncio.wait((running, stopping))
        if not running.cancelled():
            running.result()  # the error that ended it
        return report_of(joined.statistics(), sockets)


def report_of(statistics: DeviceStatistics, sockets: list[RawSocket]) -> dict[str, Any]:
    """Messages that passed each way, and those that the device or its sockets dropped (over ``ttl``, ...)."""
    drops: dict[str, int] = {}
    for counted in (
        statistics.forward.drops,
        statistics.backward.drops,
        *(socket.statistics().drops for socket in sockets),
    ):
        for reason, count in counted.items():
            drops[reason] = drops.get(reason, 0) + count
    return {
        "forward": flow_of(statistics.forward),
        "backward": flow_of(statistics.backward),
        "drops": drops,
    }


def flow_of(flow: FlowStatistics) -> dict[str, int]:
    return {name: value for name, value in asdict(flow).items() if name != "drops"}


def line_of(report: dict[str, Any]) -> str:
    flows = "; ".join(
        f"{name} {report[name]['frames']} messages, {report[name]['bytes']} bytes"
        for name in ("forward", "backward")
    )
    dropped = ", ".join(f"{count} {reason}" for reason, count in report["drops"].items() if count)
    return f"{flows}; dropped {dropped or 'nothing'}"

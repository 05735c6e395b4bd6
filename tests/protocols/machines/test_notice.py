"""The machines must notice faults: each of these, put into the code, must fail one of them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from protocols.patterns import base, pair, pipeline, relay, reqrep, star, survey
from protocols.pipe import Pipe
from protocols.transports import outgoing, stream
from protocols.wire import tls, websocket

from .test_asking import ReqRepMachine, SurveyMachine
from .test_devices import AskingThroughDeviceMachine, ForwardingMachine
from .test_queues import BusMachine, PairMachine, PipelineMachine, PubSubMachine, StarMachine
from .test_stream import StreamMachine, TlsMachine, WebSocketMachine, make_pieces_small

ENOUGH = settings(
    max_examples=3000,
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
)


def nothing(*_: Any, **__: Any) -> None:
    pass


def wakes_one_reader(self: Any, pipe: Any, frames: list[bytes], now: float) -> None:
    self._intake.add(pipe, frames, len(frames[0]))
    self.readable(1)


def deals_all_but_one(self: Any, frames: Any, *, deal: Any = base.Rotation.deal) -> int:
    return int(deal(self, frames[:-1])) + (1 if frames else 0)


def refuses_silently(self: Any, frames: Any, *, send_many: Any = Pipe.send_many) -> int:
    taken = send_many(self, frames)
    self._starved = False
    return int(taken)


def one_too_many(self: Any, limit: int, *, prefer_new: bool, make: Any = base.LossyInbox.__init__) -> None:
    make(self, limit + 1, prefer_new=prefer_new)


def newest_first(self: Any, *, take_output: Any = Pipe.take_output) -> list[bytes]:
    return list(reversed(take_output(self)))


def takes_the_newest(self: Any) -> Any:
    item = self.inbox.pop() if self.inbox else None
    if not self.inbox:
        self.resume()
    return item


def ends_only(self: Any) -> None:
    if self.id:
        self.finish()


def skips_small_pieces(self: Any, *, next_piece: Any = outgoing.Outgoing.next_piece) -> Any:
    piece = next_piece(self)
    return next_piece(self) if piece is not None and len(piece) < 100 else piece


def decrypts_once(self: Any, frames: list[bytes]) -> None:
    try:
        frames += self._inner.receive(self._tls.read(tls.RECORD_SIZE))
    except ssl.SSLError:
        pass


def tells_always(self: Any, reason: str, cause: str = "") -> None:
    self.closed = True
    self.owner.pipe_closed(self, reason)


DISPLACE = Pipe.displace

FAULTS: dict[str, tuple[type[Any], object, str, Callable[..., Any]]] = {
    "a full inbox is never read on": (PipelineMachine, base.Intake, "resume", nothing),
    "a full inbox reads on": (PairMachine, Pipe, "pause", nothing),
    "room is not told to writers": (
        PipelineMachine,
        pipeline.Pusher,
        "pipe_writable",
        lambda self, pipe, now: self._rotation.add(pipe),
    ),
    "a new peer is not told to writers": (
        PipelineMachine,
        pipeline.Pusher,
        "pipe_attached",
        lambda self, pipe, now: self._rotation.add(pipe),
    ),
    "a pipe with room again is forgotten": (
        PipelineMachine,
        pipeline.Pusher,
        "pipe_writable",
        lambda self, pipe, now: self.writable(),
    ),
    "a refusal does not ask for room": (PipelineMachine, Pipe, "send_many", refuses_silently),
    "of a run only one reader hears": (PairMachine, pair.Pair, "received", wakes_one_reader),
    "a batch loses its last": (PipelineMachine, base.Rotation, "deal", deals_all_but_one),
    "a turn's frames leave in another order": (
        PipelineMachine,
        Pipe,
        "take_output",
        newest_first,
    ),
    "what is lost with a peer is not counted": (BusMachine, base.Pattern, "count_lost", nothing),
    "an inbox holds one too many": (BusMachine, base.LossyInbox, "__init__", one_too_many),
    "a subscription's inbox holds one too many": (
        PubSubMachine,
        base.LossyInbox,
        "__init__",
        one_too_many,
    ),
    "displaced messages are not counted": (
        PubSubMachine,
        Pipe,
        "displace",
        lambda self, frames: DISPLACE(self, frames) * 0,
    ),
    "a request on a lost pipe stays there": (
        ReqRepMachine,
        reqrep.Requester,
        "pipe_detached",
        lambda self, pipe, now: self._rotation.discard(pipe),
    ),
    "a unassigned request finds no room": (ReqRepMachine, reqrep.Requester, "_assign_waiting", nothing),
    "a request given up is answered": (ReqRepMachine, reqrep.Requester, "forget", nothing),
    "an unread reply outlives the next request": (ReqRepMachine, reqrep.RequesterLane, "_give_up", nothing),
    "a question is put back": (ReqRepMachine, base.Intake, "take", takes_the_newest),
    "answers of the survey before are kept": (SurveyMachine, survey.SurveyLane, "close", ends_only),
    "a survey goes on after its time": (SurveyMachine, survey.Surveyor, "deadline_reached", nothing),
    "who leaves is waited for": (SurveyMachine, survey.Tally, "pipe_lost", nothing),
    "late answers count": (SurveyMachine, survey.Surveyor, "over", nothing),
    "early frames are lost": (StreamMachine, stream.StreamConnection, "_deliver_early", nothing),
    "a pause is forgotten": (StreamMachine, stream.StreamConnection, "pause_reading", nothing),
    "the rest of a large frame is not written": (
        StreamMachine,
        stream.StreamConnection,
        "resume_writing",
        lambda self: setattr(self, "_writing_paused", False) or self._flush(),
    ),
    "a piece is skipped": (StreamMachine, outgoing.Outgoing, "next_piece", skips_small_pieces),
    "a pipe is closed before it is empty": (
        StreamMachine,
        stream.StreamConnection,
        "close",
        lambda self: self._close_own_direction(self._transport),
    ),
    "a WebSocket's fragments are not joined": (
        WebSocketMachine,
        websocket.WebSocketCodec,
        "_collect",
        lambda self, event, frames: frames.append(bytes(event.data)),
    ),
    "TLS keeps what it decrypted": (TlsMachine, tls.TlsCodec, "_decrypt", decrypts_once),
    "the end is told twice": (StreamMachine, Pipe, "connection_lost", tells_always),
    "a device forgets what finds no room": (ForwardingMachine, relay.ToOne, "_hold", nothing),
    "a device does not read on": (ForwardingMachine, Pipe, "resume", nothing),
    "a device drops answers that wait": (AskingThroughDeviceMachine, relay.Return, "room", nothing),
    "a star sends no batches": (StarMachine, star.Star, "put_many", lambda self, bodies: len(bodies)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, place, name, broken = FAULTS[fault]
    assert issubclass(machine, RuleBasedStateMachine)
    make_pieces_small(monkeypatch)
    monkeypatch.setattr(place, name, broken)
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(machine, settings=ENOUGH)

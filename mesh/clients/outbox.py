"""A client's outbox: messages go to the client's own disk, and from there to their homes.

It drains through a connection of its own, since the outbox is a publisher with a secret of its own. Three
machines decide, and this module drives them. `Filling` decides what goes to the disk next. `Draining`, within
an `OutboxConversation`, decides what is sent and freed next. `Standstill` decides what is logged.

**Cancelling.** A cancelled call takes its messages back if the disk was not given them yet; otherwise they
may be sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from mesh.clients.arguments import checked_seconds
from mesh.clients.calls import PUBLISH_TIMEOUT_S
from mesh.clients.connection import ClientConnection
from mesh.clients.outbox_conversation import OutboxConversation
from mesh.clients.outbox_filling import LEVEL, Filling, Parcel
from mesh.clients.outbox_notices import DRAINS, Standstill, Why
from mesh.clients.pending import Group
from mesh.clients.tickets import Waitable
from mesh.errors import (
    Disconnected,
    MeshError,
    MeshTimeout,
    NotAccepted,
    OutboxError,
    StorageError,
    StoreFull,
    Unknown,
)
from mesh.logs import log
from mesh.outbox.draining import Range
from mesh.outbox.port import OpenedOutbox
from mesh.outbox.records import Damaged, OutboxBlock
from mesh.wire.fields import shown
from mesh.wire.session_frames import Receipt
from protocols.peer_warnings import PeerWarnings

FULL_AGAIN_S: Final = 1.0
"""Seconds until a full disk is tried again."""


def checked_outbox(path: Any, max_bytes: Any) -> tuple[str, int]:
    """Check the path of an outbox (empty for None) and its bound in bytes. Raises TypeError, ValueError."""
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"outbox is {shown(path)}; it is the path of a file")
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool):
        raise TypeError(f"outbox_max_bytes is {shown(max_bytes)}; it is a number of bytes")
    if max_bytes < 1:
        raise ValueError(f"outbox_max_bytes is {max_bytes}; an outbox holds 1 byte or more")
    named = "" if path is None else os.fspath(path)
    if not isinstance(named, str) or (path is not None and not named):
        raise ValueError(f"outbox is {shown(path)}; it is the path of a file")
    return os.path.abspath(named) if named else "", max_bytes


@dataclass(frozen=True, slots=True)
class OutboxState:
    """The contents of an outbox, and why it does not drain."""

    path: str
    messages: int
    """Messages that are not stored at their homes yet."""
    size: int
    """Their bytes, as ``size_max`` counts them."""
    size_max: int
    damaged: int
    """Blocks among them that the disk has damaged; they stay."""
    why: str
    """Why nothing is being stored; empty while something is, or while nothing waits."""
    failed: bool
    """True if its disk has failed: it takes and sends nothing until the client is opened again."""


class ClientOutbox:
    """An open outbox, and the connection through which it drains. Making one starts the connection."""

    def __init__(self, port: OpenedOutbox, connection: ClientConnection) -> None:
        assert isinstance(connection.conversation, OutboxConversation)
        self._port = port
        self._connection = connection
        self._conversation = connection.conversation
        self._draining = connection.conversation.draining
        self._loop = connection.loop
        opening = port.opening
        self.path = opening.path
        self._size_max = opening.max_bytes
        self._filling = Filling(opening.path, opening.publisher, opening.boot, opening.max_bytes)
        self._standstill = Standstill(opening.path)
        self._warnings = PeerWarnings(log)
        self._closing = self._closed = False
        self._changed = Waitable()
        """Woken when it may have drained, and when it has failed or is closed."""
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._unfreed: list[Range] = []
        """Rows whose freeing found no room on the disk."""
        self._again_at: float | None = None
        """When a full disk is tried again."""
        self._hidden = 0
        """Blocks that cannot be found, as last warned of."""
        self._told_soon = 0
        """Number of waiting calls that will report themselves why nothing is stored."""
        _tell_of(port)
        connection.begin()
        self._listen()

    # ------------------------------------------------------------------ publishing

    async def publish(
        self, given: Sequence[tuple[str, Sequence[bytes]]], headers: bytes, timeout: float | None
    ) -> Receipt:
        """Publish messages by topic, all or none; returns when they are on disk. ``headers`` are for a single
        message only.

        Raises `NotAccepted` if they are certainly not in the outbox, `Unknown` if they may be.
        """
        limit_s = PUBLISH_TIMEOUT_S if timeout is None else checked_seconds("timeout", timeout)
        deadline = self._loop.time() + limit_s
        self._must_be_open()
        if not given:
            return Receipt(LEVEL, "", 0, 0)
        parcel = self._filling.add(given, headers)
        self._soon()
        try:
            await self._connection.wait(parcel, max(0.0, deadline - self._loop.time()))
        except asyncio.CancelledError:
            self._filling.give_up(parcel)
            raise
        if not parcel.done:
            raise self._late(parcel, limit_s)
        return parcel.receipt(0, parcel.count)

    def gather(self, topic: str, body: bytes, headers: bytes, limit_s: float) -> tuple[Parcel, int]:
        """Gather a message without waiting; return its parcel and its place there. Messages of one turn of
        the loop share a parcel.

        Raises `TopicError`, `NotAccepted`.
        """
        self._must_be_open()
        if not self._scheduled:
            self._filling.new_turn()
        found = self._filling.gather(topic, body, headers, limit_s)
        self._soon()
        return found

    def give_up(self, group: Group, _why: str) -> MeshError:
        """End gathered messages that have timed out."""
        assert isinstance(group.ticket, Parcel), "those of an outbox have one"
        self._soon()  # there may be room for others now
        return self._late(group.ticket, group.limit_s)

    def _must_be_open(self) -> None:
        if self._closing:
            raise NotAccepted("the client is closed")
        try:
            self._port.check()
        except StorageError as error:
            raise NotAccepted(str(error)) from error

    def _late(self, parcel: Parcel, limit_s: float) -> MeshError:
        why = self._filling.why_waiting(self._port.holding.size)
        if self._filling.give_up(parcel):
            return NotAccepted(f"the message is not in the outbox after {limit_s:g} s: {why}")
        return Unknown(f"the message may be in the outbox, or not, after {limit_s:g} s: {why}")

    # ------------------------------------------------------------------ what is known of it

    @property
    def state(self) -> OutboxState:
        holding = self._port.holding
        return OutboxState(
            self.path,
            holding.messages,
            holding.size,
            self._size_max,
            self._draining.damaged,
            self._why().sentence,
            bool(self._filling.failure),
        )

    def _why(self) -> Why:
        if self._filling.failure:
            return Why.of(self._filling.failure)
        return DRAINS if self._draining.drained else self._conversation.why(self._connection.url)

    async def drained(self, timeout: float | None) -> None:
        """Wait until the outbox is empty. Raises `MeshTimeout`, `OutboxError` for what can never be sent, and
        `Disconnected` once the client is closed."""
        limit_s = None if timeout is None else checked_seconds("timeout", timeout)
        deadline = None if limit_s is None else self._loop.time() + limit_s
        self._told_soon += deadline is not None
        try:
            await self._drained_by(deadline, limit_s)
        finally:
            self._told_soon -= deadline is not None
            self._soon()
        if self._unsendable:
            raise OutboxError(
                f"{self._unsendable} blocks in the outbox {self.path} are damaged and cannot be sent;"
                " all others are stored"
            )

    @property
    def _unsendable(self) -> int:
        """Blocks that are left in a drained outbox: damaged ones, and those that a flipped bit hides."""
        return max(self._draining.damaged, self._port.holding.blocks)

    async def _drained_by(self, deadline: float | None, limit_s: float | None) -> None:
        while True:
            if self._closed:
                raise Disconnected(f"the client is closed; {self._left()}")
            if self._filling.failure:
                raise OutboxError(self._filling.failure)
            if self._draining.drained and not self._filling.busy:
                return
            left_s = None if deadline is None else max(0.0, deadline - self._loop.time())
            if not await self._connection.wait(self._changed, left_s):
                why = self._why().sentence or "they are on their way"
                raise MeshTimeout(f"{self._left()} after {limit_s:g} s: {why}")

    def _left(self) -> str:
        return f"{self._port.holding.messages} message(s) wait in the outbox {self.path}"

    # ------------------------------------------------------------------ its end

    async def aclose(self) -> None:
        """Finish the writes that the disk was given, and leave the rest there for the next time."""
        if self._closing:
            return
        self._closing = True
        self._fill()
        try:
            await self._connection.aclose()
        finally:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            try:
                await self._port.aclose()
            finally:
                for parcel in self._filling.fail("the client was closed"):
                    parcel.wake()
                self._changed.wake()

    # ------------------------------------------------------------------ a step

    def _listen(self) -> None:
        self._conversation.news.waiters[self._heard] = None
        self._soon()

    def _heard(self) -> None:
        self._listen()

    def _soon(self) -> None:
        """Schedule a step for the end of this turn of the loop."""
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Do what is due, whatever has happened."""
        self._scheduled = False
        if self._closed:
            return
        now = self._loop.time()
        if not self._filling.failure:
            self._conversation.drain(now)
            self._connection.writer.hand_over()
            self._free(now)
            self._fill()
            self._read()
        self._tell(now)
        self._plan(now)
        if self._draining.drained or self._filling.failure:
            self._look_for_hidden()
            self._changed.wake()

    def _look_for_hidden(self) -> None:
        """Warn of blocks that are counted in a drained outbox and cannot be found."""
        hidden = self._port.holding.blocks - self._draining.damaged
        if hidden > self._hidden and self._draining.drained and not self._filling.busy:
            self._warn(
                f"blocks in the outbox {self.path} that cannot be found, since it is damaged: {hidden}"
            )
            self._hidden = hidden

    def _fill(self) -> None:
        if self._again_at is None and (sealed := self._filling.next_append(self._port.holding.size)):
            self._ask(self._port.append, sealed, self._appended)

    def _appended(self, result: list[OutboxBlock] | Exception) -> None:
        if isinstance(result, Exception):
            self._failed(result)
            woken = self._filling.appended(result)
        else:
            self._draining.appended(result)
            woken = self._filling.appended(None)
        for parcel in woken:
            parcel.wake()
        self._soon()

    def _free(self, now: float) -> None:
        rows = self._conversation.take_freed()
        if self._unfreed and self._again_at is None:
            rows, self._unfreed = self._unfreed + rows, []
        if rows:
            self._ask(self._port.free, rows, partial(self._freed, rows))

    def _freed(self, rows: list[Range], result: list[OutboxBlock] | Exception) -> None:
        if isinstance(result, Exception):
            self._unfreed += rows
            self._failed(result)
        else:
            self._draining.freed(rows)
            if self._filling.full:
                self._again_at = None
        self._soon()

    def _read(self) -> None:
        wanted = self._draining.wants()
        if wanted is not None:
            self._ask(
                partial(self._port.read, wanted.after_row, wanted.bytes_max), wanted.without, self._found
            )

    def _found(self, rows: list[OutboxBlock | Damaged] | Exception) -> None:
        if isinstance(rows, Exception):
            self._failed(rows)
            return
        damaged = self._draining.damaged
        self._draining.found(rows)
        if self._draining.damaged > damaged:
            for row in rows:
                if isinstance(row, Damaged):
                    self._warn(
                        f"messages {row.first} to {row.last} in the outbox {self.path} are damaged, and stay"
                        f" there: {row.reason}"
                    )
        self._soon()

    def _ask(self, ask: Callable[..., None], what: Any, told: Callable[[Any], None]) -> None:
        """Ask something of the disk, which may refuse at once."""
        try:
            ask(what, told)
        except MeshError as error:
            self._loop.call_soon(told, error)

    def _failed(self, error: Exception) -> None:
        """Note that the disk failed or has no room."""
        if isinstance(error, StoreFull):
            self._again_at = self._loop.time() + FULL_AGAIN_S
            return
        if not self._filling.failure and not self._closed:
            self._warn(str(error))
        for parcel in self._filling.fail(str(error)):
            parcel.wake()
        self._soon()

    def _tell(self, now: float) -> None:
        if self._filling.failure or self._told_soon:
            return  # it was logged, or the end of a call reports it
        sentence = self._standstill.look(now, self._why(), self._port.holding.messages)
        if sentence:
            self._warnings.warn(now, None, "%s", sentence)

    def _warn(self, sentence: str) -> None:
        self._warnings.warn(self._loop.time(), None, "%s", sentence)

    def _plan(self, now: float) -> None:
        """Schedule a step for when one is due."""
        if self._timer is not None:
            self._timer.cancel()
        if self._filling.failure:
            return  # nothing is due any more
        look_at = None if self._told_soon else self._standstill.due
        times = (self._draining.next_due, self._again_at, look_at)
        due = min((at for at in times if at is not None), default=None)
        self._timer = None if due is None else self._loop.call_at(max(due, now), self._due)

    def _due(self) -> None:
        if self._again_at is not None and self._loop.time() >= self._again_at:
            self._again_at = None
        self._soon()


def _tell_of(port: OpenedOutbox) -> None:
    """Log what the user should know about the file that was opened."""
    opening = port.opening
    if opening.copied:
        log.warning(
            "the outbox %s is a copy, or was moved to another disk; the other one may send the same messages,"
            " which are stored once",
            opening.path,
        )
    for aside in opening.damaged_before:
        log.warning("a damaged outbox was set aside at %s; its messages were not sent", aside)

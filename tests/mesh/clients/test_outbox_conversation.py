"""The session of an outbox; the test plays the broker."""

from __future__ import annotations

import random

from mesh.clients.outbox_conversation import OutboxConversation
from mesh.outbox.records import Opening, OutboxBlock
from mesh.wire import blocks
from mesh.wire.capabilities import FIRST, SESSION
from mesh.wire.durable_frames import Durable
from mesh.wire.session_frames import AGAIN, DATA_SIZE, Kind, decode, encode, read_data
from mesh.wire.session_opening import SECRET_SIZE, client_id, verified, welcome

SECRET = bytes(range(SECRET_SIZE))
PUBLISHER = verified(client_id(SECRET))
OLD, OWN = 5, 6
WINDOW = 100


class Program:
    """A conversation over rows, the first two of which are of an earlier boot."""

    def __init__(self, *, old: int = 2, new: int = 2) -> None:
        opening = Opening("/o", SECRET, PUBLISHER, OWN, old, False, (), 1 << 20, None)
        self.conversation = OutboxConversation.of_outbox(
            opening, random.Random(1), name="p", keepalive_s=0.0, now=0.0
        )
        self.prefix = self.conversation.prefix
        self.rows = [self.row(1 + n, OLD, 1 + n) for n in range(old)]
        self.draining = self.conversation.draining
        self.draining.appended([])
        self.read()
        fresh = [self.row(1 + old + n, OWN, 1 + n) for n in range(new)]
        self.rows += fresh
        self.draining.appended(fresh)

    def row(self, row: int, boot: int, first: int, topic: bytes = b"t") -> OutboxBlock:
        sealed = blocks.seal(
            topic, [b"x"], publisher=PUBLISHER, boot=boot, sequence=first, level=blocks.STORED
        )
        return OutboxBlock(row, boot, first, first, topic, sealed)

    def read(self) -> None:
        while (wanted := self.draining.wants()) is not None:
            self.draining.found([row for row in self.rows if row.row > wanted.after_row])

    def connect(self) -> list[int]:
        """The boots in the HELLO frames that are sent."""
        self.conversation.connected(0.0)
        return self.hellos()

    def hellos(self) -> list[int]:
        said = [decode(frame, 4) for frame in self.conversation.take_control()]
        return [frame[3] for frame in said if frame[0] == Kind.HELLO]

    def welcome(self, offer: object = SESSION, window: int = WINDOW) -> None:
        agreed = SESSION.agree(offer)  # type: ignore[arg-type]
        self.hear(welcome(agreed, 1, "b", "m", 1, window, 1 << 20))

    def hear(self, *frames: bytes) -> bool:
        """True if there is news."""
        woken = self.conversation.received([self.prefix + frame for frame in frames], 0.0)
        return self.conversation.news in woken

    def say(self, kind: int, *fields: object) -> bool:
        return self.hear(encode(kind, *fields))

    def drained(self, now: float = 0.0) -> list[tuple[int, int, int, int]]:
        """Boot, number, flags and the distance below, for each block that is sent."""
        self.conversation.drain(now)
        self.read()
        self.conversation.drain(now)
        sent = []
        for frame in self.conversation.take_frames():
            _, flags, below, _ = read_data(frame, 4)
            block = blocks.open_block(frame, 4 + DATA_SIZE)
            sent.append((block.boot, block.sequence, flags, below))
        return sent


def test_each_boot_has_a_session_of_its_own_on_the_same_connection() -> None:
    it = Program()
    it.conversation.drain(0.0)
    assert it.connect() == [OLD]
    it.welcome()
    assert it.drained() == [(OLD, 1, AGAIN, 0), (OLD, 2, AGAIN, 1)]
    assert it.say(Kind.ACK, blocks.STORED, [[1, 2]], [], ["h"])
    assert it.conversation.take_freed() == [(1, 2)]
    it.draining.freed([(1, 2)])
    it.rows = it.rows[2:]
    assert it.drained() == [] and it.hellos() == [OWN] and not it.conversation.settled
    assert it.drained() == [], "before the WELCOME"
    it.welcome()
    assert it.drained() == [(OWN, 1, 0, 0), (OWN, 2, 0, 1)]
    it.say(Kind.ACK, blocks.STORED, [[1, 2]], [], ["h"])
    assert it.drained() == [] and it.hellos() == [], "what is empty stays in its session"


def test_another_boot_waits_for_the_answer_to_the_hello_that_was_sent() -> None:
    """Blocks were sent under the credit of a session that was over, and the broker ended the connection."""
    it = Program()
    it.conversation.boot = OWN
    assert it.connect() == [OWN]
    assert it.drained() == [] and it.hellos() == []
    it.welcome()
    assert it.drained() == [] and it.hellos() == [OLD]
    it.welcome()
    assert [number for _, number, _, _ in it.drained()] == [1, 2]


def test_no_more_is_sent_than_credit_allows_and_new_credit_is_reported() -> None:
    it = Program()
    it.conversation.drain(0.0)
    it.connect()
    it.welcome(window=1)
    assert [number for _, number, _, _ in it.drained()] == [1]
    assert it.drained() == []
    assert it.say(Kind.CREDIT, 0, 1, 1000)
    assert [number for _, number, _, _ in it.drained()] == [2]


def test_a_new_connection_sends_unacknowledged_rows_again() -> None:
    it = Program(old=0)
    it.conversation.drain(0.0)
    it.connect()
    it.welcome()
    assert len(it.drained()) == 2
    assert it.conversation.news in it.conversation.disconnected("gone")
    assert it.conversation.why("tcp://b").sentence == "gone"
    it.connect()
    it.welcome()
    assert it.drained() == [(OWN, 1, AGAIN, 0), (OWN, 2, AGAIN, 1)]


def test_the_reason_for_not_draining_names_the_broker_the_topic_and_the_homes() -> None:
    it = Program(old=0)
    assert it.conversation.why("tcp://b").sentence == "no connection to tcp://b"
    it.conversation.drain(0.0)
    it.connect()
    it.welcome()
    assert it.drained() and it.conversation.why("").sentence == ""
    assert it.say(Durable.PENDING, 1, 2, [], ["h", "i"])
    assert it.conversation.why("").sentence == "h, i has not confirmed its messages yet"
    causes = it.conversation.why("").causes
    it.say(Kind.ACK, blocks.STORED, [[1, 1]], [], ["h"])
    why = it.conversation.why("")
    assert "has not confirmed" in why.sentence and why.causes != causes, "it goes on: nobody need be told"
    assert it.say(Kind.REFUSED, [[2, 2]], "nobody keeps t")
    assert it.conversation.why("").sentence == "topic t is refused by broker b: nobody keeps t"


def test_a_row_refused_as_past_is_freed_if_it_precedes_the_opening_and_otherwise_kept() -> None:
    it = Program(old=1, new=1)
    it.conversation.drain(0.0)
    it.connect()
    it.welcome()
    it.drained()
    assert it.say(Durable.PAST, 1, 1, ["h"]) and it.conversation.take_freed() == [(1, 1)]
    it.rows = it.rows[1:]
    it.draining.freed([(1, 1)])
    it.drained()
    it.welcome()
    assert it.drained() == [(OWN, 1, 0, 0)]
    assert it.say(Durable.PAST, 1, 1, ["h"]) and it.conversation.take_freed() == []
    assert "another program" in it.conversation.why("").sentence


def test_a_broker_without_storage_is_sent_nothing_and_named() -> None:
    it = Program(old=0)
    it.conversation.drain(0.0)
    it.connect()
    it.welcome(FIRST)
    assert it.drained() == []
    assert "broker b does not know level stored" in it.conversation.why("").sentence


def test_closing_sends_goodbye_without_waiting() -> None:
    it = Program(old=0)
    it.conversation.drain(0.0)
    it.connect()
    it.welcome()
    it.drained()
    assert not it.conversation.gathered
    it.conversation.flush()
    it.conversation.close("closed")
    (bye,) = it.conversation.take_frames()
    assert decode(bye, 4)[0] == Kind.BYE

"""A client's end alone: a session in which the test plays the broker."""

from __future__ import annotations

from mesh.clients.conversation import Conversation
from mesh.clients.feeds import Feed
from mesh.clients.tickets import Waitable
from mesh.wire import blocks
from mesh.wire.blocks import SENT
from mesh.wire.capabilities import SESSION, STORED, Offer
from mesh.wire.session_frames import DATA_SIZE, Kind, data_head, encode

PREFIX = b"\x80\0\0\1"


STORELESS = Offer(SESSION.oldest, SESSION.newest, SESSION.capabilities - {STORED})
"""The offer of a broker that does not know level stored."""


def settled(messages: int = 1000, size: int = 1 << 20, offer: Offer = SESSION) -> Conversation:
    """A conversation whose broker has said WELCOME with that much credit."""
    conversation = Conversation(secret=bytes(16), boot=2, name="me", prefix=PREFIX, keepalive_s=0.0, now=0.0)
    welcomed(conversation, messages, size, offer)
    return conversation


def welcomed(
    conversation: Conversation, messages: int = 1000, size: int = 1 << 20, offer: Offer = SESSION
) -> list[Waitable]:
    """Connect anew and let the broker say WELCOME; returns what that wakes."""
    conversation.connected(0.0)
    answer = encode(Kind.WELCOME, offer.newest, 9, "alpha", "mesh", 1, messages, size, offer.packed())
    woken = conversation.received([PREFIX + answer], 0.0)
    conversation.take_control()
    return woken


def opened(conversation: Conversation) -> list[blocks.Opened]:
    return [blocks.open_block(frame, 4 + DATA_SIZE) for frame in conversation.take_frames()]


def data(number: int, sequence: int, *bodies: bytes, level: int = SENT) -> bytes:
    block = blocks.seal(b"t", bodies, publisher=5, boot=6, sequence=sequence, level=level)
    return PREFIX + data_head(0, 0, number, sequence, len(block)) + block


def subscribed(conversation: Conversation, messages: int = 100) -> Feed:
    feed = conversation.subscribe(["t"], 0, messages, 1 << 20)
    conversation.take_control()
    return feed

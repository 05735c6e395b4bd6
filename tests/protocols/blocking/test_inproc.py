"""Names of one process between blocking sockets."""

from __future__ import annotations

import gc
import threading

import pytest

from protocols import AddressInUse, PartlySent, Timeout, blocking
from protocols.blocking import inproc
from tests.protocols.blocking.support import LIMIT_S, until


def test_a_name_is_one_listeners_until_it_closes() -> None:
    with blocking.Pull0(listen="inproc://one") as pull:
        assert pull.listeners[0].url == "inproc://one"
        with pytest.raises(AddressInUse, match="in use in this process"):
            blocking.Pull0(listen="inproc://one")
        with blocking.Push0(dial="inproc://one") as push:
            push.send(b"across")
            message = pull.recv_message(LIMIT_S)
            assert message.body == b"across" and message.pipe.remote_address == "inproc://one"
            assert message.pipe.identity is None
    with blocking.Pull0(listen="inproc://one") as pull, blocking.Push0(dial="inproc://one") as push:
        push.send(b"again")
        assert pull.recv(LIMIT_S) == b"again"
    assert not inproc._LISTENING


def test_a_dialer_may_come_before_its_listener() -> None:
    with blocking.Push0(dial="inproc://later", reconnect_min_s=0.001) as push:
        with pytest.raises(Timeout, match="no blocking socket of this process listens at inproc://later"):
            push.dialers[0].wait_connected(0.05)
        with blocking.Pull0(listen="inproc://later") as pull:
            push.send(b"at last", LIMIT_S)
            assert pull.recv(LIMIT_S) == b"at last"


def test_a_full_queue_waits_and_closing_delivers_queued_messages() -> None:
    bodies = [bytes(50_000) + b"%d" % number for number in range(100)]
    with blocking.Pull0(listen="inproc://full", recv_queue=2) as pull:
        push = blocking.Push0(dial="inproc://full", send_queue=2, linger_s=LIMIT_S)
        push.wait_for_peers(1, LIMIT_S)
        with pytest.raises(PartlySent) as late:
            push.send_many(bodies, timeout=0.5)
        closing = threading.Thread(target=push.close)
        closing.start()
        assert 0 < late.value.sent < len(bodies)
        assert [pull.recv(LIMIT_S) for _ in range(late.value.sent)] == bodies[: late.value.sent]
        closing.join(LIMIT_S)
        assert not closing.is_alive()


def test_the_wrong_protocol_is_refused_with_a_sentence() -> None:
    with blocking.Pull0(listen="inproc://wrong"), blocking.Req0(dial="inproc://wrong") as req:
        until(lambda: "pull0" in req.dialers[0].last_error)


def test_a_forgotten_listener_gives_its_name_back() -> None:
    socket = blocking.Pull0(listen="inproc://forgotten")
    with pytest.warns(ResourceWarning, match="unclosed"):
        del socket
        gc.collect()
    until(lambda: not inproc._LISTENING)

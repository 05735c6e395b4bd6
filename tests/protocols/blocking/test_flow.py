"""A receiver that is slower than its peers makes them wait, and lets them go on."""

from __future__ import annotations

import threading

import pytest

from protocols.blocking import Pull0, Push0
from tests.protocols.blocking.support import LIMIT_S, until

COUNT = 500
SIZE = 1000
"""All of them exceed one read, which would otherwise bring them at once."""


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "inproc://flow"])
def test_an_emptied_receive_queue_resumes_its_peers_before_the_next_call(url: str) -> None:
    bodies = [b"%0*d" % (SIZE, number) for number in range(COUNT)]
    with Pull0(recv_queue=2) as pull, Push0(send_queue=2) as push:
        push.dial(pull.listen(url).url)
        sender = threading.Thread(target=lambda: push.send_many(bodies, timeout=LIMIT_S))
        sender.start()
        inbox = pull._queue().inbox
        until(lambda: len(inbox) >= 2)
        got = pull.recv_many()
        assert len(got) < COUNT
        until(lambda: len(inbox) >= 2)
        while len(got) < COUNT:
            got += pull.recv_many(timeout=LIMIT_S)
        sender.join(LIMIT_S)
    assert got == bodies

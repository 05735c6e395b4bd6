"""For tests of `BlockingClient`: a broker in a process of its own, and threads that call."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

from tests.protocols.blocking.support import until as until
from tests.support.children import ends_with_tests

BROKER = """
import asyncio, sys
from mesh.broker.broker import Broker
async def main():
    async with Broker(listen=sys.argv[1:2], name="alpha") as broker:
        print(broker.url, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


class BrokerProcess:
    def __init__(self, url: str = "tcp://127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            ends_with_tests([sys.executable, "-c", BROKER, url]), stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith(("tcp://", "ipc://")), "the broker did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def start(call: Callable[[], object], results: list[object]) -> threading.Thread:
    """Make the call in a thread of its own; its result, or the exception it raised, goes to ``results``."""

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread

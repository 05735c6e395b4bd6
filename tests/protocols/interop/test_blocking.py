"""Blocking sockets and NNG, either side listening."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocols import blocking

pytestmark = [pytest.mark.interop, pytest.mark.isolated]

LIMIT_S = 20.0


def pynng_socket(kind: str, **arguments: object) -> object:
    import pynng

    return getattr(pynng, kind)(send_timeout=20_000, recv_timeout=20_000, **arguments)


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
@pytest.mark.parametrize("ours_listens", [True, False])
def test_requests_and_pipelines_cross_both_ways(scheme: str, ours_listens: bool, tmp_path: Path) -> None:
    url = "tcp://127.0.0.1:0" if scheme == "tcp" else f"ipc://{tmp_path}/x"
    if ours_listens:
        with blocking.Pull0(listen=url, recv_timeout_s=LIMIT_S) as pull:
            with pynng_socket("Push0", dial=pull.listeners[0].url) as push:  # type: ignore[attr-defined]
                for number in range(100):
                    push.send(b"%d" % number)
                assert [pull.recv() for _ in range(100)] == [b"%d" % number for number in range(100)]
    else:
        with pynng_socket("Rep0") as rep:  # type: ignore[attr-defined]
            listener = rep.listen(url)
            port = str(listener.local_address).rpartition(":")[2]
            bound = f"tcp://127.0.0.1:{port}" if scheme == "tcp" else url
            with blocking.Req0(dial=bound, recv_timeout_s=LIMIT_S) as req:
                req.send(b"question")
                assert rep.recv() == b"question"
                rep.send(b"answer")
                assert req.recv() == b"answer"

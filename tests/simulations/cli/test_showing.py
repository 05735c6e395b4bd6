"""The reports during a run, on terminals of any kind."""

from __future__ import annotations

import io
import sys

import pytest

from simulations.cli.showing import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str) -> str:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(quiet=False)
    progress(1.0, "crash broker-1")
    progress(2.0, "")
    progress.end()
    return stream.getvalue()


def test_a_terminal_shows_the_virtual_time_in_a_line_that_is_overwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told(monkeypatch, Terminal(), "xterm") == (
        "\r\x1b[K    1.00 s  crash broker-1\n\r\x1b[K    2.00 s\r\x1b[K"
    )


@pytest.mark.parametrize(("stream", "term"), [(Terminal(), "dumb"), (io.StringIO(), "xterm")])
def test_a_terminal_that_cannot_overwrite_a_line_gets_faults_only(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str
) -> None:
    assert told(monkeypatch, stream, term) == "    1.00 s  crash broker-1\n"

"""Where clients look for a broker, and what they say when there is none."""

from __future__ import annotations

import pytest

from mesh.clients.finding import broker_url, default_url, why_no_session
from protocols import AddressError, HandshakeError, TlsConfigError


def test_the_default_url_is_the_variables_then_the_local_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("MANGROVE_URL", "tcp://somewhere:1")
    assert default_url() == "tcp://somewhere:1"
    monkeypatch.delenv("MANGROVE_URL")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_url() == "tcp://127.0.0.1:7770"
    folder = tmp_path / "mangrove"  # type: ignore[operator]
    folder.mkdir()
    (folder / "broker.sock").touch()
    assert default_url() == f"ipc://{folder}/broker.sock"


def test_a_url_that_can_never_be_dialled_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt one was dialled for ever."""
    monkeypatch.setenv("MANGROVE_URL", "tcp://somewhere:1")
    assert (broker_url(None), broker_url("tcp://a:1")) == ("tcp://somewhere:1", "tcp://a:1")
    for wrong in (
        "tcp://host:1/",
        "tcp://host",
        "host:1",
        "tcp://a..b:5",
        "tcp://*:1",
        "tcp://host:0",
        "news://a",
    ):
        with pytest.raises(AddressError):
            broker_url(wrong)
    with pytest.raises(TypeError, match="a URL is a string"):
        broker_url(b"tcp://a:1")  # type: ignore[arg-type]
    monkeypatch.setenv("MANGROVE_URL", "tcp://host:1/")
    with pytest.raises(AddressError, match="MANGROVE_URL cannot be used: tcp://host:1/: the port"):
        broker_url(None)


def test_who_is_there_and_shakes_no_hands_is_told_from_nobody() -> None:
    for error in (HandshakeError("it speaks another protocol"), TlsConfigError("there is no such file")):
        assert why_no_session("tcp://a:1", error) == f"no session at tcp://a:1: {error}"
    said = why_no_session("tcp://a:1", ConnectionRefusedError("refused"))
    assert said == "no broker at tcp://a:1 (refused); start one with `mesh broker` or give another url"

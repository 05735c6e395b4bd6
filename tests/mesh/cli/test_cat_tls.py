"""`mesh cat` over TLS and WebSocket: its certificate flags, both engines, and nngcat at the other end."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from mesh.cli import app as application
from mesh.cli import cat as module
from mesh.cli.exits import CommandFailed
from tests.mesh.cli.cats import cat, finished, job
from tests.protocols.interop.peers import program
from tests.support.certificates import LOCAL, Authority
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[3]


class Files:
    """PEM files, as the flags want them."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.ca = authority.write(folder)
        self.stranger = Authority().write(folder, "stranger")
        server, client = authority.sign(*LOCAL), authority.sign("client@example.org")
        self.cert, self.key = server.write(folder, "server")
        self.client, self.client_key = client.write(folder, "client")
        self.both = str(folder / "both.pem")
        Path(self.both).write_text(server.key + server.cert)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("pem"))


@pytest.mark.parametrize("url", ["tls+tcp://127.0.0.1:0", "wss://127.0.0.1:0/cat"])
async def test_a_certificate_and_its_authority_are_enough(files: Files, url: str) -> None:
    async with cat("--rep", "--listen", url, "-E", files.both, "-D", "pong") as rep:
        asking = ("--req", "--dial", await rep.listening(), "-D", "ping")
        assert (await finished(*asking, "--cacert", files.ca)).shown == [b"pong\n"]
        assert (await finished(*asking, "-k")).shown == [b"pong\n"]


@pytest.mark.parametrize("command", [["cat", "--rep", "--listen"], ["device", "--proto", "pair", "--front"]])
@pytest.mark.parametrize("url", ["tls+tcp://127.0.0.1:0", "wss://127.0.0.1:0/cat"])
@pytest.mark.parametrize("more", [[], ["-k"]])
def test_an_error_about_a_listener_without_a_certificate_names_the_flag(
    command: list[str], url: str, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence named a parameter of the library, which no flag is called."""
    assert application.main([*command, url, *more]) == 64
    said = capsys.readouterr().err
    assert said.startswith(f"mesh {command[0]}: {url} needs a certificate and its key: --cert PEM, ")


async def test_plain_websocket_needs_no_flags() -> None:
    async with cat("--pull", "--listen", "ws://127.0.0.1:0/cat") as pull:
        await finished("--push", "--dial", await pull.listening(), "-D", "hello")
        assert await pull.printed(1) == [b"hello\n"]


async def test_an_untrusted_peer_is_refused_with_the_reason(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.5)
    listening = ("--listen", "tls+tcp://127.0.0.1:0", "--cert", files.cert, "--key", files.key)
    async with cat("--pull", *listening) as pull:
        dialling = ("--push", "--dial", await pull.listening(), "-D", "x", "--cacert", files.stranger)
        with pytest.raises(CommandFailed, match="certificate") as failed:
            await finished(*dialling)
        assert failed.value.code == 69


async def test_a_listener_with_an_authority_demands_a_certificate(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.5)
    listening = ("--listen", "tls+tcp://127.0.0.1:0", "-E", files.cert, "--key", files.key)
    async with cat("--pull", *listening, "--cacert", files.ca) as pull:
        dialling = ("--push", "--dial", await pull.listening(), "-D", "x", "--cacert", files.ca)
        with pytest.raises(CommandFailed):
            await finished(*dialling)
        await finished(*dialling, "--cert", files.client, "--key", files.client_key)
        assert await pull.printed(1) == [b"x\n"]


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.parametrize("url", ["tls+tcp://localhost:{}", "wss://localhost:{}/cat", "ws://localhost:{}/cat"])
async def test_the_engine_over_nng_takes_the_same_flags(files: Files, url: str) -> None:
    """In a process of its own, which NNG may abort when it closes; the answer has been printed by then."""
    listening = ("--rep", "--listen", url.format(free_port()), "-E", files.both, "-D", "pong")
    async with cat(*listening) as rep:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mesh", "cat", "--req", "--dial", await rep.listening(), "-D", "ping"),
            *("--cacert", files.ca, "--engine", "nng"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, said = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode in (0, -signal.SIGABRT), said
        assert out == b"pong\n"


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.parametrize("form", ["tls+tcp://localhost:{}", "wss://localhost:{}/cat"])
async def test_nngcat_is_understood_both_ways(files: Files, form: str) -> None:
    """By name: nngcat 1.5 does not find addresses in certificates."""
    url = form.format(free_port())
    async with cat("--pull", "--listen", url, "-E", files.both, "-Q") as pull:
        await pull.listening()
        async with program("nngcat", "--push", "--dial", url, "--cacert", files.ca, "-D", "hello") as peer:
            assert await peer.ended() == 0
        assert await pull.printed(1) == [b'"hello"\n']
    url = form.format(free_port())
    async with program("nngcat", "--pull", "--listen", url, "-E", files.both, "-Q") as peer:
        await finished("--push", "--dial", url, "--cacert", files.ca, "-D", "hello")
        assert await peer.lines(1) == [b'"hello"']


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--listen", "tls+tcp://127.0.0.1:0"), "certificate"),
        (("--listen", "tls+tcp://127.0.0.1:0", "--cert", "/nowhere/x"), "/nowhere/x"),
        (("--dial", "tls+tcp://127.0.0.1:1", "--cacert", "/nowhere/x"), "/nowhere/x"),
    ],
)
@pytest.mark.parametrize("engine", ["native", pytest.param("nng", marks=pytest.mark.isolated)])
def test_missing_certificate_flags_and_files_are_one_sentence(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], sentence: str, engine: str
) -> None:
    assert application.main(["cat", "--pull", *flags, "--engine", engine]) in (64, 66)
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_insecure_and_cacert_set_the_verification(files: Files) -> None:
    def verify(*flags: str) -> str | None:
        tls = job("--pull", *flags).options.tls
        assert tls is not None
        return tls.verify

    assert verify("-l1", "--cacert", files.ca) is None, "a dialer looks at certificates anyway"
    assert verify("-L1", "--cacert", files.ca) == "required"
    assert verify("-L1", "--cacert", files.ca, "-k") == "none"

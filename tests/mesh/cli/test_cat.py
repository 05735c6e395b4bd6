"""`mesh cat` by itself: its flags, its four roles, how it ends, and its bytes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.cli import app as application
from mesh.cli import cat as module
from mesh.cli.cat_job import Job
from mesh.cli.exits import CommandFailed
from mesh.cli.formats import FORMATS
from tests.mesh.cli.cats import cat, finished, job
from tests.support.children import ends_with_tests

ROOT = Path(__file__).resolve().parents[3]
SOMEWHERE = "tcp://127.0.0.1:7000"


# --- flags


def test_every_way_to_name_an_address_is_an_address() -> None:
    asked = job(
        *("--pull", "--dial", "tcp://a:1", "--connect", "tcp://b:2", "-x", "/tmp/c", "-l", "3"),
        *("--listen", "tcp://d:4", "--bind", "tcp://e:5", "-X", "/tmp/f", "-L6"),
    )
    assert asked.dial == ["tcp://a:1", "tcp://b:2", "ipc:///tmp/c", "tcp://127.0.0.1:3"]
    assert asked.listen == ["tcp://d:4", "tcp://e:5", "ipc:///tmp/f", "tcp://127.0.0.1:6"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ((), "ascii"),
        (("-A",), "ascii"),
        (("-Q",), "quoted"),
        (("--hex",), "hex"),
        (("--raw",), "raw"),
        (("--msgpack",), "msgpack"),
        (("--format", "no"), "no"),
    ],
)
def test_each_format_has_its_flags(flags: tuple[str, ...], name: str) -> None:
    assert job("--pull", "--dial", SOMEWHERE, *flags).show is FORMATS[name]


def test_flags_of_all_three_programs_mean_the_same() -> None:
    def asked(*flags: str) -> Job:
        return job("--req0", "-l", "7000", "-D", "-x- is data", *flags)

    assert asked().body == b"-x- is data"
    assert asked("--recv-timeout", "2").options == asked("--receive-timeout", "2").options
    assert asked("-d", "2", "-i3", "-C4") == asked("--send-delay", "2", "--interval", "3", "--count", "4")
    assert asked("-Z", "0").options.recv_size_max == 0
    assert asked("--count", "0").count is None, "as in nngcat, 0 is no limit"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["-L1"], 64, "say which protocol: one of --push, --pull"),
        (["--push", "--sub", "-L1"], 64, "give one protocol, not --push and --sub"),
        (["--pull"], 64, "say where: --dial URL or --listen URL"),
        (["--push", "-L1"], 64, "say what --push sends: --data TEXT or --file PATH"),
        (["--req", "-L1"], 64, "say what --req sends"),
        (["--pull", "-L1", "-D", "x"], 64, "--pull only receives; leave out --data and --file"),
        (["--push", "-L1", "-D", "x", "-F", "y"], 64, "give --data or --file, not both"),
        (["--push", "-L1", "-D", "x", "-A"], 64, "--push only sends; leave out the format"),
        (["--rep", "-L1", "-D", "x", "-i", "1"], 64, "--interval is for what sends by itself"),
        (["--bus", "-L1", "-i", "1"], 64, "--interval is for what sends by itself"),
        (["--pull", "-L1", "--subscribe", "x"], 64, "--subscribe is for --sub, not for --pull"),
        (["--pull", "-L1", "-A", "--format", "raw"], 64, "give one format, not ascii and raw"),
        (["--pull", "-L1", "--format", "xml"], 64, "xml"),
        (["--pull", "-L", "70000"], 64, "65535"),
        (["--pull", "-L", "x"], 64, "x"),
        (["--pull", "-L1", "--recv-timeout", "-1"], 64, "--recv-timeout"),
        (["--pull", "-L1", "--count", "-1"], 64, "--count"),
        (["--pull", "--listen", "nowhere"], 64, "nowhere"),
        (["--pull", "--dial", "tcp://127.0.0.1:0", "--async"], 64, "tcp://127.0.0.1:0"),
        (["--push", "-L1", "-F", "/nowhere/x"], 66, "/nowhere/x: No such file"),
        (["--push", "-L1", "-F", "/"], 66, "--file / is a folder"),
        (["--pull", "-L0", "--key", "x"], 64, "key without a certificate"),
        (["--star", "-L0", "--engine", "nng"], 64, "NNG has no star"),
        (["--pull", "-L0", "--recv-timeout", "0.01", "--count", "1"], 75, "0 of 1 messages came"),
        (["--rep", "-L0", "--recv-timeout", "0.01", "--count", "2", "-D", "x"], 75, "0 of 2 questions"),
        (["--push", "-L0", "-D", "x", "--send-timeout", "0.01"], 75, "no peer took the message"),
    ],
)
def test_misuse_and_failure_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, sentence: str
) -> None:
    ended = application.main(["cat", *arguments])
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("mesh cat: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert ended == code


def test_silent_leaves_the_exit_code_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert application.main(["cat", "--pull", "-q"]) == 64
    assert application.main(["cat", "--pull", "-q", "-L0", "--recv-timeout", "0.01", "-C1"]) == 75
    assert capsys.readouterr() == ("", "")


def test_a_missing_peer_is_69_and_names_the_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.05)
    assert application.main(["cat", "--req", "--dial", "tcp://127.0.0.1:1", "-D", "x"]) == 69
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert "--async keeps trying" in said


def test_the_help_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("cat", "device"):
        assert application.main([command, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) > 20


# --- bytes


@given(st.binary(max_size=300))
def test_a_printed_body_can_be_read_back(body: bytes) -> None:
    assert msgpack.unpackb(FORMATS["msgpack"](body)) == body
    assert FORMATS["raw"](body) == body
    for form in ("hex", "quoted"):
        line = FORMATS[form](body)
        assert line[-1:] == b"\n" and b"\n" not in line[:-1]
        assert line[1:-2].decode("ascii").encode().decode("unicode_escape").encode("latin-1") == body
    plain = FORMATS["ascii"](body)
    assert len(plain) == len(body) + 1
    assert all(0x20 <= byte < 0x7F for byte in plain[:-1])
    assert FORMATS["no"](body) == b""


# --- roles


@pytest.fixture(params=["native", pytest.param("nng", marks=pytest.mark.isolated)])
def engine(request: pytest.FixtureRequest) -> tuple[str, str]:
    if request.param == "nng":
        pytest.importorskip("pynng")
    return "--engine", request.param


async def test_count_and_interval_repeat_the_message(engine: tuple[str, str]) -> None:
    async with cat("--pull", "-L0", *engine) as pull:
        url = await pull.listening()
        await finished("--push", "--dial", url, "-D", "x", "-C3", *engine)
        assert await pull.printed(3) == [b"x\n"] * 3
        async with cat("--push", "--dial", url, "-D", "y", "-i", "0.01", *engine):
            assert (await pull.printed(8))[3:] == [b"y\n"] * 5


async def test_data_is_sent_once_without_count_and_interval(engine: tuple[str, str]) -> None:
    async with cat("--pull", "-L0", *engine) as pull:
        url = await pull.listening()
        await finished("--push", "--dial", url, "-D", "x", *engine)
        await finished("--push", "--dial", url, "-D", "last", *engine)
        assert await pull.printed(2) == [b"x\n", b"last\n"]


async def test_a_requester_prints_its_answer_and_ends(engine: tuple[str, str]) -> None:
    async with cat("--rep", "-L0", "-D", "pong", *engine) as rep:
        url = await rep.listening()
        req = await finished("--req", "--dial", url, "-D", "ping", *engine)
        assert req.shown == [b"pong\n"]
        assert rep.shown == [b"ping\n"]
        req = await finished("--req", "--dial", url, "-D", "ping", "-C3", *engine)
        assert req.shown == [b"pong\n"] * 3


async def test_an_unanswered_request_is_75(engine: tuple[str, str]) -> None:
    async with cat("--rep", "-L0", *engine) as mute:
        url = await mute.listening()
        with pytest.raises(CommandFailed, match="no answer within 0.1 s") as failed:
            await finished("--req", "--dial", url, "-D", "ping", "--recv-timeout", "0.1", *engine)
        assert failed.value.code == 75
        assert await mute.printed(1) == [b"ping\n"]


async def test_a_survey_prints_all_answers_and_ends_with_the_survey(engine: tuple[str, str]) -> None:
    async with cat("--respondent", "-L0", "-D", "one", *engine) as one:
        async with cat("--respondent", "-L0", "-D", "two", *engine) as two:
            urls = [await one.listening(), await two.listening()]
            asked = await finished("--surveyor", "--dial", urls[0], "--dial", urls[1], "-D", "?", *engine)
            assert sorted(asked.shown) == [b"one\n", b"two\n"]


async def test_subscriptions_are_prefixes_and_may_be_several(engine: tuple[str, str]) -> None:
    flags = ("--sub", "-L0", "--subscribe", "a", "--subscribe", "b", "--count", "2")
    async with cat(*flags, *engine) as sub:
        url = await sub.listening()
        for word in ("apple", "cherry", "banana"):
            await finished("--pub", "--dial", url, "-D", word, *engine)
        assert await sub.printed(2) == [b"apple\n", b"banana\n"]


async def test_a_pair_talks_both_ways(engine: tuple[str, str]) -> None:
    for flag in ("--pair", "--pair0", "--pair1"):
        async with cat(flag, "-L0", "-D", "from one", "--count", "1", *engine) as one:
            url = await one.listening()
            async with cat(flag, "--dial", url, "-D", "from two", *engine) as two:
                assert await one.printed(1) == [b"from two\n"]
                assert await two.printed(1) == [b"from one\n"]


async def test_a_star_reaches_peers_behind_others() -> None:
    async with cat("--star", "-L0") as middle:
        url = await middle.listening()
        async with cat("--star", "--dial", url, "-L0") as far:
            await far.listening()
            async with cat("--star", "--dial", url, "-D", "hello", "-i", "0.05"):
                assert await far.printed(1) == [b"hello\n"]
                assert await middle.printed(1) == [b"hello\n"]


async def test_peers_are_waited_for_so_that_the_first_publication_is_not_lost(
    engine: tuple[str, str],
) -> None:
    async with cat("--pub", "-L0", "-D", "first", "--peers", "2", *engine) as pub:
        url = await pub.listening()
        async with cat("--sub", "--dial", url, *engine) as one, cat("--sub", "--dial", url, *engine) as two:
            assert await one.printed(1) == await two.printed(1) == [b"first\n"]


async def test_async_begins_without_the_other_end(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path / 'late'}"
    async with cat("--push", "--async", "--dial", url, "-D", "early"):
        async with cat("--pull", "--listen", url) as pull:
            assert await pull.printed(1) == [b"early\n"]


@pytest.mark.isolated
async def test_the_engines_understand_each_other() -> None:
    pytest.importorskip("pynng")
    async with cat("--rep", "-L0", "-D", "pong", "--engine", "nng") as rep:
        assert (await finished("--req", "--dial", await rep.listening(), "-D", "ping")).shown == [b"pong\n"]
    async with cat("--rep", "-L0", "-D", "pong") as rep:
        req = await finished("--req", "--dial", await rep.listening(), "-D", "ping", "--engine", "nng")
        assert req.shown == [b"pong\n"]


# --- as a process


def start(*arguments: str, **streams: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ends_with_tests([sys.executable, "-m", "mesh", "cat", *arguments]), cwd=ROOT, **streams
    )


def wait_until_ready(process: subprocess.Popen[bytes]) -> str:
    """The URL it listens at."""
    assert process.stderr is not None
    url = process.stderr.readline().decode().removeprefix("mesh cat: listening at ").strip()
    assert process.stderr.readline() == b"mesh cat: ready\n"
    return url


@pytest.mark.process
def test_ctrl_c_ends_it_without_a_word(engine: tuple[str, str]) -> None:
    process = start(
        *("--rep", "-L0", "-v", "-D", "x", *engine), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until_ready(process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=120) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.process
def test_each_body_is_flushed_and_a_reader_that_closes_the_pipe_is_no_error() -> None:
    process = start("--pull", "-L0", "-v", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    url = wait_until_ready(process)
    assert application.main(["cat", "--push", "--dial", url, "-D", "one"]) == 0
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n", "it is there although nothing came behind it"
    process.stdout.close()
    assert application.main(["cat", "--push", "--dial", url, "-D", "two"]) == 0
    assert process.wait(120) == 141
    assert process.stderr is not None
    with process.stderr:
        said = process.stderr.read().splitlines()
    assert all(b" is here" in line or b" is gone" in line for line in said), "peers, and no traceback"


@pytest.mark.process
def test_verbose_reports_peers_that_connect_leave_or_are_refused() -> None:
    process = start("--pull", "-L0", "-v", "--count", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    url = wait_until_ready(process)
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as stranger:
        stranger.sendall(b"garbage!")
        stranger.recv(100)
    assert application.main(["cat", "--push", "--dial", url, "-D", "one"]) == 0
    out, said = process.communicate(timeout=120)
    assert out == b"one\n" and process.returncode == 0
    assert b"mesh cat: refused tcp://127.0.0.1:" in said and b"are not a Scalability Protocols header" in said
    assert b" is here\n" in said


@pytest.mark.process
def test_standard_input_is_one_message(tmp_path: Path) -> None:
    url = f"ipc://{tmp_path / 'cat'}"
    body = os.urandom(200_000)
    pull = start("--pull", "--listen", url, "--raw", "--count", "1", stdout=subprocess.PIPE)
    push = start("--push", "--dial", url, "-F", "-", stdin=subprocess.PIPE)
    assert push.communicate(body, timeout=120) == (None, None)
    out, _ = pull.communicate(timeout=120)
    assert (push.returncode, pull.returncode) == (0, 0)
    assert out == body


@pytest.mark.process
def test_the_nng_engine_without_pynng_names_what_to_install() -> None:
    code = (
        "import sys; sys.modules['pynng'] = None; from mesh.cli.app import main;"
        " sys.exit(main(['cat', '--pull', '-L0', '--engine', 'nng']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 69
    assert ran.stderr.count("\n") == 1
    assert "pynng" in ran.stderr

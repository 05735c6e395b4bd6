"""``mesh cat``: one socket at the shell, as macat, nngcat and nanocat are, with their flags.

Sockets fall into four roles:

========  =================================  =========================================================
role      who                                does
========  =================================  =========================================================
receiver  pull, sub; rep, respondent, pair,  prints what comes
          bus, star without data
sender    push, pub                          sends the data once, ``--count`` times or each ``--interval``
asker     req, surveyor; pair, bus, star     sends likewise, and prints what comes in between
          with data
answerer  rep, respondent with data          prints what comes and sends the data back
========  =================================  =========================================================

Standard output carries bodies only, flushed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

import protocols
from mesh.cli.exits import CommandFailed, ExitCode, explain
from mesh.cli.formats import FORMATS, Format
from mesh.cli.settings import Seconds
from mesh.printable import printable
from protocols.errors import NotSupported, StateError, Timeout
from protocols.options import SocketOptions
from protocols.tls import TlsConfig

CONNECT_S: Final = 5.0
"""How long the first connection to an address may take, unless `--async` waits for ever."""
NNG_DRAIN_S: Final = 0.2
"""What nngcat waits at its end, too: NNG drops what it has not written when it closes."""

RECV_SIZE_MAX: Final = SocketOptions().recv_size_max

Flag = Annotated[bool, Parameter(negative=(), show_default=False)]
Texts = Annotated[list[str], Parameter(allow_leading_hyphen=True, negative=(), show_default=False)]
Text = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Pause = Annotated[float | None, Parameter(validator=Number(gte=0, lte=86400))]
Ports = Annotated[list[int], Parameter(negative=(), show_default=False, validator=Number(gte=0, lte=65535))]

PROTOCOL: Final = Group("Protocol (exactly one)", sort_key=1)
ADDRESS: Final = Group("Addresses (any number of each)", sort_key=2)
SENDING: Final = Group("Sending", sort_key=3)
PRINTING: Final = Group("Printing (ascii unless told otherwise)", sort_key=4)
TLS: Final = Group("TLS", sort_key=5)
OTHER: Final = Group("Other", sort_key=6)


@Parameter(name="*", group=PROTOCOL)
@dataclass(frozen=True, slots=True, kw_only=True)
class Protocols:
    """Each flag's ``help`` names its peer."""

    push: Annotated[Flag, Parameter(name=["--push", "--push0"], help="Deal out to pullers.")] = False
    pull: Annotated[Flag, Parameter(name=["--pull", "--pull0"], help="Take what pushers deal out.")] = False
    pub: Annotated[Flag, Parameter(name=["--pub", "--pub0"], help="Publish to subscribers.")] = False
    sub: Annotated[Flag, Parameter(name=["--sub", "--sub0"], help="Subscribe to publishers.")] = False
    req: Annotated[Flag, Parameter(name=["--req", "--req0"], help="Ask one replier.")] = False
    rep: Annotated[Flag, Parameter(name=["--rep", "--rep0"], help="Answer requests.")] = False
    surveyor: Annotated[Flag, Parameter(name=["--surveyor", "--surveyor0"], help="Ask everybody.")] = False
    respondent: Annotated[Flag, Parameter(name=["--respondent", "--respondent0"], help="Answer surveys.")] = (
        False
    )
    bus: Annotated[Flag, Parameter(name=["--bus", "--bus0"], help="Every direct peer, both ways.")] = False
    pair: Annotated[Flag, Parameter(name=["--pair", "--pair0"], help="One peer, both ways.")] = False
    pair1: Annotated[Flag, Parameter(help="The same, version 1.")] = False
    star: Annotated[Flag, Parameter(help="Everybody, through whoever stands between.")] = False


@Parameter(name="*", group=ADDRESS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    dial: Annotated[Texts, Parameter(name=["--dial", "--connect"], help="Connect to this URL.")] = field(
        default_factory=list
    )
    listen: Annotated[Texts, Parameter(name=["--listen", "--bind"], help="Accept peers at this URL.")] = (
        field(default_factory=list)
    )
    connect_ipc: Annotated[Texts, Parameter(name=["--connect-ipc", "-x"], help="ipc://PATH.")] = field(
        default_factory=list
    )
    bind_ipc: Annotated[Texts, Parameter(name=["--bind-ipc", "-X"], help="ipc://PATH.")] = field(
        default_factory=list
    )
    connect_local: Annotated[
        Ports, Parameter(name=["--connect-local", "-l"], help="tcp://127.0.0.1:PORT.")
    ] = field(default_factory=list)
    bind_local: Annotated[Ports, Parameter(name=["--bind-local", "-L"], help="tcp://127.0.0.1:PORT.")] = (
        field(default_factory=list)
    )

    def to_dial(self) -> list[str]:
        return [*self.dial, *map("ipc://{}".format, self.connect_ipc), *map(local, self.connect_local)]

    def to_listen(self) -> list[str]:
        return [*self.listen, *map("ipc://{}".format, self.bind_ipc), *map(local, self.bind_local)]


@Parameter(name="*", group=SENDING)
@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    data: Annotated[Text, Parameter(name=["--data", "-D"], help="The body to send.")] = None
    file: Annotated[
        Text, Parameter(name=["--file", "-F"], help="Send what is in this file; - is standard input.")
    ] = None
    delay: Annotated[
        Pause,
        Parameter(name=["--delay", "-d", "--send-delay"], help="Seconds before the first message."),
    ] = None
    interval: Annotated[
        Pause, Parameter(name=["--interval", "-i"], help="Send again each so many seconds.")
    ] = None
    peers: Annotated[
        int,
        Parameter(validator=Number(gte=0), show_default=False, help="Wait for so many peers first."),
    ] = 0
    send_timeout: Annotated[Seconds | None, Parameter(help="Give up sending after these seconds.")] = None


@Parameter(name="*", group=PRINTING)
@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    format: Annotated[
        Literal["raw", "ascii", "quoted", "hex", "msgpack", "no"] | None,
        Parameter(help="Print bodies so; the flags below say the same."),
    ] = None
    raw: Annotated[Flag, Parameter(help="As they come, nothing in between.")] = False
    ascii: Annotated[
        Flag, Parameter(name=["--ascii", "-A"], help="A line each; dots for what cannot be printed.")
    ] = False
    quoted: Annotated[
        Flag, Parameter(name=["--quoted", "-Q"], help="A line each, in quotes, escaped as in C.")
    ] = False
    hex: Annotated[Flag, Parameter(help=r"A line each, in quotes, every byte as \x2e.")] = False
    msgpack: Annotated[Flag, Parameter(help="As MessagePack, for programs.")] = False
    subscribe: Annotated[
        Texts, Parameter(help="With --sub: what begins with this; all without it. May be repeated.")
    ] = field(default_factory=list)
    recv_timeout: Annotated[
        Seconds | None,
        Parameter(name=["--recv-timeout", "--receive-timeout"], help="End after these seconds of silence."),
    ] = None
    recv_maxsz: Annotated[
        int,
        Parameter(
            name=["--recv-maxsz", "-Z"],
            validator=Number(gte=0),
            help="Largest message taken, in bytes; 0 takes any.",
        ),
    ] = RECV_SIZE_MAX

    def chosen(self) -> str | None:
        """The one format that was asked for."""
        flags = [name for name in FORMATS if getattr(self, name, False) is True]
        given = [*flags, *([self.format] if self.format else [])]
        if len(given) > 1:
            raise misuse(f"give one format, not {' and '.join(given)}")
        return given[0] if given else None


@Parameter(name="*", group=TLS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    cert: Annotated[
        str | None, Parameter(name=["--cert", "-E"], help="Our certificate, PEM, with its key unless --key.")
    ] = None
    key: Annotated[str | None, Parameter(help="Its private key, PEM.")] = None
    cacert: Annotated[
        str | None, Parameter(help="Who may have signed the peer's; a listener then demands one.")
    ] = None
    insecure: Annotated[Flag, Parameter(name=["--insecure", "-k"], help="Take any certificate.")] = False

    def given(self) -> bool:
        return bool(self.cert or self.key or self.cacert or self.insecure)


@Parameter(name="*", group=OTHER)
@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    count: Annotated[
        int | None,
        Parameter(name=["--count", "-C"], validator=Number(gte=0), help="End after so many rounds."),
    ] = None
    background: Annotated[
        Flag, Parameter(name="--async", help="Dial for ever, in the background, and begin at once.")
    ] = False
    engine: Annotated[
        Literal["native", "nng"], Parameter(help="Whose sockets: ours, or NNG's through pynng.")
    ] = "native"
    verbose: Annotated[Flag, Parameter(name=["--verbose", "-v"], help="Say what is connected.")] = False
    silent: Annotated[Flag, Parameter(name=["--silent", "-q"], help="No sentence on failure either.")] = False


def cat(
    *,
    protocol: Protocols | None = None,
    addresses: Addresses | None = None,
    sending: Sending | None = None,
    printing: Printing | None = None,
    certificates: Certificates | None = None,
    other: Other | None = None,
) -> int:
    """One socket at the shell, like nngcat, nanocat and macat; needs no broker."""
    other = other or Other()
    try:
        job = plan(
            protocol or Protocols(),
            addresses or Addresses(),
            sending or Sending(),
            printing or Printing(),
            certificates or Certificates(),
            other,
        )
        return asyncio.run(Cat(job).run())
    except Exception as error:
        if other.silent and not isinstance(error, BrokenPipeError):
            return explain(error)[0]
        raise


# --- what is asked for


@dataclass(frozen=True, slots=True)
class Kind:
    """What a protocol may do, and the name of its socket in both engines."""

    socket: str
    sends: Literal["never", "must", "may"]
    prints: bool = True
    answers: bool = False


KINDS: Final = {
    "push": Kind("Push0", "must", prints=False),
    "pull": Kind("Pull0", "never"),
    "pub": Kind("Pub0", "must", prints=False),
    "sub": Kind("Sub0", "never"),
    "req": Kind("Req0", "must"),
    "rep": Kind("Rep0", "may", answers=True),
    "surveyor": Kind("Surveyor0", "must"),
    "respondent": Kind("Respondent0", "may", answers=True),
    "bus": Kind("Bus0", "may"),
    "pair": Kind("Pair0", "may"),
    "pair1": Kind("Pair1", "may"),
    "star": Kind("Star0", "may"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """Checked and complete; ``count`` None is for ever or once, as `Cat` says."""

    kind: Kind
    dial: list[str]
    listen: list[str]
    body: bytes | None
    delay_s: float
    interval_s: float | None
    peers: int
    count: int | None
    show: Format
    topics: list[str]
    options: SocketOptions
    engine: str
    background: bool
    verbose: bool


def plan(
    protocols_: Protocols,
    addresses: Addresses,
    sending: Sending,
    printing: Printing,
    certificates: Certificates,
    other: Other,
) -> Job:
    """What to do, or a sentence about why it cannot be done."""
    name = chosen_protocol(protocols_)
    kind = KINDS[name]
    dial, listen = addresses.to_dial(), addresses.to_listen()
    if not dial and not listen:
        raise misuse("say where: --dial URL or --listen URL, such as tcp://127.0.0.1:7000")
    check_fits(name, kind, sending, printing)
    options = SocketOptions(
        recv_size_max=printing.recv_maxsz,
        send_timeout_s=sending.send_timeout,
        recv_timeout_s=printing.recv_timeout,
    )
    if certificates.given():
        options = with_tls(options, certificates, listens=bool(listen))
    return Job(
        kind=kind,
        dial=dial,
        listen=listen,
        body=body_of(sending),
        delay_s=sending.delay or 0.0,
        interval_s=sending.interval,
        peers=sending.peers,
        count=other.count or None,  # nngcat's 0 is no limit
        show=FORMATS[printing.chosen() or "ascii"],
        topics=printing.subscribe or [""],
        options=options,
        engine=other.engine,
        background=other.background,
        verbose=other.verbose,
    )


def chosen_protocol(flags: Protocols) -> str:
    given = [each.name for each in fields(flags) if getattr(flags, each.name)]
    if not given:
        raise misuse("say which protocol: one of " + ", ".join(f"--{name}" for name in KINDS))
    if len(given) > 1:
        raise misuse("give one protocol, not " + " and ".join(f"--{name}" for name in given))
    return given[0]


def check_fits(name: str, kind: Kind, sending: Sending, printing: Printing) -> None:
    """Flags that a protocol has no use for are a mistake, not a wish."""
    has_data = sending.data is not None or sending.file is not None
    if sending.data is not None and sending.file is not None:
        raise misuse("give --data or --file, not both")
    if kind.sends == "never" and has_data:
        raise misuse(f"--{name} only receives; leave out --data and --file")
    if kind.sends == "must" and not has_data:
        raise misuse(f"say what --{name} sends: --data TEXT or --file PATH")
    if sending.interval is not None and (kind.answers or not has_data):
        raise misuse(f"--interval is for what sends by itself; --{name} does not here")
    if not kind.prints and printing.chosen() is not None:
        raise misuse(f"--{name} only sends; leave out the format")
    if printing.subscribe and name != "sub":
        raise misuse(f"--subscribe is for --sub, not for --{name}")


def body_of(sending: Sending) -> bytes | None:
    if sending.data is not None:
        return sending.data.encode("utf-8", "surrogateescape")
    if sending.file is None:
        return None
    try:
        return sys.stdin.buffer.read() if sending.file == "-" else Path(sending.file).read_bytes()
    except IsADirectoryError:
        raise CommandFailed(ExitCode.NO_INPUT, f"--file {sending.file} is a folder; name a file") from None


def with_tls(options: SocketOptions, certificates: Certificates, *, listens: bool) -> SocketOptions:
    """A listener with ``--cacert`` demands a certificate (as macat's does); a dialer always looks at one."""
    demands = listens and certificates.cacert is not None
    tls = TlsConfig(
        cert_file=certificates.cert,
        key_file=certificates.key,
        ca_file=certificates.cacert,
        verify="none" if certificates.insecure else "required" if demands else None,
    )
    for file in tls.files:
        with open(file):  # a dialer would try for ever; a misspelt name is said at once
            pass
    return replace(options, tls=tls)


def local(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def misuse(sentence: str) -> CommandFailed:
    return CommandFailed(ExitCode.USAGE, sentence)


# --- doing it


class Cat:
    """One run. The socket is of either engine: what is used here, both have."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._printed = 0

    async def run(self) -> int:
        job = self._job
        async with make_socket(job) as socket:
            watching = asyncio.create_task(self._watch(socket))
            try:
                await self._open(socket)
                await asyncio.sleep(job.delay_s)
                await self._act(socket)
                if job.engine == "nng" and job.body is not None:
                    await asyncio.sleep(NNG_DRAIN_S)
                await asyncio.sleep(0)  # whoever came with the last message is still told of
            finally:
                watching.cancel()
        return ExitCode.OK

    async def _open(self, socket: Any) -> None:
        job = self._job
        for url in job.listen:
            listener = await socket.listen(url)
            if job.engine != "nng":
                listener.on_refused = lambda address, why: self._say(f"refused {address or 'a peer'}: {why}")
            self._say(f"listening at {listener.url}")
        dialers = [await socket.dial(url) for url in job.dial]
        if not job.background:
            for dialer in dialers:
                await connected(dialer)
                self._say(f"connected to {dialer.url}")
        await socket.wait_for_peers(job.peers)
        self._say("ready")

    async def _watch(self, socket: Any) -> None:
        """Say who comes and goes; NNG's sockets do not tell."""
        if not self._job.verbose or self._job.engine == "nng":
            return
        async for event in socket.events():
            peer = event.pipe.remote_address or "a peer"
            if event.kind == "attached":
                self._say(f"{peer} is here")
            elif event.kind == "detached":
                self._say(f"{peer} is gone: {event.reason}")

    def _say(self, sentence: str) -> None:
        if self._job.verbose:
            print(printable(f"mesh cat: {sentence}"), file=sys.stderr, flush=True)

    async def _act(self, socket: Any) -> None:
        job = self._job
        if job.body is None:
            await self._receive(socket, job.count)
        elif job.kind.answers:
            await self._answer(socket, job.body)
        elif not job.kind.prints:
            await self._repeat(lambda until: socket.send(job.body))
        elif job.count is None and job.interval_s is None:
            await socket.send(job.body)
            await self._hear(socket, None, once=job.kind.socket == "Req0")
            self._check_answered()
        else:
            await self._repeat(lambda until: self._exchange(socket, until))

    async def _receive(self, socket: Any, count: int | None) -> None:
        """Print until ``count`` are there or ``--recv-timeout`` passes without one."""
        try:
            while count is None or self._printed < count:
                self._show(await socket.recv())
        except Timeout as error:
            if count is not None:
                raise CommandFailed(
                    ExitCode.TIMEOUT, f"{self._printed} of {count} messages came: {error}"
                ) from error

    async def _answer(self, socket: Any, body: bytes) -> None:
        """Print and answer; without a question for ``--recv-timeout`` it is over."""
        count = self._job.count
        try:
            while count is None or self._printed < count:
                self._show(await socket.recv())
                await socket.send(body)
        except Timeout as error:
            if count is not None:
                raise CommandFailed(
                    ExitCode.TIMEOUT, f"{self._printed} of {count} questions came: {error}"
                ) from error

    async def _repeat(self, act: Callable[[float | None], Any]) -> None:
        """Once, ``--count`` times or for ever; each round takes ``--interval``, if it did not take longer."""
        job = self._job
        loop = asyncio.get_running_loop()
        rounds = job.count if job.count is not None else 1 if job.interval_s is None else None
        done = 0
        while True:
            until = None if job.interval_s is None else loop.time() + job.interval_s
            await act(until)
            done += 1
            if done == rounds:
                break
            if until is not None:
                await asyncio.sleep(until - loop.time())

    async def _exchange(self, socket: Any, until: float | None) -> None:
        """Send, and print what comes before the round ends; without an interval, one message."""
        await socket.send(self._job.body)
        await self._hear(socket, until, once=until is None and self._job.kind.socket != "Surveyor0")

    async def _hear(self, socket: Any, until: float | None, *, once: bool) -> None:
        """Print what comes until ``until``, ``--recv-timeout`` or the end of the conversation."""
        loop = asyncio.get_running_loop()
        limit_s = self._job.options.recv_timeout_s
        with contextlib.suppress(Timeout, StateError):
            while True:
                left = limit_s if until is None else max(until - loop.time(), 0.0)
                if limit_s is not None and left is not None:
                    left = min(left, limit_s)
                self._show(await socket.recv(timeout=left))
                if once:
                    break

    def _check_answered(self) -> None:
        if self._job.kind.socket == "Req0" and not self._printed:
            limit_s = self._job.options.recv_timeout_s or 0.0
            raise CommandFailed(ExitCode.TIMEOUT, f"no answer within {limit_s:g} s")

    def _show(self, body: bytes) -> None:
        self._printed += 1
        self._write(self._job.show(body))

    def _write(self, shown: bytes) -> None:
        if shown:
            sys.stdout.buffer.write(shown)
            sys.stdout.buffer.flush()


def make_socket(job: Job) -> Any:
    """A socket of the engine asked for; NNG's is an extra, loaded only for this."""
    engine: Any = protocols
    if job.engine == "nng":
        from protocols import nng as engine
    arguments = {"topics": job.topics} if job.kind.socket == "Sub0" else {}
    try:
        return getattr(engine, job.kind.socket)(options=job.options, **arguments)
    except (NotSupported, ValueError) as error:
        raise misuse(str(error)) from error


async def connected(dialer: Any) -> None:
    """Wait for a dialer's first connection. Raises `CommandFailed` with what stands in its way."""
    try:
        async with asyncio.timeout(CONNECT_S):
            await dialer.wait_connected()
    except TimeoutError:
        why = dialer.last_error or f"no connection to {dialer.url} within {CONNECT_S:g} s"
        raise CommandFailed(ExitCode.UNAVAILABLE, f"{why}; --async keeps trying") from None

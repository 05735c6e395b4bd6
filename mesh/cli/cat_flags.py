"""The flags of ``mesh cat``: those of nngcat, nanocat and macat, in groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from mesh.cli.exits import CommandFailed, ExitCode
from mesh.cli.formats import FORMATS
from mesh.cli.settings import Seconds
from protocols.options import SocketOptions

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
    star: Annotated[Flag, Parameter(help="All peers of a star, relayed by those between.")] = False


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
        """The chosen format."""
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
        Flag, Parameter(name="--async", help="Dial forever, in the background, and begin at once.")
    ] = False
    engine: Annotated[
        Literal["native", "nng"], Parameter(help="Whose sockets: ours, or NNG's through pynng.")
    ] = "native"
    verbose: Annotated[Flag, Parameter(name=["--verbose", "-v"], help="Say what is connected.")] = False
    silent: Annotated[Flag, Parameter(name=["--silent", "-q"], help="No sentence on failure either.")] = False


def local(port: int) -> str:
    return f"tcp://127.0.0.1:{port}"


def misuse(sentence: str) -> CommandFailed:
    return CommandFailed(ExitCode.USAGE, sentence)

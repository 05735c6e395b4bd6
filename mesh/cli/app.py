"""The command line: all commands, and how each of them ends.

Commands are registered by the name of their function and imported when they run: ``mesh pub`` loads no Spark.
Standard output carries data, standard error everything else. An error is one sentence and an exit code of
`ExitCode`, never a traceback, unless ``MANGROVE_DEBUG=1`` is set.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Final

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError

from mesh.cli.exits import OUTPUT_ERRNOS, CommandFailed, ExitCode, explain
from mesh.cli.help import Paragraphs
from mesh.cli.signals import interrupts_kept
from mesh.logs import PeopleFormatter, life, speaks_json
from mesh.printable import printable
from mesh.spelling import nearest

COMMANDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("broker", "mesh.cli.broker:broker", "Run a broker until it is told to stop."),
    ("pub", "mesh.cli.messages:pub", "Publish a message, or one for each line of standard input."),
    ("sub", "mesh.cli.messages:sub", "Subscribe, and print what arrives."),
    ("request", "mesh.cli.messages:request", "Ask one subscriber that answers on a topic."),
    (
        "survey",
        "mesh.cli.messages:survey",
        "Ask all subscribers that answer on a topic, and name the silent ones.",
    ),
    ("work", "mesh.cli.work:work", "Run a command for each message of a durable subscription."),
    ("cat", "mesh.cli.cat:cat", "One socket at the shell, like nngcat, nanocat and macat; needs no broker."),
    ("device", "mesh.cli.device:device", "Forward between two addresses, without a broker."),
    ("queue", "mesh.cli.queue:app", "Look after durable subscriptions: list, copy, send back, remove."),
    ("status", "mesh.cli.status:status", "Show a broker and the mesh as it sees it."),
    ("top", "mesh.cli.status:top", "Watch the mesh live: topology, peers, rates, events."),
    ("clients", "mesh.cli.looking:clients", "List the clients of all brokers."),
    ("topics", "mesh.cli.looking:topics", "List the patterns that clients want, and where."),
    ("links", "mesh.cli.looking:links", "List the links between brokers, the bad ones first."),
    ("events", "mesh.cli.looking:events", "Print what brokers report: starts, deaths, links."),
    ("trace", "mesh.cli.looking:trace", "Say which way a message goes, and where it is dropped."),
    ("check", "mesh.cli.check:check", "Judge a mesh by thresholds, for Nagios and its kin."),
    ("key", "mesh.cli.key:app", "Make keys and tokens by which clients prove who they are."),
    ("drain", "mesh.cli.drain:drain", "End a broker once its clients have gone to others."),
    ("context", "mesh.cli.context:app", "Keep brokers and the credentials for them under names."),
    ("completion", "mesh.cli.completion:completion", "Print the completion script of a shell."),
    ("config", "mesh.cli.config:app", "Show, check or begin a configuration."),
    ("simulate", "simulations.cli.app:app", "Run a mesh in virtual time and break it on purpose."),
    ("analyze", "mesh.analysis.cli:app", "Say from the event logs how the mesh fared."),
    ("bench", "mesh.cli.bench:app", "Measure sockets and brokers beside their peers, and the simulator."),
    ("demo", "mesh.demo.cli:demo", "Five brokers, two faults and a verdict, in 90 seconds."),
)

ARGUMENTS: Final = {
    "pub": "TOPIC [BODY]",
    "sub": "PATTERN...",
    "request": "TOPIC [BODY]",
    "survey": "TOPIC [BODY]",
    "work": "NAME [PATTERN...]",
    "trace": "TOPIC|ID",
}
"""Arguments of commands whose generated usage line would give them other names, such as ARGS."""

EXPLAINED: Final = (
    "Commands that talk to a broker take --url or --context, else MANGROVE_URL, else the context in use, "
    "else the local broker. "
    "Exit codes: 0 ok, 1 failed, 64 usage, 65 bad data, 66 no input, 69 unavailable, 70 a fault "
    "of the program, 73 cannot create output, 74 disk full or failing, 75 timeout, 77 not permitted, "
    "78 configuration, 130 interrupted, 141 the reader went away, 143 terminated."
)


def version() -> str:
    try:
        return importlib.metadata.version("mangrove-mesh")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def build() -> App:
    """The application, with every command by name only."""
    app = App(
        name="mesh",
        help="Mangrove: a mesh of message brokers over the Scalability Protocols.",
        help_epilogue=EXPLAINED,
        version=version,
        default_parameter=Parameter(negative=()),
        help_format="plaintext",
        help_formatter=Paragraphs(),
    )
    for name, target, help in COMMANDS:
        if name in ARGUMENTS:
            usage = f"Usage: mesh {name} [OPTIONS] {ARGUMENTS[name]}"
            app.command(target, name=name, help=help, usage=usage)
        else:
            app.command(target, name=name, help=help)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _fill_standard_streams()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    command = next((token for token in tokens if not token.startswith("-")), "")
    try:
        _check_command(tokens)
        _name_warnings(command)
        with interrupts_kept():
            result = build()(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else ExitCode.OK
    except (KeyboardInterrupt, asyncio.CancelledError):
        return ExitCode.INTERRUPTED
    except SystemExit as error:
        if _is_broken_pipe(error):
            return _reader_gone()
        if error.code is None or isinstance(error.code, int):
            return error.code or ExitCode.OK
        return _fail(command, ExitCode.FAILED, str(error.code))
    except BrokenPipeError:
        return _reader_gone()
    except CycloptsError as error:
        return _fail(
            command,
            ExitCode.USAGE,
            f"{_misuse(error)} See mesh {command} --help.".replace("  ", " "),
        )
    except Exception as error:
        if os.environ.get("MANGROVE_DEBUG"):
            raise
        if isinstance(error, OSError) and error.errno in OUTPUT_ERRNOS and not error.filename:
            _drop_output()
        return _fail(command, *explain(error))


def _name_warnings(command: str) -> None:
    """Format the warnings of libraries like the command's own sentences, unless a log was set up."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PeopleFormatter(f"mesh {command}: %(message)s"))


def _fill_standard_streams() -> None:
    """Open `/dev/null` for each standard stream that the caller has closed (``>&-``).

    Python has None for such a stream, and the first socket opened would become standard output.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:  # the number is taken already
                os.set_inheritable(opened, False)
            setattr(sys, name, open(opened, mode, encoding="utf-8", errors="surrogateescape"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no error


def _is_broken_pipe(error: BaseException | None) -> bool:
    """True if a broken pipe led to this error: rich turns it into an exit."""
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _reader_gone() -> int:
    """The reader went away, as in ``mesh sub | head -1``."""
    _drop_output()
    return ExitCode.BROKEN_PIPE


def _drop_output() -> None:
    """Let nothing more be written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _misuse(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError):
        tokens = " ".join(repr(token) for token in error.unused_tokens or ())
        return f"{tokens}: more arguments than it takes."
    sentence = " ".join(str(error).split())
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _check_command(tokens: list[str]) -> None:
    """Report an unknown command here, since cyclopts would import all commands to find similar ones."""
    names = [name for name, _, _ in COMMANDS]
    if tokens and not tokens[0].startswith("-") and tokens[0] not in names:
        raise CommandFailed(ExitCode.USAGE, f"there is no such command{nearest(tokens[0], names)}")


def _fail(command: str, code: int, sentence: str) -> int:
    if command == "check":  # its callers read standard output and four exit codes
        from mesh.cli.check import failed

        return failed(code, sentence)
    if speaks_json():
        life.error("%s", sentence)
        return code
    print(printable(f"mesh {command}: {sentence}" if command else f"mesh: {sentence}"), file=sys.stderr)
    return code

"""``mesh config``: the configuration in force, the check of a file, and a file or unit to begin with."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from typing import Any, Final

from cyclopts import App, Parameter

from mesh import config as configuration
from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.errors import ConfigError
from mesh.printable import printable
from mesh.storage import disk_advice, write_atomic

ACCOUNT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}|[0-9]{1,10}")
"""A user or group as systemd takes it."""

app = App(
    name="config",
    help="Show, check or begin a configuration, or a systemd unit.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)


@app.command
def show(*, origin: bool = False, config: str | None = None, json: bool = False) -> None:
    """Print every value in force.

    Parameters
    ----------
    origin
        Say of each value where it came from.
    config
        Read this file instead of looking for one.
    json
        Print one JSON document.
    """
    _show(config, origin=origin, as_json=json)


@app.command
def check(file: str, /) -> None:
    """Check a file without starting anything; exit code 78 and a line for each mistake if it is wrong.

    Parameters
    ----------
    file
        The file to check.
    """
    loaded, mistakes = configuration.examine(path=file)
    if not mistakes:
        mistakes = _of_the_whole(loaded.config)
    for mistake in mistakes[:-1]:
        print(printable(f"mesh config: {mistake}"), file=sys.stderr)
    if mistakes:
        raise mistakes[-1]
    given = sum(1 for origin in loaded.origins.values() if origin.startswith(f"{file}:"))
    print(f"{file}: {given} values, no mistakes")


@app.command(usage="Usage: mesh config init [FILE]")
def init(file: str = "-", /) -> None:
    """Write a file with every key in it, commented out and explained.

    Parameters
    ----------
    file
        Where to write it; an existing file is left alone. Without it: standard output.
    """
    if file == "-":
        sys.stdout.write(configuration.template())
        return
    if os.path.lexists(file):
        raise CommandFailed(ExitCode.FAILED, f"{file} exists and is left as it is")
    try:
        write_atomic(file, configuration.template().encode())
    except OSError as error:
        raise CommandFailed(ExitCode.CANNOT_CREATE, f"{file}: {disk_advice(error)}") from error
    print(f"wrote {file}", file=sys.stderr)


@app.command
def systemd(*, config: str | None = None, user: str | None = None, group: str | None = None) -> None:
    """Print a systemd unit that runs a broker with the configuration in force.

    Parameters
    ----------
    config
        Read this file instead of looking for one. The unit's broker reads the same file.
    user
        An account that exists, to run it as. Default: one that systemd makes for it (DynamicUser).
    group
        A further group to be in, such as one that may read the key of the certificate.
    """
    from mesh.cli.systemd_unit import Service, unit

    for kind, name in (("user", user), ("group", group)):
        if name is not None and ACCOUNT.fullmatch(name) is None:
            raise configuration.FlagError(f"--{kind} {name!r} is no name of a {kind}")
    loaded, mistakes = configuration.examine(path=config)
    if mistakes:
        raise mistakes[0]
    file = None if loaded.path is None else os.path.abspath(loaded.path)
    sys.stdout.write(unit(Service(_program(), file, user, group), loaded.config.broker))
    of_shell = [origin for origin in loaded.origins.values() if origin.startswith("environment ")]
    for name in sorted({origin.removeprefix("environment ") for origin in of_shell} & _broker_variables()):
        told = (
            f"mesh config: {name} is set here, and the unit's broker does not have it; write it to the file"
        )
        print(told, file=sys.stderr)


def _broker_variables() -> set[str]:
    return {option.env for option in configuration.options() if option.section in ("broker", "limits")}


def _program() -> tuple[str, ...]:
    """The words that run this installation of `mesh`."""
    beside = os.path.join(os.path.dirname(sys.executable), "mesh")
    return (beside,) if os.access(beside, os.X_OK) else (sys.executable, "-m", "mesh")


def _of_the_whole(config: configuration.Config) -> list[ConfigError]:
    """Mistakes in values that are right by themselves, but that a broker refuses together."""
    from mesh import Broker
    from mesh.cli.broker import broker_options

    try:
        Broker(**broker_options(config))
    except ConfigError as mistake:
        return [mistake]
    return []


def _show(path: str | None, *, origin: bool, as_json: bool) -> None:
    loaded = configuration.load(path=path, context="")
    rows = [(option, _value(loaded, option)) for option in configuration.options()]
    if as_json:
        document: dict[str, Any] = {}
        for option, value in rows:
            entry = {"value": value, "origin": loaded.origins[option.name]} if origin else value
            document.setdefault(option.section, {})[option.key] = entry
        document["principals"] = {
            principal.name: {
                key: value
                for key, value in asdict(principal).items()
                if key != "name" and value not in ((), None)
            }
            for principal in loaded.config.principals
        }
        print(to_json({"file": loaded.path, **document}, indent=2))
    else:
        _print_text(loaded, rows, origin=origin)
        for principal in loaded.config.principals:
            print("", *configuration.as_section(principal), sep="\n")
    for name in loaded.unknown_variables:
        print(f"mesh config: {name} is set but is not a variable of mesh; it does nothing", file=sys.stderr)


def _print_text(
    loaded: configuration.Loaded, rows: list[tuple[configuration.Option, Any]], *, origin: bool
) -> None:
    section = ""
    for option, value in rows:
        if option.section != section:
            print(f"{'' if not section else chr(10)}[{option.section}]")
            section = option.section
        line = (
            f"{option.key} = {configuration.as_toml(value)}"
            if value is not None
            else f"# {option.key} is not set"
        )
        print(f"{line:<44}# {loaded.origins[option.name]}" if origin else line)


def _value(loaded: configuration.Loaded, option: configuration.Option) -> Any:
    return getattr(getattr(loaded.config, option.section), option.key)

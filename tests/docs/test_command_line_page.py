"""The page of the command line and `--help` agree: on commands, arguments, flags, defaults and exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from inspect import Parameter
from typing import Any

import pytest
from cyclopts import App

from mesh.cli import app as application
from mesh.cli.exits import ExitCode
from mesh.cli.settings import BrokerFlags
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/reference/cli.md").read_text()
HEADING_OF_CLIENTS = "## Flags of clients"
LINK_TO_CLIENTS = "(#flags-of-clients)"
FLAGS_OF_CLIENTS = {f"--{field.name.replace('_', '-')}" for field in fields(BrokerFlags)}
FLAG = re.compile(r"`(--?[A-Za-z][\w-]*)")
ZERO = "(each also with a `0`)"


@dataclass(frozen=True, slots=True)
class Command:
    path: tuple[str, ...]
    app: App

    def __str__(self) -> str:
        return " ".join(self.path)

    def flags(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """The names of each flag, and its default. Arguments may have a name as well, which is none of
        these."""
        for argument in self.app.assemble_argument_collection(parse_docstring=False):
            kind = argument.field_info.kind
            if (argument.show and kind is argument.field_info.KEYWORD_ONLY) or len(argument.keys) > 0:
                names = tuple(name for name in argument.names if name not in argument.negatives)
                yield names, argument.field_info.default

    @property
    def section(self) -> str:
        """The text of the section about it: the one that is called so, or the one that names it first."""
        name = self.path[0]
        for heading, text in sections():
            if heading.split()[1] == name:
                return text
        return next(text for _, text in sections() if f"| `mesh {name}` |" in text)


@cache
def sections() -> list[tuple[str, str]]:
    """The heading and the text of each section that is about commands."""
    found = re.findall(r"^## (mesh [^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return [(heading, text) for heading, text in found]


def walk(app: App, path: tuple[str, ...] = ()) -> Iterator[Command]:
    if path and app.default_command is not None:
        yield Command(path, app)
    for name in app:
        if not name.startswith("-"):
            yield from walk(app[name], (*path, name))


COMMANDS = list(walk(application.build()))


def rows(text: str) -> list[str]:
    """The rows of tables, and the items of lists."""
    return [line for line in text.splitlines() if line.startswith(("| ", "- "))]


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_page_has_every_command_with_its_arguments(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert application.main([*command.path, "--help"]) == 0
    usage = re.match(r"Usage: (.*?)\n\n", capsys.readouterr().out, re.DOTALL)
    assert usage is not None
    words = re.sub(r" --\S+ \S+", "", usage[1]).split()  # flags that must be given
    line = " ".join(word for word in words if word not in ("[OPTIONS]", "COMMAND"))
    headings = [heading for heading, _ in sections()]
    assert line in headings or f"`{line}`" in command.section


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_page_has_every_flag_of_a_command_with_its_default(command: Command) -> None:
    known = set(FLAG.findall("\n".join(rows(command.section))))
    if ZERO in command.section:
        known |= {f"{flag}0" for flag in known}
    if LINK_TO_CLIENTS in command.section:
        known |= FLAGS_OF_CLIENTS
    missing = []
    for names, default in command.flags():
        missing += [name for name in names if name not in known]
        if default in (None, False, "", 0, (), []) or default is Parameter.empty or missing:
            continue
        text = f"{default:g}" if isinstance(default, float) else str(default)
        row = next(row for row in rows(command.section) if f"`{names[0]}`" in row)
        told = f"default: {text}" in row or f"default: `{text}`" in row or f"({text}" in row
        if not told and "1 MiB" not in row:
            missing.append(f"{names[0]} has the default {text}")
    assert not missing


def test_the_page_names_no_flag_that_its_commands_do_not_have() -> None:
    unknown = []
    for heading, text in sections():
        known = {
            name
            for command in COMMANDS
            if command.section == text
            for names, _ in command.flags()
            for name in names
        }
        for row in rows(text):
            cell = row.split(" | ")[0]
            unknown += [f"{heading}: {flag}" for flag in FLAG.findall(cell) if flag not in known]
    assert not unknown


def test_the_flags_of_clients_are_those_of_the_section_and_its_commands_are_named() -> None:
    text = PAGE.partition(HEADING_OF_CLIENTS)[2].partition("\n## ")[0]
    assert set(FLAG.findall("\n".join(row.split(" | ")[0] for row in rows(text)))) == FLAGS_OF_CLIENTS
    named = set(re.findall(r"`(\w+)`", text.strip().partition("talk")[0]))
    clients = {
        command.path[0]
        for command in COMMANDS
        if {name for names, _ in command.flags() for name in names} >= FLAGS_OF_CLIENTS
    }
    assert named == clients


def test_the_page_has_no_command_that_is_not_there() -> None:
    known = {str(command) for command in COMMANDS} | {name for name, _, _ in application.COMMANDS}
    for heading, text in sections():
        group = heading.split()[1]
        assert group in known
        for row in rows(text):
            cell = row.split(" | ")[0]
            for words in re.findall(rf"`mesh {group} ([a-z]+)", cell):
                assert f"{group} {words}" in known


def test_the_page_and_the_help_have_every_exit_code() -> None:
    table = PAGE.partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(ExitCode)
    told = application.EXPLAINED.partition("Exit codes:")[2]
    assert [int(code) for code in re.findall(r"\b\d+\b", told)] == sorted(ExitCode)

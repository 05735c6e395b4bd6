"""Reads and writes scenarios in TOML files. Every error in reading is a sentence with file and line.

The format is `docs/reference/scenario-format.md`. A file is checked for everything that can be known before
it is played: every field, fault kind and check exists, the names of every fault can be found at both sizes,
and no time or number is out of range.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_origin, get_type_hints

from mesh.spelling import nearest
from simulations import faults
from simulations.evidence.measuring import TOLD
from simulations.faults import Fault, FaultError, Kind
from simulations.invariants import CHECKS, Parameter
from simulations.scenario import SPAN, TABLES, Expectation, Scenario, ScenarioError, Value
from simulations.scenarios.selecting import resolve

FOLDER: Final = Path(__file__).parent / "shipped"
"""The shipped files."""
ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
FAULT_FIELDS: Final = ("at_s", "kind", "a", "b", "for_s", "value", "repeat", "repeat_s")


FAILURE: Final = "failure"
"""A table that a failed run leaves for `simulations.runs.replaying`; the file also plays without it."""


class ScenarioFileError(ValueError):
    """A scenario file cannot be used; the message names file and line and the error."""


class UnknownScenario(ScenarioFileError):
    """No shipped scenario has that name."""


class UnreadableScenario(ScenarioFileError):
    """The file does not exist, or cannot be read."""


# --- finding


def shipped() -> dict[str, Path]:
    """The files of the shipped scenarios, by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by its name, or any by its file's path, which ends with ``.toml`` or has a ``/``.

    Raises:
        UnknownScenario: none has that name.
        ScenarioFileError: its file cannot be read or used.
    """
    if is_path(name_or_path):
        return read(Path(name_or_path))
    known = shipped()
    if name_or_path not in known:
        hint = nearest(name_or_path, known, "see mesh simulate list, or name a .toml file")
        raise UnknownScenario(f"there is no scenario {name_or_path!r}{hint}")
    return read(known[name_or_path])


def is_path(name_or_path: str) -> bool:
    """True if `load` treats it as a file's path."""
    return name_or_path.endswith(".toml") or os.sep in name_or_path


def read(path: Path) -> Scenario:
    """Raises `ScenarioFileError`: the file cannot be read or used."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UnreadableScenario(f"{path}: there is no such scenario file") from None
    except OSError as error:
        raise UnreadableScenario(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        raise ScenarioFileError(f"{path}:{line}: it is not UTF-8") from None
    except ValueError:
        raise UnreadableScenario(f"{str(path)!r} is no path of a file") from None
    return parse(text, str(path))


def parse(text: str, source: str = "<text>") -> Scenario:
    """The scenario in a file's text; ``source`` is the file's name in errors.

    Raises:
        ScenarioFileError: it cannot be used.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioFileError(_of_toml(text, source, str(error))) from None
    except RecursionError:
        raise ScenarioFileError(f"{source}:1: its values are nested too deeply") from None
    try:
        scenario = scenario_of(document)
        for size in ("ci", "full"):
            # Only to check that it works: the seed does not matter.
            resolve(scenario.at_size(size), seed=0)
        return scenario
    except ScenarioError as error:
        raise ScenarioFileError(f"{source}:{line_of(text, error.where)}: {error}") from None


def _of_toml(text: str, source: str, complaint: str) -> str:
    """An error of ``tomllib``, which ends with its position, as a sentence that begins with the line."""
    sentence, _, where = complaint.partition(" (at ")
    at = re.match(r"line (\d+), column (\d+)", where)
    line = at[1] if at else str(max(1, len(text.splitlines())))
    column = f", at column {at[2]}" if at else ", at the end"
    return f"{source}:{line}: {sentence[:1].lower()}{sentence[1:]}{column}"


def line_of(text: str, where: tuple[str | int, ...]) -> int:
    """The line on which a value begins, or the nearest thing around it that the file has; 1 if there is none.

    ``tomllib`` keeps no positions. The value ends at the end of the first prefix of the file that parses and
    holds it. It begins after the longest shorter prefix that parses, since values may span lines.
    """
    lines = text.splitlines()
    parsed_until = 0
    for count in range(1, len(lines) + 1):
        try:
            document = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        if _holds(document, where):
            return parsed_until + 1
        parsed_until = count
    return line_of(text, where[:-1]) if len(where) > 1 else 1


def _holds(node: Any, where: tuple[str | int, ...]) -> bool:
    for part in where:
        if isinstance(part, int):
            if not isinstance(node, list) or part >= len(node):
                return False
        elif not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


# --- from TOML


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """The scenario in a parsed file, or in JSON of the same form.

    Raises:
        ScenarioError: something in it is unknown, of the wrong type or out of range.
    """
    plain = _plain_fields(Scenario)
    known = [*plain, *TABLES, "pick", "fault", "expect", "full"]
    given: dict[str, Any] = {}
    for key, value in document.items():
        if key in plain:
            given[key] = _typed(plain[key], value, key)
        elif key in TABLES:
            given[key] = _record(TABLES[key], value, key)
        elif key == "pick":
            given["picks"] = _picks(value)
        elif key == "fault":
            given["faults"] = tuple(_fault(each, index) for index, each in enumerate(_tables(value, key)))
        elif key == "expect":
            given["expect"] = tuple(_expectation(each, n) for n, each in enumerate(_tables(value, key)))
        elif key == "full":
            given["full"] = _full(value)
        elif key == FAILURE:
            _table(value, key)
        else:
            raise ScenarioError(f"there is no field {key!r} in a scenario{nearest(key, known)}", key)
    if "name" not in given:
        raise ScenarioError("a scenario needs a name")
    scenario = Scenario(**given)
    _check_compared(scenario)
    return scenario


def _check_compared(scenario: Scenario) -> None:
    known = [*TOLD, *(CHECKS[each.check].name for each in scenario.expect)]
    for name in scenario.compared_names:
        if name not in known:
            raise ScenarioError(
                f"there is nothing measured called {name!r}{nearest(name, known)}", "compared"
            )


def _plain_fields(record: Any) -> dict[str, str]:
    """The fields that are a number or a text, with their types in words."""
    hints = {
        name: str if get_origin(hint) is Literal else hint for name, hint in get_type_hints(record).items()
    }
    words: dict[Any, str] = {int: "whole number", float: "number", str: "text"}
    words |= {int | None: "whole number", float | None: "number"}
    return {each.name: words[hints[each.name]] for each in fields(record) if hints[each.name] in words}


def _typed(type_: str, value: Any, *where: str | int) -> Any:
    if type_ == "text" and isinstance(value, str):
        return value
    if type_ == "whole number" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if type_ == "number" and _is_number(value):
        return float(value)
    # 1e9 has a fraction in TOML, which `spelt` would not show
    shown = repr(value) if isinstance(value, float) else spelt(value)
    raise ScenarioError(f"{where[-1]} must be a {type_}, and is {shown}", *where)


def _is_number(value: Any) -> bool:
    """TOML also knows infinities and NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _table(value: Any, *where: str | int) -> dict[str, Any]:
    if not isinstance(value, dict):
        name = [part for part in where if isinstance(part, str)][-1]
        raise ScenarioError(f"{name} must be a table, and is {spelt(value)}", *where)
    return value


def _tables(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise ScenarioError(f"begin every {key} with a line [[{key}]]", key)
    return value


def _record(record: Any, value: Any, key: str) -> Any:
    plain = _plain_fields(record)
    given = {}
    for name, each in _table(value, key).items():
        if name not in plain:
            raise ScenarioError(f"there is no field {name!r} in [{key}]{nearest(name, plain)}", key, name)
        given[name] = _typed(plain[name], each, key, name)
    try:
        return record(**given)
    except ScenarioError:
        raise
    except ValueError as error:
        raise _blamed(record, given, key) or ScenarioError(str(error), key) from None


def _blamed(record: Any, given: Mapping[str, Any], key: str) -> ScenarioError | None:
    """Blame the field that is wrong by itself, whatever the others are."""
    for name, value in given.items():
        try:
            record(**{name: value})
        except ValueError as error:
            sentence = str(error).partition(", got ")[0]
            return ScenarioError(f"{name} is {spelt(value)}; {sentence}", key, name)
    return None


def _picks(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, _typed("text", each, "pick", name)) for name, each in _table(value, "pick").items())


def _full(value: Any) -> tuple[tuple[str, Any], ...]:
    """Checks types and names: a whole scenario of these alone would have them the same."""
    found: list[tuple[str, Any]] = []
    plain = _plain_fields(Scenario)
    for name, each in _table(value, "full").items():
        if name in TABLES:
            below = _plain_fields(TABLES[name])
            for key, number in _table(each, "full", name).items():
                typed = _typed(below[key], number, "full", name, key) if key in below else number
                found.append((f"{name}.{key}", typed))
        else:
            found.append((name, _typed(plain[name], each, "full", name) if name in plain else each))
    return tuple(found)


def _fault(value: Any, index: int) -> Fault:
    table = _table(value, "fault", index)
    for name in ("at_s", "kind"):
        if name not in table:
            raise ScenarioError(f"a fault needs {name}", "fault", index)
    kind_name = _typed("text", table["kind"], "fault", index, "kind")
    kind = faults.KINDS.get(kind_name)
    if kind is None:
        hint = nearest(kind_name, faults.KINDS)
        raise ScenarioError(f"there is no fault kind {kind_name!r}{hint}", "fault", index, "kind")
    parameters = [each.name for each in kind.parameters]
    given: dict[str, Any] = {"kind": kind_name, "a": (), "b": ()}
    more: dict[str, float | str] = {}
    for name, each in table.items():
        where = ("fault", index, name)
        if name in ("a", "b"):
            given[name] = _selectors(each, *where)
        elif name in ("at_s", "for_s", "value", *parameters):
            if isinstance(each, list):
                each, more[f"{name}{SPAN}"] = _span(each, *where)
            target = given if name in ("at_s", "for_s", "value") else more
            words = name in parameters and kind.parameters[parameters.index(name)].choices
            target[name] = _typed("text" if words else "number", each, *where)
        elif name in ("repeat", "repeat_s"):
            more[name] = _typed("number" if name == "repeat_s" else "whole number", each, *where)
        elif name != "kind":
            hint = nearest(name, [*FAULT_FIELDS, *parameters])
            raise ScenarioError(f"there is no field {name!r} in a {kind_name}{hint}", *where)
    _check_spans(kind, {**given, **more}, index)
    try:
        return Fault(**given, more=tuple(sorted(more.items())))
    except FaultError as error:
        raise ScenarioError(str(error), "fault", index, error.field) from None


def _check_spans(kind: Kind, given: Mapping[str, Any], index: int) -> None:
    """Check both ends: some seed draws close to each."""
    for parameter in kind.parameters:
        most = given.get(f"{parameter.name}{SPAN}")
        for end in () if most is None else (given[parameter.name], most):
            try:
                parameter.check(kind.name, end)
            except FaultError as error:
                raise ScenarioError(str(error), "fault", index, parameter.name) from None


def _selectors(value: Any, *where: str | int) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ScenarioError(f"{where[-1]} must be a name or a list of names, and is {spelt(value)}", *where)
    return tuple(found)


def _span(value: list[Any], *where: str | int) -> tuple[float, float]:
    numbers = [each for each in value if _is_number(each)]
    if len(value) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ScenarioError(f"{where[-1]} must be a number or [least, most], and is {spelt(value)}", *where)
    return float(numbers[0]), float(numbers[1])


def _expectation(value: Any, index: int) -> Expectation:
    table = _table(value, "expect", index)
    if "check" not in table:
        raise ScenarioError("an expectation needs check, its name", "expect", index)
    name = _typed("text", table["check"], "expect", index, "check")
    check = CHECKS.get(name)
    if check is None:
        hint = nearest(name, CHECKS)
        raise ScenarioError(f"there is no check {name!r}{hint}", "expect", index, "check")
    if check.elsewhere:
        sentence = f"{name} finds nothing to look at in one run; it is asked {check.elsewhere}"
        raise ScenarioError(sentence, "expect", index, "check")
    known = {each.name: each for each in check.parameters}
    given: dict[str, Value] = {}
    for key, each in table.items():
        if key == "check":
            continue
        if key not in known:
            raise ScenarioError(f"{name} has no parameter {key!r}{nearest(key, known)}", "expect", index, key)
        given[key] = _parameter(known[key], each, "expect", index, key)
    return Expectation(name, tuple(sorted(given.items())))


def _parameter(parameter: Parameter, value: Any, *where: str | int) -> Value:
    if parameter.type == "names":
        return _selectors(value, *where)
    typed: float | str = _typed(parameter.type, value, *where)
    if parameter.choices and typed not in parameter.choices:
        raise ScenarioError(
            f"{where[-1]} is {spelt(value)}; it must be {' or '.join(parameter.choices)}", *where
        )
    if isinstance(typed, float) and typed < 0:
        raise ScenarioError(f"{where[-1]} is {spelt(value)}; it must be at least 0", *where)
    return typed


# --- to TOML


def write(scenario: Scenario) -> str:
    """The text of a file that reads as this scenario; default values are left out."""
    out = [f"{each.name} = {spelt(getattr(scenario, each.name))}" for each in _told(scenario)]
    for key, record in TABLES.items():
        found = getattr(scenario, key)
        lines = [f"{each.name} = {spelt(getattr(found, each.name))}" for each in _told(found)]
        out += ["", f"[{key}]", *lines] if lines and isinstance(found, record) else []
    if scenario.picks:
        out += ["", "[pick]", *(f"{name} = {spelt(selector)}" for name, selector in scenario.picks)]
    for fault in scenario.faults:
        out += ["", "[[fault]]", *_fault_lines(fault)]
    for expectation in scenario.expect:
        given = [f"{name} = {spelt(value)}" for name, value in expectation.parameters]
        out += ["", "[[expect]]", f"check = {spelt(expectation.check)}", *given]
    if scenario.full:
        out += ["", "[full]", *(f"{path} = {spelt(value)}" for path, value in scenario.full)]
    return "\n".join(out) + "\n"


def _told(record: Any) -> Iterable[Field[Any]]:
    """The plain fields that differ from their defaults."""
    plain = _plain_fields(type(record))
    for each in fields(record):
        value = getattr(record, each.name)
        if each.name in plain and value is not None and (each.default is MISSING or value != each.default):
            yield each


def _fault_lines(fault: Fault) -> list[str]:
    data = fault.as_json()
    spans = {key: data.pop(key) for key in list(data) if key.endswith(SPAN)}
    for key, most in spans.items():
        name = key.removesuffix(SPAN)
        data[name] = [data.get(name, 0.0), most]
    return [f"{key} = {spelt(value)}" for key, value in data.items()]


def spelt(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spelt, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
    return f'"{"".join(map(_escaped, str(value)))}"'


def _escaped(character: str) -> str:
    """TOML takes no control character unescaped, and no half of a surrogate pair at all."""
    if character in ESCAPES:
        return ESCAPES[character]
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return f"\\u{ord(character):04x}" if character < " " or character == "\x7f" else character

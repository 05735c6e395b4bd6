"""The differences of two analyses for a terminal, as rich renderables: the important ones first. Differences
too small to show are only counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mesh.analysis.reporting.diff import Difference
from mesh.analysis.reporting.findings import counted, duration, share

ROWS_SHOWN: Final = 20
"""Rows of a topic. The others are only counted."""
ALIKE_SHARE: Final = 0.05
"""Amounts, as of rows or heartbeats, always differ a little. Up to this share they count as equal."""
SENTENCES: Final = ("run", "verdict")
"""Differences that are shown as sentences."""
SHARES: Final = ("availability", "accuracy", "agreement")
CLOCKS: Final = ("clock_error_s", "wall_off_s")
WORDS: Final[Mapping[str, str]] = {
    "mttf_s": "mean time to failure",
    "mttr_s": "mean time to repair",
    "late_ms": "longest delay of a loop",
    "wall_off_s": "wall clocks off by",
    "clock_error_s": "error of the clocks",
    "failures: power_off": "failures: power loss",
    "deaths_told": "reported dead",
    "detection: detection_p50_s": "noticed after, p50",
    "detection: detection_p99_s": "noticed after, p99",
    "detection: missed": "failures not noticed, by observer",
    "detection: mistakes": "false reports",
    "detection: mistake_s": "false reports lasted",
    "detection: rate_per_h": "false reports an hour",
    "detection: accuracy": "share of time without a false report",
    "matches: tp": "found (tp)",
    "matches: fp": "not done (fp)",
    "matches: fn": "missed (fn)",
}
"""Words for names in ``summary.json``, or for the part before or after their colon."""


def comparison(found: Sequence[Difference]) -> RenderableType:
    """For each run, a sentence of both sides and a table of figures by topic."""
    pieces: list[RenderableType] = []
    runs = list(dict.fromkeys(each.run for each in found if each.run)) or [""]
    for run in runs:
        # Differences of no run, as of the quality of the logs, come with the last run.
        ours = [each for each in found if each.run == run or (run == runs[-1] and not each.run)]
        if len(runs) > 1:
            pieces.append(Text(run, style="bold"))
        pieces += _sentences([each for each in ours if each.what in SENTENCES])
        figures = [each for each in ours if each.what not in SENTENCES]
        shown = [each for each in figures if not _alike(each)]
        if shown:
            pieces.append(_table(shown))
        if alike := len(figures) - len(shown):
            said = "differs too little to show" if alike == 1 else "differ too little to show"
            pieces.append(Text(f"{counted(alike, 'more figure')} {said}: see --json", "dim"))
    return Group(*pieces)


def _sentences(heads: Sequence[Difference]) -> list[Text]:
    """One for each side, before and after."""
    return [
        Text.assemble(
            (f"{name:<7}", "bold"), ": ".join("not there" if each is None else each for each in said)
        )
        for name, said in (
            ("before", [each.before for each in heads]),
            ("after", [each.after for each in heads]),
        )
        if said
    ]


def _alike(each: Difference) -> bool:
    """True if both values would look equal, or are amounts of about the same size."""
    if each.what == "part":
        return False
    one, other = each.before, each.after
    if each.topic == "amounts" and isinstance(one, int | float) and isinstance(other, int | float):
        if abs(one - other) <= ALIKE_SHARE * max(abs(one), abs(other)):
            return True
    return _value(each, one) == _value(each, other)


def _table(shown: Sequence[Difference]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for name in ("before", "after"):
        table.add_column(name, overflow="fold", justify="right")
    for topic in dict.fromkeys(each.topic for each in shown):
        rows = [each for each in shown if each.topic == topic]
        table.add_row(Text(topic, style="bold"))
        for each in rows[:ROWS_SHOWN]:
            name, before, after = _part(each) if each.what == "part" else _figure(each)
            table.add_row(Padding(Text(name), (0, 0, 0, 2)), Text(before), Text(after))
        if len(rows) > ROWS_SHOWN:
            table.add_row(Text(f"  and {len(rows) - ROWS_SHOWN} more: see --json", style="dim"))
    return table


def _part(each: Difference) -> tuple[str, str, str]:
    """The sides of a partition, and its kind and times before and after."""
    told = [str(value).partition(": ") if value else ("-", "", "") for value in (each.before, each.after)]
    return told[0][2] or told[1][2], told[0][0], told[1][0]


def _figure(each: Difference) -> tuple[str, str, str]:
    return _name(each.what), _value(each, each.before), _value(each, each.after)


def _name(what: str) -> str:
    """The name of a figure in words."""
    if what in WORDS:
        return WORDS[what]
    first, colon, rest = what.partition(": ")
    of = WORDS.get(first, first.removeprefix("broker "))
    if not colon:
        return of
    inner = WORDS.get(rest, rest).removesuffix("_us").removesuffix("_s").replace("_", " ")
    return f"{of}: {inner}"


def _value(each: Difference, value: Any) -> str:
    """A value in the unit that ends the name of its figure."""
    name = each.what.rpartition(": ")[2]
    if value is None:
        return "-"
    if isinstance(value, int | float):
        if name in SHARES:
            return share(float(value))
        if name.endswith("_us"):
            return f"{value / 1e3:.3g} ms"
        if name.endswith("_ms"):
            return f"{value:.3g} ms"
        if name in CLOCKS and value < 1:
            return f"{value * 1e3:.3g} ms"
        if name.endswith("_s"):
            return duration(value)
        return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return str(value)

"""The report and the plots in it: well-formed, self-contained, and safe with any name."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from mesh.analysis import plots
from mesh.analysis.churn import availability
from mesh.analysis.findings import (
    ChurnEvent,
    EndCause,
    EventKind,
    Findings,
    PartitionEpisode,
    Quality,
    Session,
)
from mesh.analysis.report import (
    BrokerTotals,
    FileQuality,
    LinkTotals,
    PairHeard,
    ReportData,
    RoundTrips,
    TrafficPoint,
    WindowState,
    duration,
    render,
    verdict,
)
from mesh.analysis.summary import summary
from mesh.analysis.tables import churn_windows

T = 1_795_262_400.0
NASTY = "<b>&\"'</b>"


def findings(**changes: object) -> Findings:
    sessions = (
        Session("run", "a", NASTY, "1", 1, T, T + 20, EndCause.FAILURE, False),
        Session("run", "a", NASTY, "2", 2, T + 30, T + 60, EndCause.LEAVE, False),
        Session("run", "b", "beta", "1", 1, T + 1, T + 60, EndCause.CENSORED, True),
    )
    events = (
        ChurnEvent("run", EventKind.JOIN, "a", NASTY, "1", T),
        ChurnEvent("run", EventKind.FAILURE, "a", NASTY, "1", T + 20, "", "", T + 23, 1),
        ChurnEvent("run", EventKind.REJOIN, "a", NASTY, "2", T + 30, "new boot", "failure"),
        ChurnEvent("run", EventKind.LEAVE, "a", NASTY, "2", T + 60),
    )
    found = Findings(
        runs=("run",),
        started=T,
        ended=T + 60,
        window_s=5.0,
        names={"a": NASTY, "b": "beta"},
        events=events,
        sessions=sessions,
        availability=tuple(availability(sessions)),
        partitions=(PartitionEpisode("run", 1, T + 40, None, 3, (("a",), ("b",))),),
        windows=12,
        traffic={"published": 10, "delivered": 20, "dropped": 3, "lost": 1},
        drops={"no credit": 3},
        quality=Quality(2, 100, 97, 1, 0, 2, 5, {"cut off, or not a JSON object": 2}),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def data(found: Findings) -> ReportData:
    return ReportData(
        findings=found,
        bucket_s=5.0,
        windows=(WindowState("run", T, 1, 2, 1, 0, 0), WindowState("run", T + 40, 1, 2, 2, 1, 1)),
        pairs=(PairHeard("run", "a", "b", 10, 7), PairHeard("run", "b", "a", 10, 0)),
        links=(
            LinkTotals("run", "a", "b", 1, 2, 128, 256, 0, 1, 40, 500, 900),
            LinkTotals("run", "b", "a", 2, 1, 256, 128, 3, 0, 0, None, None),
        ),
        brokers=(
            BrokerTotals("run", "a", 10, 20, 3, 48 << 20, 0.2, 2300.0),
            BrokerTotals("run", "b", 0, 0, 0, None, None, None),
        ),
        drops=(("run", "a", "no credit", 3),),
        traffic=(
            TrafficPoint("run", T, "a", 5, 10, 1, 3, 300, 0.4, 48 << 20),
            TrafficPoint("run", T + 30, "b", 5, 10, 2, 3, 300, None, None),
        ),
        round_trips=(RoundTrips("run", T, 5, 400, 900),),
        files=(FileQuality("a.jsonl", 100, 97, 1, 2),),
        folder="/logs",
    )


class Balance(HTMLParser):
    """Fails on a tag that closes what is not open."""

    VOID = ("meta", "line", "rect", "circle", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        assert tag in self.VOID

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"


def check(page: str) -> None:
    parser = Balance()
    parser.feed(page)
    assert not parser.open
    assert NASTY not in page
    assert not re.search(r"(src|href)\s*=|url\(|@import|<script|https?://", page)
    assert "nan" not in re.findall(r'(?:x|y|width|height|points)="([^"]*)"', page)


def test_the_page_is_whole_needs_nothing_from_outside_and_escapes_names() -> None:
    page = render(data(findings()))
    check(page)
    assert page.startswith("<!DOCTYPE html>")
    for heading in (
        "Over time",
        "What happened",
        "Availability",
        "Partitions",
        "Links",
        "The logs themselves",
    ):
        assert f"<h2>{heading}</h2>" in page


def test_a_mesh_that_left_almost_nothing_still_has_a_page() -> None:
    empty = findings(events=(), sessions=(), availability=(), partitions=(), names={}, drops={}, ended=T)
    page = render(
        replace(
            data(empty),
            windows=(),
            pairs=(),
            links=(),
            brokers=(),
            drops=(),
            traffic=(),
            round_trips=(),
            files=(),
        )
    )
    check(page)
    assert "None: in each of" in page


def test_a_large_mesh_is_cut_short_with_a_pointer_to_the_table() -> None:
    sessions = tuple(
        Session("run", f"n{n}", f"broker-{n}", "1", 1, T, T + 60, EndCause.LEAVE, False) for n in range(300)
    )
    events = tuple(
        ChurnEvent("run", EventKind.LEAVE, f"n{n}", f"broker-{n}", "1", T + 60) for n in range(300)
    )
    names = {f"n{n}": f"broker-{n}" for n in range(300)}
    large = findings(
        sessions=sessions, events=events, names=names, availability=tuple(availability(sessions))
    )
    page = render(data(large))
    check(page)
    assert "240 more brokers are in the tables" in page
    assert "100 more are in the table churn_events" in page


def test_the_verdict_is_one_sentence() -> None:
    assert verdict(findings()) == "2 brokers over 1 min 0 s: 1 failure, 1 rejoin, 1 leave and 1 partition."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (9.96, "10.0 s"),
        (61, "1 min 1 s"),
        (3600, "1 h 0 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_durations_are_said_with_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_summary_says_the_same_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=80, _environ={})
    console.print(summary(findings()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 failure, 1 rejoin, 1 leave and 1 partition" in text
    assert f"{NASTY}" in text
    assert "held dead after 3.0 s by 1" in text
    assert "2 in quarantine" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def two_runs() -> Findings:
    """The same in two simulations, whose brokers have the same names and ids."""
    found = findings()
    other = "crash-and-return-7"
    return replace(
        found,
        runs=("run", other),
        events=(*found.events, *(replace(event, run=other) for event in found.events)),
        sessions=(*found.sessions, *(replace(session, run=other) for session in found.sessions)),
        availability=(*found.availability, *(replace(each, run=other) for each in found.availability)),
        partitions=(*found.partitions, replace(found.partitions[0], run=other, number=2)),
    )


def test_brokers_of_several_runs_are_told_apart_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=120, _environ={})
    console.print(summary(two_runs()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.startswith("4 brokers over")
    for run in ("run", "crash-and-return-7"):
        assert len(re.findall(rf" join +{run}/<b>", text)) == 1
    assert re.search(r"^crash-and-return-7/beta +\S+%", text, re.MULTILINE)
    assert "partition 2 of crash-and-return-7 from" in text


def test_a_narrow_terminal_cuts_no_name_off() -> None:
    console = Console(file=io.StringIO(), width=60, _environ={})
    console.print(summary(two_runs()))
    assert "…" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_brokers_of_several_runs_are_told_apart_in_the_page() -> None:
    found = two_runs()
    links = (*data(found).links, replace(data(found).links[1], run="crash-and-return-7"))
    totals = (*data(found).brokers, replace(data(found).brokers[1], run="crash-and-return-7"))
    page = render(replace(data(found), links=links, brokers=totals))
    check(page)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert sum(cell.startswith("run/beta → ") for cell in cells) == 1
    assert sum(cell.startswith("crash-and-return-7/beta → ") for cell in cells) == 1
    assert cells.count("crash-and-return-7/beta") == 2  # its availability, and what it delivered
    assert "<b>Partition 2 of crash-and-return-7</b>" in page
    labels = re.findall(r'<text class="label"[^>]*>(.*?)</text>', page)
    assert "…return-7/beta" in labels, "the broker's name is what a lane's label must not lose"


def test_churn_windows_count_who_is_up_at_the_start_and_what_happens_within() -> None:
    found = findings()
    rows = churn_windows(found.events, found.sessions, 5.0)
    by_second = {row[1].timestamp() - T: row[2:] for row in rows}
    assert len(rows) == 13
    assert by_second[0] == (1, 1, 0, 0, 0)
    assert by_second[20] == (1, 0, 0, 1, 0)
    assert by_second[30] == (2, 0, 0, 0, 1)
    assert by_second[60] == (0, 0, 1, 0, 0)


@given(st.floats(0, 4e9), st.floats(0, 1e9))
def test_axes_have_few_ticks_inside_their_span(start: float, span: float) -> None:
    axis = plots.TimeAxis(start, start + span)
    ticks = axis.ticks()
    assert len(ticks) <= plots.TICKS_MAX + 1
    assert all(start - 1e-3 <= at <= start + span + 1e-3 for at, _ in ticks)
    assert all(plots.LEFT <= axis.x(at) <= plots.WIDTH - plots.RIGHT for at, _ in ticks)


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e12)), max_size=20))
@example([1.5e-311])
def test_lines_of_any_height_stay_inside_the_plot(values: list[float | None]) -> None:
    points = [(T + n, value) for n, value in enumerate(values)]
    drawing = plots.lines(plots.TimeAxis(T, T + 20), [plots.Line("x", "one", points)], [], "x", str)
    for y in re.findall(r'cy="([^"]+)"', drawing):
        assert -0.1 <= float(y) <= 108.1

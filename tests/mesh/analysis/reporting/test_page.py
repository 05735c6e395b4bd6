"""The page shows the content of the tables, escapes texts of logs, and has no overlapping labels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from mesh.analysis.reporting.findings import findings_of, natural
from mesh.analysis.reporting.page.axis import LEAST_WIDTH, TimeAxis
from mesh.analysis.reporting.page.rendering import render
from mesh.analysis.results.tables import Clock, FileRow, Link, Match, Part, PartSide, Survival, Traffic
from tests.mesh.analysis.reporting.large_by_hand import digest_of_size
from tests.mesh.analysis.reporting.tables_by_hand import RUN, at, broker, digest

S = 1_000_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page(**changes: object) -> str:
    tables = digest(**changes)
    return render(findings_of(tables), tables)


class Texts(HTMLParser):
    """All visible text of a page, and the tags that were opened but not closed."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open[-1] != "style":
            self.texts.append(data.strip())


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    html = page()
    assert Texts(html).open == []
    assert "<script" not in html
    assert not re.search(r"(src|href)\s*=|url\(|@import", html)


def test_causes_stand_beside_counts() -> None:
    texts = Texts(page()).texts
    assert any(text.startswith("3 brokers in 1 min 40 s, 1 crash, 1 partition") for text in texts)
    assert texts[texts.index("crash") :]
    for meaning in ("the process ended by force", "it ran, but those that reported it heard nothing of it"):
        assert meaning in texts


def test_counts_at_the_top_are_those_of_the_verdict() -> None:
    """Above "1 partition, 1 cut of single links" stood "2 partitions"."""
    parts = [Part(RUN, 1, at(60), at(70), "complete", True), Part(RUN, 2, at(80), at(90), "one-way", False)]
    sides = [PartSide(RUN, no, node, side) for no in (1, 2) for node, side in (("a", 0), ("b", 1))]
    texts = Texts(page(parts=parts, part_sides=sides)).texts
    tiles = texts[: texts.index("Over time")]
    assert tiles[tiles.index("partition") - 1] == "1"
    assert tiles[tiles.index("cut of links") - 1] == "1"
    events = texts[texts.index("What happened") :]
    assert "partition" in events and "one-way cut" in events
    assert "cut of links" not in Texts(page()).texts


def test_tiles_of_several_are_in_the_plural() -> None:
    """It said "1 cuts of links"."""
    parts = [Part(RUN, no, at(60), at(70), "one-way", False) for no in (1, 2)]
    sides = [PartSide(RUN, no, node, side) for no in (1, 2) for node, side in (("a", 0), ("b", 1))]
    texts = Texts(page(parts=parts, part_sides=sides)).texts
    for name, count in (("brokers", "3"), ("failure", "1"), ("partitions", "0"), ("cuts of links", "2")):
        assert texts[texts.index(name) - 1] == count


def test_a_one_way_cut_says_who_did_not_hear_whom() -> None:
    """The event, the drawing and the plots over time showed two sides without a direction."""
    parts = [Part(RUN, 1, at(60), at(70), "one-way", False), Part(RUN, 2, at(80), at(90), "complete", True)]
    sides = [PartSide(RUN, no, node, side) for no in (1, 2) for node, side in (("a", 0), ("c", 0), ("b", 1))]
    html = page(parts=parts, part_sides=sides)
    names = {row.node: row.name for row in digest().brokers}
    deaf = ", ".join(sorted((names["a"], names["c"]), key=natural))
    said = f"{deaf} did not hear {names['b']}"
    texts = Texts(html).texts
    assert said in texts, "among the events"
    assert any(text.endswith(f", 10 s. {said}.") for text in texts), "above the drawing"
    assert texts.count("did not hear →") == 1, "in its drawing alone"
    assert f"<title>one-way cut 1: {said}" in html and f"<title>partition 2: {deaf} | {names['b']}" in html


def test_the_comparison_with_a_simulation_is_in_words() -> None:
    """It said "1 fn, 2 tp"."""
    of_run = (RUN, "crash", "done", "found")
    matches = [
        Match(*of_run, "tp", at(1), 0.0, None),
        Match(*of_run, "tp", at(2), 0.0, None),
        Match(RUN, "crash", "done", None, "fn", at(3), None, None),
    ]
    texts = Texts(page(matches=matches)).texts
    assert any(text.endswith("what the simulation did: 1 missed, 2 right.") for text in texts)
    assert "missed" in texts and "fn" not in texts


def test_one_of_a_kind_is_counted_in_the_singular() -> None:
    """It said "1 lines are not rows" and "10 rows in 1 files"."""
    texts = Texts(page()).texts
    assert "1 line is no row; it is in quarantine with the reason." in texts
    assert any(text.startswith("10 rows in 1 file, ") for text in texts)
    clocks = [Clock(RUN, "a", "a-1", at(0), 0.0, 0.0001, 0.0004, 0)]
    texts = Texts(page(clocks=clocks)).texts
    assert any(text.endswith("to 0.1 ms; wall clocks were up to 0.4 ms away from it.") for text in texts)


def test_texts_of_logs_are_escaped() -> None:
    html = page(
        brokers=[broker("a", "<script>alert(1)</script>"), broker("b", "\u202ereversed"), broker("c", "")]
    )
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    assert Texts(html).open == []


def test_damaged_files_are_named() -> None:
    row = FileRow(None, "a<b.parquet", 9, 1, 0, 1, 0, 0, 0, 0, None, None, "it is cut off, or not Parquet")
    html = page(files=[row])
    assert "a&lt;b.parquet is damaged: it is cut off, or not Parquet; no row of it could be read." in html
    assert Texts(html).open == []


def test_columns_of_zeros_are_left_out() -> None:
    texts = Texts(page()).texts
    assert "down" in texts and "of it paused" in texts
    assert "unknown" not in texts and "away" not in texts


def test_a_column_is_explained_only_if_it_is_shown() -> None:
    """The meaning of "Lost" stood above a table without that column."""
    link = Link(RUN, "a", "b", 5, 5, 640, 640, 0, 0, 100, 400.0, 900.0, 3)
    lossy = msgspec.structs.replace(link, lost=2)
    for links, explained in (([link], False), ([link, lossy], True)):
        html = page(links=links)
        assert ("Lost: gaps in the numbers" in html) is ("lost" in Texts(html).texts) is explained
        assert "Heartbeats missed: rounds in which" in html
        said = " ".join(Texts(html).texts)
        assert "It sent to the second broker, and received from it. The worst link comes first." in said
        assert "Each sender counted the messages that it sent over each of its links." in said
    assert "A paused process counts as up." in page()
    assert "Unknown time counts as neither." not in page()


def test_a_method_is_explained_only_if_its_curve_is_drawn() -> None:
    curve = [Survival(RUN, "up", "naive", t_s, 3, 1, 1 - t_s / 40, None, None) for t_s in (10.0, 20.0)]
    html = page(survival=curve)
    assert "Naive takes only those that ended" in html
    assert "Create-based takes" not in html and "Kaplan-Meier includes" not in html


@pytest.mark.parametrize(
    ("late_ms", "name"), [(1.0, "deadline 0.5 s ↑ above this scale"), (300.0, "deadline 0.5 s")]
)
def test_the_deadline_is_drawn_however_far_it_is(late_ms: float, name: str) -> None:
    """Beside delays of a few milliseconds there was no deadline."""
    traffic = [
        Traffic(RUN, at(second), 5.0, "a", 1, 1, 1, 0, 1, 128, late_ms, 1 << 20) for second in (0, 5, 10)
    ]
    html = page(traffic=traffic)
    assert name in Texts(html).texts
    (line,) = re.findall(r'<line class="limit" .* y1="([0-9.]+)" .* y2="\1"/>', html)
    assert 0 <= float(line) < 108


def test_a_partition_names_both_sides() -> None:
    """The list of events named the smaller side alone."""
    texts = Texts(page()).texts
    assert "broker-2, broker-10 | broker-1" in texts[texts.index("What happened") : texts.index("Partitions")]
    tables = digest_of_size(200, 1)
    texts = Texts(render(findings_of(tables), tables)).texts
    events = texts[texts.index("What happened") : texts.index("Partitions")]
    (sides,) = [text for text in events if " more | broker-1, broker-2, " in text]
    assert len(sides) < 250


def test_names_are_in_natural_order() -> None:
    texts = Texts(page()).texts
    start = texts.index("Availability")
    names = [text for text in texts[start:] if text.startswith("broker-")][:3]
    assert names == ["broker-1", "broker-2", "broker-10"]


def test_a_run_of_one_broker_has_a_page() -> None:
    tables = digest_of_size(1, 0.05)
    texts = Texts(render(findings_of(tables), tables)).texts
    assert "None: all running brokers heard each other all the time." in texts


def test_a_short_outage_in_a_long_log_is_seen() -> None:
    axis = TimeAxis(0, 86_400 * S)
    x, width = axis.stretch(43_200 * S, 43_201 * S)
    assert width == LEAST_WIDTH
    assert x == pytest.approx(axis.x(43_200 * S))


@pytest.mark.parametrize("span_s", [0.3, 5, 100, 4000, 90_000, 1_000_000, 40_000_000])
def test_the_axis_has_few_round_times(span_s: float) -> None:
    axis = TimeAxis(1_760_000_000 * S, 1_760_000_000 * S + round(span_s * S))
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 8
    assert len({text for _, text in ticks}) == len(ticks)


OVERLAPS = """<script>
addEventListener('load', () => {
  const found = [];
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')];
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]);
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const [a, b] = [boxes[i][1], boxes[j][1]];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && tall > 4) found.push(boxes[i][0] + ' | ' + boxes[j][0]);
    }
    const drawn = svg.getBoundingClientRect();
    if (drawn.right > innerWidth + 1 && !svg.closest('.scroll')) found.push('cut off: ' + svg.ariaLabel);
  }
  const told = document.createElement('pre');
  told.id = 'overlaps';
  told.textContent = JSON.stringify(found);
  document.body.append(told);
});
</script>"""


@pytest.mark.long
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt install chromium)")
@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize(("brokers", "hours"), [(1, 0.05), (5, 0.03), (12, 3), (40, 1), (200, 26)])
def test_no_two_labels_overlap(tmp_path: Path, brokers: int, hours: float, width: int) -> None:
    tables = digest_of_size(brokers, hours)
    path = tmp_path / "page.html"
    path.write_text(render(findings_of(tables), tables).replace("</head>", OVERLAPS + "</head>"))
    assert CHROMIUM is not None
    ran = subprocess.run(
        [
            *(
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path / 'profile'}",
            ),
            *(f"--window-size={width},2000", "--dump-dom", f"file://{path}"),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    found = re.search(r'<pre id="overlaps">(.*?)</pre>', ran.stdout, re.S)
    assert found, ran.stderr[-2000:]
    assert json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")) == []

"""The metrics: names, bounds, Prometheus' own linter, and the docs."""

from __future__ import annotations

import re
import shutil
import subprocess
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mesh.http.metrics import LINKS_MAX, LOSSES, METRICS, QUEUES_MAX, REASONS_MAX, Metrics, Named
from mesh.http.source import Figures
from tests.mesh.console.statuses import link, member
from tests.mesh.http.figures import NOW_US, Queue, figures, many

DOCS = Path(__file__).parents[3] / "docs/reference/metrics.md"


def read(given: Figures, metrics: Metrics | None = None) -> dict[tuple[str, ...], float]:
    """Samples by name and values of labels, as Prometheus reads them."""
    text = (metrics or Metrics()).text(given, {HTTPStatus.OK: 3}).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


FULL = figures(
    members=[member("alpha", is_self=True), member("beta"), member("gamma", "dead"), member("de\nlta")],
    queues=(Queue("mail"), Queue('qu"ote\\')),
    certificates=[
        {"url": "tls+tcp://:7771", "expires": "2026-12-01T00:00:00Z"},
        {"url": "wss://:7772", "expires": "2027-12-01T00:00:00Z"},
    ],
    drops={"slow_subscriber": 5, "duplicate": 2},
    refused={"key": 1},
    journal={"failing": None, "stored": 9, "refused": 1, "damaged": 2, "commit_ms_p99": 2.5},
    log={"lost": 4},
)


def test_figures_of_a_status_come_out_in_base_units() -> None:
    seen = read(FULL)
    assert seen["mangrove_members", "alive"] == 3 and seen["mangrove_members", "dead"] == 1
    assert seen["mangrove_broker_state", "ready"] == 1 and seen["mangrove_broker_state", "joining"] == 0
    assert seen["mangrove_link_round_trip_seconds", "beta"] == pytest.approx(0.00041)
    assert seen["mangrove_event_loop_lateness_max_seconds",] == pytest.approx(0.0034)
    assert seen["mangrove_messages_dropped_total", "slow_subscriber"] == 5
    assert seen["mangrove_messages_dropped_total", "slow_link"] == 0, "a rate needs a beginning"
    assert ("mangrove_messages_dropped_total", "duplicate") not in seen, "nobody lost that"
    assert seen["mangrove_messages_set_aside_total", "duplicate"] == 2
    assert seen["mangrove_certificate_expiry_timestamp_seconds", "tls+tcp://:7771"] == 1_796_083_200
    assert seen["mangrove_journal_commit_p99_seconds",] == pytest.approx(0.0025)
    assert seen["mangrove_journal_damaged_blocks_total",] == 2
    assert seen["mangrove_queue_waiting_messages", 'qu"ote\\'] == 7
    assert seen["mangrove_link_queued_messages", "de\\nlta"] == 3, "names of others cannot forge lines"
    assert seen["mangrove_http_answers_total", "200"] == 3
    assert seen["mangrove_start_time_seconds",] == pytest.approx(NOW_US / 1e6 - FULL.status["uptime_s"])


def test_unknown_figures_have_no_sample() -> None:
    names = {key[0] for key in read(figures())}
    assert not [name for name in names if name.startswith(("mangrove_journal", "mangrove_event_log"))]
    assert not [name for name in names if name.startswith(("mangrove_queue", "mangrove_certificate"))]


def test_links_and_queues_beyond_the_bound_are_summed() -> None:
    queues = tuple(Queue(f"q{number}", waiting=number) for number in range(1000))
    seen = read(figures(members=many(200), queues=queues))
    peers = {key[1] for key in seen if key[0] == "mangrove_link_queued_messages"}
    assert len(peers) == LINKS_MAX + 1 and "other" in peers
    assert seen["mangrove_link_queued_messages", "other"] == 3 * (200 - LINKS_MAX)
    assert seen["mangrove_link_round_trip_seconds", "other"] == pytest.approx(0.199), "the worst"
    waiting = {key[1]: value for key, value in seen.items() if key[0] == "mangrove_queue_waiting_messages"}
    assert len(waiting) == QUEUES_MAX + 1 and sum(waiting.values()) == sum(range(1000))


def test_reasons_beyond_the_bound_are_summed() -> None:
    seen = read(figures(refused={f"r{number}": 1 for number in range(500)}))
    counts = [value for key, value in seen.items() if key[0] == "mangrove_connections_refused_total"]
    assert len(counts) == REASONS_MAX + 1 and sum(counts) == 500


def test_a_name_keeps_its_series_until_it_is_gone() -> None:
    named = Named(2)
    assert named.choose(["b", "c", "a"]) == {"b", "c"}
    assert named.choose(["a", "b", "c"]) == {"b", "c"}, "an order that changes moves nobody"
    assert named.choose(["a", "c"]) == {"a", "c"}


def test_links_of_one_name_are_one_series() -> None:
    """Two brokers of one name gave one series twice; then Prometheus refuses all of them."""
    twins = [member("alpha", is_self=True), member("beta"), member("beta", id="2" * 16)]
    assert read(figures(members=twins))["mangrove_link_queued_messages", "beta"] == 2 * link()["queued"]


def test_every_documented_reason_to_drop_has_a_counter_from_the_start() -> None:
    page = (DOCS.parent / "status.md").read_text()
    table = page.partition("## Reasons to drop")[2].partition("These lose nobody")[0]
    named = [
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in row.split("`")[1::2]
    ]
    assert sorted(LOSSES) == sorted(named)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"mangrove_[a-z0-9]+(_[a-z0-9]+)*", metric.name), metric.name
        assert metric.help.endswith(".") and len(metric.labels) <= 4
        assert not re.search(r"_(ms|us|kb|mb|milliseconds|count|sum|bucket)(_|$)", metric.name), metric.name
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_reference_has_every_metric_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(mangrove_\w+)` \| (.*?) \| (.*?) \|$", DOCS.read_text(), re.MULTILINE)
    ours = [(m.name, ", ".join(f"`{label}`" for label in m.labels), m.help.rstrip(".")) for m in METRICS]
    assert rows == ours, "\n".join(f"| `{name}` | {labels} | {help} |" for name, labels, help in ours)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_linter_of_prometheus_is_silent() -> None:
    text = Metrics().text(FULL, {200: 1})
    ran = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=240)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")

"""The status object has exactly the keys that the console, the command line and the reference use."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from mesh.broker.event_log import LogStatus
from mesh.broker.identity import StateStatus
from mesh.broker.status import (
    About,
    HomeStatus,
    JournalView,
    LinkStatus,
    Load,
    LoopLateness,
    MemberStatus,
    Rates,
    Traffic,
    as_key,
    build_snapshot,
    stats_fields,
)
from mesh.dataplane.queue_status import JournalStatus, QueueStatus
from mesh.errors import PeerError, TopicError
from mesh.journal.port import CommitTimes
from mesh.work.statistics import WorkCounters, WorkSnapshot

LINK = LinkStatus(
    peer=2, dialed=True, up_since=5.0, rtt_s=0.00125, traffic=Traffic(1, 2, 3, 4), dropped=5, lost=6, queued=7
)
ABOUT = About(
    mesh="mangrove",
    id=1,
    name="alpha",
    boot=9,
    incarnation=3,
    host="h",
    pid=42,
    version="0.1.0",
    url="tcp://a:1",
    client_url="tcp://a:1",
    listeners=["tcp://a:1"],
    state="ready",
    started=1.0,
    period_s=1.0,
)
STORED = HomeStatus(
    [
        QueueStatus(
            "mail",
            ("jobs.#",),
            7,
            1,
            WorkCounters(delivered=20, redelivered=2, settled=10, retried=1, buried=4),
            WorkSnapshot(consumers=1, fresh=0, in_flight=3, returned=4, suspects=3, delayed=2),
            size=700,
            oldest_us=1_000_000,
        )
    ],
    JournalView(JournalStatus("", 21, 5, 6, damaged=3, in_vain=8), CommitTimes(12, 0.0015, 0.04)),
    {"mail": ["alpha", "beta"]},
    3_500_000,
)
LOG = LogStatus("/log", rows=9, waiting=3, lost=1, errors=2, failing="No space left on device")
LOAD = Load(
    published=10,
    delivered=20,
    dropped=1,
    traffic=Traffic(10, 20, 1000, 2000),
    unresolved=2,
    drops={"slow_subscriber": 1},
    refused={},
    sessions=2,
    subscriptions=3,
    taps=[],
    rss_bytes=1 << 20,
)


def test_a_snapshot_is_json_with_the_documented_keys() -> None:
    members = [
        MemberStatus(1, "alpha", "alive", 3, 9, "tcp://a:1", "h", 1.0, None, True),
        MemberStatus(2, "bravo", "suspect", 1, 8, "tcp://b:1", "h", 7.0, LINK),
    ]
    status = build_snapshot(
        ABOUT,
        members,
        LOAD,
        LoopLateness(),
        Rates(0.0),
        [{"kind": "meta"}],
        interest=["news.#"],
        stored=STORED,
        log=LOG,
        state_file=StateStatus(2, None),
        durable_file=StateStatus(1, "No space left on device"),
        faults=3,
        now=11.0,
    )
    assert json.loads(json.dumps(status)) == status
    assert list(status) == [
        *("schema", "mesh", "id", "name", "boot", "incarnation", "host", "pid", "version", "url"),
        *(
            "client_url",
            "listeners",
            "http",
            "certificates",
            "state",
            "uptime_s",
            "period_s",
            "members",
            "totals",
            "rates",
            "drops",
        ),
        *(
            "unresolved",
            "refused",
            "loop",
            "rss_bytes",
            "sessions",
            "subscriptions",
            "interest",
            "taps",
            "queues",
            "queues_count",
            "queues_twice",
            "journal",
            "log",
            "state_file",
            "durable_file",
            "events",
            "omitted",
        ),
    ]
    assert status["log"] == {
        "rows": 9,
        "waiting": 3,
        "lost": 1,
        "errors": 2,
        "failing": "No space left on device",
    }
    assert status["state_file"] == {"errors": 2, "failing": None}
    assert status["durable_file"] == {"errors": 1, "failing": "No space left on device"}
    assert status["loop"]["faults"] == 3
    assert status["uptime_s"] == 10.0
    assert status["members"][0]["link"] is None and status["members"][0]["self"]
    assert status["members"][1]["since_s"] == 4.0
    assert status["members"][1]["link"] == {
        "dir": "out",
        "up_s": 6.0,
        "rtt_ms": 1.25,
        "msgs_in": 1,
        "msgs_out": 2,
        "bytes_in": 3,
        "bytes_out": 4,
        "dropped": 5,
        "lost": 6,
        "queued": 7,
    }


def test_a_stats_row_carries_the_links_counters() -> None:
    fields = stats_fields(LOAD, [LINK], LoopLateness(), HomeStatus([], None, {}, 0))
    assert "queues" not in fields and "journal" not in fields, "it is no home"
    assert fields["links"] == [
        {
            "peer": "0000000000000002",
            "msgs_in": 1,
            "msgs_out": 2,
            "bytes_in": 3,
            "bytes_out": 4,
            "dropped": 5,
            "lost": 6,
            "rtt_us": 1250,
        }
    ]
    assert fields["published"] == 10


def test_durable_subscriptions_are_in_the_status_and_in_stats_rows() -> None:
    status = build_snapshot(
        ABOUT,
        [],
        LOAD,
        LoopLateness(),
        Rates(0.0),
        [],
        interest=[],
        stored=STORED,
        log=LOG,
        state_file=None,
        durable_file=None,
        faults=0,
        now=11.0,
    )
    fields = stats_fields(LOAD, [], LoopLateness(), STORED)
    (mail,) = status["queues"]
    assert fields["queues"] == [mail] and fields["journal"].items() < status["journal"].items()
    assert mail == {
        "name": "mail",
        "waiting": 7,
        "bytes": 700,
        "oldest_s": 2.5,
        "consumers": 1,
        "in_flight": 3,
        "to_redeliver": 9,
        "delivered": 20,
        "redelivered": 2,
        "settled": 10,
        "retried": 1,
        "buried": 4,
    }
    assert status["journal"] == {
        "failing": None,
        "stored": 21,
        "duplicates": 5,
        "refused": 6,
        "commits": 12,
        "commit_ms_p50": 1.5,
        "commit_ms_p99": 40.0,
        "share": None,
        "filling": False,
        "damaged": 3,
        "in_vain": 8,
    }
    assert status["queues_count"] == 1 and status["queues_twice"] == {"mail": ["alpha", "beta"]}


def test_the_status_shows_the_durable_subscriptions_with_most_messages() -> None:
    queues = [QueueStatus(f"q{number:05}", (), number, 0, None, None) for number in range(10_000)]
    shown = HomeStatus(queues, None, {}, 0).entries(200)
    assert [queue["name"] for queue in shown] == [f"q{number:05}" for number in range(9_800, 10_000)]
    assert shown[0]["oldest_s"] is None and shown[0]["bytes"] is None


def test_lateness_is_the_median_and_the_maximum_of_an_interval() -> None:
    meter = LoopLateness()
    for late_s in (0.001, -0.5, 0.002, 0.003, 6.0):
        meter.note(late_s)
    meter.close_interval()
    assert (meter.p50_ms, meter.max_ms) == (2.0, 6000.0)
    meter.close_interval()
    assert meter.max_ms == 6000.0, "an interval without a sample says nothing new"


def test_rates_are_changes_over_time_and_never_negative() -> None:
    rates = Rates(10.0)
    rates.update(Traffic(100, 50, 1000, 0), (80, 40), 12.0)
    assert rates.current == {
        "msgs_in_s": 50.0,
        "msgs_out_s": 25.0,
        "bytes_in_s": 500.0,
        "bytes_out_s": 0.0,
        "published_s": 40.0,
        "delivered_s": 20.0,
    }
    rates.update(Traffic(0, 50, 1000, 0), (80, 30), 13.0)
    assert rates.current["msgs_in_s"] == 0.0
    rates.update(Traffic(5, 5, 5, 5), (5, 5), 13.0)
    assert rates.current["msgs_in_s"] == 0.0


def test_counters_are_all_fields_of_traffic_in_their_order() -> None:
    traffic = Traffic(1, 2, 3, 4)
    assert list(traffic.counters().items()) == list(traffic._asdict().items())


@pytest.mark.parametrize(
    ("phrase", "key"),
    [
        ("crowded out", "crowded_out"),
        ("tls: untrusted certificate", "tls_untrusted_certificate"),
        ("TLS on a plain address", "tls_on_a_plain_address"),
        ("above_limit", "above_limit"),
    ],
)
def test_reasons_of_refusals_of_all_layers_are_snake_case(phrase: str, key: str) -> None:
    """The status showed phrases beside names of Python classes: `crowded out`, `AboveLimit`."""
    assert as_key(phrase) == key


def test_each_error_that_a_peer_can_cause_is_counted_by_a_documented_word() -> None:
    """The status counted `SessionError`, a name of the program that is in no document."""
    import_module("mesh.broker.broker")  # and so everything that a peer of a broker can cause
    page = Path("docs/reference/status.md").read_text(encoding="utf-8")
    kinds: list[type[PeerError | TopicError]] = [PeerError, TopicError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len({kind.reason for kind in kinds}) > 8
    for reason in {kind.reason for kind in kinds} - {PeerError.reason}:
        assert as_key(reason) == reason and f"`{reason}`" in page

"""Simulated clients do everything that clients can do, and a mesh without faults serves all of it."""

from __future__ import annotations

import pytest

from simulations.evidence.ledger import Outcome, Said
from simulations.runs.playing import Play
from simulations.scenario import Scenario, Workload

EVERYTHING = Workload(
    publishers=2,
    subscribers=3,
    pause_s=0.1,
    askers=1,
    answerers=2,
    ask_pause_s=0.1,
    sent_share=0.3,
    batch_max=20,
    headers_share=0.5,
    large_share=0.2,
    request_share=0.5,
    stock_publishers=3,
    stock_subscribers=1,
)


def run(transport: str = "tcp", chunked: int = 0, permuted: int = 0, seed: int = 1) -> Play:
    workload = Workload(
        **{name: getattr(EVERYTHING, name) for name in EVERYTHING.__slots__} | {"transport": transport}
    )
    scenario = Scenario(
        "variety", brokers=3, warm_s=2.0, quiet_s=6.0, workload=workload, chunked=chunked, permuted=permuted
    )
    play = Play(scenario, seed=seed)
    result = play.run()
    assert result.ok, [each.violations[:2] for each in result.verdicts if not each.ok]
    return play


@pytest.mark.parametrize(
    ("transport", "chunked", "permuted"), [("tcp", 0, 0), ("ws", 0, 1), ("tcp", 1, 0), ("ws", 1, 1)]
)
def test_a_mesh_serves_everything_that_clients_do(transport: str, chunked: int, permuted: int) -> None:
    ledger = run(transport, chunked, permuted).ledger
    published = list(ledger.publications.values())
    assert {Outcome.ACCEPTED, Outcome.SENT} <= {each.outcome for each in published}
    by = {each.publisher for each in published if each.outcome in (Outcome.ACCEPTED, Outcome.SENT)}
    assert by == {"pub-1", "pub-2", "stock-pub-1", "stock-pub-2", "stock-pub-3"}
    assert any(each.headers for each in ledger.receipts)
    assert any(len(each.body) > 200_000 for each in ledger.receipts)
    assert any(each.stock for each in ledger.receipts)
    assert max(sum(each.at_s == other.at_s for other in published) for each in published[:50]) > 1
    answered = [each for question in ledger.questions for each in question.answers]
    assert any(each.responder for each in answered) and any(not each.responder for each in answered)


def test_a_run_with_everything_is_the_same_again() -> None:
    first, again = (run("ws", 1, 1).world.history.digest for _ in range(2))
    assert first == again


def test_workers_do_everything_that_can_be_done_to_a_message() -> None:
    workload = Workload(
        publishers=2,
        subscribers=1,
        pause_s=0.1,
        batch_max=3,
        headers_share=0.3,
        large_share=0.1,
        stored_share=0.8,
        durable_subscriptions=2,
        workers=4,
        slow_workers=1,
        retry_share=0.1,
        fail_share=0.05,
        drop_share=0.05,
        poison_share=0.05,
    )
    play = Play(Scenario("work", brokers=1, warm_s=1.0, quiet_s=4.0, workload=workload), seed=1)
    result = play.run()
    assert result.ok, [each.violations[:2] for each in result.verdicts if not each.ok]
    jobs = play.ledger.jobs
    assert {Said.DONE, Said.RETRY, Said.FAILED, Said.DROP} <= {job.said for job in jobs}
    assert {job.queue for job in jobs} == {"queue-1", "queue-2"}
    assert {job.worker for job in jobs} == {f"worker-{number}" for number in (1, 2, 3, 4)}
    assert any(job.headers for job in jobs) and any(len(job.body) > 200_000 for job in jobs)
    assert max(job.attempt for job in jobs) == 20
    assert result.counts["stored"] and result.counts["dead_letters"] and not result.counts["unknown"]


@pytest.mark.long
def test_the_liberties_of_event_loops_change_a_run() -> None:
    assert (
        len({run("tcp", chunked, permuted).world.history.digest for chunked in (0, 1) for permuted in (0, 1)})
        > 2
    )

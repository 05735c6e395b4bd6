"""Messages a second: in batches, with receipts that come later, and by a thousand tasks that await each.

At the same time a consumer takes and settles the messages, in batches, or one by one with JetStream.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from mesh.bench.durable import jetstream
from mesh.bench.durable.home import (
    BATCH,
    Publishing,
    by_tasks,
    in_batches,
    listen,
    processes,
    publish,
    run_home,
    soon,
    work_off,
)
from mesh.bench.durable.jetstream import JETSTREAM
from mesh.bench.harness import Case, Figures, Target
from mesh.bench.processor import spent

BATCHES: Final = "stored in batches"
SOON: Final = "published soon, 4096 pending"
TASKS: Final = "1000 tasks that await"
STORED, ACCEPTED = "mangrove", "mangrove, accepted"
RATE: Final = "messages/s"

TARGETS: Final = (
    Target(BATCHES, RATE, STORED, ACCEPTED, 0.35, True),
    Target(BATCHES, RATE, STORED, JETSTREAM, 10.0, True),
    Target(SOON, RATE, STORED, None, 100_000.0, True),
    Target(SOON, RATE, STORED, JETSTREAM, 8.0, True),
    Target(TASKS, RATE, STORED, ACCEPTED, 0.9, True),
)


def through(how: Publishing, level: str, count: int) -> Figures:
    """Acknowledged and consumed messages a second, and CPU microseconds for each."""
    stored = level == "stored"
    with processes() as (group, folder):
        home = group.start(run_home, str(folder))
        url = home.hear()
        consumer = group.start(work_off if stored else listen, url, count)
        consumer.hear()
        before = spent(home.process.pid)
        published_s, publisher_s = group.start(publish, url, how, level, count).hear()
        consumed = consumer.hear()
        taken = spent(home.process.pid) - before
        figures = {
            RATE: count / published_s,
            "consumed/s": consumed,
            "publisher us": publisher_s / count * 1e6,
            "loop us": taken.loop_s / count * 1e6,
        }
        return {**figures, "journal us": taken.others_s / count * 1e6} if stored else figures


def cases(scale: float, with_jetstream: bool) -> list[Case]:
    batches = max(2 * BATCH, int(1_000_000 * scale) // BATCH * BATCH)
    singly = max(1000, int(150_000 * scale))
    of_jetstream = max(1000, int(20_000 * scale))
    result = []
    for work, how, count in ((BATCHES, in_batches, batches), (SOON, soon, singly), (TASKS, by_tasks, singly)):
        result.append(Case(work, STORED, partial(through, how, "stored", count)))
        result.append(Case(work, ACCEPTED, partial(through, how, "accepted", count)))
        if with_jetstream and work != TASKS:
            result.append(Case(work, JETSTREAM, partial(jetstream.through, of_jetstream)))
    return result

"""``mesh check``: the health of a mesh, for Nagios and similar monitors."""

from __future__ import annotations

import asyncio
import sys
import time

from mesh.cli.exits import ExitCode
from mesh.cli.settings import NO_FLAGS, BrokerFlags, Seconds, Timeout, connected
from mesh.config import ClientConfig, FlagError
from mesh.console.check import Code, Limits, judge, line, read_limit
from mesh.console.probe import Look, look


def check(
    *,
    all: bool = False,
    alive: str | None = None,
    dead: str | None = None,
    drops: str | None = None,
    late: str | None = None,
    rtt: str | None = None,
    certificate: str | None = None,
    queue: str | None = None,
    queue_age: str | None = None,
    interval: Seconds = 1.0,
    timeout: Timeout = None,
    flags: BrokerFlags = NO_FLAGS,
) -> int:
    """Judge a mesh by thresholds: one line, and exit code 0 ok, 1 warning, 2 critical or 3 unknown.

    A threshold is WARNING,CRITICAL, or one number for both, or off. A broker that cannot be reached is
    critical.

    Parameters
    ----------
    all
        Ask every broker, not only the one connected to.
    alive
        Brokers alive, at least. Default: off.
    dead
        Brokers dead or cut off, at most. Default: 0,1.
    drops
        Messages dropped a second, at most. Default: 0,100.
    late
        Milliseconds that an event loop ran late, at most. Default: 100,500.
    rtt
        Milliseconds of the longest round trip, at most. Default: off.
    certificate
        Days until the first certificate expires, at least. Default: 14,2.
    queue
        Messages that wait in one durable subscription, at most. Default: off.
    queue_age
        Seconds that the first of them has waited, at most. Default: off.
    interval
        Seconds between the two looks that tell how much is dropped.
    """
    given = {
        "alive": alive,
        "dead": dead,
        "drops": drops,
        "late_ms": late,
        "rtt_ms": rtt,
        "certificate_days": certificate,
        "queue": queue,
        "queue_age_s": queue_age,
    }
    try:
        limits = Limits(**{key: read_limit(text) for key, text in given.items() if text is not None})
    except ValueError as error:
        raise FlagError(str(error)) from None
    before, after, elapsed_s = asyncio.run(_looks(flags.settings(timeout), all, interval))
    verdict = judge(before, after, limits, elapsed_s, time.time())
    print(verdict.line)
    return verdict.code


async def _looks(settings: ClientConfig, everyone: bool, interval_s: float) -> tuple[Look, Look, float]:
    async with connected(settings) as client:
        before = await look(client, settings.timeout_s, everyone=everyone)
        began = time.monotonic()
        await asyncio.sleep(interval_s)
        after = await look(client, settings.timeout_s, everyone=everyone)
        return before, after, time.monotonic() - began


def failed(code: int, sentence: str) -> int:
    """End without a judgement: a mesh that does not answer is critical, misuse is unknown."""
    away = code in (ExitCode.UNAVAILABLE, ExitCode.TIMEOUT)
    verdict = Code.CRITICAL if away else Code.UNKNOWN
    print(line(verdict, sentence))
    sys.stdout.flush()
    return verdict

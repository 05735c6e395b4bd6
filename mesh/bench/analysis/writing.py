"""What a heartbeat costs in a broker's event log: to note it, to make it text, to write it; and its bytes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, Final

from mesh.bench.measuring import Report, run_async
from mesh.broker.event_log import EventLog
from mesh.broker.log_rows import RowBuilder
from mesh.storage import ThreadStorage

FORMS: Final = ("each", "summary")
"""The values of ``log_heartbeats``."""
COST: Final = "us a heartbeat"
BYTES: Final = "bytes a heartbeat"

PEERS: Final = 100
PERIOD_S: Final = 1.0
NODE: Final = 0xB3F1_0C55_92AE_4D07


class _Clock:
    def __init__(self) -> None:
        self.now = 86_400.0

    def __call__(self) -> float:
        return self.now


def run_writing(form: str, heartbeats: int, report: Report, gate: Any) -> None:
    """Surveys and answers of 100 peers, written out after each second of theirs."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="mangrove-bench-") as folder:
            clock = _Clock()
            storage = ThreadStorage()
            log = EventLog(
                RowBuilder(run="mangrove", node=NODE, boot=NODE + 1),
                folder=folder,
                file_stem="bench",
                storage=storage,
                clock=clock,
                wall_time=time.time,
                summary_of_s=PERIOD_S if form == "summary" else None,
            )
            await log.start()
            before = time.process_time()
            rounds = max(1, heartbeats // (2 * PEERS))
            await _write(log, clock, rounds)
            spent_s = time.process_time() - before
            await storage.aclose()
            written = rounds * 2 * PEERS
            report({COST: spent_s / written * 1e6, BYTES: _size(folder) / written})

    run_async(main())


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).iterdir())


async def _write(log: EventLog, clock: _Clock, rounds: int) -> None:
    peers = [
        NODE ^ (number * 0x9E37_79B9_7F4A_7C15 & 0xFFFF_FFFF_FFFF_FFFF) for number in range(1, PEERS + 1)
    ]
    step_s = PERIOD_S / (2 * PEERS)
    for round in range(1, rounds + 1):
        now = clock.now
        for number, peer in enumerate(peers):
            now += step_s
            log.heard(True, peer, round, None, now)
            now += step_s
            log.heard(False, peer, round, 0.0004 + number * 1e-6, now)
        clock.now = now
        await log.flush()
    await log.aclose()

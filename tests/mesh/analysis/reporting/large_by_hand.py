"""Tables of a made-up run of any size, for pictures: crashes, a power loss, pauses, a cut, traffic, links."""

from __future__ import annotations

import random

from mesh.analysis.reporting.digest import LINKS_MOST, Digest, Heartbeats, Holes, Mistaken
from mesh.analysis.results.tables import (
    Availability,
    Broker,
    Change,
    Churn,
    Clock,
    Detector,
    Drop,
    FileRow,
    Life,
    Link,
    Match,
    Part,
    PartSide,
    Survival,
    Traffic,
    View,
)

S = 1_000_000
ZERO = 1_760_000_000 * S
RUN = "north"


def digest_of_size(count: int, hours: float, seed: int = 1) -> Digest:
    """A run of so many brokers and hours."""
    rng = random.Random(seed)
    span_s = hours * 3600
    nodes = [f"{number:016x}" for number in range(1, count + 1)]
    names = {node: f"broker-{number}" for number, node in enumerate(nodes, 1)}
    lives: list[Life] = []
    shares: list[Availability] = []
    changes: list[Change] = []

    def at(seconds: float) -> int:
        return ZERO + round(seconds * S)

    for number, node in enumerate(nodes):
        cuts: list[tuple[float, float, str]] = []
        if number % 7 == 1:
            start = rng.uniform(0.1, 0.8) * span_s
            cause = "power_off" if number % 14 == 1 else "crash"
            cuts.append((start, start + rng.uniform(2, 0.05 * span_s), cause))
        if number % 9 == 2:
            start = rng.uniform(0.1, 0.8) * span_s
            cuts.append((start, start + 6.0, "pause"))
        cuts.sort()
        before, no, down_s, paused_s = 0.0, 1, 0.0, 0.0
        for start, end, cause in cuts:
            if start < before:
                continue
            boot = f"{number:08x}{no:08x}"
            lives.append(Life(RUN, node, no, boot, "up", at(before), at(start), cause, False, False, 0.0))  # type: ignore[arg-type]
            paused = cause == "pause"
            state = "paused" if paused else "down"
            ended = "resume" if paused else "restart"
            lives.append(
                Life(
                    RUN,
                    node,
                    no + 1,
                    boot if paused else None,
                    state,
                    at(start),
                    at(end),
                    ended,
                    False,
                    False,
                    0.0,
                )  # type: ignore[arg-type]
            )
            told = "paused" if paused else cause
            changes.append(
                Change(RUN, node, boot, 1, "dead", at(start), told, count - 1, count - 1, 2.5, 3.0, 3.4, 4.0)  # type: ignore[arg-type]
            )
            down_s += 0 if paused else end - start
            paused_s += end - start if paused else 0
            before, no = end, no + 2
        lives.append(
            Life(RUN, node, no, f"{number:08x}{no:08x}", "up", at(before), at(span_s), None, False, True, 0.0)
        )
        failures = sum(cause != "pause" for *_, cause in cuts)
        up_s = span_s - down_s
        shares.append(
            Availability(
                RUN,
                node,
                up_s,
                paused_s,
                down_s,
                0.0,
                0.0,
                failures,
                up_s / span_s,
                up_s / failures if failures else None,
                down_s / failures if failures else None,
            )
        )
    half = nodes[: max(1, count // 3)]
    parts = [Part(RUN, 1, at(0.6 * span_s), at(0.6 * span_s + 20), "complete", True)] if count > 1 else []
    sides = [PartSide(RUN, 1, node, int(node in half)) for node in nodes] if count > 1 else []
    windows = 240
    width = span_s / windows
    traffic, churn = [], []
    for window in range(windows):
        start = at(window * width)
        for node in nodes if count <= 40 else ["*"]:
            rate = rng.uniform(40, 60) * width * (1 if count <= 40 else count)
            dropped = round(rate / 20) if 0.6 <= window / windows < 0.62 else 0
            late = rng.uniform(0.1, 6.0) + (620.0 if rng.random() < 0.01 else 0.0)
            traffic.append(
                Traffic(
                    RUN,
                    start,
                    width,
                    node,
                    round(rate),
                    round(rate * 4),
                    round(rate * 4) + dropped,
                    dropped,
                    round(rate),
                    round(rate * 128),
                    late,
                    40 << 20,
                )
            )
        alive = sum(
            any(life.state == "up" and life.start <= start < life.end for life in lives if life.node == node)
            for node in nodes
        )
        churn.append(Churn(RUN, start, width, alive, 0, 0, 0, 0, 0.0))
    links = []
    for node in nodes:
        for peer in nodes if count <= 40 else rng.sample(nodes, 4):
            if peer != node and len(links) < LINKS_MOST:
                p50 = rng.uniform(300, 900)
                links.append(
                    Link(
                        RUN,
                        node,
                        peer,
                        5000,
                        rng.randrange(9000),
                        640_000,
                        900_000,
                        rng.randrange(3),
                        0,
                        3600,
                        p50,
                        p50 * rng.uniform(1.5, 9),
                        rng.randrange(20),
                    )
                )
    survival = []
    for of in ("up", "down"):
        for method in ("naive", "create-based", "kaplan-meier"):
            left = 1.0
            for step in range(1, 13):
                left *= rng.uniform(0.75, 0.99)
                band = (max(0, left - 0.1), min(1, left + 0.1)) if method == "kaplan-meier" else (None, None)
                t_s = step * (span_s / 14 if of == "up" else 40)
                survival.append(Survival(RUN, of, method, t_s, 13 - step, 1, left, *band))  # type: ignore[arg-type]
    return Digest(
        files=[
            FileRow(RUN, f"{names[node]}.jsonl", 1 << 20, 4000, 3999, 1, 0, 0, 0, 2, at(0), at(span_s))
            for node in nodes
        ],
        holes=[Holes(RUN, nodes[-1], 2, 12_345, at(0.3 * span_s), at(0.32 * span_s))],
        brokers=[
            Broker(
                RUN,
                node,
                names[node],
                "host",
                "0.2",
                1,
                1.0,
                0.5,
                5.0,
                90_000,
                360_000,
                rng.randrange(9),
                40 << 20,
                0.1,
                rng.uniform(1, 620),
            )
            for node in nodes
        ],
        lives=lives,
        availability=shares,
        churn=churn,
        survival=survival,
        parts=parts,
        part_sides=sides,
        changes=changes,
        mistaken=[Mistaken(RUN, nodes[0], "dead", "cut off", count - len(half), count - len(half), 18.4)],
        detector=[Detector(RUN, "*", "*", span_s * count, 3, 0.02, 18.4, None, 0.9998, 9, 1, 2.5, 3.9)],
        views=[View(RUN, at(0.6 * span_s), 10.0, count, 2, 2 / 3)] if count > 1 else [],
        clocks=[Clock(RUN, nodes[0], "0" * 16, at(0), 0.2, 0.0001, 0.034, 1)],
        links=links,
        heartbeats=[Heartbeats(RUN, len(links), 9000, 10 * len(links), 9000, 600.0, 2100.0)],
        traffic=traffic,
        drops=[Drop(RUN, nodes[0], "queue full", 120)],
        matches=[Match(RUN, "crash", "broker-2 crashed", None, "fn", at(100), None, None)],
    )

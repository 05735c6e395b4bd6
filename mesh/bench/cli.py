"""`mesh bench sockets`, `broker`, `durable`, `simulate` and `analyze`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from cyclopts import Parameter
from rich.console import Console

from mesh.bench.against import PAIRS, bench_against
from mesh.bench.harness import BenchError, Case, Outcome, Target, as_json, run_cases, show


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Parameters of every benchmark."""

    rounds: Annotated[
        int, Parameter(help="How often every system is measured; the medians are compared.")
    ] = 3
    scale: Annotated[float, Parameter(help="Multiplies what is measured (0.05 gives a quick look).")] = 1.0
    only: Annotated[str | None, Parameter(help="Run only the works whose name contains this.")] = None
    json: Annotated[bool, Parameter(help="Print one JSON document instead of tables.")] = False


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """Parameters of a comparison of two versions."""

    against: Annotated[
        str | None,
        Parameter(
            help="A wheel or checkout of another version: measure our own systems, on both, pair by pair."
        ),
    ] = None
    pairs: Annotated[int, Parameter(help="How many pairs are measured with --against.")] = PAIRS


MEASURING: Final = Measuring()
COMPARING: Final = Comparing()


def sockets(*, measuring: Measuring = MEASURING, comparing: Comparing = COMPARING) -> None:
    """Measure the sockets beside pynng and pyzmq, in ten works."""
    from mesh.bench.sockets import TARGETS, cases

    _bench_or_compare("sockets", cases, TARGETS, measuring, comparing)


def broker(*, measuring: Measuring = MEASURING, comparing: Comparing = COMPARING) -> None:
    """Measure publisher to broker to subscriber beside a ZeroMQ proxy; flooding; an idle broker."""
    from mesh.bench.broker import TARGETS, cases

    _bench_or_compare("broker", cases, TARGETS, measuring, comparing)


def durable(*, measuring: Measuring = MEASURING, comparing: Comparing = COMPARING) -> None:
    """Measure level stored and durable subscriptions beside level accepted and JetStream."""
    from mesh.bench.durable import TARGETS, cases

    _bench_or_compare("durable", cases, TARGETS, measuring, comparing)


def analyze(*, measuring: Measuring = MEASURING) -> None:
    """Measure the analysis beside Spark's scan of the same rows; how far a follower is behind."""
    from mesh.bench.analysis.works import TARGETS, cases

    _bench("analyze", cases, TARGETS, measuring)


def simulate(*, measuring: Measuring = MEASURING, plot: str | None = None) -> None:
    """Measure the simulator: idle brokers in full, a scenario with faults, the cores alone.

    Parameters
    ----------
    plot
        Write a drawing (SVG) of what a message costs by the number of brokers to this file.
    """
    from mesh.bench.simulate import TARGETS, cases
    from mesh.bench.simulate import plot as write_plot

    outcome = _bench("simulate", cases, TARGETS, measuring)
    if plot is not None:
        write_plot(outcome, plot)


Cases = Callable[[float, dict[str, str]], list[Case]]
"""Makes the cases of a scale, and notes by name what is skipped and why."""


def _bench_or_compare(
    name: str, make_cases: Cases, targets: Sequence[Target], measuring: Measuring, comparing: Comparing
) -> None:
    if comparing.against is None:
        _bench(name, make_cases, targets, measuring)
        return
    chosen = _chosen(make_cases, {}, measuring)
    bench_against(name, chosen, comparing.against, comparing.pairs, measuring.scale, measuring.json)


def _bench(name: str, make_cases: Cases, targets: Sequence[Target], measuring: Measuring) -> Outcome:
    skipped: dict[str, str] = {}
    chosen = _chosen(make_cases, skipped, measuring)
    outcome = run_cases(chosen, measuring.rounds, skipped, Console(stderr=True))
    if measuring.json:
        print(as_json(name, outcome, targets))
    else:
        show(name, outcome, targets, Console())
    return outcome


def _chosen(make_cases: Cases, skipped: dict[str, str], measuring: Measuring) -> list[Case]:
    only = measuring.only
    cases = make_cases(measuring.scale, skipped)
    chosen = [case for case in cases if only is None or only in case.work]
    if not chosen:
        works = ", ".join(dict.fromkeys(case.work for case in cases))
        raise BenchError(f"no work is named like {only!r}; there are: {works}")
    return chosen

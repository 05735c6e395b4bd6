"""`mesh bench sockets`, `mesh bench broker` and `mesh bench simulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cyclopts import App
from rich.console import Console

from mesh.bench.against import PAIRS, bench_against
from mesh.bench.harness import BenchError, Case, Outcome, Target, as_json, run_cases, show

app = App(name="bench", help="Measure sockets and brokers beside their peers, and the simulator.")


@app.command
def sockets(
    *,
    rounds: int = 3,
    scale: float = 1.0,
    only: str | None = None,
    json: bool = False,
    against: str | None = None,
    pairs: int = PAIRS,
) -> None:
    """Measure the sockets beside pynng and pyzmq, in ten works.

    Parameters
    ----------
    rounds
        How often every system is measured; the medians are compared.
    scale
        Multiplies the number of messages (0.05 gives a quick look).
    only
        Run only the works whose name contains this.
    json
        Print one JSON document instead of tables.
    against
        A wheel or checkout of another version: measure only our own systems, on both, pair by pair.
    pairs
        How many pairs are measured with ``--against``.
    """
    from mesh.bench.sockets import TARGETS, cases

    if against is None:
        _bench("sockets", cases, TARGETS, rounds, scale, only, json)
    else:
        bench_against("sockets", _chosen(cases, scale, {}, only), against, pairs, scale, json)


@app.command
def broker(
    *,
    rounds: int = 3,
    scale: float = 1.0,
    only: str | None = None,
    json: bool = False,
    against: str | None = None,
    pairs: int = PAIRS,
) -> None:
    """Measure publisher to broker to subscriber beside a ZeroMQ proxy; flooding; an idle broker.

    Parameters
    ----------
    rounds
        How often every system is measured; the medians are compared.
    scale
        Multiplies the number of messages (0.05 gives a quick look).
    only
        Run only the works whose name contains this.
    json
        Print one JSON document instead of tables.
    against
        A wheel or checkout of another version: measure only our own systems, on both, pair by pair.
    pairs
        How many pairs are measured with ``--against``.
    """
    from mesh.bench.broker import TARGETS, cases

    if against is None:
        _bench("broker", cases, TARGETS, rounds, scale, only, json)
    else:
        bench_against("broker", _chosen(cases, scale, {}, only), against, pairs, scale, json)


@app.command
def simulate(
    *,
    rounds: int = 3,
    scale: float = 1.0,
    only: str | None = None,
    json: bool = False,
    plot: str | None = None,
) -> None:
    """Measure the simulator: idle brokers in full, a scenario with faults, the cores alone.

    Parameters
    ----------
    rounds
        How often everything is measured; the medians count.
    scale
        Multiplies what is timed (0.05 gives a quick look).
    only
        Run only the works whose name contains this.
    json
        Print one JSON document instead of tables.
    plot
        Write a drawing (SVG) of what a message costs by the number of brokers to this file.
    """
    from mesh.bench.simulate import TARGETS, cases
    from mesh.bench.simulate import plot as write_plot

    outcome = _bench("simulate", cases, TARGETS, rounds, scale, only, json)
    if plot is not None:
        write_plot(outcome, plot)


def _bench(
    name: str,
    make_cases: Callable[[float, dict[str, str]], list[Case]],
    targets: Sequence[Target],
    rounds: int,
    scale: float,
    only: str | None,
    json: bool,
) -> Outcome:
    skipped: dict[str, str] = {}
    chosen = _chosen(make_cases, scale, skipped, only)
    outcome = run_cases(chosen, rounds, skipped, Console(stderr=True))
    if json:
        print(as_json(name, outcome, targets))
    else:
        show(name, outcome, targets, Console())
    return outcome


def _chosen(
    make_cases: Callable[[float, dict[str, str]], list[Case]],
    scale: float,
    skipped: dict[str, str],
    only: str | None,
) -> list[Case]:
    chosen = [case for case in make_cases(scale, skipped) if only is None or only in case.work]
    if not chosen:
        works = ", ".join(dict.fromkeys(case.work for case in make_cases(scale, {})))
        raise BenchError(f"no work is named like {only!r}; there are: {works}")
    return chosen

"""What must hold of the members: M1 to M23 of the study.

`M9`, `M18` and `M19` judge what is not there yet (witnesses, local health, hold-down). What they read, its
coming must provide: in the event log ``witnesses`` and ``round`` of a suspicion, rows of kind ``help`` and of
kind ``hold``; in a `View` its ``health``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from mesh.identity import format_id
from mesh.membership import RANKS, MemberRecord, State, merge
from simulations.evidence import Evidence, Life, Row, Sample, View
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import LIES, Circumstances, Outage, quantile, raised
from simulations.invariants.verdict import Verdict, verdict

DETECTION_PERIODS: Final = 4
"""Three rounds missed in a row make a death: within three periods and a deadline, and one for delays."""
GRACE_PERIODS: Final = 10
"""So long after a fault its consequences may be felt: links are dialled again after up to so many."""
STRANGERS_MAX: Final = 128
SEEN_MAX: Final = 1024
TOMBSTONE_S: Final = 86400.0
STATE_RANKS: Final = {str(state): rank for state, rank in RANKS.items()}
VIEW_STATES: Final = ("alive", "suspect")


def detection_s(evidence: Evidence) -> float:
    """Within this whoever is gone is called dead."""
    return DETECTION_PERIODS * evidence.period_s + evidence.deadline_s


def grace_s(evidence: Evidence) -> float:
    return GRACE_PERIODS * evidence.period_s


def was_whole(evidence: Evidence) -> bool:
    """Otherwise `converged` says so, and there was no time of rest to be judged."""
    return bool(evidence.rest)


def _held(evidence: Evidence) -> Iterator[tuple[Sample, View]]:
    for sample in evidence.samples:
        for view in sample.views.values():
            yield sample, view


# --- M1, M2, M15: one view


def converged(evidence: Evidence) -> Verdict:
    rest = evidence.rest
    wrong: list[str] = []
    if not rest:
        wrong = _never_whole(evidence)
    strict = evidence.scenario.network.loss == 0
    for number, sample in enumerate(rest):
        wrong += differences(evidence, sample, strict=strict or not number)
    brokers = len(rest[-1].views) if rest else 0
    detail = f"each of {brokers} brokers by its table" if brokers else ""
    return verdict("converged", len(rest), "moment(s) of rest", wrong, detail=detail)


def _never_whole(evidence: Evidence) -> list[str]:
    healed_s = evidence.phases.get("healed_s", 0.0)
    until_s = evidence.phases.get("quiet_from_s", healed_s + evidence.scenario.bound_s)
    last = evidence.samples_between(healed_s, until_s)[-1:]
    wrong = [each for sample in last for each in differences(evidence, sample)]
    return wrong or ["the mesh was never whole"]


def differences(evidence: Evidence, sample: Sample, *, strict: bool = True) -> list[str]:
    """What the tables of all brokers that were started say wrongly; unless ``strict`` a suspect counts as
    alive."""
    views = {name: view for name, view in sample.views.items() if view.state != "leaving"}
    wrong = [
        f"{name} is not up at {sample.at_s:.1f} s"
        for name in _expected(evidence, sample)
        if name not in views
    ]
    live = {view.id: name for name, view in views.items()}
    for name, view in views.items():
        seen = [
            id for id, state in view.states.items() if state == "alive" or (not strict and state == "suspect")
        ]
        wrong += [
            f"{name} does not see {other} alive at {sample.at_s:.1f} s"
            for id, other in live.items()
            if id not in seen
        ]
        wrong += [
            f"{name} sees {evidence.name_of(id)} alive at {sample.at_s:.1f} s, which is not"
            for id in seen
            if id not in live
        ]
    return wrong if views else [*wrong, f"no broker is live at {sample.at_s:.1f} s"]


def _expected(evidence: Evidence, sample: Sample) -> Iterator[str]:
    """The scenario's brokers, and those of its spares that were started; a twin need not stay."""
    yield from evidence.scenario.broker_names
    for name in evidence.scenario.spare_names:
        if name in evidence.brokers and evidence.brokers[name][0].started_s < sample.at_s:
            yield name


def one_digest(evidence: Evidence) -> Verdict:
    """A change of a moment ago may not have reached everybody, so one difference is none yet."""
    rest = evidence.rest
    wrong: list[str] = []
    before = False
    for number, sample in enumerate(rest):
        digests = {view.digest.hex(): name for name, view in sample.views.items()}
        differ = len(digests) > 1
        if differ and (before or number == len(rest) - 1):
            told = ", ".join(f"{digest} at {name}" for digest, name in digests.items())
            wrong.append(f"at {sample.at_s:.1f} s the digests differ: {told}")
        before = differ
    return verdict("one_digest", len(rest), "moment(s) of rest", wrong)


def healed(evidence: Evidence, within_s: float = 0.0) -> Verdict:
    """After each fault of the network, of pairs to which nothing else was done until then."""
    within_s = within_s or evidence.scenario.bound_s
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        end_s = each.until_s + within_s
        names = [
            name
            for name in evidence.brokers
            if evidence.up(name, each.from_s, end_s)
            and not circumstances.touched(name, each.until_s + 1e-6, end_s)
        ]
        later = [sample for sample in evidence.samples if sample.at_s >= end_s]
        if not later:
            continue
        for one in names:
            for other in names:
                if each.parts(evidence.host_of(one), evidence.host_of(other)) and one in later[0].views:
                    looked += 1
                    view, id = later[0].views[one], evidence.brokers[other][-1].id
                    if id not in view.in_view:
                        wrong.append(
                            f"{one} does not see {other} {within_s:g} s after the {each.kind} ended at "
                            f"{each.until_s:.1f} s"
                        )
    return verdict("healed", looked, "pair(s) that w(as|ere) parted and joined again", wrong)


# --- M3 to M6, M22: records


def records_only_grow(evidence: Evidence) -> Verdict:
    wrong: list[str] = []
    last: dict[tuple[str, int, int], tuple[float, tuple[int, int]]] = {}
    looked = 0
    for sample, view in _held(evidence):
        for record in view.table[1:]:
            looked += 1
            key = (view.name, view.boot, record.id)
            now = (record.incarnation, RANKS[record.state])
            before = last.get(key)
            if before is not None and now < before[1]:
                wrong.append(
                    f"{view.name} held {evidence.name_of(record.id)} as {_told(before[1])} at "
                    f"{before[0]:.1f} s and as "
                    f"{_told(now)} at {sample.at_s:.1f} s"
                )
            last[key] = (sample.at_s, now)
    wrong += _shrunk_rows(evidence)
    return verdict("records_only_grow", looked, "record(s) at a moment", wrong)


def _shrunk_rows(evidence: Evidence) -> Iterator[str]:
    """Between two samples the log tells."""
    last: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in _in_writing_order(evidence):
        key = (row["node"], row["boot"], row["subject"])
        now = (row["subject_inc"], STATE_RANKS[row["to_state"]])
        if row["from_state"] != "unknown" and now < last.get(key, (0, 0)):
            yield (
                f"{evidence.writer(row)} went from {_told(last[key])} of {row['subject_name']} back to "
                f"{_told(now)} at "
                f"{row['at_s']:.3f} s"
            )
        last[key] = now


def _in_writing_order(evidence: Evidence) -> Iterator[Row]:
    for rows in evidence.by_writer.values():
        for row in rows:
            if row["kind"] == "mem" and row["node"] != row["subject"]:
                yield row


def _told(pair: tuple[int, int]) -> str:
    states = {rank: state for state, rank in STATE_RANKS.items()}
    return f"{states[pair[1]]} of incarnation {pair[0]}"


def only_owners_raise(evidence: Evidence) -> Verdict:
    """Whoever is up says at that instant what it calls itself; of who is not, all it ever said counts. What
    somebody lied about is left out.
    """
    said: dict[int, int] = {}
    for _, view in _held(evidence):
        said[view.id] = max(said.get(view.id, 0), view.me.incarnation)
    for row in evidence.rows:
        id = int(row["node"], 16)
        said[id] = max(said.get(id, 0), row["inc"])
    lies = [
        (span.start_s, life.id)
        for span in evidence.faults
        if span.fault.kind in LIES
        for name in span.fault.a
        for life in evidence.brokers.get(name, ())
    ]
    wrong: list[str] = []
    looked = 0
    for sample in evidence.samples:
        lied_about = {id: None for since_s, id in lies if since_s <= sample.at_s}
        own: dict[int, int] = {}
        for view in sample.views.values():
            own[view.id] = max(own.get(view.id, 0), view.me.incarnation)
        for view in sample.views.values():
            for record in view.table[1:]:
                looked += 1
                # The last word of one that then died may be in no log: it can have raised by one.
                most = said.get(record.id, record.incarnation) + 1
                if record.id not in evidence.shared_ids:
                    most = own.get(record.id, most)
                if record.incarnation > most and record.id not in lied_about:
                    wrong.append(
                        f"{view.name} holds incarnation {record.incarnation} of "
                        f"{evidence.name_of(record.id)} at "
                        f"{sample.at_s:.1f} s, which never went beyond {most}"
                    )
    return verdict("only_owners_raise", looked, "record(s) at a moment", wrong)


def merge_is_order_free(evidence: Evidence, shuffles: float = 5) -> Verdict:
    """The records that were held in the run, merged again in other orders and some twice."""
    about: dict[int, dict[MemberRecord, None]] = {}
    for _, view in _held(evidence):
        for record in view.table:
            about.setdefault(record.id, {})[record] = None
    rng = random.Random("the orders of M5")
    wrong: list[str] = []
    looked = 0
    for id, records in about.items():
        stands = _merged(list(records))
        for _ in range(int(shuffles)):
            order = [*records, *rng.sample(list(records), rng.randrange(len(records) + 1))]
            rng.shuffle(order)
            looked += 1
            if _merged(order) != stands:
                wrong.append(
                    f"of {evidence.name_of(id)} {_shown(stands)} stands or {_shown(_merged(order))}, by the "
                    "order in "
                    f"which {len(records)} records are merged"
                )
    return verdict("merge_is_order_free", looked, "order(s) of records", wrong)


def _merged(records: Sequence[MemberRecord]) -> MemberRecord:
    stands = records[0]
    for record in records[1:]:
        stands = merge(stands, record)
    return stands


def _shown(record: MemberRecord) -> str:
    return f"{record.state} of incarnation {record.incarnation}"


def answers_accusations(evidence: Evidence) -> Verdict:
    """A broker is never anything but alive to itself, or gone; and who accuses it hears so, if it can."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    before: Sample | None = None
    for sample in evidence.samples:
        for view in sample.views.values():
            looked += 1
            state = view.me.state
            if state not in (State.ALIVE, State.LEFT) or (state is State.LEFT and view.state != "leaving"):
                wrong.append(f"{view.name} holds itself {state} at {sample.at_s:.1f} s")
        if before is not None:
            wrong += _unanswered(evidence, circumstances, before, sample)
        before = sample
    return verdict("answers_accusations", looked, "broker(s) at a moment", wrong)


def _unanswered(
    evidence: Evidence, circumstances: Circumstances, before: Sample, sample: Sample
) -> Iterator[str]:
    """Accusations that stood at two moments some time apart, between two that were linked and well."""
    from_s, until_s = before.at_s, sample.at_s
    if until_s - from_s < evidence.period_s / 2:
        return
    for observer in sample.views.values():
        earlier = before.views.get(observer.name)
        for record in observer.table[1:]:
            if (
                earlier is None
                or record.state not in (State.SUSPECT, State.DEAD)
                or earlier.boot != observer.boot
            ):
                continue
            name = evidence.name_of(record.id)
            accused, accused_before = sample.views.get(name), before.views.get(name)
            if (
                accused is None
                or accused.id != record.id
                or accused_before is None
                or record not in earlier.table
                or any(observer.id not in each.links for each in (accused, accused_before))
                or any(accused.id not in each.links for each in (observer, earlier))
                or any(
                    circumstances.touched(each, from_s - grace_s(evidence), until_s)
                    # A silence too short to excuse a death is long enough to leave something unanswered.
                    or circumstances.away(each, from_s - grace_s(evidence), until_s)
                    for each in (name, observer.name)
                )
            ):
                continue
            yield (
                f"{name} left it unanswered that {observer.name}, to which it is linked, holds it "
                f"{record.state} "
                f"since {from_s:.1f} s"
            )


def no_resurrection(evidence: Evidence) -> Verdict:
    """Tombstones are kept, and no stale record raises the dead."""
    wrong: list[str] = []
    buried: dict[tuple[str, str, str], Row] = {}
    looked = 0
    for row in _in_writing_order(evidence):
        key = (row["node"], row["boot"], row["subject"])
        before = buried.pop(key, None)
        if row["to_state"] in ("dead", "left"):
            looked += 1
            buried[key] = row
        if before is None:
            continue
        who = f"{evidence.writer(row)} held {row['subject_name']} {before['to_state']}"
        if row["from_state"] == "unknown" and row["at_s"] - before["at_s"] < TOMBSTONE_S:
            wrong.append(f"{who} and had forgotten it {row['at_s'] - before['at_s']:.1f} s later")
        elif row["to_state"] in VIEW_STATES and row["subject_inc"] <= before["subject_inc"]:
            wrong.append(
                f"{who} in incarnation {before['subject_inc']}, and incarnation {row['subject_inc']} raised "
                "it at "
                f"{row['at_s']:.3f} s"
            )
    return verdict("no_resurrection", looked, "tombstone(s)", wrong)


# --- M7, M8, M19: deaths


def detected(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    within_s: float = 0.0,
    p50_s: float = 0.0,
    p99_s: float = 0.0,
    mean_s: float = 0.0,
) -> Verdict:
    """Looks at outages that lasted that long, and at brokers that were well all that time.

    With ``by`` it is about being cut off: from the beginning of whatever parted them.
    """
    within_s = within_s or detection_s(evidence)
    circumstances = Circumstances(evidence)
    took_s: list[float] = []
    wrong: list[str] = []
    for name, from_s, observers in _losses(evidence, circumstances, whom, by, within_s):
        for observer in observers:
            for id in dict.fromkeys(life.id for life in evidence.brokers[name] if life.started_s <= from_s):
                held = circumstances.belief(observer, id or 0, from_s)
                if held is None or held.state not in VIEW_STATES:
                    continue  # it had not heard of it, or thought it gone already
                noticed = [
                    each.at_s
                    for each in circumstances.beliefs(observer, id or 0)
                    if each.state == "dead" and each.at_s >= from_s
                ]
                if noticed and noticed[0] <= from_s + within_s:
                    took_s.append(noticed[0] - from_s)
                else:
                    when = f"only after {noticed[0] - from_s:.2f} s" if noticed else "at all"
                    wrong.append(
                        f"{observer.name} did not call {name} dead within {within_s:g} s, which was gone "
                        "from "
                        f"{from_s:.3f} s on, {'but ' if noticed else 'nor '}{when}"
                    )
    for bound_s, what, found in (
        (p50_s, "median", quantile(took_s, 0.5) if took_s else 0.0),
        (p99_s, "99th percentile", quantile(took_s, 0.99) if took_s else 0.0),
        (mean_s, "mean", sum(took_s) / len(took_s) if took_s else 0.0),
    ):
        if bound_s and found > bound_s:
            wrong.append(
                f"the {what} of {len(took_s)} times to notice is {found:.2f} s, more than {bound_s:g} s"
            )
    detail = (
        f"noticed in {min(took_s):.2f} to {max(took_s):.2f} s, median {quantile(took_s, 0.5):.2f} s, "
        f"p99 {quantile(took_s, 0.99):.2f} s"
        if took_s
        else ""
    )
    return verdict("detected", len(took_s), "death(s) noticed", wrong, detail=detail)


def _losses(
    evidence: Evidence,
    circumstances: Circumstances,
    whom: tuple[str, ...],
    by: tuple[str, ...],
    within_s: float,
) -> Iterator[tuple[str, float, list[Life]]]:
    """Who was lost, when, and who had to notice."""
    if by:
        for each in circumstances.impairments:
            if each.until_s < each.from_s + within_s:
                continue
            for name in whom:
                observers = [
                    life
                    for life in circumstances.up_through(each.from_s, each.from_s + within_s)
                    if life.name in by and each.parts(evidence.host_of(life.name), evidence.host_of(name))
                ]
                if observers:
                    yield name, each.from_s, observers
        return
    for outage in circumstances.outages:
        end_s = outage.from_s + within_s
        if outage.until_s < end_s or (whom and outage.broker not in whom):
            continue
        if not whom and 2 * circumstances.present(outage.from_s, end_s) < len(evidence.brokers):
            continue  # so few are left that they must take themselves for cut off
        yield (
            outage.broker,
            outage.from_s,
            list(_witnesses(evidence, circumstances, outage, within_s, asked=bool(whom))),
        )


def _witnesses(
    evidence: Evidence, circumstances: Circumstances, outage: Outage, within_s: float, *, asked: bool
) -> Iterator[Life]:
    """Who was well, had had a link to the lost one, and could reach a majority of those who were left."""
    from_s, until_s = outage.from_s, outage.from_s + within_s
    present = circumstances.up_through(from_s, until_s)
    for life in present:
        if life.name == outage.broker:
            continue
        clear = [
            other
            for other in present
            if other is life or not circumstances.parted(life.name, other.name, from_s - within_s, until_s)
        ]
        well = not circumstances.struck(life.name, from_s - within_s, until_s)
        if asked or (well and 2 * len(clear) > len(present) and _was_linked(evidence, life, outage)):
            yield life


def _was_linked(evidence: Evidence, life: Life, outage: Outage) -> bool:
    ids = [each.id for each in evidence.brokers[outage.broker]]
    return any(
        id in view.links
        for sample in evidence.samples_between(life.started_s, outage.from_s)
        if (view := sample.views.get(life.name)) is not None
        for id in ids
    )


def no_false_deaths(evidence: Evidence, observers: str = "all") -> Verdict:
    """``observers``: ``healthy`` looks only at deaths called by those to whom nothing was done either."""
    circumstances = Circumstances(evidence)
    before_s = grace_s(evidence)
    wrong: list[str] = []
    for row in _raised_deaths(evidence):
        writer, subject, at_s = evidence.writer(row), row["subject_name"], row["at_s"]
        holders = evidence.holders(int(row["subject"], 16), at_s)
        if not holders:
            continue  # it is dead, if only in this shape: who loses its state comes back as another
        if any(
            circumstances.struck(name, at_s - before_s, at_s) for name in dict.fromkeys((subject, *holders))
        ):
            continue
        if circumstances.parted(writer, subject, at_s - before_s, at_s):
            continue
        if observers == "healthy" and circumstances.touched(writer, at_s - before_s, at_s):
            continue
        wrong.append(
            f"{writer} called {subject} dead at {at_s:.3f} s ({row['reason']}), to which nothing was done"
        )
    detail = f"{len(evidence.deaths)} of them deaths"
    return verdict(
        "no_false_deaths", len(evidence.member_rows), "change(s) of a member", wrong, detail=detail
    )


def _raised_deaths(evidence: Evidence) -> list[Row]:
    """By whoever called them first; where no log has that any more, by those who heard it."""
    deaths: dict[tuple[str, int], list[Row]] = {}
    for row in evidence.deaths:
        deaths.setdefault((row["subject"], row["subject_inc"]), []).append(row)
    return [row for rows in deaths.values() for row in ([each for each in rows if raised(each)] or rows)]


def flaps_bounded(evidence: Evidence, most: float = 3) -> Verdict:
    """More often only after a hold-down: rows of kind ``hold`` with ``subject`` and ``until_s``."""
    counts: dict[tuple[str, str], list[Row]] = {}
    for row in evidence.deaths:
        counts.setdefault((evidence.writer(row), row["subject_name"]), []).append(row)
    wrong: list[str] = []
    for (observer, subject), rows in counts.items():
        holds = [
            row
            for row in evidence.rows
            if row["kind"] == "hold" and evidence.writer(row) == observer and row["subject_name"] == subject
        ]
        over = sum(row["until_s"] <= rows[-1]["at_s"] for row in holds)
        if len(rows) > most + over:
            wrong.append(
                f"{observer} called {subject} dead {len(rows)} times, with {over} hold periods run out; "
                f"{most:g} and one for each of them are allowed"
            )
    return verdict("flaps_bounded", sum(map(len, counts.values())), "death(s)", wrong)


# --- M9, M10, M18: who may accuse


def suspicions_have_witnesses(evidence: Evidence) -> Verdict:
    names = dict.fromkeys(evidence.writer(row) for row in evidence.rows)
    nacks = {
        (row["node"], row["asker"], row["subject"], row["round"]): None
        for row in evidence.rows
        if row["kind"] == "help" and row["verdict"] == "nack"
    }
    wrong: list[str] = []
    looked = 0
    for row in evidence.member_rows:
        if row["to_state"] != "suspect" or not raised(row) or "witnesses" not in row or len(names) <= 2:
            continue
        looked += 1
        who = f"{evidence.writer(row)} suspected {row['subject_name']} at {row['at_s']:.3f} s"
        others = [each for each in row["witnesses"] if each != row["node"]]
        if not others:
            wrong.append(f"{who} without a witness")
        wrong += [
            f"{who} by the word of {evidence.name_of(int(each, 16))}, which never said so in round "
            f"{row['round']}"
            for each in others
            if (each, row["node"], row["subject"], row["round"]) not in nacks
        ]
    return verdict("suspicions_have_witnesses", looked, "suspicion(s) with witnesses", wrong)


def void_rounds_accuse_nobody(evidence: Evidence) -> Verdict:
    """An accusation and the judgement of a round happen at the same instant of the same clock."""
    voids: dict[tuple[str, str], dict[int, None]] = {}
    for _, view in _held(evidence):
        if view.void_at is not None:
            key = (format_id(view.id), format_id(view.boot))
            voids.setdefault(key, {})[round(view.void_at * 1e6)] = None
    wrong = [
        f"{evidence.writer(row)} called {row['subject_name']} {row['to_state']} at {row['at_s']:.3f} s, in "
        "a round that "
        "was void"
        for row in evidence.member_rows
        if row["to_state"] in ("suspect", "dead")
        and raised(row)
        and any(
            round(row["mono_ns"] / 1e3) + near in voids.get((row["node"], row["boot"]), ())
            for near in (-1, 0, 1)
        )
    ]
    return verdict("void_rounds_accuse_nobody", sum(map(len, voids.values())), "void round(s)", wrong)


def local_health(evidence: Evidence, most: float = 4) -> Verdict:
    wrong: list[str] = []
    looked = 0
    for sample, view in _held(evidence):
        if view.health is not None:
            looked += 1
            if not 0 <= view.health <= most:
                wrong.append(f"the local health of {view.name} is {view.health} at {sample.at_s:.1f} s")
    last = evidence.rest[-1].views if evidence.rest else {}
    wrong += [
        f"the local health of {view.name} is still {view.health} after all is well"
        for view in last.values()
        if view.health
    ]
    return verdict("local_health", looked, "health of a broker at (a moment|moments)", wrong)


# --- M11 to M14: coming and going


def left_by_own_word(evidence: Evidence) -> Verdict:
    """And who left is not dialled again, before it comes back."""
    own: dict[str, list[float]] = {}
    lost = {format_id(life.id) for life in evidence.lives if life.id is not None and life.log_lost}
    for row in evidence.rows:
        if row["kind"] == "mem" and row["node"] == row["subject"] and row["to_state"] == "left":
            own.setdefault(row["node"], []).append(row["at_s"])
    wrong: list[str] = []
    looked = 0
    for row in evidence.member_rows:
        if row["to_state"] == "left":
            looked += 1
            said = [at_s for at_s in own.get(row["subject"], ()) if at_s <= row["at_s"] + 1e-3]
            if not said and row["subject"] not in lost:
                wrong.append(
                    f"{evidence.writer(row)} holds that {row['subject_name']} left at {row['at_s']:.3f} s, "
                    "which never said so"
                )
    wrong += _redialled(evidence)
    return verdict("left_by_own_word", looked, "leave(s) heard of", wrong)


def _redialled(evidence: Evidence) -> Iterator[str]:
    """Who was started again meanwhile may be found, by its address, before it is heard to be back."""
    for rows in evidence.by_writer.values():
        left_s: dict[str, float] = {}
        for row in rows:
            if row["kind"] == "mem":
                left_s.pop(row["subject"], None)
                if row["to_state"] == "left":
                    left_s[row["subject"]] = row["at_s"]
            elif (
                row["kind"] == "link"
                and row["state"] == "up"
                and row["dir"] == "out"
                and row["peer"] in left_s
            ):
                id, since_s = int(row["peer"], 16), left_s[row["peer"]]
                if not any(life.id == id and life.started_s > since_s for life in evidence.lives):
                    name = evidence.name_of(id)
                    yield f"{evidence.writer(row)} dialled {name} at {row['at_s']:.3f} s, which had left"


def leaves_are_seen(evidence: Evidence, within_s: float = 2.0) -> Verdict:
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for life in evidence.lives:
        if life.how != "left" or life.id is None or life.ended_s is None:
            continue
        left_s = _said_goodbye_s(evidence, life)
        if circumstances.touched(life.name, left_s - grace_s(evidence), left_s + within_s):
            continue
        for observer in circumstances.up_through(left_s, left_s + within_s):
            known = circumstances.belief(observer, life.id, left_s)
            if observer.id == life.id or known is None or known.state not in VIEW_STATES:
                continue
            if circumstances.touched(observer.name, left_s - grace_s(evidence), left_s + within_s):
                continue
            looked += 1
            later = [
                each
                for each in circumstances.beliefs(observer, life.id)
                if each.at_s > left_s and each.boot == known.boot
            ]
            held = circumstances.belief(observer, life.id, left_s + within_s)
            if held is not None and held.state != "left" and held.boot == known.boot:
                wrong.append(
                    f"{observer.name} holds {life.name} {held.state} {within_s:g} s after it left at "
                    f"{left_s:.3f} s"
                )
            if any(each.state == "dead" for each in later):
                wrong.append(f"{observer.name} called {life.name} dead, which left at {left_s:.3f} s")
    return verdict("leaves_are_seen", looked, "leave(s) seen by another", wrong)


def _said_goodbye_s(evidence: Evidence, life: Life) -> float:
    for row in evidence.by_writer.get((format_id(life.id or 0), format_id(life.boot or 0)), ()):
        if row["kind"] == "mem" and row["node"] == row["subject"] and row["to_state"] == "left":
            return float(row["at_s"])
    return life.ended_s or 0.0


def restarts_are_one_member(evidence: Evidence) -> Verdict:
    """Who comes back with the id it had is one alive member with a greater incarnation, and was welcomed
    once."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    last = evidence.last
    for lives in evidence.brokers.values():
        for before, life in list(pairwise(lives))[-1:]:
            if before.id != life.id or life.id is None or life.id in evidence.shared_ids:
                continue
            name, old = life.name, _issued(evidence, before)
            for view in last.values():
                if view.name == name:
                    continue
                looked += 1
                records = [each for each in view.table if each.name == name and each.in_view]
                if [each.id for each in records] != [life.id] or records[0].state is not State.ALIVE:
                    shown = ", ".join(map(_shown, records)) or "nothing"
                    wrong.append(f"{view.name} holds {shown} of {name}, which was started again")
                elif records[0].incarnation <= old:
                    wrong.append(
                        f"{view.name} holds incarnation {records[0].incarnation} of {name}, which had {old} "
                        "before it "
                        "was started again"
                    )
                wrong += _welcomed_twice(evidence, circumstances, view, life)
    return verdict("restarts_are_one_member", looked, "broker(s) started again, seen by another", wrong)


def _issued(evidence: Evidence, life: Life) -> int:
    """The greatest incarnation a life is known to have called itself."""
    views = [
        view.me.incarnation
        for sample in evidence.samples
        for view in sample.views.values()
        if (view.name, view.life) == (life.name, life.number)
    ]
    rows = evidence.by_writer.get((format_id(life.id or 0), format_id(life.boot or 0)), ())
    return max([0, *views, *(int(row["inc"]) for row in rows)])


def _welcomed_twice(
    evidence: Evidence, circumstances: Circumstances, view: View, life: Life
) -> Iterator[str]:
    observer = next((each for each in evidence.brokers[view.name] if each.number == view.life), None)
    if observer is None or life.boot is None:
        return
    joins = 0
    boot_before = ""
    for belief in circumstances.beliefs(observer, life.id or 0):
        if belief.boot != boot_before and belief.boot == format_id(life.boot):
            joins += 1
        boot_before = belief.boot
    if joins > 1:
        yield f"{view.name} welcomed {life.name} {joins} times in one run of it"


def one_of_each_id(evidence: Evidence, within_s: float = 0.0) -> Verdict:
    """Two brokers with one id: after so long only one goes on."""
    within_s = within_s or evidence.scenario.bound_s
    together: dict[int, float] = {}
    wrong: list[str] = []
    looked = 0
    for sample in evidence.samples:
        holders: dict[int, list[str]] = {}
        for view in sample.views.values():
            if view.state in ("ready", "isolated"):
                holders.setdefault(view.id, []).append(view.name)
        for id, names in holders.items():
            if len(names) < 2:
                together.pop(id, None)
                continue
            looked += 1
            since_s = together.setdefault(id, sample.at_s)
            if sample.at_s - since_s >= within_s:
                wrong.append(
                    f"{' and '.join(names)} are both {format_id(id)} for more than {within_s:g} s since "
                    f"{since_s:.1f} s"
                )
    return verdict("one_of_each_id", looked, "moment(s) of two with one id", wrong)


# --- M16, M17: links


def degree(evidence: Evidence, least: float = 0, most: float = 0) -> Verdict:
    """``least`` and ``most`` of 0: today everybody has a link to everybody."""
    wrong: list[str] = []
    looked = 0
    for sample, view in _held(evidence):
        looked += 1
        bound = most or sum(record.in_view or record.id in view.links for record in view.table[1:])
        if len(view.links) > bound:
            wrong.append(
                f"{view.name} has {len(view.links)} links at {sample.at_s:.1f} s, more than {bound:g}"
            )
    before: dict[str, None] = {}
    for number, sample in enumerate(evidence.rest):
        final = number == len(evidence.rest) - 1
        odd = dict.fromkeys(_missing_links(sample, least))
        wrong += [f"{each} at {sample.at_s:.1f} s" for each in odd if each in before or final]
        before = odd
    return verdict("degree", looked, "broker(s) at a moment", wrong)


def _missing_links(sample: Sample, least: float) -> Iterator[str]:
    views = {view.id: view for view in sample.views.values()}
    wanted = min(least, len(views) - 1) if least else len(views) - 1
    for view in views.values():
        if len(view.links) < wanted:
            yield f"{view.name} has {len(view.links)} links, fewer than {wanted:g}"
        for id in view.links:
            if id in views and view.id not in views[id].links:
                yield f"{view.name} has a link to {views[id].name}, which has none to it"


def connected(evidence: Evidence) -> Verdict:
    """One may be lost and dialled again; two moments in a row, or the last, are too many."""
    wrong: list[str] = []
    before = False
    for number, sample in enumerate(evidence.rest):
        unreached = _unreached(sample)
        if unreached and (before or number == len(evidence.rest) - 1):
            wrong.append(
                f"no way of links leads from {next(iter(sample.views))} to {', '.join(unreached)} at "
                f"{sample.at_s:.1f} s"
            )
        before = bool(unreached)
    return verdict("connected", len(evidence.rest), "moment(s) of rest", wrong)


def _unreached(sample: Sample) -> list[str]:
    views = {view.id: view for view in sample.views.values()}
    ways: dict[int, list[int]] = {id: [] for id in views}
    for view in views.values():
        for id in view.links:
            if id in views:
                ways[view.id].append(id)
                ways[id].append(view.id)
    todo = list(views)[:1]
    reached = dict.fromkeys(todo)
    while todo:
        for id in ways[todo.pop()]:
            if id not in reached:
                reached[id] = None
                todo.append(id)
    return [view.name for id, view in views.items() if id not in reached]


# --- M20, M21: what it costs


def no_storm(evidence: Evidence, most_per_s: float = 0.0, after_s: float = 10.0) -> Verdict:
    """Frames that are no data, by each broker, from ``after_s`` after the heal on. ``most_per_s`` of 0: three
    for each link and period."""
    since_s = evidence.phases.get("held_s", evidence.end_s) + after_s
    samples = [sample for sample in evidence.rest if sample.at_s >= since_s] or evidence.rest
    wrong: list[str] = []
    rates: list[float] = []
    for before, sample in pairwise(samples):
        for name, view in sample.views.items():
            earlier = before.views.get(name)
            seconds = sample.at_s - before.at_s
            if earlier is None or earlier.boot != view.boot or seconds < evidence.period_s / 2:
                continue
            rate = (_spoken(evidence, view) - _spoken(evidence, earlier)) / seconds
            bound = most_per_s or 3 * max(1, len(view.links)) / evidence.period_s
            # One round more or less may fall into so short a time.
            bound += 2 * len(view.links) / seconds if not most_per_s else 0
            rates.append(rate)
            if rate > bound:
                wrong.append(
                    f"{name} said {rate:.0f} things a second from {before.at_s:.1f} to {sample.at_s:.1f} s, "
                    f"more than {bound:.0f}"
                )
    detail = f"at most {max(rates):.0f} a second" if rates else ""
    return verdict("no_storm", len(rates), "second(s) of a broker at rest", wrong, detail=detail)


def _spoken(evidence: Evidence, view: View) -> int:
    """All that goes over links where nobody publishes; else the heartbeats."""
    quiet = not evidence.scenario.workload.publishers
    return view.counters.get("control_out", 0) + (view.counters.get("bus_out", 0) if quiet else 0)


def memory_bounded(evidence: Evidence) -> Verdict:
    known = dict.fromkeys(life.id for life in evidence.lives if life.id is not None)
    bounds = {"members": max(1, len(known)), "strangers": STRANGERS_MAX, "seen": SEEN_MAX}
    wrong: list[str] = []
    looked = 0
    for sample, view in _held(evidence):
        looked += 1
        wrong += [
            f"{view.name} holds {view.sizes[what]} {what} at {sample.at_s:.1f} s, more than {most}"
            for what, most in bounds.items()
            if view.sizes.get(what, 0) > most
        ]
    for view in evidence.rest[-1].views.values() if evidence.rest else ():
        wrong += [
            f"{view.name} still holds {view.sizes[what]} {what} after all is well"
            for what in ("strangers", "barriers", "questions")
            if view.sizes.get(what, 0)
        ]
    return verdict("memory_bounded", looked, "broker(s) at a moment", wrong)


# --- M23: what users are told


def changes_follow(evidence: Evidence) -> Verdict:
    """Each change of a member begins where the last one ended, so joins and leaves take turns."""
    wrong: list[str] = []
    looked = 0
    for rows in evidence.by_writer.values():
        states: dict[str, str] = {}
        seq = 0
        for row in rows:
            if row["seq"] != seq + 1:
                states = {}  # a disk that failed cost rows: what follows cannot be compared
            seq = row["seq"]
            if row["kind"] != "mem" or row["node"] == row["subject"]:
                continue
            looked += 1
            before = states.get(row["subject"])
            came = row["from_state"]
            if before is not None and came not in (before, "unknown"):
                wrong.append(
                    f"{evidence.writer(row)} told that {row['subject_name']} went from {came} to "
                    f"{row['to_state']} at "
                    f"{row['at_s']:.3f} s, when it was {before}"
                )
            elif before in VIEW_STATES and came == "unknown":
                wrong.append(
                    f"{evidence.writer(row)} told twice that {row['subject_name']} joined, again at "
                    f"{row['at_s']:.3f} s"
                )
            states[row["subject"]] = row["to_state"]
    return verdict("changes_follow", looked, "change(s) of a member", wrong)


# --- the catalogue's part

_WHOM: Final = Parameter("whom", "names", (), "about whom; nobody named is everybody")
_BY: Final = Parameter("by", "names", (), "who must notice; then it is about who was cut off from them")


def _within(sentence: str, default: float = 0.0) -> Parameter:
    return Parameter("within_s", "number", default, sentence)


CHECKS: Final[Sequence[Check]] = (
    Check(
        "M1",
        "converged",
        "eventually",
        "Within the bound after the heal every broker that was started is up and sees exactly the live "
        "ones, and so it stays.",
        converged,
        default=True,
    ),
    Check(
        "M2",
        "one_digest",
        "eventually",
        "After that all brokers' digests of their tables are equal.",
        one_digest,
        needs=was_whole,
        default=True,
    ),
    Check(
        "M3",
        "records_only_grow",
        "always",
        "What a broker holds of a member never goes back in (incarnation, rank).",
        records_only_grow,
        default=True,
    ),
    Check(
        "M4",
        "only_owners_raise",
        "always",
        "No table holds a greater incarnation of a member than the member calls itself.",
        only_owners_raise,
        default=True,
    ),
    Check(
        "M5",
        "merge_is_order_free",
        "always",
        "The records of the run, merged in any order and some twice, give the same table.",
        merge_is_order_free,
        (Parameter("shuffles", "whole number", 5, "orders tried of each member's records"),),
        default=True,
    ),
    Check(
        "M6",
        "answers_accusations",
        "always",
        "No broker holds itself suspect or dead, and none leaves it unanswered that a linked one does.",
        answers_accusations,
        default=True,
    ),
    Check(
        "M7",
        "detected",
        "eventually",
        "Whoever is gone for long enough is called dead by everyone else in time.",
        detected,
        (
            _WHOM,
            _BY,
            _within("seconds from the loss to the last death; 0 is four periods and a deadline"),
            Parameter("p50_s", "number", 0.0, "bound of the median; 0 is none"),
            Parameter("p99_s", "number", 0.0, "bound of the 99th percentile; 0 is none"),
            Parameter("mean_s", "number", 0.0, "bound of the mean; 0 is none"),
        ),
        default=True,
        occasional=True,
    ),
    Check(
        "M8",
        "no_false_deaths",
        "always",
        "Nobody calls a broker dead to which nothing was done that excuses it.",
        no_false_deaths,
        (
            Parameter(
                "observers",
                "text",
                "all",
                "healthy: only deaths called by a broker to which nothing was done either",
                ("all", "healthy"),
            ),
        ),
        default=True,
    ),
    Check(
        "M9",
        "suspicions_have_witnesses",
        "always",
        "Every suspicion names a witness other than its raiser, which really said so in that round.",
        suspicions_have_witnesses,
        dormant="a witness of every suspicion (rule R5)",
    ),
    Check(
        "M10",
        "void_rounds_accuse_nobody",
        "always",
        "A broker accuses nobody in a round that it voids.",
        void_rounds_accuse_nobody,
        default=True,
        occasional=True,
    ),
    Check(
        "M11",
        "left_by_own_word",
        "always",
        "Only a member's own word makes it left, and who left is not dialled.",
        left_by_own_word,
        default=True,
        occasional=True,
    ),
    Check(
        "M12",
        "leaves_are_seen",
        "eventually",
        "Who leaves is held as left by all who are well within two seconds, and by none as dead.",
        leaves_are_seen,
        (_within("seconds from the goodbye", 2.0),),
        default=True,
        occasional=True,
    ),
    Check(
        "M13",
        "restarts_are_one_member",
        "eventually",
        "Who is started again with its id is one alive member with a greater incarnation everywhere, "
        "welcomed once.",
        restarts_are_one_member,
        default=True,
        occasional=True,
    ),
    Check(
        "M14",
        "one_of_each_id",
        "eventually",
        "Of two brokers with one id at most one goes on.",
        one_of_each_id,
        (_within("seconds for which two may; 0 is the scenario's bound"),),
    ),
    Check(
        "M15",
        "healed",
        "eventually",
        "Whom the network parted and joined again see each other within the bound.",
        healed,
        (_within("seconds from the end of the fault; 0 is the scenario's bound"),),
    ),
    Check(
        "M16",
        "degree",
        "always",
        "No broker has more links than it should, at rest none has fewer, and links have two ends.",
        degree,
        (
            Parameter("least", "whole number", 0, "links at rest; 0 is one to every live broker"),
            Parameter("most", "whole number", 0, "links ever; 0 is one to every known broker"),
        ),
        default=True,
    ),
    Check(
        "M17",
        "connected",
        "eventually",
        "At rest the links connect all live brokers.",
        connected,
        needs=was_whole,
        default=True,
    ),
    Check(
        "M18",
        "local_health",
        "always",
        "Local health stays within its bounds, and is perfect once all is well.",
        local_health,
        (Parameter("most", "whole number", 4, "the worst there is"),),
        dormant="local health (rule R10)",
    ),
    Check(
        "M19",
        "flaps_bounded",
        "always",
        "Nobody calls one member dead more often than three times and once for each hold period run out.",
        flaps_bounded,
        (Parameter("most", "whole number", 3, "deaths of one member at one observer without a hold"),),
        dormant="a hold-down of who flaps (rule R13)",
    ),
    Check(
        "M20",
        "no_storm",
        "always",
        "At rest no broker says more than its rounds need.",
        no_storm,
        (
            Parameter(
                "most_per_s", "number", 0.0, "frames a second by one broker; 0 is three a link and period"
            ),
            Parameter("after_s", "number", 10.0, "seconds from the heal on that are not looked at"),
        ),
        needs=was_whole,
        default=True,
    ),
    Check(
        "M21",
        "memory_bounded",
        "always",
        "Tables and windows keep within their bounds, and nothing is left to wait for at rest.",
        memory_bounded,
        default=True,
    ),
    Check(
        "M22",
        "no_resurrection",
        "always",
        "The dead and the gone are remembered for a day, and raised only by a greater incarnation.",
        no_resurrection,
        default=True,
        occasional=True,
    ),
    Check(
        "M23",
        "changes_follow",
        "always",
        "What a broker tells of a member's changes is one chain, in which joins and leaves take turns.",
        changes_follow,
        default=True,
    ),
)

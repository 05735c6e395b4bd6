"""What a scenario expects beyond what must hold in every run: who is called dead or is not, who is back by
when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from simulations.evidence import Evidence, Life, Row, Sample
from simulations.invariants.check import Check, Parameter
from simulations.invariants.circumstances import Circumstances, raised
from simulations.invariants.membership import VIEW_STATES, detection_s
from simulations.invariants.verdict import Verdict, verdict


def _safety(evidence: Evidence) -> tuple[float, float]:
    return evidence.phases.get("safety_s", 0.0), evidence.phases.get("healed_s", evidence.end_s)


def _concerned(evidence: Evidence, whom: tuple[str, ...]) -> list[str]:
    """Nobody named is everybody; clients stand for their broker."""
    names = [evidence.host_of(name) for name in whom] or list(evidence.brokers)
    return list(dict.fromkeys(name for name in names if name in evidence.brokers))


def _pairs_watched(evidence: Evidence, names: Sequence[str]) -> int:
    """How many (observer, member) there were to be watched."""
    ids = {life.id for name in names for life in evidence.brokers[name]}
    return len(
        {
            (evidence.writer(row), row["subject"])
            for row in evidence.member_rows
            if int(row["subject"], 16) in ids
        }
    )


# --- deaths and suspicions


def nobody_dead(evidence: Evidence, whom: tuple[str, ...] = (), by: tuple[str, ...] = ()) -> Verdict:
    names = _concerned(evidence, whom)
    wrong = [
        f"{evidence.writer(row)} called {row['subject_name']} dead at {row['at_s']:.3f} s ({row['reason']})"
        for row in evidence.deaths
        if row["subject_name"] in names and (not by or evidence.writer(row) in by)
    ]
    return verdict("nobody_dead", _pairs_watched(evidence, names), "member(s) seen by another", wrong)


def deaths_at_most(
    evidence: Evidence, most: float = 1, whom: tuple[str, ...] = (), by: tuple[str, ...] = ()
) -> Verdict:
    """Of each member at each observer."""
    names = _concerned(evidence, whom)
    counts: dict[tuple[str, str], int] = {}
    for row in evidence.deaths:
        key = (evidence.writer(row), row["subject_name"])
        if row["subject_name"] in names and (not by or key[0] in by):
            counts[key] = counts.get(key, 0) + 1
    wrong = [
        f"{observer} called {subject} dead {count} times, more than {most:g}"
        for (observer, subject), count in counts.items()
        if count > most
    ]
    worst = max(counts.values(), default=0)
    detail = f"{sum(counts.values())} deaths, at most {worst} of one member at one observer"
    return verdict(
        "deaths_at_most", _pairs_watched(evidence, names), "member(s) seen by another", wrong, detail=detail
    )


def suspicions_at_most(
    evidence: Evidence, most: float = 0, per: str = "run", whom: tuple[str, ...] = ()
) -> Verdict:
    """Those raised, not those heard of from others; in the safety phase."""
    names = _concerned(evidence, whom)
    since_s, until_s = _safety(evidence)
    counts: dict[str, int] = {}
    for row in evidence.member_rows:
        if row["to_state"] == "suspect" and raised(row) and row["subject_name"] in names:
            if since_s <= row["at_s"] <= until_s:
                key = {"run": "the run", "observer": evidence.writer(row), "member": row["subject_name"]}[per]
                counts[key] = counts.get(key, 0) + 1
    relation = {"run": "in", "observer": "by", "member": "of"}[per]
    wrong = [
        f"there were {count} suspicions {relation} {key}, more than {most:g}"
        for key, count in counts.items()
        if count > most
    ]
    detail = f"{sum(counts.values())} suspicions"
    return verdict(
        "suspicions_at_most",
        _pairs_watched(evidence, names),
        "member(s) seen by another",
        wrong,
        detail=detail,
    )


def accuses_nobody(evidence: Evidence, whom: tuple[str, ...] = (), of: str = "dead") -> Verdict:
    names = _concerned(evidence, whom)
    since_s, until_s = _safety(evidence)
    rows = [row for row in evidence.rows if evidence.writer(row) in names and since_s <= row["at_s"]]
    bad = ("dead",) if of == "dead" else ("suspect", "dead")
    wrong = [
        f"{evidence.writer(row)} called {row['subject_name']} {row['to_state']} at {row['at_s']:.3f} s "
        f"({row['reason']})"
        for row in rows
        if row["kind"] == "mem"
        and row["to_state"] in bad
        and raised(row)
        and row["node"] != row["subject"]
        and row["at_s"] <= until_s
    ]
    return verdict("accuses_nobody", len(rows), "row(s) of their logs", wrong)


def never_left(evidence: Evidence, whom: tuple[str, ...] = ()) -> Verdict:
    """Until the scenario is over and everybody leaves."""
    names = _concerned(evidence, whom)
    drained_s = evidence.phases.get("drained_s", evidence.end_s)
    wrong = [
        f"{evidence.writer(row)} holds that {row['subject_name']} left at {row['at_s']:.3f} s"
        for row in evidence.member_rows
        if row["to_state"] == "left" and row["subject_name"] in names and row["at_s"] < drained_s
    ]
    return verdict("never_left", _pairs_watched(evidence, names), "member(s) seen by another", wrong)


def alive_through(evidence: Evidence, whom: tuple[str, ...] = ()) -> Verdict:
    """In every table at every moment of the safety phase, suspects included."""
    names = _concerned(evidence, whom)
    ids = {life.id: name for name in names for life in evidence.brokers[name]}
    since_s, until_s = _safety(evidence)
    wrong = list(nobody_dead(evidence, tuple(names)).violations)
    looked = 0
    for sample in evidence.samples_between(since_s, until_s):
        for view in sample.views.values():
            states = view.states
            for id, name in ids.items():
                if id is not None and id != view.id and id in states:
                    looked += 1
                    if states[id] not in VIEW_STATES:
                        wrong.append(f"{view.name} holds {name} {states[id]} at {sample.at_s:.1f} s")
    return verdict("alive_through", looked, "member(s) seen at a moment", wrong)


def refuted(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """Every accusation of a broker that is up, at every observer."""
    within_s = within_s or 2 * evidence.period_s
    circumstances = Circumstances(evidence)
    names = _concerned(evidence, whom)
    wrong: list[str] = []
    looked = 0
    for name in names:
        for life in evidence.brokers[name]:
            for observer in (each for lives in evidence.brokers.values() for each in lives):
                for belief in circumstances.beliefs(observer, life.id or 0):
                    end_s = belief.at_s + within_s
                    if (
                        belief.state not in ("suspect", "dead")
                        or evidence.up(name, belief.at_s, end_s) is None
                    ):
                        continue
                    if observer.ended_s is not None and observer.ended_s < end_s:
                        continue
                    looked += 1
                    later = circumstances.belief(observer, life.id or 0, end_s)
                    if later is None or later.state != "alive" or later.incarnation <= belief.incarnation:
                        wrong.append(
                            f"{observer.name} held {name} {belief.state} at {belief.at_s:.3f} s and heard "
                            "no other "
                            f"within {within_s:g} s"
                        )
    return verdict("refuted", looked, "accusation(s)", wrong)


# --- being cut off, and coming back


def isolated(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """Whom the network cut off: it finds that out and calls nobody dead."""
    within_s = within_s or detection_s(evidence)
    names = _concerned(evidence, whom)
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in names:
        for each in circumstances.impairments:
            if name not in (*each.a, *each.b) or each.until_s < each.from_s + within_s:
                continue
            looked += 1
            views = [
                sample.views[name].state
                # Looks are a second apart.
                for sample in evidence.samples_between(each.from_s, each.from_s + within_s + 1.0)
                if name in sample.views
            ]
            if "isolated" not in views:
                wrong.append(
                    f"{name} was cut off at {each.from_s:.3f} s and {within_s:g} s later it was still "
                    f"{views[-1] if views else 'not up'}"
                )
            wrong += [
                f"{name} called {row['subject_name']} dead at {row['at_s']:.3f} s, while it was cut off "
                "itself"
                for row in evidence.deaths
                if evidence.writer(row) == name and raised(row) and each.from_s <= row["at_s"] <= each.until_s
            ]
    return verdict("isolated", looked, "broker(s) cut off", wrong)


def back_within(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 10.0) -> Verdict:
    """From the end of what befell each of them, in its eyes and in those of all who were up all the time."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    slowest = 0.0
    for name, end_s in _returns(evidence, circumstances, _concerned(evidence, whom)):
        life = evidence.up(name, end_s, end_s + within_s)
        if life is None or circumstances.away(name, end_s + 1e-6, end_s + within_s):
            continue  # something befell it again
        for observer in circumstances.up_through(end_s, end_s + within_s):
            if observer.name == name:
                continue
            for one, other in ((observer, life), (life, observer)):
                looked += 1
                since_s = _alive_since(circumstances, one, other, end_s, end_s + within_s)
                if since_s is None:
                    held = circumstances.belief(one, other.id or 0, end_s + within_s)
                    wrong.append(
                        f"{one.name} holds {other.name} {held.state if held else 'for unknown'} "
                        f"{within_s:g} s after "
                        f"{name} could return at {end_s:.3f} s"
                    )
                else:
                    slowest = max(slowest, since_s - end_s)
    detail = f"the last after {slowest:.2f} s" if looked else ""
    return verdict("back_within", looked, "return(s) seen by another", wrong, detail=detail)


def _returns(
    evidence: Evidence, circumstances: Circumstances, names: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Who could return, and since when: started again, awake again, joined to the others again."""
    for name in names:
        ends = [each.until_s for each in circumstances.outages if each.broker == name]
        host = evidence.host_of(name)
        ends += [each.until_s for each in circumstances.impairments if host in (*each.a, *each.b)]
        ends += [
            following.started_s
            for life, following in zip(evidence.brokers[name], evidence.brokers[name][1:], strict=False)
            if life.how == "left"
        ]
        for end_s in sorted(dict.fromkeys(ends)):
            if end_s <= evidence.end_s:
                yield name, end_s


def _alive_since(
    circumstances: Circumstances, observer: Life, subject: Life, from_s: float, until_s: float
) -> float | None:
    """Since when it has been held alive, in its present run, at the end of that time."""
    since_s: float | None = None
    for belief in circumstances.beliefs(observer, subject.id or 0):
        if belief.at_s > until_s:
            break
        good = belief.state == "alive" and (subject.boot is None or int(belief.boot, 16) == subject.boot)
        since_s = (max(from_s, belief.at_s) if since_s is None else since_s) if good else None
    return since_s


def left_seen(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    by: tuple[str, ...] = (),
    within_s: float = 2.0,
    after: str = "leave",
) -> Verdict:
    """``after``: ``heal`` counts from the heal, for those who could not hear of it before."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in _concerned(evidence, whom):
        for life in evidence.brokers[name]:
            if life.how != "left" or life.ended_s is None:
                continue
            from_s = evidence.phases.get("healed_s", life.ended_s) if after == "heal" else life.ended_s
            if life.ended_s > from_s or from_s >= evidence.phases.get("drained_s", evidence.end_s):
                continue
            for observer in circumstances.up_through(from_s, from_s + within_s):
                if observer.name == name or (by and observer.name not in by):
                    continue
                looked += 1
                heard = any(
                    belief.state == "left" and belief.at_s <= from_s + within_s
                    for belief in circumstances.beliefs(observer, life.id or 0)
                )
                if not heard:
                    wrong.append(
                        f"{observer.name} did not hear within {within_s:g} s of {from_s:.3f} s that {name} "
                        "left"
                    )
    return verdict("left_seen", looked, "leave(s) seen by another", wrong)


def members_within(evidence: Evidence, number: float = 0, within_s: float = 15.0, after: str = "") -> Verdict:
    """Of ``number`` 0: of all that are up then. Counted from the last fault of the kind ``after``, or from
    the start of the first broker."""
    began = [span.start_s for span in evidence.faults if span.fault.kind == after]
    if after and not began:
        return verdict("members_within", 0, f"fault of kind {after}", [])
    from_s = began[-1] if began else min((life.started_s for life in evidence.lives), default=0.0)
    samples = evidence.samples_between(from_s, from_s + within_s + 1.0)
    for sample in samples:
        wanted = int(number) or len(sample.views)
        if len(sample.views) >= wanted and all(len(view.in_view) == wanted for view in sample.views.values()):
            detail = f"all saw {wanted} members after {sample.at_s - from_s:.1f} s"
            return verdict("members_within", len(sample.views), "table(s)", [], detail=detail)
    last = samples[-1].views if samples else {}
    wrong = [
        f"{name} sees {len(view.in_view)} members {within_s:g} s after {from_s:.1f} s, not "
        f"{int(number) or len(last)}"
        for name, view in last.items()
        if len(view.in_view) != (int(number) or len(last))
    ]
    wrong += [f"{len(last)} brokers are up, not {number:g}"] if number and len(last) < number else []
    return verdict("members_within", len(last), "table(s)", wrong or ["the tables never agreed"])


def view_sizes_at_most(evidence: Evidence, most: float = 10) -> Verdict:
    """How many different numbers of members were seen, in the safety phase."""
    since_s, until_s = _safety(evidence)
    counts: dict[tuple[str, str], int] = {}
    after: dict[tuple[tuple[str, str], float], int] = {}
    for row in evidence.member_rows:
        key = (row["node"], row["boot"])
        came, went = row["to_state"] in VIEW_STATES, row["from_state"] in VIEW_STATES
        counts[key] = counts.get(key, 1) + came - went
        # Changes of one instant are one step.
        after[key, row["at_s"]] = counts[key]
    sizes = {size: None for (_, at_s), size in after.items() if since_s <= at_s <= until_s}
    for sample in evidence.samples_between(since_s, until_s):
        for view in sample.views.values():
            sizes[len(view.in_view)] = None
    wrong = [f"{len(sizes)} numbers of members were seen, more than {most:g}"] if len(sizes) > most else []
    detail = ", ".join(map(str, sorted(sizes)))
    return verdict("view_sizes_at_most", len(sizes), "number(s) of members seen", wrong, detail=detail)


# --- links and counters


def links_back_within(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 5.0) -> Verdict:
    """From the end of each impairment of the network that touches them, to a link with every live broker."""
    names = _concerned(evidence, whom)
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        end_s = each.until_s + within_s
        later = [sample for sample in evidence.samples if sample.at_s >= end_s]
        if not later:
            continue
        for name in names:
            if not each.touches(evidence.host_of(name)) or name not in later[0].views:
                continue
            if any(
                other is not each and other.from_s <= end_s <= other.until_s
                for other in circumstances.impairments
            ):
                continue
            looked += 1
            wrong += [
                f"{missing} {within_s:g} s after the {each.kind} ended"
                for missing in _unlinked(later[0], name)
            ]
    return verdict("links_back_within", looked, "broker(s) joined again", wrong)


def _unlinked(sample: Sample, name: str) -> Iterator[str]:
    view = sample.views[name]
    for other in sample.views.values():
        if other is not view and other.id not in view.links:
            yield f"{name} has no link to {other.name}"


def link_given_up(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 0.0) -> Verdict:
    """Each link between the named that the network impairs for so long is closed at one end at least."""
    within_s = within_s or detection_s(evidence)
    circumstances = Circumstances(evidence)
    names = _concerned(evidence, whom)
    wrong: list[str] = []
    looked = 0
    for each in circumstances.impairments:
        if each.until_s < each.from_s + within_s:
            continue
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                if each.parts(evidence.host_of(one), evidence.host_of(other)):
                    looked += 1
                    down = [row for row in _link_downs(evidence, one, other) if row["at_s"] >= each.from_s]
                    if not down or down[0]["at_s"] > each.from_s + within_s:
                        wrong.append(
                            f"the link of {one} and {other} was not given up within {within_s:g} s of "
                            f"{each.from_s:.3f} s"
                        )
    return verdict("link_given_up", looked, "link(s) impaired", wrong)


def _link_downs(evidence: Evidence, one: str, other: str) -> list[Row]:
    ids = {life.id: name for name in (one, other) for life in evidence.brokers[name]}
    return [
        row
        for row in evidence.rows
        if row["kind"] == "link"
        and row["state"] == "down"
        and evidence.writer(row) in (one, other)
        and ids.get(int(row["peer"], 16)) not in (None, evidence.writer(row))
    ]


def counted(
    evidence: Evidence,
    whom: tuple[str, ...] = (),
    counter: str = "refused",
    least: float = 1,
    most: float = -1,
) -> Verdict:
    """How far a counter of each of them rose in one run of its, from the safety phase on."""
    names = _concerned(evidence, whom)
    since_s = evidence.phases.get("safety_s", 0.0)
    wrong: list[str] = []
    looked = 0
    for name in names:
        views = [
            sample.views[name]
            for sample in evidence.samples
            if sample.at_s >= since_s and name in sample.views
        ]
        if not views:
            continue
        looked += 1
        risen = sum(
            max(
                0,
                later.counters.get(counter, 0)
                - (view.counters.get(counter, 0) if view.boot == later.boot else 0),
            )
            for view, later in pairwise(views)
        )
        if risen < least or (0 <= most < risen):
            bounds = f"at least {least:g}" + (f" and at most {most:g}" if most >= 0 else "")
            wrong.append(f"{counter} of {name} rose by {risen}; {bounds} was expected")
    return verdict("counted", looked, "broker(s)", wrong)


def greater_incarnation(evidence: Evidence, whom: tuple[str, ...] = (), within_s: float = 5.0) -> Verdict:
    """Of each that was started again with its id: what the others held of it before, whatever its clock and
    disk say."""
    circumstances = Circumstances(evidence)
    wrong: list[str] = []
    looked = 0
    for name in _concerned(evidence, whom):
        for before, life in zip(evidence.brokers[name], evidence.brokers[name][1:], strict=False):
            if before.id != life.id or life.id is None:
                continue
            from_s = life.started_s
            for observer in circumstances.up_through(from_s, from_s + within_s):
                known = circumstances.belief(observer, life.id, from_s)
                now = circumstances.belief(observer, life.id, from_s + within_s)
                if observer.name == name or known is None or now is None:
                    continue
                looked += 1
                if now.state != "alive" or now.incarnation <= known.incarnation:
                    wrong.append(
                        f"{observer.name} holds {name} {now.state} in incarnation {now.incarnation} "
                        f"{within_s:g} s after its "
                        f"start at {from_s:.3f} s, and held incarnation {known.incarnation} before"
                    )
    return verdict("greater_incarnation", looked, "restart(s) seen by another", wrong)


_WHOM: Final = Parameter("whom", "names", (), "about whom; nobody named is everybody")
_BY: Final = Parameter("by", "names", (), "only in their eyes; nobody named is everybody")


def _within(default: float, sentence: str) -> Parameter:
    return Parameter("within_s", "number", default, sentence)


def _most(default: float, sentence: str) -> Parameter:
    return Parameter("most", "whole number", default, sentence)


CHECKS: Final[Sequence[Check]] = (
    Check("S3", "nobody_dead", "always", "None of them is ever called dead.", nobody_dead, (_WHOM, _BY)),
    Check(
        "S4",
        "deaths_at_most",
        "always",
        "No observer calls one of them dead more often than that.",
        deaths_at_most,
        (_most(1, "deaths of one member at one observer"), _WHOM, _BY),
    ),
    Check(
        "S5",
        "suspicions_at_most",
        "always",
        "No more suspicions than that are raised in the safety phase.",
        suspicions_at_most,
        (
            _most(0, "suspicions"),
            Parameter("per", "text", "run", "what they are counted for", ("run", "observer", "member")),
            _WHOM,
        ),
    ),
    Check(
        "S6",
        "accuses_nobody",
        "always",
        "In the safety phase they call nobody dead by themselves.",
        accuses_nobody,
        (_WHOM, Parameter("of", "text", "dead", "suspect: nor do they suspect anybody", ("dead", "suspect"))),
    ),
    Check(
        "S7",
        "never_left",
        "always",
        "None of them is ever held to have left by its own will, before the end.",
        never_left,
        (_WHOM,),
    ),
    Check(
        "S8",
        "alive_through",
        "always",
        "Every table holds them alive or suspect throughout the safety phase.",
        alive_through,
        (_WHOM,),
    ),
    Check(
        "S9",
        "refuted",
        "eventually",
        "Whoever is accused and up is alive again everywhere soon.",
        refuted,
        (_WHOM, _within(0.0, "seconds from the accusation; 0 is two periods")),
    ),
    Check(
        "S10",
        "isolated",
        "always",
        "Who is cut off knows itself isolated in time, and calls nobody dead.",
        isolated,
        (_WHOM, _within(0.0, "seconds from the cut; 0 is four periods and a deadline")),
    ),
    Check(
        "S11",
        "back_within",
        "eventually",
        "Once they can, they are seen alive by all again in time, and see all alive.",
        back_within,
        (_WHOM, _within(10.0, "seconds from the start, the waking or the end of the cut")),
    ),
    Check(
        "S12",
        "left_seen",
        "eventually",
        "Others hear in time that they left.",
        left_seen,
        (
            _WHOM,
            _BY,
            _within(2.0, "seconds"),
            Parameter("after", "text", "leave", "what the seconds are counted from", ("leave", "heal")),
        ),
    ),
    Check(
        "S13",
        "members_within",
        "eventually",
        "All brokers see as many members in time.",
        members_within,
        (
            Parameter("number", "whole number", 0, "of members; 0 is all that are up"),
            _within(15.0, "seconds"),
            Parameter(
                "after",
                "text",
                "",
                "the kind of fault whose last one they are counted from; nothing is the start",
            ),
        ),
    ),
    Check(
        "S14",
        "view_sizes_at_most",
        "always",
        "Few different numbers of members are seen on the way.",
        view_sizes_at_most,
        (_most(10, "numbers"),),
    ),
    Check(
        "S15",
        "links_back_within",
        "eventually",
        "Once the network lets them, they have links to all again in time.",
        links_back_within,
        (_WHOM, _within(5.0, "seconds from the end of the fault")),
    ),
    Check(
        "S16",
        "link_given_up",
        "eventually",
        "A link between them that brings nothing is closed in time.",
        link_given_up,
        (_WHOM, _within(0.0, "seconds from the fault; 0 is four periods and a deadline")),
    ),
    Check(
        "S17",
        "counted",
        "always",
        "A counter of each of them rises that far.",
        counted,
        (
            _WHOM,
            Parameter(
                "counter",
                "text",
                "refused",
                "which",
                (
                    "refused",
                    "refused_records",
                    "refutations",
                    "late_rounds",
                    "silent_rounds",
                    "late_answers",
                    "syncs",
                ),
            ),
            Parameter("least", "whole number", 1, "how far at least"),
            Parameter("most", "whole number", -1, "how far at most; -1 is no bound"),
        ),
    ),
    Check(
        "S18",
        "greater_incarnation",
        "eventually",
        "Who is started again with its id is alive everywhere in time, in a greater incarnation than before.",
        greater_incarnation,
        (_WHOM, _within(5.0, "seconds from its start")),
    ),
)

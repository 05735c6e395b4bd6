"""The result of `mesh check`: exit code, sentence and figures."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.console.check import Code, Limits, Verdict, judge, line, read_limit
from mesh.console.probe import Look
from tests.mesh.console import statuses
from tests.mesh.console.statuses import status

DAY_S = 86_400.0


def judged(
    after: list[dict[str, Any]],
    limits: Limits | None = None,
    before: list[dict[str, Any]] | None = None,
    silent: tuple[str, ...] = (),
) -> Verdict:
    earlier = Look(tuple(after if before is None else before))
    return judge(earlier, Look(tuple(after), silent), limits or Limits(), 2.0, now_s=0.0)


def test_a_calm_mesh_is_ok_with_figures() -> None:
    verdict = judged(statuses.calm())
    assert verdict.code == Code.OK
    assert verdict.line == (
        "MESH OK - 5 of 5 brokers alive, nothing dropped"
        " | alive=5;;;0;5 dead=0;0;1;0 drops=0;0;100;0 late_ms=3.4ms;100;500;0 rtt_ms=0.41ms;;;0"
    )


def test_one_dead_broker_warns_and_two_are_critical() -> None:
    answers = statuses.after_a_kill()
    answers[2]["loop"]["late_ms_max"] = 1.0
    verdict = judged(answers, before=answers)
    assert verdict.code == Code.WARNING and "MESH WARNING - dead: beta | alive=4;;;0;5 dead=1" in verdict.line
    answers[0]["members"][3]["state"] = "dead"
    assert judged(answers).code == Code.CRITICAL


def test_the_worst_comes_first() -> None:
    verdict = judged(statuses.after_a_kill(), silent=("beta",))
    assert verdict.code == Code.CRITICAL
    assert verdict.line.startswith("MESH CRITICAL - event loop of delta 612 ms late; ")
    assert "dead: beta" in verdict.line and "no answer from beta" in verdict.line


def totals(dropped: int, **changes: Any) -> list[dict[str, Any]]:
    answer = status("alpha", **changes)
    return [answer | {"totals": answer["totals"] | {"dropped": dropped}}]


def test_drops_are_counted_between_the_looks() -> None:
    assert judged(totals(500), before=totals(500)).code == Code.OK, "what was dropped long ago is no trouble"
    assert judged(totals(520), before=totals(500)).code == Code.WARNING
    verdict = judged(totals(1500), before=totals(500))
    assert verdict.code == Code.CRITICAL and "500 messages dropped a second" in verdict.line
    assert judged(totals(5), before=totals(500)).code == Code.OK
    assert judged(totals(500), before=totals(0, boot="another run")).code == Code.OK, "it began anew"


@pytest.mark.parametrize(("days", "code"), [(20, Code.OK), (5, Code.WARNING), (1, Code.CRITICAL)])
def test_the_first_certificate_to_expire_counts(days: int, code: Code) -> None:
    entries = [
        {"url": "tls+tcp://:1", "expires": f"1970-01-{days + 1:02}T00:00:00Z"},
        {"url": "wss://:2", "expires": "1971-01-01T00:00:00Z"},
        {"url": "bad"},
        "bad",
    ]
    verdict = judged([status("alpha", certificates=entries)])
    assert verdict.code == code and f"certificate_days={days};14:;2:;0" in verdict.line


def test_an_expired_certificate_says_so() -> None:
    entries = [{"url": "tls+tcp://:1", "expires": "1969-01-01T00:00:00Z"}]
    verdict = judged([status("alpha", certificates=entries)])
    assert verdict.code == Code.CRITICAL and "tls+tcp://:1 of alpha has expired" in verdict.line


def test_floors_and_queues() -> None:
    queues = [
        {"name": "mail", "waiting": 50, "oldest_s": 90.0},
        {"name": "log", "waiting": 2, "oldest_s": None},
    ]
    answers = [status("alpha", queues=queues)]
    assert judged(answers, Limits(alive=(5, 4))).code == Code.OK
    warning, critical = judged(answers, Limits(alive=(6, 5))), judged(answers, Limits(alive=(7, 6)))
    assert warning.code == Code.WARNING and "- 5 of 5 brokers alive, fewer than 6 |" in warning.line
    assert critical.code == Code.CRITICAL and "- 5 of 5 brokers alive, fewer than 6 |" in critical.line
    verdict = judged(answers, Limits(queue=(10, 100), queue_age_s=(60, 80)))
    assert verdict.code == Code.CRITICAL and "50 messages wait in mail" in verdict.line
    assert "90 s waited the first message of mail" in verdict.line


def test_a_broker_that_is_isolated_or_cannot_store_needs_no_threshold() -> None:
    assert judged([status("alpha", state="isolated")]).code == Code.CRITICAL
    assert judged([status("alpha", state="joining")]).code == Code.WARNING
    journal = {"failing": "No space left on device", "refused": 0}
    assert judged([status("alpha", journal=journal)]).code == Code.CRITICAL
    assert judged(statuses.split()).code == Code.CRITICAL
    filling = judged([status("alpha", journal={"failing": None, "share": 0.81, "filling": True})])
    assert filling.code == Code.WARNING and "alpha: journal 81 % full" in filling.line


def test_words_of_others_cannot_forge_lines_or_figures() -> None:
    text = line(Code.OK, "a|b\nMESH CRITICAL")
    assert text == "MESH OK - a/b\\nMESH CRITICAL"


@pytest.mark.parametrize(
    ("text", "limit"), [("5", (5, 5)), ("1,2", (1, 2)), ("0.5,1", (0.5, 1)), ("off", None)]
)
def test_thresholds_are_read(text: str, limit: Any) -> None:
    assert read_limit(text) == limit


@pytest.mark.parametrize("text", ["", "x", "1,2,3", "1,", "nan", "-1", "inf", "1e99"])
def test_a_malformed_threshold_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is no threshold"):
        read_limit(text)

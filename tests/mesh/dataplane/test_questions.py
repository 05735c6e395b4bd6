"""Tokens of questions: those of one run of a broker fit no question in another."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane.exchange import Exchange
from mesh.dataplane.questions import first_token


class Quiet:
    """Hooks of an exchange that says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@given(st.integers(0, 2**63 - 1))
def test_tokens_fit_their_field_for_as_long_as_a_broker_runs(boot: int) -> None:
    assert 0 <= first_token(boot) <= 2**62 - 2**32


def test_an_answer_to_an_earlier_run_fits_no_question_of_the_present_one() -> None:
    """A responder keeps its token when the broker that asked restarts, and may answer then."""
    runs = [Exchange(id=1, boot=boot, name="a", mesh="test", hooks=Quiet())._requests for boot in (10, 11)]
    earlier, present = (run._questions.next_token for run in runs)
    assert abs(earlier - present) >= 2**32, "as many questions as no run asks"
    owed_before, owed_now = (run._pending._token for run in runs)
    assert abs(owed_before - owed_now) >= 2**32, "the same holds for the asked responders"

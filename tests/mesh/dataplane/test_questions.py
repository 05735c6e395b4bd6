"""Tokens of questions: those of one run of a broker fit nothing in another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mesh.dataplane.questions import Questions, first_token


@given(st.integers(0, 2**63 - 1))
def test_tokens_fit_their_field_for_as_long_as_a_broker_runs(boot: int) -> None:
    assert 0 <= first_token(boot) <= 2**62 - 2**32


def test_an_answer_to_an_earlier_run_fits_no_question_of_the_present_one() -> None:
    """Whoever was asked keeps its token when the broker that asked restarts, and may answer then."""
    earlier, present = (Questions(first_token(boot)).next_token for boot in (10, 11))
    assert abs(earlier - present) >= 2**32, "as many questions as no run asks"

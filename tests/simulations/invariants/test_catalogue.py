"""The catalogue is complete, and lists the parameters of every check's function."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from simulations.invariants import ALL, CHECKS, Check

WITHOUT_SUBJECT = {"M9", "M18", "M19", "D5"}
"""From the study: witnesses, local health, hold-downs and a broadcast tree, which brokers lack."""


def test_every_invariant_of_the_study_that_has_a_subject_is_there_by_its_id_and_by_its_name() -> None:
    ids = [check.id for check in ALL]
    study = {
        *(f"M{n}" for n in range(1, 24)),
        *(f"D{n}" for n in range(1, 11)),
        *(f"X{n}" for n in range(1, 6)),
    }
    assert study - set(ids) == WITHOUT_SUBJECT
    assert len(set(ids)) == len(ids) and len({check.name for check in ALL}) == len(ALL)
    assert all(CHECKS[check.id] is check is CHECKS[check.name] for check in ALL)


def test_every_check_is_proven_on_a_history_that_was_spoilt() -> None:
    modules = [
        import_module(f"{__package__}.{path.stem}") for path in Path(__file__).parent.glob("test_*.py")
    ]
    proven = {spoilt.check for module in modules for spoilt in getattr(module, "SPOILT", ())}
    assert proven == {check.name for check in ALL}


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
def test_a_check_declares_the_parameters_that_its_function_takes(check: Check) -> None:
    taken = list(inspect.signature(check.judge_of).parameters.values())[1:]
    declared = {parameter.name: parameter.default for parameter in check.parameters}
    assert declared == {parameter.name: parameter.default for parameter in taken}
    for parameter in check.parameters:
        kind = {"names": tuple, "text": str}.get(parameter.type, int | float)
        assert isinstance(parameter.default, kind)
        assert not parameter.choices or parameter.type == "text"


@pytest.mark.parametrize("check", ALL, ids=lambda check: check.name)
def test_a_check_has_a_sentence_and_the_name_of_its_judge(check: Check) -> None:
    assert check.sentence[0].isupper() and check.sentence.endswith(".")
    assert check.name == re.sub(r"(?<!^)(?=[A-Z])", "_", check.judge_of.__name__).lower()

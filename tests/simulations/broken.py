"""A membership that is broken on purpose, which the tools must find, shrink and replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mesh.cluster.membership.judgement import Judgement
from simulations.runs import playing, swarming
from simulations.runs.playing import Result
from simulations.runs.swarming import Outcome
from simulations.scenario import Scenario


@contextmanager
def blind() -> Iterator[None]:
    """Brokers that never declare another one silent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judgement, "_judge_member", lambda *given: None)
        yield


def play_blind(scenario: Scenario, **given: Any) -> Result:
    with blind():
        return playing.play(scenario, **given)


def play_seed_blind(seed: int) -> Outcome:
    with blind():
        return swarming.play_seed(seed)

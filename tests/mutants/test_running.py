"""Tests of changed modules: told apart are those that notice, that do not, and that find no end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import __main__ as command
from tests.mutants.mutating import mutants_of
from tests.mutants.running import Outcome, limit_of
from tests.mutants.targets import GROUPS, ROOT, Target, chosen

MODULE = "def up_to(limit):\n    n = 0\n    while n < limit:\n        n += 1\n    return n\n"
TEST = "import counted\n\ndef test_it():\n    assert counted.up_to(3) == 3\n"
PLAY = """
import json, sys
from pathlib import Path
from tests.mutants.running import run
from tests.mutants.targets import Target
root = Path(sys.argv[1])
sys.path.insert(0, str(root))
target = Target("counted.py", ("test_counted.py",))
for change in (None, "up_to: n < limit -> n <= limit", "up_to: n += 1 -> nothing", None):
    outcome = run(target, change, 3.0 if change and "nothing" in change else 40.0, root)
    print(json.dumps([outcome.passed, outcome.killed_by]))
"""


@pytest.mark.process
def test_only_the_tests_of_a_changed_module_see_it_and_a_hanging_one_is_killed(tmp_path: Path) -> None:
    """In a process of its own, as the command is: what a child is a copy of has loaded no tests."""
    (tmp_path / "counted.py").write_text(MODULE)
    (tmp_path / "test_counted.py").write_text(TEST)
    played = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert [json.loads(line) for line in played.stdout.splitlines()] == [
        [True, ""],
        [False, "test_counted.py::test_it"],
        [False, "no end within 3 s"],
        [True, ""],
    ], played.stderr
    assert (tmp_path / "counted.py").read_text() == MODULE


def test_the_command_prints_the_survivors_and_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    survivor = "Redeliveries.take: self._heap[0][0] <= now -> self._heap[0][0] < now"

    def play(target: Target, id: str | None, limit_s: float | None) -> Outcome:
        assert (id is None) == (limit_s is None)
        return Outcome(id in (None, survivor), 1.0, "" if id in (None, survivor) else "a test")

    monkeypatch.setattr(command, "run", play)
    report = tmp_path / "report.json"
    arguments = ["mesh.clients.redeliveries", "--only", survivor, "--json", str(report)]
    assert command.main(arguments) == 1
    printed = capsys.readouterr().out
    assert f"SURVIVED mesh/clients/redeliveries.py:30: {survivor}" in printed and "0 of 1 killed" in printed
    assert [(row["id"], row["killed"]) for row in json.loads(report.read_text())] == [(survivor, False)]
    assert command.main(["mesh.clients.redeliveries"]) == 0, "one of many"
    assert command.main(["mesh.clients.redeliveries", "--at-least", "100"]) == 1
    assert command.main(["no such group"]) == 64

    monkeypatch.setattr(command, "run", lambda *_: Outcome(True, 1.0, ""))
    assert command.main(["--again", str(report)]) == 1, "it survives still"
    monkeypatch.setattr(command, "run", lambda _, id, limit_s: Outcome(id is None, 1.0, "a new test"))
    assert command.main(["--again", str(report)]) == 0
    assert [(row["id"], row["killed"]) for row in json.loads(report.read_text())] == [(survivor, True)]
    monkeypatch.setattr(command, "run", play)

    listed = f'[[mutant]]\nmodule = "mesh/clients/redeliveries.py"\nid = "{survivor}"\nreason = "a test"\n'
    (tmp_path / "equivalent.toml").write_text(listed)
    monkeypatch.setattr(command, "EQUIVALENT", tmp_path / "equivalent.toml")
    assert command.main(["mesh.clients.redeliveries", "--at-least", "100"]) == 0
    assert "  1 equivalent" in capsys.readouterr().out


def test_tests_that_fail_without_a_change_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", lambda *_: Outcome(False, 1.0, "test_x"))
    with pytest.raises(SystemExit, match=r"tests of mesh/storage.py fail as it is: test_x"):
        command.main(["storage", "--sample", "1"])


def test_a_child_is_given_a_multiple_of_the_time_without_a_change() -> None:
    assert limit_of(Outcome(True, 0.1, "")) == 20.0 and limit_of(Outcome(True, 10.0, "")) == 50.0


def test_every_target_and_every_test_of_it_exists() -> None:
    for target in chosen([]):
        for path in (target.module, *target.tests):
            assert (ROOT / path).is_file(), path
    with pytest.raises(LookupError, match="neither a group"):
        chosen(["nonsense"])
    assert chosen(["mesh.storage"]) == chosen(["mesh/storage.py"]) == list(GROUPS["storage"])


def test_every_mutant_that_is_called_equivalent_exists_and_has_a_reason() -> None:
    for module, listed in command.equivalent().items():
        known = {mutant.id for mutant in mutants_of((ROOT / module).read_text())}
        assert set(listed) <= known, f"{module} no longer says {set(listed) - known}"
        assert all(len(reason) > 10 for reason in listed.values())


def test_a_sample_is_the_same_for_the_same_seed_and_part_of_a_larger_one() -> None:
    storage = chosen(["storage"])
    small = command.sampled(storage, 10, 1, None)
    large = command.sampled(storage, 20, 1, None)
    assert small == command.sampled(storage, 10, 1, None) != command.sampled(storage, 10, 2, None)
    assert len(small) == 10 and set(small) < set(large)

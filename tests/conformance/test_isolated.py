"""The cases in which NNG may end the process, run in one that may end; see `isolation`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .isolation import run


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nng_over_websocket_and_tls(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    pytest.importorskip("pynng")
    entries = run(tmp_path / "journal")
    record_property("isolated", [[each["case"], each["when"], each["outcome"]] for each in entries])
    failed = [f"{each['test']}\n{each['text']}" for each in entries if each["outcome"] == "failed"]
    assert not failed, "\n\n".join(failed)
    assert len({each["test"] for each in entries}) > 300


STUCK_ONCE = """
import pathlib, signal, time
import pytest

@pytest.mark.isolated
def test_first(): ...

@pytest.mark.isolated
def test_second():
    been = pathlib.Path(__file__).with_name("been")
    if not been.exists() or {always}:
        been.touch()
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()))  # as a call in C may be
        time.sleep(600)

@pytest.mark.isolated
def test_third(): ...
"""


@pytest.mark.process
@pytest.mark.parametrize("always", [False, True])
def test_a_child_that_is_stuck_is_ended_and_goes_on_where_it_stopped(tmp_path: Path, always: bool) -> None:
    """Each test ends once, and one in which it is always stuck fails with the line where it is."""
    suite = tmp_path / "test_stuck.py"
    suite.write_text(STUCK_ONCE.replace("{always}", str(always)))
    entries = run(tmp_path / "journal", [str(suite)], stuck_s=1.0)
    calls = [
        (each["test"].rpartition("::")[2], each["outcome"]) for each in entries if each["when"] == "call"
    ]
    assert calls == [
        ("test_first", "passed"),
        ("test_second", "failed" if always else "passed"),
        ("test_third", "passed"),
    ]
    if always:
        (told,) = (each["text"] for each in entries if each["outcome"] == "failed")
        assert "in test_second" in told

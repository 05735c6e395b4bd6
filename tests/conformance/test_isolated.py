"""The cases in which NNG may end the process, run in one that may end; see `isolation`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .isolation import run


@pytest.mark.interop
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nng_over_websocket_and_tls(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    pytest.importorskip("pynng")
    entries = run(tmp_path / "journal")
    record_property("isolated", [[each["case"], each["when"], each["outcome"]] for each in entries])
    failed = [f"{each['test']}\n{each['text']}" for each in entries if each["outcome"] == "failed"]
    assert not failed, "\n\n".join(failed)
    assert len({each["test"] for each in entries}) > 300

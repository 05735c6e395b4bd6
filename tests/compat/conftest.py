"""The base's code in a folder. The base's own pytest runs `base-tests` and `mixed`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.base import unpack

collect_ignore = ["base-tests", "mixed"]


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of the base."""
    return unpack(tmp_path_factory.mktemp("base"))

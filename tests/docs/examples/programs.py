"""The programs of docs/examples, loaded as a user's copy of them would be."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples"


def program(name: str) -> ModuleType:
    """The program of that name as a module, which was not run."""
    known = f"examples_{name}"
    if known not in sys.modules:
        spec = spec_from_file_location(known, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[known] = module_from_spec(spec)  # dataclasses look for their module there
        spec.loader.exec_module(sys.modules[known])
    return sys.modules[known]

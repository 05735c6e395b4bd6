"""The process that fuzzes: instruments our decoders, then hands itself to libFuzzer, which never returns.

Started by ``python -m tests.fuzz`` with the target's name and libFuzzer's own flags and folders.
"""

from __future__ import annotations

import importlib
import sys

import atheris


def main(target: str, flags: list[str]) -> None:
    with atheris.instrument_imports(include=["protocols", "mesh"], enable_loader_override=False):
        targets = importlib.import_module("tests.fuzz.targets")
        targets.load_all()
    with targets.low_thresholds():
        atheris.Setup([f"fuzz {target}", *flags], targets.TARGETS[target])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

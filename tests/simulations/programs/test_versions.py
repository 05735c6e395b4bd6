"""Brokers of another version of the link: what of the code is theirs, and what is nobody else's."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import mesh.broker.broker
from mesh.wire import link_frames
from mesh.wire.link_frames import VERSION, Hello
from simulations.programs.versions import COPIED, broker_ahead


def imported(name: str) -> set[str]:
    """Modules of ours that a module imports by name."""
    tree = ast.parse(Path(str(sys.modules[name].__file__)).read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def test_all_that_stands_between_a_broker_and_its_version_is_copied_after_what_it_imports() -> None:
    loaded = [name for name in sys.modules if name.startswith("mesh.") and name != "mesh.cli"]
    below = {"mesh.broker.broker"}
    while more := {each for name in below for each in imported(name) if each in loaded} - below:
        below |= more
    found = {"mesh.wire.link_frames"}
    while more := {name for name in below if imported(name) & found} - found:
        found |= more
    assert found == set(COPIED)
    for number, name in enumerate(COPIED):
        assert imported(name) & found <= set(COPIED[:number]), name


def test_a_broker_ahead_is_a_broker_and_leaves_the_usual_code_alone() -> None:
    ahead = broker_ahead(2)
    assert issubclass(ahead, mesh.broker.broker.Broker) and ahead is broker_ahead(2)
    assert broker_ahead(0) is mesh.broker.broker.Broker
    copied = sys.modules["mesh.wire.link_frames"]
    assert copied is link_frames and link_frames.VERSION == VERSION
    hello = Hello("m", 1, 1, 1, "", "", "", "", 1, b"")
    assert hello.version == VERSION

"""Which modules are mutated, and which tests have to notice: the fast and close ones first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Target:
    """A module, as a path below the root, and its tests."""

    module: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is imported."""
        return self.module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _clients(name: str, *tests: str) -> Target:
    return Target(f"mesh/clients/{name}.py", tuple(f"tests/mesh/{test}.py" for test in tests))


def _package(folder: str, tests: str, *also: str) -> tuple[Target, ...]:
    """Every module of a package: the tests that have its name, then those of the whole package."""
    targets = []
    for path in sorted((ROOT / folder).glob("*.py")):
        own = f"{tests}/test_{path.stem}.py"
        wanted = dict.fromkeys([own, *(f"{tests}/{name}.py" for name in also)])
        found = tuple(test for test in wanted if (ROOT / test).is_file())
        if path.stem != "__init__" and found:
            targets.append(Target(f"{folder}/{path.name}", found))
    return tuple(targets)


GROUPS: Final[dict[str, tuple[Target, ...]]] = {
    "clients": (
        _clients("arguments", "clients/test_arguments"),
        _clients("calls", "clients/test_calls", "clients/test_waiting_times"),
        _clients(
            "publishing",
            "clients/test_publishing",
            "clients/test_versions",
            "clients/test_writer",
            "clients/test_conversation",
            "dataplane/test_exchange",
        ),
        _clients(
            "feeds",
            "clients/test_feeds",
            "clients/test_conversation",
            "clients/test_large_subscriptions",
            "dataplane/test_exchange",
        ),
        _clients("questions", "clients/test_questions", "dataplane/test_exchange"),
        _clients("messages", "clients/test_messages", "clients/test_feeds", "clients/test_malformed_headers"),
        _clients("redeliveries", "clients/test_redeliveries"),
        _clients("session_schedule", "clients/test_session_schedule"),
        _clients(
            "conversation",
            "clients/test_conversation",
            "clients/test_versions",
            "clients/test_feeds",
            "clients/test_publishing",
            "clients/test_large_subscriptions",
            "dataplane/test_exchange",
        ),
        _clients("subscription", "clients/test_subscription", "clients/test_malformed_headers"),
        _clients("publisher", "clients/test_publisher", "clients/test_client", "clients/test_subscription"),
        _clients("writer", "clients/test_writer", "clients/test_publisher", "clients/test_client"),
        _clients("connection", "clients/test_connection", "clients/test_client", "clients/test_subscription"),
        _clients("client", "clients/test_client", "clients/test_publisher", "clients/test_subscription"),
        _clients(
            "blocking_subscription",
            "clients/test_sharing",
            "clients/test_blocking_subscription",
            "clients/test_blocking_client",
        ),
        _clients("blocking_session", "clients/test_blocking_session", "clients/test_blocking_client"),
        _clients(
            "blocking_client",
            "clients/test_interrupts",
            "clients/test_blocking_client",
            "clients/test_blocking_session",
        ),
        _clients("blocking_connection", "clients/test_blocking_connection", "clients/test_blocking_session"),
    ),
    "membership": _package(
        "mesh/cluster/membership",
        "tests/mesh/cluster/membership",
        *("test_machine", "test_judgement", "test_roster", "test_belief", "test_own_record"),
    )
    + tuple(
        Target(
            f"mesh/cluster/{name}.py",
            (f"tests/mesh/cluster/test_{name}.py", "tests/mesh/cluster/membership/test_machine.py"),
        )
        for name in ("core", "news", "full_mesh")
    ),
    "storage": (Target("mesh/storage.py", ("tests/mesh/test_storage.py",)),),
    "patterns": _package(
        "protocols/patterns",
        "tests/protocols/patterns",
        *("test_base", "test_raw", "test_relay", "test_not_waiting", "test_pair1", "test_survey_result"),
        *("../machines/test_asking", "../machines/test_queues", "../machines/test_devices", "../test_device"),
    ),
    "sockets": tuple(
        Target(f"protocols/{name}.py", (f"tests/protocols/test_{name}.py",))
        for name in ("dial_schedule", "peer_warnings", "roster")
    ),
    "dataplane": _package(
        "mesh/dataplane",
        "tests/mesh/dataplane",
        *("test_intake", "test_requests", "test_gate", "test_bounds", "test_deduplication", "test_exchange"),
        *("../clients/test_versions", "../clients/test_large_subscriptions", "test_conservation"),
    ),
    "work": _package(
        "mesh/work", "tests/mesh/work", *("test_queue", "test_machine", "test_cost", "test_workers")
    ),
}
"""The groups of `make mutants`, by the words of its command line."""


def chosen(words: list[str]) -> list[Target]:
    """Targets by group, path or name; all for no words. Raises LookupError."""
    targets = [target for group in GROUPS.values() for target in group]
    if not words:
        return targets
    found: list[Target] = []
    for word in words:
        matching = list(GROUPS.get(word, ())) or [
            target for target in targets if word in (target.module, target.name)
        ]
        if not matching:
            raise LookupError(f"{word!r} is neither a group ({', '.join(GROUPS)}) nor a module of one")
        found += matching
    return list(dict.fromkeys(found))

"""One fault as data: a schedule can be printed, written to a file, cut short and run again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

_FIELDS: Final = {
    "at_s": (int, float),
    "kind": str,
    "a": list,
    "b": list,
    "for_s": (int, float),
    "value": (int, float),
}


class FaultError(ValueError):
    """An impossible fault, with a message; ``field`` is the part that is impossible."""

    def __init__(self, sentence: str, field: str) -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. For the kinds, and the meaning of names and numbers for each: `simulations.faults.KINDS`.

    Raises `FaultError` for an impossible time.
    """

    at_s: float
    """When it begins: in a world since the run began, in a scenario since its safety phase did."""
    kind: str
    a: tuple[str, ...] = ()
    """Its targets: names of processes, or of hosts, as the kind says."""
    b: tuple[str, ...] = ()
    """The other side, for faults between two."""
    for_s: float | None = None
    """How long it lasts. None: until something else ends it, or it is over at once."""
    value: float | None = None
    """The kind's main number, if it has one; None is the kind's default."""
    more: tuple[tuple[str, float | str], ...] = ()
    """Its further parameters, ordered by name."""

    def __post_init__(self) -> None:
        if not 0 <= self.at_s < math.inf:
            raise FaultError(f"a fault cannot begin at {self.at_s:g} s; times count from 0", "at_s")
        if self.for_s is not None and not 0 < self.for_s < math.inf:
            raise FaultError(
                f"a fault cannot last {self.for_s:g} s; leave for_s out if it is to stay", "for_s"
            )

    @property
    def amount(self) -> float:
        """The main number, given or from its kind (`Kind.filled`)."""
        assert self.value is not None, "a fault is filled before it is done"
        return self.value

    def number(self, name: str, default: float) -> float:
        """One of the further parameters."""
        found = dict(self.more).get(name, default)
        assert not isinstance(found, str), "the kind's parameters were checked"
        return found

    def text(self, name: str, default: str) -> str:
        """One of the further parameters that is a word."""
        found = dict(self.more).get(name, default)
        assert isinstance(found, str), "the kind's parameters were checked"
        return found

    def as_json(self) -> dict[str, Any]:
        """The input of `from_json`; omitted fields stay omitted."""
        data: dict[str, Any] = {"at_s": self.at_s, "kind": self.kind}
        if self.a:
            data["a"] = list(self.a)
        if self.b:
            data["b"] = list(self.b)
        if self.for_s is not None:
            data["for_s"] = self.for_s
        if self.value is not None:
            data["value"] = self.value
        return {**data, **dict(self.more)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Fault:
        """The reverse of `as_json`.

        A field that the record lacks is a parameter of its kind; `simulations.faults.check` checks it.

        Raises:
            ValueError: a field is missing or of the wrong type; the message says which.
        """
        for name, value in data.items():
            wanted = _FIELDS.get(name, (int, float, str))
            if not isinstance(value, wanted) or isinstance(value, bool):  # type: ignore[arg-type]
                raise ValueError(f"a fault's {name} cannot be {value!r}")
        for name in ("a", "b"):
            if not all(isinstance(each, str) for each in data.get(name, ())):
                raise ValueError(f"a fault's {name} must be a list of names, got {data[name]!r}")
        if "at_s" not in data or "kind" not in data:
            raise ValueError(f"a fault needs at_s and kind, got {data}")
        for_s, value = data.get("for_s"), data.get("value")
        return cls(
            float(data["at_s"]),
            data["kind"],
            tuple(data.get("a", ())),
            tuple(data.get("b", ())),
            None if for_s is None else float(for_s),
            None if value is None else float(value),
            tuple(sorted((name, value) for name, value in data.items() if name not in _FIELDS)),
        )

    def __str__(self) -> str:
        parts = [self.kind, ",".join(self.a), ",".join(self.b)]
        parts += [] if self.value is None else [f"{self.value:g}"]
        parts += [f"{name}={value}" for name, value in self.more]
        if self.for_s is not None:
            parts.append(f"for {self.for_s:g} s")
        return " ".join(part for part in parts if part)

"""Compares the findings of the analysis with what was done. Pure: two lists of events in, sentences out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event of one broker: ``kind`` is crash, start, pause, resume, leave or partition."""

    kind: str
    broker: str
    at: float

    def __str__(self) -> str:
        clock = datetime.fromtimestamp(self.at, UTC).strftime("%H:%M:%S.%f")[:-5]
        return f"{self.kind} of {self.broker} at {clock}"


def differences(done: Sequence[Event], found: Sequence[Event], window_s: float = WINDOW_S) -> list[str]:
    """Sentences about events that were not found within one window of their time, and findings that did not
    happen.

    Each finding answers for one event only. An empty list is a pass.
    """
    left = list(found)
    sentences = []
    for deed in done:
        matches = [
            event
            for event in left
            if (event.kind, event.broker) == (deed.kind, deed.broker) and abs(event.at - deed.at) <= window_s
        ]
        if matches:
            left.remove(min(matches, key=lambda event: abs(event.at - deed.at)))
        else:
            sentences.append(f"done but not found: {deed}")
    sentences += [f"found but not done: {event}" for event in left]
    return sentences

"""What a task waits for, in words: the program's line at which it waits, and the object it waits for.

A task is a chain of coroutines, each awaiting the next, and at its end a future. To find a deadlock,
developers need their own code rather than asyncio's. So the text names the innermost line outside the
standard library, and the function which that line called.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

ENDS: Final = {"FutureIter": "a future", "async_generator_asend": "an async generator"}
"""Objects of the interpreter that cannot be inspected, by their types."""
LIBRARY: Final = os.path.dirname(os.__file__) + os.sep


def waits(task: asyncio.Task[Any]) -> str:
    """A text such as "main in fetch (client.py:31) waits for Queue.get"."""
    chain = list(_chain(task.get_coro()))
    if not chain:
        return f"{_name(task.get_coro())} is about to begin or to end"
    own = [place for place, (_, frame) in enumerate(chain) if not _is_library(frame)]
    last = own[-1] if own else 0
    coroutine, frame = chain[last]
    called = [name for name in map(_name, (inner for inner, _ in chain[last + 1 :])) if "__" not in name]
    first, here = _name(chain[_begin(chain)][0]), _name(coroutine)
    through = "" if here == first else f" in {here}"
    place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return f"{first}{through} ({place}) waits for {called[0] if called else _awaited(chain[-1][0])}"


def _begin(chain: list[tuple[Any, FrameType]]) -> int:
    """The first of the program's own coroutines: `Process._live` is around every main."""
    return 1 if len(chain) > 1 and _name(chain[0][0]) == "Process._live" else 0


def _chain(coroutine: Any) -> Iterator[tuple[Any, FrameType]]:
    """The coroutines and generators that have begun and not ended, from the outermost in."""
    while coroutine is not None:
        for prefix in ("cr", "ag", "gi"):
            frame = getattr(coroutine, f"{prefix}_frame", None)
            if frame is not None:
                yield coroutine, frame
                coroutine = getattr(coroutine, f"{prefix}_{'yieldfrom' if prefix == 'gi' else 'await'}")
                break
        else:
            return


def _awaited(coroutine: Any) -> str:
    """The object at the end of a chain."""
    for attribute in ("cr_await", "ag_await", "gi_yieldfrom"):
        inner = getattr(coroutine, attribute, None)
        if inner is not None:
            return ENDS.get(type(inner).__name__, _name(inner))
    return "its turn"


def _is_library(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(LIBRARY)


def _name(coroutine: Any) -> str:
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    return str(name).rpartition("<locals>.")[2]

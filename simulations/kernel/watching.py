"""A closer look at code under test, for what the fence of `simulations.kernel.guards` cannot see.

The fence patches names in modules. A name that was bound before, as by ``from time import monotonic``, leads
past it, and ``datetime.now`` is a method of a C type, which has no name that could be patched. Python tells
its profiler of every function in C before it is called, whatever name led there, so a watch by the profiler
sees both. It takes about three times as long, and the place of any other profiler, so only tests ask for it.

Unseen even so is what C itself calls, as in ``map(monotonic, ...)``. An escape ends the watch, since Python
takes a profiler away that raises; the fence has noted it by then, and one is enough to fail a test.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any, Final

from simulations.kernel.guards import CLOCK_HINT, FORBIDDEN, OURS, RANDOM_HINT, Fence, is_exempt

PRESENT: Final = ("now", "utcnow")
"""The methods of datetime that look at the clock by themselves; others call time.time, which is fenced."""


@contextmanager
def watched(fence: Fence) -> Iterator[None]:
    """Refuse, while the fence is closed, every function in C that is forbidden by whatever name."""
    forbidden = {
        function: (f"{owner.__name__}.{name}", hint)
        for owner, name, hint in FORBIDDEN
        if isinstance(owner, ModuleType) and owner is not random
        for function in [fence.original(owner, name)]
        if isinstance(function, BuiltinFunctionType)
    }

    def look(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or not fence.holds or frame.f_code.co_filename in OURS:
            return  # what our own guards call they have judged
        found = forbidden.get(function) or _of_an_object(function)
        if found is not None and not is_exempt(frame):
            fence.refuse(*found)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _of_an_object(function: Any) -> tuple[str, str] | None:
    """Methods that are forbidden of some objects only."""
    of = getattr(function, "__self__", None)
    if of is random._inst:
        return f"random.{function.__name__}", RANDOM_HINT
    if isinstance(of, type) and issubclass(of, datetime) and function.__name__ in PRESENT:
        return f"datetime.{function.__qualname__}", CLOCK_HINT
    return None

"""A closer check of code under test, for calls that the fence of `simulations.kernel.guards` cannot see.

The fence patches names in modules. It misses a name bound earlier, as by ``from time import monotonic``, and
``datetime.now``, which is a method of a C type without a name to patch. Python tells its profiler of every C
function before the call, whatever its name, so a profiler sees both. That takes about three times as long,
and replaces any other profiler, so only tests use it.

Calls made by C itself remain unseen, as in ``map(monotonic, ...)``. An escape ends the check, since Python
removes a profiler that raises. The fence has recorded it by then, and one is enough to fail a test.
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
"""The methods of datetime that read the clock by themselves; others call time.time, which is fenced."""


@contextmanager
def watched(fence: Fence) -> Iterator[None]:
    """While the fence is closed, refuse every forbidden C function, whatever its name."""
    forbidden = {
        function: (f"{owner.__name__}.{name}", hint)
        for owner, name, hint in FORBIDDEN
        if isinstance(owner, ModuleType) and owner is not random
        for function in [fence.original(owner, name)]
        if isinstance(function, BuiltinFunctionType)
    }

    def look(frame: FrameType, event: str, function: Any) -> None:
        if event != "c_call" or not fence.holds or frame.f_code.co_filename in OURS:
            return  # the call comes from our own guards, which have decided it
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
    """Methods that are forbidden for some objects only."""
    of = getattr(function, "__self__", None)
    if of is random._inst:
        return f"random.{function.__name__}", RANDOM_HINT
    if isinstance(of, type) and issubclass(of, datetime) and function.__name__ in PRESENT:
        return f"datetime.{function.__qualname__}", CLOCK_HINT
    return None

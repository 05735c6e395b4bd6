"""Ctrl-C at every place of a call, one after the other.

An interrupt is raised where Python would raise it: it looks for signals where a function begins, and after
each call of a C function.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType

LIMIT_S = 60.0


def interrupted_at(
    place: int, call: Callable[[], object], ends_with: type[Exception] | tuple[type[Exception], ...] = ()
) -> bool:
    """Whether the call got as far as that place, where Ctrl-C is pressed. It may end with those errors."""
    left = place

    def look(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if not left:
                sys.setprofile(None)
                raise KeyboardInterrupt

    collecting = gc.isenabled()
    gc.disable()  # what a collection calls would be interrupted, and the error be lost there
    try:
        sys.setprofile(look)
        call()
    except KeyboardInterrupt:
        return True
    except ends_with:
        pass
    finally:
        sys.setprofile(None)
        if collecting:
            gc.enable()
    return False


def ends(call: Callable[[], object]) -> bool:
    """Whether another thread comes back from it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return not thread.is_alive()

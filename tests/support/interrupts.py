"""Ctrl-C, or a signal handler, at every place of a call, one after the other.

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


def press() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


def interrupted_at(
    place: int,
    call: Callable[[], object],
    ends_with: type[Exception] | tuple[type[Exception], ...] = (),
    handler: Callable[[], object] = press,
) -> bool:
    """True if the call reached that place, where the handler runs. It may end with those errors."""
    left = place

    def look(frame: FrameType, event: str, arg: object) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if not left:
                sys.setprofile(None)
                handler()

    collecting = gc.isenabled()
    gc.disable()  # what a collection calls would be interrupted, and the error be lost there
    try:
        sys.setprofile(look)
        call()
    except KeyboardInterrupt:
        pass
    except ends_with:
        pass
    finally:
        sys.setprofile(None)
        if collecting:
            gc.enable()
    return left <= 0


def ends(call: Callable[[], object]) -> bool:
    """True if another thread returns from it."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    return not thread.is_alive()

"""The word in front of a Pair1 or Star0 message: how many hops it has made.

```
00 00 00 | hops, u8 | body
```

The two count differently. Pair1 counts when it sends: the first sender writes 1 (as NNG and the RFC; mangos
writes 0, which is accepted), and a message with more hops than ``ttl`` is dropped. Star0 counts when it
receives: the first sender writes 0, and a message with ``ttl`` hops or more is dropped. Either way a message
may cross ``ttl`` links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

WORD_SIZE: Final = 4
HOPS_MAX: Final = 0xFF
MALFORMED: Final = -1
"""Result of `read_hops`: the frame is too short, or one of the 24 reserved bits is set."""

HOP_WORDS: Final = tuple(bytes((0, 0, 0, hops)) for hops in range(HOPS_MAX + 1))
"""The word for each number of hops."""

_RESERVED: Final = bytes(3)


class Sifted(NamedTuple):
    """The frames that may pass, and how many others there were of each kind."""

    good: list[bytes]
    over_ttl: int
    malformed: int


def read_hops(frame: bytes) -> int:
    """The number of hops in a frame's header, or `MALFORMED`."""
    if len(frame) < WORD_SIZE or frame[:3] != _RESERVED:
        return MALFORMED
    return frame[3]


def step(frame: bytes) -> bytes:
    """The frame with one hop more; it must be well-formed and below `HOPS_MAX`."""
    return HOP_WORDS[frame[3] + 1] + frame[WORD_SIZE:]


def sift(frames: Sequence[bytes], hops_max: int, *, stop: bool) -> Sifted:
    """Frames of at most ``hops_max`` hops; with ``stop`` only those before the first malformed one."""
    good: list[bytes] = []
    over_ttl = malformed = 0
    for frame in frames:
        hops = read_hops(frame)
        if hops == MALFORMED:
            malformed += 1
            if stop:
                break
        elif hops > hops_max:
            over_ttl += 1
        else:
            good.append(frame)
    return Sifted(good, over_ttl, malformed)

"""The words in front of a request, a survey and their answers.

```
0..n peer words (bit 31 clear), each pushed by a relay | one id word (bit 31 set) | body
```

Every word is u32 big-endian. A relay pushes the id of the pipe a frame came from and pops it from the answer,
so the stack is the return path; a replier copies it unchanged. ``ttl`` bounds the words, including the id, as
NNG counts.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocols.errors import LocalProtocolError
from protocols.options import TTL_MAX

END_BIT: Final = 0x80000000
WORD_SIZE: Final = 4

OVER_TTL: Final = 0
"""Result of `split`: more words than hops are allowed. Drop the frame, keep the pipe (every implementation
does).
"""
MALFORMED: Final = -1
"""Result of `split`: the frame ends inside the stack. Close the pipe, as NNG does."""

_WORD: Final = Struct(">I")


def split(frame: bytes, ttl: int = TTL_MAX) -> int:
    """The index where the body begins: at least 4, or `OVER_TTL`, or `MALFORMED` (both below 4)."""
    size = len(frame)
    if size >= WORD_SIZE and frame[0] & 0x80 and ttl > 0:  # most frames crossed no relay
        return WORD_SIZE
    end = 0
    for _ in range(ttl):
        if size < end + WORD_SIZE:
            return MALFORMED
        end += WORD_SIZE
        if frame[end - WORD_SIZE] & 0x80:
            return end
    return OVER_TTL


def encode_word(word: int) -> bytes:
    """Four bytes. Raises `LocalProtocolError` if the word does not fit."""
    if not 0 <= word <= 0xFFFFFFFF:
        raise LocalProtocolError(f"backtrace word {word} does not fit in 32 bits")
    return _WORD.pack(word)


def push(frame: bytes, word: int) -> bytes:
    """The frame with ``word`` on top of its stack."""
    return encode_word(word) + frame


def peek(frame: bytes) -> int:
    """The top word, or `MALFORMED` if the frame is too short to hold one."""
    if len(frame) < WORD_SIZE:
        return MALFORMED
    return int(_WORD.unpack_from(frame)[0])


def pop(frame: bytes) -> tuple[int, bytes]:
    """The top word and the rest; the word is `MALFORMED` if there is none."""
    return peek(frame), frame[WORD_SIZE:]

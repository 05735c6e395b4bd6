"""Keys of a terminal, from the bytes that it sends. Pure."""

from __future__ import annotations

from typing import Final

SEQUENCES: Final = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[5~": "pageup",
    b"\x1b[6~": "pagedown",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[7~": "home",
    b"\x1b[8~": "end",
}
SINGLE: Final = {
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x04": "q",
    b"\x1b": "escape",
}
SEQUENCE_MAX: Final = 16


def keys_in(data: bytes) -> list[str]:
    """The keys of one read: names such as ``up``, else characters. Unknown sequences are left out. An escape
    that nothing follows in the read is the key itself, since terminals send a sequence at once."""
    found: list[str] = []
    while data:
        if data[:1] == b"\x1b" and len(data) > 1 and data[1:2] in b"[O":
            size = _sequence_size(data)
            name = SEQUENCES.get(data[:size])
            if name:
                found.append(name)
        elif data[:1] in SINGLE:
            size = 1
            found.append(SINGLE[data[:1]])
        else:
            size, text = _character(data)
            if text.isprintable():
                found.append(text)
        data = data[size:]
    return [key for key in found if key]


def _sequence_size(data: bytes) -> int:
    """Up to the first byte that ends a sequence (ECMA-48: 0x40 to 0x7E)."""
    for at in range(2, min(len(data), SEQUENCE_MAX)):
        if 0x40 <= data[at] <= 0x7E:
            return at + 1
    return min(len(data), SEQUENCE_MAX)


def _character(data: bytes) -> tuple[int, str]:
    """The size and text of the first character; bytes that are none are skipped one by one."""
    first = data[0]
    size = 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    try:
        return size, data[:size].decode()
    except UnicodeDecodeError:
        return 1, ""

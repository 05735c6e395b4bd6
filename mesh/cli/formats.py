"""How `mesh cat` prints a body: the formats of nngcat, nanocat and macat, byte for byte.

The three differ in two formats. ``ascii`` ends with a line feed here, as in nanocat and macat; nngcat prints
none, so its messages run into each other. ``quoted`` writes a tab as ``\\t``, as nngcat does; nanocat writes
``\\x09``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

Format = Callable[[bytes], bytes]

_PRINTABLE: Final = range(0x20, 0x7F)
_DOTTED: Final = bytes(byte if byte in _PRINTABLE else ord(".") for byte in range(256))
_HEXED: Final = tuple(b"\\x%02x" % byte for byte in range(256))
_ESCAPES: Final = {
    ord("\n"): b"\\n",
    ord("\r"): b"\\r",
    ord("\t"): b"\\t",
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
}
_QUOTED: Final = tuple(
    _ESCAPES.get(byte, bytes([byte]) if byte in _PRINTABLE else _HEXED[byte]) for byte in range(256)
)


def raw(body: bytes) -> bytes:
    """The body itself, with nothing between two messages."""
    return body


def ascii(body: bytes) -> bytes:
    """A line, with a dot for whatever is not printable ASCII."""
    return body.translate(_DOTTED) + b"\n"


def quoted(body: bytes) -> bytes:
    """A line in double quotes, escaped as in C."""
    return b'"' + b"".join([_QUOTED[byte] for byte in body]) + b'"\n'


def hexadecimal(body: bytes) -> bytes:
    r"""A line in double quotes, every byte as ``\x2e``."""
    return b'"' + b"".join([_HEXED[byte] for byte in body]) + b'"\n'


def msgpack(body: bytes) -> bytes:
    """MessagePack's bin, which a program can take apart again."""
    size = len(body)
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big") + body
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big") + body
    return b"\xc6" + size.to_bytes(4, "big") + body


def nothing(body: bytes) -> bytes:
    """Nothing."""
    return b""


FORMATS: Final[Mapping[str, Format]] = {
    "raw": raw,
    "ascii": ascii,
    "quoted": quoted,
    "hex": hexadecimal,
    "msgpack": msgpack,
    "no": nothing,
}

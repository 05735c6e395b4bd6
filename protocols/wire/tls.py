"""TLS around another codec, over memory: no sockets, no asyncio, and failures that have reasons.

The inner codec (the plain protocol, or WebSocket) speaks only once the TLS handshake is complete. An error of
``ssl`` becomes one of the fixed words below, for counters, and a sentence for people:

====================================  ================================================================
``tls: not TLS``                      the first byte begins no TLS record: plain SP, HTTP, anything else
``tls: untrusted certificate``        no authority that we trust has signed the peer's certificate
``tls: expired certificate``          it has expired, or is not valid yet
``tls: wrong name``                   it is for another host than the one we dialled
``tls: no certificate``               the peer was asked for one and has none
``tls: certificate``                  anything else that is wrong with it
``tls: our certificate refused``      the peer refused our certificate
``tls: our certificate missing``      the peer asks for one and we have none
``tls: protocol version``             no version in common
``tls: cipher``                       nothing else in common
``tls: broken record``                what arrived does not decrypt, or is no TLS
``tls: refused by peer``              any other alert
``tls: error``                        any other failure of ours
====================================  ================================================================

In TLS 1.3 a client completes the handshake before the server has checked its certificate. A refusal then
arrives in place of the inner handshake's first bytes. It is still a `HandshakeError`, because the inner
handshake is not complete.

A stream that ends without close_notify may have been cut by an attacker. Between two frames this counts as an
ordinary end (SP has no farewell, and many peers send none). Inside a frame, that frame is lost.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from protocols.errors import HandshakeError, RemoteProtocolError
from protocols.identity import PeerIdentity
from protocols.wire.codec import Codec

RECORD_HEAD_SIZE: Final = 5
"""Type, version, length of what follows."""
RECORD_SIZE: Final = 16384
"""Plain bytes in one record at most."""
WRITE_SIZE: Final = 128 * 1024
"""Encrypted bytes handed on at once: a large frame is never held a second time as a whole."""

HELD_MAX: Final = 64 * 1024
"""Bytes of our inner codec's replies that may wait for the end of a half-written buffer."""
_HANDSHAKE_RECORD: Final = 0x16
_ALERT_RECORD: Final = 0x15
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"HTTP", b"PRI ")

_EXPIRED: Final = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
_UNTRUSTED: Final = (2, 18, 19, 20, 21, 27)  # no issuer found, self-signed, not trusted
_WRONG_NAME: Final = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH

_REFUSED_OURS: Final = "tls: our certificate refused"
_NO_VERSION: Final = ("tls: protocol version", "this end and the peer have no TLS version in common")
_BROKEN: Final = ("tls: broken record", "what the peer sent does not decrypt or is not TLS")

_REASONS: Final[Mapping[str, tuple[str, str]]] = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
        "tls: no certificate",
        "the peer has no certificate and this end asks for one",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
        "tls: our certificate missing",
        "the peer asks for a certificate and this end has none",
    ),
    "TLSV1_ALERT_UNKNOWN_CA": (_REFUSED_OURS, "the peer does not trust who signed our certificate"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": (_REFUSED_OURS, "the peer says that our certificate has expired"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": (_REFUSED_OURS, "the peer says that our certificate was revoked"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": (_REFUSED_OURS, "the peer cannot accept our certificate"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": (_REFUSED_OURS, "the peer cannot use a certificate like ours"),
    "SSLV3_ALERT_BAD_CERTIFICATE": (_REFUSED_OURS, "the peer refuses our certificate"),
    "TLSV1_ALERT_ACCESS_DENIED": (_REFUSED_OURS, "the peer does not admit the holder of our certificate"),
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": _NO_VERSION,
    "TLSV1_ALERT_PROTOCOL_VERSION": _NO_VERSION,
    "UNSUPPORTED_SSL_VERSION": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "NO_SHARED_CIPHER": ("tls: cipher", "this end and the peer have no cipher in common"),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "tls: refused by peer",
        "the peer refuses the handshake: no cipher in common, or it misses a certificate of this end",
    ),
    "WRONG_VERSION_NUMBER": _BROKEN,
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": _BROKEN,
    "SSLV3_ALERT_BAD_RECORD_MAC": ("tls: refused by peer", "the peer could not decrypt what this end sent"),
    "BAD_RECORD_TYPE": _BROKEN,
    "UNEXPECTED_RECORD": _BROKEN,
    "UNEXPECTED_MESSAGE": _BROKEN,
    "RECORD_LAYER_FAILURE": _BROKEN,
    "PACKET_LENGTH_TOO_LONG": _BROKEN,
    "ENCRYPTED_LENGTH_TOO_LONG": _BROKEN,
    "DATA_LENGTH_TOO_LONG": _BROKEN,
    "LENGTH_MISMATCH": _BROKEN,
}


class TlsCodec:
    """One end of a TLS stream around ``inner``; see `protocols.wire.codec.Codec`.

    ``server_name`` is the name that the server's certificate must have, if ``context`` checks it.
    """

    __slots__ = (
        "_failure",
        "_heard",
        "_held",
        "_incoming",
        "_inner",
        "_inside_buffer",
        "_is_server",
        "_name",
        "_outgoing",
        "_records",
        "_secure",
        "_tls",
        "ended",
        "identity",
        "reply",
    )

    repeatable = False  # records are numbered

    def __init__(
        self, inner: Codec, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None
    ) -> None:
        self.reply = b""
        self.ended = False
        self.identity: PeerIdentity | None = None
        self._inner = inner
        self._is_server = server_side
        self._name = server_name
        self._failure: RemoteProtocolError | None = None
        self._heard = False
        self._held = bytearray()
        self._inside_buffer = False
        self._secure = False
        self._records = Records()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=None if server_side else server_name,
        )

    @property
    def peer(self) -> int:
        return self._inner.peer

    @property
    def failure(self) -> RemoteProtocolError | None:
        return self._failure or self._inner.failure

    @property
    def last_words(self) -> str:
        return self._inner.last_words

    @property
    def inside_frame(self) -> bool:
        return self._inner.inside_frame or (self._records.inside and not self.ended)

    def begin(self) -> bytes:
        """A dialer's first bytes; a context that allows no version or cipher is a `failure`."""
        if not self._is_server:
            try:
                self._handshake()
            except ssl.SSLError as error:
                self._fail(error)
        return self._outgoing.read()

    def receive(self, chunk: bytes | memoryview) -> list[bytes]:
        if self._failure is not None or self.ended:
            return []
        if not self._heard and len(chunk):
            self._heard = True
            if chunk[0] != _HANDSHAKE_RECORD and (self._is_server or chunk[0] != _ALERT_RECORD):
                self._failure = HandshakeError(self._not_tls(bytes(chunk[:8])), reason="tls: not TLS")
                return []
        self._records.follow(chunk)
        self._incoming.write(chunk)
        frames: list[bytes] = []
        try:
            if self._secure or self._handshake():
                self._decrypt(frames)
        except ssl.SSLError as error:
            self._fail(error)
        self.reply += self._outgoing.read()
        return frames

    def encode(self, frames: Sequence[bytes]) -> Iterable[bytes]:
        return self._encrypted(self._inner.encode(frames))

    def encode_small(self, frame: bytes) -> bytes:
        return b"".join(self.encode((frame,)))

    def end(self) -> bytes:
        if self._secure and self._failure is None and not self.ended:
            last = self._inner.end()
            with suppress(ssl.SSLError):  # the stream is broken, and nobody needs to be told
                if last:
                    self._write(last)
            self._say_goodbye()
        return self._outgoing.read()

    def progress(self) -> str:
        if self._secure:
            return self._inner.progress() + " inside TLS"
        if self._heard:
            return "half a TLS handshake"
        return "no byte of TLS"

    # --- in

    def _handshake(self) -> bool:
        """True once the TLS handshake is complete; our inner codec has then sent its first bytes."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._secure = True
        self.identity = identity_of(self._tls.getpeercert())
        first = self._inner.begin()
        if first:
            self._write(first)
        return True

    def _decrypt(self, frames: list[bytes]) -> None:
        read = self._tls.read
        inner = self._inner
        while self.failure is None:
            try:
                plain = read(RECORD_SIZE)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:  # close_notify, and ours went first
                self.ended = True
                return
            if not plain:  # close_notify, to be answered in kind
                self.ended = True
                self._say_goodbye()
                return
            frames += inner.receive(plain)
            if inner.reply:
                self._held += inner.reply
                inner.reply = b""
                self._answer()
            if inner.ended:
                self.ended = True
                return

    # --- out

    def _say_goodbye(self) -> None:
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # it waits for the peer's close_notify, which nobody needs; ours is written

    def _answer(self) -> None:
        """Encrypt our inner codec's replies to the peer, but not in the middle of its other output."""
        if not self._held or self.ended or self._failure is not None:
            return
        if not self._inside_buffer:
            answer, self._held = bytes(self._held), bytearray()
            self._write(answer)
        elif len(self._held) > HELD_MAX:
            sentence = f"the peer reads nothing and let {len(self._held)} bytes of answers pile up"
            self._failure = RemoteProtocolError(sentence, reason="not reading")

    def _write(self, plain: bytes) -> None:
        rest = memoryview(plain)
        while rest:
            rest = rest[self._tls.write(rest) :]

    def _encrypted(self, buffers: Iterable[bytes]) -> Iterator[bytes]:
        """Yield encrypted buffers of about `WRITE_SIZE` on demand, which may take many turns."""
        outgoing, write = self._outgoing, self._tls.write
        for buffer in buffers:
            rest = memoryview(buffer)
            while rest and not self.ended and self._failure is None:  # a broken stream takes no more
                rest = rest[write(rest[:WRITE_SIZE]) :]
                if outgoing.pending >= WRITE_SIZE:
                    self._inside_buffer = bool(rest)
                    yield outgoing.read()
            self._inside_buffer = False
            self._answer()
        if outgoing.pending:
            yield outgoing.read()

    # --- what went wrong

    def _fail(self, error: ssl.SSLError) -> None:
        reason, sentence = self._explain(error)
        if self.peer:
            self._failure = RemoteProtocolError(sentence, reason=reason)
        else:
            self._failure = HandshakeError(sentence, reason=reason)

    def _explain(self, error: ssl.SSLError) -> tuple[str, str]:
        """The word for counters and the sentence."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._explain_certificate(error)
        code = error.reason or ""
        found = _REASONS.get(code)
        if found is not None:
            return found
        words = code.lower().replace("_", " ") or str(error)
        _, alert, what = words.partition(" alert ")
        if alert:
            return "tls: refused by peer", f"the peer ended TLS: {what}"
        return (
            "tls: error",
            f"the TLS handshake failed: {words}" if not self._secure else f"TLS failed: {words}",
        )

    def _explain_certificate(self, error: ssl.SSLCertVerificationError) -> tuple[str, str]:
        what = f"the certificate of the {'client' if self._is_server else 'server'}"
        detail = error.verify_message.rstrip(".")
        if error.verify_code in _EXPIRED:
            return "tls: expired certificate", f"{what} cannot be used now: {detail}"
        if error.verify_code in _UNTRUSTED:
            return (
                "tls: untrusted certificate",
                f"{what} is not signed by an authority trusted here: {detail}",
            )
        if error.verify_code in _WRONG_NAME:
            return "tls: wrong name", f"{what} is not for {self._name}: {detail}"
        return "tls: certificate", f"{what} is refused: {detail}"

    def _not_tls(self, start: bytes) -> str:
        plain = start.startswith(b"\0SP\0"[: len(start)])
        if self._is_server:
            if plain:
                return (
                    "the peer speaks the plain protocol and this address is for TLS; dial it with tls+tcp://"
                )
            if start.startswith(_HTTP):
                return (
                    "the peer speaks plain HTTP and this address is for TLS; dial it with wss:// or https://"
                )
        elif plain:
            return (
                "the listener speaks the plain protocol, not TLS; dial it with tcp://, or give it tls+tcp://"
            )
        elif start.startswith(_HTTP):
            return "the listener speaks plain HTTP, not TLS; dial it with ws://, or give it wss://"
        return f"the first bytes {start.hex(' ')} are not TLS"


class Records:
    """The position of the stream within a record.

    OpenSSL keeps half a record to itself, and a frame that fits into one is cut there.
    """

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    @property
    def inside(self) -> bool:
        return self._left > 0 or bool(self._head)

    def follow(self, chunk: bytes | memoryview) -> None:
        position, size = 0, len(chunk)
        while size - position > self._left:
            position += self._left
            head = self._head + bytes(chunk[position : position + RECORD_HEAD_SIZE - len(self._head)])
            position += len(head) - len(self._head)
            if len(head) < RECORD_HEAD_SIZE:
                self._head, self._left = head, 0
                return
            self._head, self._left = b"", head[3] << 8 | head[4]
        self._left -= size - position


def identity_of(certificate: Mapping[str, Any] | None) -> PeerIdentity | None:
    """The names in a verified certificate, as `ssl.SSLObject.getpeercert` gives it; None without one."""
    if not certificate:
        return None
    names = tuple(
        _ip_address(value) if kind == "IP Address" else value
        for kind, value in certificate.get("subjectAltName", ())
        if kind in ("DNS", "IP Address", "URI", "email")
    )
    return PeerIdentity(subject=rfc4514(certificate.get("subject", ())), names=names)


def _ip_address(text: str) -> str:
    """An address in its usual form: OpenSSL gives ``0:0:0:0:0:0:0:1`` for ``::1``."""
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text


_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def rfc4514(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """A distinguished name as text: last part first, ``CN=broker-1,O=Example``."""
    parts = (
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part) for part in subject
    )
    return ",".join(reversed(list(parts)))


def _escaped(value: str) -> str:
    text = "".join(
        "\\00" if character == "\0" else f"\\{character}" if character in '",+;<>\\' else character
        for character in value
    )
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1 and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text

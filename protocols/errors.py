"""What can go wrong, as types.

```
SPError
  Closed                  this object was closed by its owner
  Timeout                 a deadline passed (also a builtin TimeoutError)
    PartlySent            send_many ran out of time half-way
  WouldBlock              a *_nowait call found nothing to do
  NoPeers                 there is nobody to send to, and the caller asked not to wait
  StateError              the pattern forbids this now (recv before send on Req, recv without a survey)
    SurveyOver            the survey has ended; iterating over its answers ends so
  NotSupported            the pattern never allows this (send on Sub, recv on Pub)
  AddressError            a URL that cannot be understood or reached (also a ValueError)
    AddressInUse          somebody else listens there (also an OSError)
    ConnectionRefused     nobody listens there (also an OSError)
    TlsConfigError        certificates or keys that cannot be used
  RequestLost             the peer that had the request is gone, and resending is off (also a builtin
                          ConnectionError)
  PipeRefused             a pattern or a hook does not want this peer (Pair0's second one)
  ProtocolError
    LocalProtocolError    the caller broke a rule of the wire; raised to the caller
    RemoteProtocolError   the peer broke a rule of the wire; costs it its pipe, never reaches the application
      HandshakeError
      MessageTooLarge
```
"""

from __future__ import annotations


class SPError(Exception):
    """Base class of errors between sockets. An argument of a wrong type or value raises a builtin error."""


class Closed(SPError):
    """The socket, context, pipe or endpoint was closed."""

    sent = 0
    """From ``send_many``: how many leading messages were taken before."""


class Timeout(SPError, TimeoutError):
    """A deadline passed before the operation could finish."""


class PartlySent(Timeout):
    """``send_many`` ran out of time: ``sent`` leading messages are on their way, the others are not."""

    def __init__(self, sent: int, count: int) -> None:
        super().__init__(f"only {sent} of {count} messages found room in time")
        self.sent = sent


class WouldBlock(SPError):
    """A ``*_nowait`` call would have had to wait."""


class StateError(SPError):
    """The pattern's state forbids this operation now."""


class SurveyOver(StateError):
    """The survey has ended: its deadline passed, or all peers have answered. No further answer comes."""


class NoPeers(SPError):
    """There is no peer to send to, or to answer. Raised only with ``fail_without_peers``."""

    sent = 0
    """From ``send_many``: how many leading messages were taken before."""


class NotSupported(SPError):
    """This pattern, or this engine, never supports the operation."""


class AddressError(SPError, ValueError):
    """The URL cannot be understood, resolved or reached. ``reason`` is a word or two, for counters."""

    reason = "unreachable"


class AddressInUse(AddressError, OSError):
    """Another listener holds the address."""

    reason = "in use"


class ConnectionRefused(AddressError, OSError):
    """Nobody listens at the address."""

    reason = "refused"


class TlsConfigError(AddressError):
    """The certificates or keys cannot be used; the message says which and why.

    This is an `AddressError`, because the endpoint cannot be opened with them.
    """

    reason = "tls: configuration"


class RequestLost(SPError, ConnectionError):
    """The peer that had the request is gone, and ``resend_s`` forbids asking another."""


class PipeRefused(SPError):
    """The pattern, or a hook, does not admit this peer. ``reason`` is a word or two, for counters."""

    def __init__(self, message: str = "", *, reason: str = "not wanted") -> None:
        super().__init__(message)
        self.reason = reason


class ProtocolError(SPError):
    """A rule of the wire was broken; the two subclasses say by which side."""


class LocalProtocolError(ProtocolError):
    """The caller broke a rule of the wire."""


class RemoteProtocolError(ProtocolError):
    """The peer broke a rule of the wire; it loses its pipe and is counted.

    ``reason`` is one of a few fixed words, for counters; the message is for people.
    """

    def __init__(self, message: str, *, reason: str = "bad frame") -> None:
        super().__init__(message)
        self.reason = reason


class HandshakeError(RemoteProtocolError):
    """The connection did not become one of the Scalability Protocols, or not of a protocol that we serve."""

    def __init__(self, message: str, *, reason: str = "handshake") -> None:
        super().__init__(message, reason=reason)


class MessageTooLarge(RemoteProtocolError):
    """The peer announced a frame above the receive limit (checked before memory is taken)."""

    def __init__(self, size: int, size_max: int) -> None:
        super().__init__(
            f"a message of {size} bytes is above the limit of {size_max} (recv_size_max)", reason="too large"
        )
        self.size = size
        self.size_max = size_max

"""NNG's errors as errors of `protocols`."""

from __future__ import annotations

from typing import Final

from protocols.errors import (
    AddressError,
    AddressInUse,
    Closed,
    ConnectionRefused,
    NotSupported,
    RequestLost,
    SPError,
    StateError,
    SurveyOver,
    WouldBlock,
)
from protocols.nng.binding import pynng

REPLACED: Final = "replaced by a newer request or survey"

_ERRORS: Final[tuple[tuple[type[Exception], type[SPError], str], ...]] = (
    (pynng.Timeout, SurveyOver, "the survey is over; NNG has dropped its answers"),
    (pynng.Closed, Closed, "the socket is closed"),
    (pynng.BadState, StateError, "it is not this socket's turn"),
    (pynng.TryAgain, WouldBlock, "it would have to wait"),
    (pynng.NotSupported, NotSupported, "this pattern cannot do that"),
    (pynng.ConnectionReset, RequestLost, "the peer that had the request is gone"),
    (pynng.Canceled, StateError, REPLACED),
)

_ADDRESS_ERRORS: Final[tuple[tuple[type[Exception], type[AddressError], str], ...]] = (
    (pynng.AddressInUse, AddressInUse, "another listener has this address"),
    (pynng.ConnectionRefused, ConnectionRefused, "nobody listens there"),
    (pynng.NotSupported, AddressError, "NNG has no such transport"),
    (pynng.InvalidOperation, AddressError, "NNG cannot understand it"),
    (pynng.AddressInvalid, AddressError, "not an address that can be used so"),
    (pynng.NoEntry, AddressError, "its folder does not exist"),
    (pynng.PermissionDenied, AddressError, "permission denied"),
)


def translated(error: Exception) -> SPError:
    """Our error for an error of NNG."""
    for theirs, ours, sentence in _ERRORS:
        if isinstance(error, theirs):
            return ours(sentence)
    return SPError(f"NNG says: {error}")


def translated_address(error: Exception, url: str) -> SPError:
    """Our error for an endpoint that could not be opened."""
    for theirs, ours, sentence in _ADDRESS_ERRORS:
        if isinstance(error, theirs):
            return ours(f"{url}: {sentence}")
    if isinstance(error, pynng.Closed):
        return translated(error)
    return AddressError(f"{url}: NNG says: {error}")

"""Builds SSL contexts from a `TlsConfig`, and builds them again when its files change.

`Certificates` belongs to one endpoint. Each new connection asks it for the context, and it then checks the
files: at most once a second, and only their times and sizes, so that a flood of handshakes costs no disk
access. It accepts changed files as a whole or not at all. Files that do not match (a certificate was replaced
and its key not yet) leave the former context in place. They are counted and logged, and tried again when they
change. A connection keeps the context it began with.

Certificates given as text need no disk access; simulated programs use these.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from protocols.errors import TlsConfigError
from protocols.tls import TlsConfig, Verify

log = logging.getLogger("protocols")

LOOK_EVERY_S: Final = 1.0
"""Seconds between two checks of the files."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MODES: Final[dict[Verify, ssl.VerifyMode]] = {
    "required": ssl.CERT_REQUIRED,
    "optional": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_PRIVATE_KEY: Final = "PRIVATE KEY-----"

FileState = tuple[int, int, int, int] | None


class Logger(Protocol):
    """The methods of a logger that report changed files."""

    def warning(self, message: str, /, *arguments: object) -> None: ...

    def info(self, message: str, /, *arguments: object) -> None: ...


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a listener. Raises `TlsConfigError`."""
    if not config.has_certificate:
        raise TlsConfigError("a TLS listener needs a certificate; give cert_file and key_file")
    verify = config.verify or "none"
    if verify != "none" and not config.has_authority:
        raise TlsConfigError(
            f"TLS verify is {verify} at a listener without ca_file; name the authorities whose certificates "
            "its peers may have"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # sp-tls-v1: no resumption
    context.verify_mode = _MODES[verify]
    return _filled(context, config)


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a dialer. Raises `TlsConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if config.verify == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif not config.has_authority:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return _filled(context, config)


def _filled(context: ssl.SSLContext, config: TlsConfig) -> ssl.SSLContext:
    context.minimum_version = _VERSIONS[config.version_min]
    context.maximum_version = _VERSIONS[config.version_max]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    if config.has_authority:
        _trust(context, config)
    if config.has_certificate:
        _identify(context, config)
    return context


def _trust(context: ssl.SSLContext, config: TlsConfig) -> None:
    what, text = _pem(config.ca_file, config.ca, "ca_file", "ca")
    if _CERTIFICATE not in text:
        raise TlsConfigError(f"{what} holds no certificate in PEM form")
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise TlsConfigError(f"{what} holds a garbled certificate ({_words(error)})") from error


def _identify(context: ssl.SSLContext, config: TlsConfig) -> None:
    cert_what, cert = _pem(config.cert_file, config.cert, "cert_file", "cert")
    if _CERTIFICATE not in cert:
        raise TlsConfigError(f"{cert_what} holds no certificate in PEM form")
    if config.has_key:
        key_what, key = _pem(config.key_file, config.key, "key_file", "key")
    else:
        key_what, key = cert_what, cert
    if _PRIVATE_KEY not in key:
        hint = "" if config.has_key else "; give key_file"
        raise TlsConfigError(f"{key_what} holds no private key in PEM form{hint}")

    def password() -> str:
        if config.key_password is None:
            raise TlsConfigError(f"the key in {key_what} is encrypted; give key_password")
        return config.key_password

    try:
        with _readable(cert) as cert_path, _readable(key) as key_path:
            context.load_cert_chain(cert_path, key_path, password)
    except ssl.SSLError as error:
        raise TlsConfigError(_identity_problem(error, cert_what, key_what, config)) from error
    except ValueError as error:  # a password longer than OpenSSL takes
        if isinstance(error, TlsConfigError):
            raise
        raise TlsConfigError(f"the key in {key_what} cannot be read: {error}") from error


def _identity_problem(error: ssl.SSLError, cert_what: str, key_what: str, config: TlsConfig) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {key_what} does not fit the certificate in {cert_what}"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return f"the certificate in {cert_what} is too weak for this system's TLS ({_words(error)})"
    if config.key_password is not None and error.reason in (None, "BAD_DECRYPT", "PEM_LIB", "UNKNOWN_ERROR"):
        return f"the key in {key_what} does not open with key_password, or is garbled"
    where = cert_what if cert_what == key_what else f"{cert_what} or {key_what}"
    return f"{where} is garbled ({_words(error)})"


def _pem(file: str | None, text: str | None, file_field: str, text_field: str) -> tuple[str, str]:
    """A name for messages, and the text. Raises `TlsConfigError`."""
    if file is None:
        assert text is not None
        if not text.isascii():
            raise TlsConfigError(f"the TLS {text_field} is not PEM: it holds characters beyond ASCII")
        return f"the TLS {text_field}", text
    try:
        with open(file, "rb") as source:
            content = source.read(_PEM_SIZE_MAX + 1)
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
        raise TlsConfigError(f"the TLS {file_field} {file} cannot be read: {problem}") from error
    if len(content) > _PEM_SIZE_MAX:
        raise TlsConfigError(f"the TLS {file_field} {file} is above {_PEM_SIZE_MAX} bytes; is it PEM?")
    # Comments between the blocks may be in any encoding; the blocks are ASCII.
    return file, content.decode("ascii", "replace").replace("\ufffd", "?")


_PEM_SIZE_MAX: Final = 16 << 20


@contextmanager
def _readable(text: str) -> Iterator[str]:
    """A path under which OpenSSL can read the text: in memory where the system can, otherwise a private
    file.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("pem")
        try:
            rest = text.encode()
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            yield file.name


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error.strerror or error)).lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class CertificateStatistics:
    """``loaded`` counts contexts built, ``refused`` changed files that could not be used. ``problem`` says
    why the last ones could not be used (empty once they could).
    """

    loaded: int
    refused: int
    problem: str


class Certificates:
    """The contexts of one endpoint; see the module. Raises `TlsConfigError` if the first cannot be built."""

    def __init__(self, config: TlsConfig, *, server_side: bool, logger: Logger = log) -> None:
        self.config = config
        self._logger = logger
        self._build = server_context if server_side else client_context
        self._states = self._look()
        self._looked = float("-inf")
        self._context = self._built()
        self._loaded = 1
        self._refused = 0
        self._problem = ""

    def context(self, now: float) -> ssl.SSLContext:
        """The context for a connection that begins at ``now`` (any monotonic clock, in seconds)."""
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            self._follow()
        return self._context

    def reload(self) -> None:
        """Read the files now. Raises `TlsConfigError`; the former certificates then stay in use."""
        states = self._look()
        changed, self._states = states != self._states, states
        try:
            self._context = self._built()
        except TlsConfigError as error:
            if changed or str(error) != self._problem:
                self._refused += 1
            self._problem = str(error)
            raise
        self._loaded += 1
        self._problem = ""

    def statistics(self) -> CertificateStatistics:
        return CertificateStatistics(self._loaded, self._refused, self._problem)

    def _follow(self) -> None:
        if self._look() == self._states and not self._problem:
            return  # a file that could not be read once may be readable now, though nothing was written
        said = self._refused
        try:
            self.reload()
        except TlsConfigError as error:
            if self._refused != said:
                self._logger.warning("new TLS files were not taken, the former ones stay in use: %s", error)
        else:
            self._logger.info("new TLS files taken: %s", ", ".join(self.config.files))

    def _built(self) -> ssl.SSLContext:
        try:
            return self._build(self.config)
        except OSError as error:  # for example, no descriptor is left
            raise TlsConfigError(f"TLS files cannot be read now: {error.strerror or error}") from error

    def _look(self) -> tuple[FileState, ...]:
        return tuple(file_state(file) for file in self.config.files)


def file_state(path: str) -> FileState:
    """A value that changes when the file is written or replaced; None if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

"""The TLS settings of one socket: certificates, trusted authorities, versions.

`TlsConfig` is only a record; `protocols.transports.certificates` reads the files and builds contexts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from protocols.errors import TlsConfigError

Verify = Literal["required", "optional", "none"]
Version = Literal["1.2", "1.3"]

_FILE_OR_TEXT: Final = (("cert_file", "cert"), ("key_file", "key"), ("ca_file", "ca"))


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS of a socket's ``tls+tcp://`` and ``wss://`` endpoints; one record serves listeners and dialers.

    Certificates and keys are PEM, as files or as text. A listener needs a certificate; a dialer needs one
    only if the listener asks for it. Changed files are read again for new connections (checked at most once a
    second); existing connections stay open.

    Raises `TlsConfigError` for contradictory settings.
    """

    cert_file: str | None = None
    """Our certificate, followed by those that lead to the authority, if any."""
    key_file: str | None = None
    """Its private key; by default it is also in ``cert_file``."""
    key_password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """Authorities whose certificates are trusted. Default for dialers: those of the system."""
    cert: str | None = None
    """``cert_file`` as text."""
    key: str | None = field(default=None, repr=False)
    """``key_file`` as text."""
    ca: str | None = None
    """``ca_file`` as text."""
    verify: Verify | None = None
    """What to require of the peer's certificate: ``required``, ``optional`` (checked if there is one) or
    ``none`` (ignored). By default dialers require one, and listeners ignore it. For a dialer ``optional``
    means ``required``, since a listener always has one. With ``none`` a dialer cannot know who answers.
    """
    server_name: str | None = None
    """The name that the listener's certificate must have; default: the host in the dialled URL."""
    version_min: Version = "1.2"
    version_max: Version = "1.3"

    def __post_init__(self) -> None:
        for file, text in _FILE_OR_TEXT:
            if getattr(self, file) is not None and getattr(self, text) is not None:
                raise TlsConfigError(f"TLS has both {file} and {text}; give one of them")
        if self.has_key and not self.has_certificate:
            raise TlsConfigError("TLS has a key without a certificate; give cert_file or cert too")
        if self.verify is not None and self.verify not in get_args(Verify):
            raise TlsConfigError(f"TLS verify is {self.verify!r}; it must be required, optional or none")
        for version in (self.version_min, self.version_max):
            if version not in get_args(Version):
                raise TlsConfigError(f"TLS version {version!r} is not served; there are 1.2 and 1.3")
        if self.version_min > self.version_max:
            raise TlsConfigError(f"TLS versions {self.version_min} to {self.version_max} leave no version")

    @property
    def has_certificate(self) -> bool:
        return self.cert_file is not None or self.cert is not None

    @property
    def has_key(self) -> bool:
        return self.key_file is not None or self.key is not None

    @property
    def has_authority(self) -> bool:
        return self.ca_file is not None or self.ca is not None

    @property
    def files(self) -> tuple[str, ...]:
        """The files named in this record, in a fixed order."""
        return tuple(file for file in (self.cert_file, self.key_file, self.ca_file) if file is not None)

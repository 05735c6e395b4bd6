"""A contradictory TLS configuration is reported where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from protocols import AddressError, SocketOptions, TlsConfig, TlsConfigError


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"cert_file": "a", "cert": "b"}, "both cert_file and cert"),
        ({"cert_file": "a", "key_file": "a", "key": "b"}, "both key_file and key"),
        ({"ca_file": "a", "ca": "b"}, "both ca_file and ca"),
        ({"key_file": "a"}, "a key without a certificate"),
        ({"verify": "sometimes"}, "must be required, optional or none"),
        ({"version_min": "1.1"}, "version '1.1' is not served"),
        ({"version_min": "1.3", "version_max": "1.2"}, "1.3 to 1.2 leave no version"),
    ],
)
def test_contradictions_are_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TlsConfigError, match=sentence):
        TlsConfig(**fields)


def test_neither_keys_nor_passwords_are_shown() -> None:
    shown = repr(TlsConfig(cert="CERT", key="SECRET", key_password="HUSH"))
    assert "SECRET" not in shown and "HUSH" not in shown


def test_the_tls_option_of_a_socket_takes_only_a_tls_config() -> None:
    assert SocketOptions(tls=TlsConfig()).tls == TlsConfig()
    with pytest.raises(TypeError, match="TlsConfig or None"):
        SocketOptions(tls="cert.pem")  # type: ignore[arg-type]


def test_catching_bad_addresses_catches_bad_certificates_too() -> None:
    assert issubclass(TlsConfigError, AddressError)

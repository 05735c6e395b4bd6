"""Unusable certificates give one sentence; changed files are accepted as a whole or not at all."""

from __future__ import annotations

import errno
import logging
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from protocols import TlsConfig, TlsConfigError
from protocols.transports import certificates
from protocols.transports.certificates import Certificates, client_context, server_context
from tests.support.certificates import LOCAL, Signed, alice, authority, config, local, stranger


def encrypted(key: str, password: str) -> str:
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()


GARBLED = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
GARBLED_KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


def broken_configs() -> dict[str, tuple[dict[str, Any], str]]:
    cert, key = local().cert, local().key
    return {
        "no certificate": ({}, "a TLS listener needs a certificate; give cert_file and key_file"),
        "missing file": (
            {"cert_file": "/nonexistent/c.pem"},
            "/nonexistent/c.pem cannot be read: no such file",
        ),
        "folder": ({"cert_file": "/"}, "cannot be read: is a directory"),
        "no PEM": ({"cert": "hello", "key": key}, "the TLS cert holds no certificate in PEM form"),
        "no key": ({"cert": cert}, "holds no private key in PEM form; give key_file"),
        "key is none": ({"cert": cert, "key": cert}, "the TLS key holds no private key"),
        "wrong key": (
            {"cert": cert, "key": alice().key},
            "the TLS key does not fit the certificate in the TLS",
        ),
        "garbled certificate": ({"cert": GARBLED, "key": key}, "the TLS cert or the TLS key is garbled"),
        "garbled key": ({"cert": cert, "key": GARBLED_KEY}, "the TLS cert or the TLS key is garbled"),
        "garbled authority": (
            {"cert": cert, "key": key, "ca": GARBLED},
            "the TLS ca holds a garbled certificate",
        ),
        "authority is none": ({"cert": cert, "key": key, "ca": key}, "the TLS ca holds no certificate"),
        "no authority": (
            {"cert": cert, "key": key, "verify": "required"},
            "required at a listener without ca_file",
        ),
        "locked key": ({"cert": cert, "key": encrypted(key, "open")}, "is encrypted; give key_password"),
        "wrong password": (
            {"cert": cert, "key": encrypted(key, "open"), "key_password": "sesame"},
            "does not open with key_password",
        ),
        "beyond ASCII": ({"cert": "ä", "key": key}, "is not PEM: it holds characters beyond ASCII"),
    }


@pytest.mark.parametrize("case", list(broken_configs()))
def test_unusable_certificates_of_a_listener_give_one_sentence(case: str) -> None:
    fields, sentence = broken_configs()[case]
    with pytest.raises(TlsConfigError, match=sentence) as caught:
        server_context(TlsConfig(**fields))
    assert "\n" not in str(caught.value)


def test_a_key_with_a_password_opens() -> None:
    server_context(TlsConfig(cert=local().cert, key=encrypted(local().key, "open"), key_password="open"))


def test_one_file_may_hold_certificate_and_key(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(local().key + "Vergeßt mich nicht\n" + local().cert)
    server_context(TlsConfig(cert_file=str(both)))


def test_the_pem_is_read_without_memory_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    server_context(config(local()))


def test_the_rules_of_sp_over_tls_are_set() -> None:
    """sp-tls-v1: 1.2 or later, no renegotiation, no resumption, no compression."""
    for context in (server_context(config(local())), client_context(config())):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        wanted = ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
        assert context.options & wanted == wanted
    assert server_context(config(local())).num_tickets == 0


def test_dialers_require_a_certificate_and_listeners_look_at_none() -> None:
    dialer = client_context(config())
    assert (dialer.verify_mode, dialer.check_hostname) == (ssl.CERT_REQUIRED, True)
    insecure = client_context(config(verify="none"))
    assert (insecure.verify_mode, insecure.check_hostname) == (ssl.CERT_NONE, False)
    assert client_context(config(verify="optional")).verify_mode is ssl.CERT_REQUIRED
    assert server_context(config(local())).verify_mode is ssl.CERT_NONE
    assert server_context(config(local(), verify="optional")).verify_mode is ssl.CERT_OPTIONAL


def test_a_dialer_without_authorities_trusts_the_systems() -> None:
    system = ssl.create_default_context().cert_store_stats()["x509_ca"]
    assert client_context(TlsConfig()).cert_store_stats()["x509_ca"] == system
    assert client_context(config()).cert_store_stats()["x509_ca"] == 1


# --- replaced files


class Files:
    """A listener's files, and times that go forward."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 100.0
        self.put(local())
        ca = authority().write(folder)
        self.config = TlsConfig(cert_file=self.cert_file, key_file=self.key_file, ca_file=ca)
        self.certificates = Certificates(self.config, server_side=True)

    def put(self, signed: Signed) -> None:
        self.cert_file, self.key_file = signed.write(self.folder, "server")

    def context(self, later_s: float = certificates.LOOK_EVERY_S) -> ssl.SSLContext:
        self.now += later_s
        return self.certificates.context(self.now)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_files_that_did_not_change_are_not_read_again(files: Files) -> None:
    assert files.context() is files.context()
    assert files.certificates.statistics().loaded == 1


def test_new_files_are_used_for_new_connections(files: Files) -> None:
    before = files.context()
    files.put(authority().sign(*LOCAL))
    after = files.context()
    assert after is not before
    assert files.context() is after
    assert files.certificates.statistics().loaded == 2


def test_files_are_looked_at_once_a_second_at_most(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = certificates.file_state
    monkeypatch.setattr(certificates, "file_state", lambda path: looks.append(path) or real(path))
    for _ in range(1000):
        files.context(later_s=0.001)
    assert len(looks) <= 2 * len(files.config.files)


def test_a_broken_new_file_leaves_the_old_in_place_and_is_reported_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    before = files.context()
    Path(files.cert_file).write_text("half a certif")
    with caplog.at_level(logging.WARNING, logger="protocols"):
        assert files.context() is before
        assert files.context() is before
    statistics = files.certificates.statistics()
    assert (statistics.loaded, statistics.refused) == (1, 1)
    assert "holds no certificate" in statistics.problem
    assert [record.getMessage() for record in caplog.records] == [
        f"new TLS files were not taken, the former ones stay in use: {statistics.problem}"
    ]


def test_a_pair_that_is_replaced_one_file_after_the_other_is_taken_when_it_fits(files: Files) -> None:
    before = files.context()
    other = authority().sign(*LOCAL)
    Path(files.cert_file).write_text(other.cert)
    assert files.context() is before
    assert "does not fit" in files.certificates.statistics().problem
    Path(files.key_file).write_text(other.key)
    assert files.context() is not before
    assert files.certificates.statistics().problem == ""


def test_a_file_that_vanishes_leaves_the_old_in_place(files: Files) -> None:
    before = files.context()
    os.unlink(files.key_file)
    assert files.context() is before
    assert "no such file" in files.certificates.statistics().problem


def test_reload_reads_at_once_and_reports_errors(files: Files) -> None:
    before = files.context()
    files.put(stranger().sign(*LOCAL))
    files.certificates.reload()
    assert files.context(later_s=0.0) is not before
    Path(files.key_file).write_text("")
    with pytest.raises(TlsConfigError, match="holds no private key"):
        files.certificates.reload()
    assert files.certificates.statistics().refused == 1


def test_a_file_that_could_not_be_read_once_is_taken_as_soon_as_it_can(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong permissions, or no descriptor left: fixed without writing to the file."""
    before = files.context()
    files.put(authority().sign(*LOCAL))

    def out_of_files(config: TlsConfig) -> ssl.SSLContext:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="protocols"):
        patched.setattr(files.certificates, "_build", out_of_files)
        assert files.context() is before
        assert files.context() is before
        with pytest.raises(TlsConfigError, match="cannot be read now: Too many open files"):
            files.certificates.reload()
    assert files.certificates.statistics().refused == len(caplog.records) == 1
    after = files.context()
    assert after is not before
    assert files.certificates.statistics().problem == ""
    assert files.context() is after


def test_a_second_broken_file_is_counted_although_the_sentence_is_the_same(files: Files) -> None:
    files.context()
    Path(files.cert_file).write_text("half a certif")
    files.context()
    Path(files.cert_file).write_text("half a certificate")
    files.context()
    files.context()
    assert files.certificates.statistics().refused == 2


def test_a_file_rewritten_in_place_with_its_old_time_and_size_is_taken(files: Files) -> None:
    """As ``cp --preserve`` and ``rsync --times --inplace`` do."""

    def rewrite(signed: Signed) -> None:
        Path(files.cert_file).write_text(signed.cert.ljust(8192, "\n"))
        Path(files.key_file).write_text(signed.key.ljust(8192, "\n"))
        for path in (files.cert_file, files.key_file):
            os.utime(path, ns=(1_700_000_000 * 10**9, 1_700_000_000 * 10**9))

    rewrite(local())
    before = files.context()
    rewrite(authority().sign(*LOCAL))
    assert files.context() is not before

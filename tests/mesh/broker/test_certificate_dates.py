"""Expiry dates of certificates, read from PEM."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from mesh import Broker
from mesh.broker.certificate_dates import LOOK_EVERY_S, CertificateDates, expires
from protocols import TlsConfig

WHEN = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
LATE = datetime.datetime(2061, 1, 1, tzinfo=datetime.UTC)


def certificate(until: datetime.datetime) -> str:
    issued = trustme.CA().issue_cert("localhost", not_after=until)
    return issued.cert_chain_pems[0].bytes().decode()


@pytest.mark.parametrize("until", [WHEN, LATE])
def test_the_date_of_a_certificate_is_read_in_both_forms_of_time(until: datetime.datetime) -> None:
    assert expires("some comment\n" + certificate(until) + certificate(WHEN)) == until


@pytest.mark.parametrize("text", ["", "no certificate", certificate(WHEN)[:300]])
def test_a_text_without_a_certificate_has_no_expiry_date(text: str) -> None:
    assert expires(text) is None


@given(st.binary(max_size=80))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    import base64

    body = base64.b64encode(data).decode()
    expires(f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")


def test_a_file_that_is_replaced_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(certificate(WHEN))
    now = 0.0
    dates = CertificateDates(lambda: now)
    dates.watch("tls+tcp://:1", TlsConfig(cert_file=str(file), key_file=str(file)))
    assert [each.expires for each in dates()] == [WHEN]
    file.write_text(certificate(LATE))
    assert [each.expires for each in dates()] == [WHEN], "files are not read for every status"
    now = LOOK_EVERY_S
    assert [each.expires for each in dates()] == [LATE]
    file.unlink()
    now = 2 * LOOK_EVERY_S
    assert dates() == ()


async def test_the_status_says_when_the_certificates_of_a_broker_expire() -> None:
    issued = trustme.CA().issue_cert("localhost", not_after=WHEN)
    cert = issued.cert_chain_pems[0].bytes().decode()
    tls = TlsConfig(cert=cert, key=issued.private_key_pem.bytes().decode())
    async with Broker(listen=["tls+tcp://127.0.0.1:0", "tcp://127.0.0.1:0"], tls=tls) as broker:
        [entry] = broker.statistics()["certificates"]
        assert entry == {"url": broker.urls[0], "expires": "2031-05-06T07:08:09Z"}

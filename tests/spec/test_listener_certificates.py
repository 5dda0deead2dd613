"""Warnings about certificates that have expired, will soon expire, or are not valid yet."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from edgebroker.runtime.listeners.listeners import EXPIRY_DAYS, expiries
from edgebroker.runtime.listeners.tls import CertificateMalformed, CertificateValidity, ListenerTls, validity_of
from edgebroker.runtime.settings.sections import ListenerSettings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
SETTINGS = ListenerSettings(name="safe", tls_certificate=Path("c.crt"), tls_key=Path("c.key"))


def told(begin: datetime, end: datetime, with_all: bool = False) -> list[str]:
    tls = ListenerTls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), CertificateValidity(begin, end), b"")
    lines = expiries([SETTINGS, ListenerSettings()], [tls, None], with_all)
    return [line.removeprefix("listener safe: the certificate c.crt ") for line in lines]


def test_what_is_told_of_a_certificate() -> None:
    soon, late, far = NOW + DAY * 10, NOW - DAY * 2, NOW + DAY * (EXPIRY_DAYS + 2)
    assert told(NOW - DAY, far) == []
    assert told(NOW - DAY, far, with_all=True) == [f"is valid until {far:%Y-%m-%d}"]
    assert told(NOW - DAY, soon + DAY / 2) == [f"expires on {soon + DAY / 2:%Y-%m-%d}, in 10 days"]
    assert told(NOW - DAY * 9, late) == [f"expired on {late:%Y-%m-%d}"]
    assert told(NOW + DAY, far) == [f"is not valid before {NOW + DAY:%Y-%m-%d %H:%M} UTC"]


def der(begin: bytes, end: bytes, version: bytes = b"\xa0\x03\x02\x01\x02") -> bytes:
    """As little of a certificate as has a validity."""

    def sequence(content: bytes) -> bytes:
        return b"\x30" + (bytes([len(content)]) if len(content) < 128 else b"\x81" + bytes([len(content)])) + content

    return sequence(sequence(version + b"\x02\x01\x07" + sequence(b"") * 2 + sequence(begin + end)))


def test_both_forms_of_time_are_read() -> None:
    begin, end = b"\x17\x0d491231235959Z", b"\x18\x0f20500101000000Z"  # the change of form, RFC 5280 section 4.1.2.5
    for version in (b"\xa0\x03\x02\x01\x02", b""):
        validity = validity_of(der(begin, end, version))
        assert validity.begin == datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)
        assert validity.end == datetime(2050, 1, 1, tzinfo=UTC)
    assert validity_of(der(b"\x17\x0d500101000000Z", end)).begin.year == 1950


@pytest.mark.parametrize(
    "data", [b"", b"\x30", b"\x30\x80", der(b"\x17\x0d991332000000Z", b""), der(b"\x17\x02aa", b""), b"\x30\x85" * 9]
)
def test_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(CertificateMalformed):
        validity_of(data)

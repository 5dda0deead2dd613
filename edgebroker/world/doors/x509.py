"""When a certificate is valid, read from its bytes (X.509 in DER, RFC 5280 section 4.1).

The standard library checks certificates in a handshake, and tells nobody beforehand when they expire.
"""

from __future__ import annotations

from datetime import UTC, datetime

from edgebroker.dataclasses import dataclass

SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0


class Malformed(ValueError):
    """These bytes are no certificate."""


@dataclass(frozen=True, slots=True)
class Validity:
    """A certificate is valid from `begin` to `end`."""

    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> int:
        """Whole days until it expires; negative when it has."""
        return (self.end - now).days


def validity_of(der: bytes) -> Validity:
    """The validity of a certificate. Raises Malformed."""
    certificate, _ = _value(der, 0, SEQUENCE)
    body, _ = _value(certificate, 0, SEQUENCE)
    at = 0
    if body[:1] == bytes([VERSION]):
        _, at = _value(body, at, VERSION)
    for _ in range(3):  # serial number, signature algorithm, issuer
        _, at = _value(body, at)
    validity, _ = _value(body, at, SEQUENCE)
    begin, at = _time(validity, 0)
    end, _ = _time(validity, at)
    return Validity(begin, end)


def _value(data: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """The content of the element at *at*, and where the next one begins. Raises Malformed."""
    if at + 2 > len(data) or (tag is not None and data[at] != tag):
        raise Malformed
    length, start = data[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length, start = int.from_bytes(data[start : start + octets]), start + octets
        if not 1 <= octets <= 4:
            raise Malformed
    end = start + length
    if end > len(data):
        raise Malformed
    return data[start:end], end


def _time(data: bytes, at: int) -> tuple[datetime, int]:
    value, after = _value(data, at)
    text = value.decode("ascii", "replace")
    if data[at] == UTC_TIME and len(text) == 13:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280 section 4.1.2.5.1
    elif data[at] != GENERALIZED_TIME:
        raise Malformed
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), after
    except ValueError as error:
        raise Malformed from error

"""TLS of a listener: its certificate files, checked before they are used, and the layer below a client protocol.

OpenSSL works on bytes in memory (`ssl.MemoryBIO`), so one layer serves every event loop, TLS may follow a PROXY
header, and a failed handshake is reported with its reason. It also holds less memory: asyncio's TLS keeps a buffer of
256 KiB for every connection. The validity of a certificate is read from its DER (RFC 5280 section 4.1), because the
standard library reports an expiry only in a handshake.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from edgebridge.frontend.options import ClientCertificate
from edgebroker.dataclasses import dataclass
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals, Layer
from edgebroker.runtime.loop.reactor import ClientProtocol
from edgebroker.runtime.private_files import FileUnreadable, read_bytes
from edgebroker.runtime.settings.problems import Problem, ProblemCollector, SettingsRefused
from edgebroker.runtime.settings.sections import ListenerSettings

SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0


class CertificateMalformed(ValueError):
    """These bytes are no certificate."""


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """A certificate is valid from `begin` to `end`."""

    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> int:
        """Whole days until it expires; negative when it has."""
        return (self.end - now).days


def validity_of(der: bytes) -> CertificateValidity:
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
    return CertificateValidity(begin, end)


def _value(data: bytes, at: int, tag: int | None = None) -> tuple[bytes, int]:
    """The content of the element at *at*, and where the next one begins. Raises Malformed."""
    if at + 2 > len(data) or (tag is not None and data[at] != tag):
        raise CertificateMalformed
    length, start = data[at + 1], at + 2
    if length & 0x80:
        octets = length & 0x7F
        length, start = int.from_bytes(data[start : start + octets]), start + octets
        if not 1 <= octets <= 4:
            raise CertificateMalformed
    end = start + length
    if end > len(data):
        raise CertificateMalformed
    return data[start:end], end


def _time(data: bytes, at: int) -> tuple[datetime, int]:
    value, after = _value(data, at)
    text = value.decode("ascii", "replace")
    if data[at] == UTC_TIME and len(text) == 13:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280 section 4.1.2.5.1
    elif data[at] != GENERALIZED_TIME:
        raise CertificateMalformed
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), after
    except ValueError as error:
        raise CertificateMalformed from error


VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """What new connections of a listener get."""

    context: ssl.SSLContext
    validity: CertificateValidity
    """Of the listener's own certificate."""
    digest: bytes
    """Of that certificate: another one has another."""
    revoked: bytes = b""
    """Digest of the list of revoked client certificates; empty if there is none."""


def load_tls(listener: ListenerSettings) -> ListenerTls:
    """Read the files of a listener that has TLS. Raises SettingsRefused with all that is wrong with them."""
    assert listener.tls_certificate is not None
    assert listener.tls_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[listener.tls_minimum]
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2: clients could make us compute, for nothing
    context.verify_mode = CLIENTS[listener.tls_client]
    certificate, revoked = None, b""
    problems: list[Problem] = []
    with ProblemCollector(problems):
        certificate = _certificate(listener.tls_certificate)
    with ProblemCollector(problems):
        _must_be_readable("tls_key", listener.tls_key)
        if certificate is not None:  # a key is read with its certificate alone
            _load_certificate_chain(context, listener.tls_certificate, listener.tls_key)
    if listener.tls_client_ca is not None:
        with ProblemCollector(problems):
            _load_authorities(context, listener.tls_client_ca)
    if listener.tls_client_crl is not None:
        with ProblemCollector(problems):
            revoked = load_crl(context, listener.tls_client_crl)
    if certificate is None or problems:
        raise SettingsRefused(problems)
    return ListenerTls(context, certificate[0], certificate[1], revoked)


def _load_certificate_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{key} is not the key of {certificate}"
            raise _unusable("tls_key", reason, "name the key that was made with the certificate") from error
        reason = f"{key} cannot be used: {_openssl_reason(error)}"
        raise _unusable("tls_key", reason, "it must be a private key in PEM, without password") from error


def _load_authorities(context: ssl.SSLContext, path: Path) -> None:
    _must_be_readable("tls_client_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        reason = f"{path} cannot be used: {_openssl_reason(error)}"
        raise _unusable("tls_client_ca", reason, "it must hold certificates in PEM") from error


def load_crl(context: ssl.SSLContext, path: Path) -> bytes:
    """Let others in only if the lists in a file do not have their certificates. The digest of the file.

    A certificate in it would be trusted like those of `tls_client_ca`: then it is another file, named by mistake.
    """
    text = _must_be_readable("tls_client_crl", path)
    mend = "it must hold certificate revocation lists in PEM, one for each authority in tls_client_ca"
    if ssl.PEM_HEADER in text:
        raise _unusable("tls_client_crl", f"{path} has certificates in it", mend)
    before = context.cert_store_stats()["crl"]
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise _unusable("tls_client_crl", f"{path} cannot be used: {_openssl_reason(error)}", mend) from error
    if context.cert_store_stats()["crl"] == before:
        raise _unusable("tls_client_crl", f"{path} has no list in it", mend)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return hashlib.sha256(text.encode()).digest()


def _certificate(path: Path) -> tuple[CertificateValidity, bytes]:
    """The validity of the first certificate in a file, and its digest."""
    text = _must_be_readable("tls_certificate", path)
    try:
        begin = text.index(ssl.PEM_HEADER)
        end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
        der = ssl.PEM_cert_to_DER_cert(text[begin:end])
        return validity_of(der), hashlib.sha256(der).digest()
    except (ValueError, CertificateMalformed) as error:
        raise _unusable("tls_certificate", f"{path} is no certificate", "it must be one in PEM") from error


def _must_be_readable(key: str, path: Path) -> str:
    try:
        return read_bytes(path).decode("ascii", errors="replace")
    except FileUnreadable as error:
        raise _unusable(key, f"{path} {error.problem.reason}", error.problem.mend) from error


def _unusable(key: str, reason: str, mend: str) -> SettingsRefused:
    return SettingsRefused([Problem("", 0, f"listener.{key}", reason, mend)])


def _no_password() -> str:
    """Asked for the password of a key: a gateway starts with nobody there to type it."""
    return ""


def _openssl_reason(error: ssl.SSLError) -> str:
    return (error.reason or "it is not PEM").replace("_", " ").lower()


READ_BYTES = 64 * 1024
"""Asked of OpenSSL at once; it gives one record, at most 16 KiB."""
SLICE_BYTES = 16 * 1024
"""Given to OpenSSL at once: its buffers in memory never shrink, so one large message would keep a megabyte as long as
the client stays. A record holds as much."""
HANDSHAKE_RECORD, HIGHEST_RECORD = 20, 24
"""The first byte of every TLS record is between these (RFC 8446 section 5.1); an MQTT CONNECT begins with 16."""


class TlsLayer(Layer):
    """The server's side of TLS. Nothing goes up before the handshake is complete."""

    __slots__ = ("_incoming", "_is_begun", "_is_open", "_is_over", "_outgoing", "_refusals", "_tls")

    def __init__(self, above: ClientProtocol | Layer, context: ssl.SSLContext, refusals: ConnectionRefusals) -> None:
        super().__init__(above)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._refusals = refusals
        self._is_begun = False
        self._is_open = False
        self._is_over = False

    def data_received(self, data: bytes) -> None:
        """Bytes of TLS arrived."""
        if self._is_over:
            return
        if not self._is_begun:
            self._is_begun = True
            if not HANDSHAKE_RECORD <= data[0] <= HIGHEST_RECORD:
                self._refuse(
                    ConnectionRefusalCause.PLAIN, f"the first byte is 0x{data[0]:02x}; this listener speaks TLS alone"
                )
                return
        pieces: list[bytes] = []
        for at in range(0, len(data), SLICE_BYTES):
            self._incoming.write(data if len(data) <= SLICE_BYTES else data[at : at + SLICE_BYTES])
            if self._is_open or self._shake():
                self._read(pieces)
            if self._is_over:
                break
        self._send()
        if pieces:
            self.above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_over:
            self.below.close()

    def write(self, data: bytes) -> None:
        """Send *data*, if the peer is there to read it."""
        if not self._is_open or self._is_over:
            return
        if len(data) <= SLICE_BYTES:
            self._tls.write(data)
            self.below.write(self._outgoing.read())
            return
        records = []
        for at in range(0, len(data), SLICE_BYTES):
            self._tls.write(data[at : at + SLICE_BYTES])
            records.append(self._outgoing.read())
        self.below.write(b"".join(records))

    def close(self) -> None:
        """Say that we are done, which tells the peer that nothing was cut off, and close."""
        if self._is_open and not self._is_over:
            self._is_over = True
            with suppress(ssl.SSLError):  # it wants the peer's good-bye, for which nobody waits
                self._tls.unwrap()
            self._send()
        self.below.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _read(self, pieces: list[bytes]) -> None:
        """Append to *pieces* what can be read."""
        read, incoming = self._tls.read, self._incoming
        try:
            while piece := read(READ_BYTES):
                pieces.append(piece)
                if not incoming.pending and not self._tls.pending():
                    return  # to be told so by an exception would take longer than to read what came
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:  # what was read before it still counts
            self._note(ConnectionRefusalCause.HANDSHAKE, _why(error))
        self._is_over = True  # by an error, or because the peer said good-bye

    def _shake(self) -> bool:
        """One step of the handshake; whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert that tells the client
            cause = ConnectionRefusalCause.HANDSHAKE
            if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
                cause = ConnectionRefusalCause.NO_CERTIFICATE
            elif isinstance(error, ssl.SSLCertVerificationError):
                cause = ConnectionRefusalCause.CERTIFICATE
            self._refuse(cause, _why(error))
            return False
        self._is_open = True
        self._send()
        if shown := self._tls.getpeercert():
            self.client_protocol.connection.certificate = certificate_of(shown)
        return True

    def _send(self) -> None:
        if self._outgoing.pending:
            self.below.write(self._outgoing.read())

    def _refuse(self, cause: ConnectionRefusalCause, why: str) -> None:
        self._is_over = True
        self._note(cause, why)
        self.below.close()

    def _note(self, cause: ConnectionRefusalCause, why: str) -> None:
        connection = self.client_protocol.connection
        self._refusals.record(cause, connection.listener_context.name, connection.peer, why)


def _why(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()


def certificate_of(shown: Mapping[str, object]) -> ClientCertificate:
    """What `SSLObject.getpeercert()` says of a verified certificate."""
    names = [pair for part in _tuples(shown.get("subject")) for pair in _tuples(part)]
    common = next((str(value) for name, value in names if name == "commonName"), "")
    subject = ",".join(f"{_SHORT.get(str(name), name)}={_escaped(str(value))}" for name, value in reversed(names))
    others = tuple(f"{_KINDS.get(str(kind), kind)}:{value}" for kind, value in _tuples(shown.get("subjectAltName")))
    return ClientCertificate(common, subject, others)


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "userId": "UID",
    "domainComponent": "DC",
}
_KINDS = {"IP Address": "IP"}


def _tuples(value: object) -> tuple[tuple[object, object], ...]:
    return value if isinstance(value, tuple) else ()


def _escaped(value: str) -> str:
    """As in RFC 4514: what would read as structure gets a backslash."""
    return "".join(f"\\{character}" if character in ',+"\\<>;=' else character for character in value)

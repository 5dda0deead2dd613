"""TLS of a listener: its certificate files, checked before they are used, and the layer below a client protocol.

OpenSSL works on bytes in memory (`ssl.MemoryBIO`), so one layer serves every event loop, TLS may follow a PROXY header,
and a failed handshake is reported with its reason. It also needs less memory: asyncio's TLS keeps a buffer of 256 KiB
for every connection. The validity of a certificate is read from its DER (RFC 5280 section 4.1), because the standard
library reports an expiry only in a handshake.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from edgebridge.frontend.options import ClientCertificate
from edgebroker.dataclasses import dataclass
from edgebroker.runtime.listeners.layer import ConnectionRefusalCause, ConnectionRefusals, Layer
from edgebroker.runtime.loop.reactor import ClientProtocol
from edgebroker.runtime.private_files import FileUnreadable, read_bytes
from edgebroker.runtime.settings.problems import Problem, ProblemCollector, SettingsRefused
from edgebroker.runtime.settings.sections import ListenerSettings

SEQUENCE, UTC_TIME, GENERALIZED_TIME, VERSION = 0x30, 0x17, 0x18, 0xA0


class CertificateMalformed(ValueError):
    """The bytes are not a certificate."""


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """A certificate is valid from `begin` to `end`."""

    begin: datetime
    end: datetime

    def days_left(self, now: datetime) -> int:
        """Returns the whole days until it expires; negative after it has."""
        return (self.end - now).days


def validity_of(der: bytes) -> CertificateValidity:
    """Returns the validity of a certificate. Raises CertificateMalformed."""
    certificate, _ = _value(der, 0, SEQUENCE)
    body, _ = _value(certificate, 0, SEQUENCE)
    offset = 0
    if body[:1] == bytes([VERSION]):
        _, offset = _value(body, offset, VERSION)
    for _ in range(3):  # serial number, signature algorithm, issuer
        _, offset = _value(body, offset)
    validity, _ = _value(body, offset, SEQUENCE)
    begin, offset = _time(validity, 0)
    end, _ = _time(validity, offset)
    return CertificateValidity(begin, end)


def _value(data: bytes, offset: int, tag: int | None = None) -> tuple[bytes, int]:
    """Returns the content of the DER element at *offset*, and the offset behind it. Raises CertificateMalformed."""
    if offset + 2 > len(data) or (tag is not None and data[offset] != tag):
        raise CertificateMalformed
    length, start = data[offset + 1], offset + 2
    if length & 0x80:
        length_bytes = length & 0x7F
        length, start = int.from_bytes(data[start : start + length_bytes]), start + length_bytes
        if not 1 <= length_bytes <= 4:
            raise CertificateMalformed
    end = start + length
    if end > len(data):
        raise CertificateMalformed
    return data[start:end], end


def _time(data: bytes, offset: int) -> tuple[datetime, int]:
    value, after = _value(data, offset)
    text = value.decode("ascii", "replace")
    if data[offset] == UTC_TIME and len(text) == 13:
        text = ("19" if text[:2] >= "50" else "20") + text  # RFC 5280 section 4.1.2.5.1
    elif data[offset] != GENERALIZED_TIME:
        raise CertificateMalformed
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), after
    except ValueError as error:
        raise CertificateMalformed from error


VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
USUAL_CIPHERS: Final = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""With forward secrecy and without SHA-1. Python's own list is this one, but Debian's Python takes all that its OpenSSL
has.
"""
OLD_DEVICES: Final = "old-devices"
"""A value of `listener.tls_ciphers`: what modems and controllers of before 2015 have beside what is usual now."""
OLD_CIPHERS: Final = (
    "@SECLEVEL=1:ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:ECDHE+AES:DHE+AES:RSA+AESGCM:RSA+AES:!aNULL:!eNULL:!aDSS"
)
"""RSA key exchange, with which a stolen key opens what was recorded before, finite-field Diffie-Hellman, and CBC."""
DH_GROUP: Final = Path(__file__).with_name("ffdhe2048.pem")
"""RFC 7919, appendix A.1; OpenSSL offers no finite-field Diffie-Hellman without a group."""
CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The TLS of new connections to a listener."""

    context: ssl.SSLContext
    validity: CertificateValidity
    """Of the listener's own certificate."""
    digest: bytes
    """SHA-256 of that certificate."""
    revoked: bytes = b""
    """Digest of the list of revoked client certificates; empty if there is none."""


def load_tls(listener: ListenerSettings) -> ListenerTls:
    """Reads the files of a listener that has TLS. Raises SettingsRefused with all their problems."""
    assert listener.tls_certificate is not None
    assert listener.tls_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[listener.tls_minimum]
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2: it lets clients cause computations at no cost to them
    context.verify_mode = CLIENTS[listener.tls_client]
    problems: list[Problem] = []
    with ProblemCollector(problems):
        _set_ciphers(context, listener.tls_ciphers or USUAL_CIPHERS)
    certificate, revoked = None, b""
    with ProblemCollector(problems):
        certificate = _certificate(listener.tls_certificate)
    with ProblemCollector(problems):
        _read_text("tls_key", listener.tls_key)
        if certificate is not None:  # a key can only be checked together with its certificate
            _load_certificate_chain(context, listener.tls_certificate, listener.tls_key)
    if listener.tls_chain is not None:  # OpenSSL completes the chain that it sends with what is loaded here
        with ProblemCollector(problems):
            _load_authorities(context, "tls_chain", listener.tls_chain)
    if listener.tls_client_ca is not None:
        with ProblemCollector(problems):
            _load_authorities(context, "tls_client_ca", listener.tls_client_ca)
    if listener.tls_client_crl is not None:
        with ProblemCollector(problems):
            revoked = load_crl(context, listener.tls_client_crl)
    if certificate is None or problems:
        raise SettingsRefused(problems)
    return ListenerTls(context, certificate[0], certificate[1], revoked)


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    is_profile = ciphers == OLD_DEVICES
    try:
        context.set_ciphers(OLD_CIPHERS if is_profile else ciphers)
    except ssl.SSLError as error:
        mend = f"write {OLD_DEVICES!r}, or a list that `openssl ciphers` takes"
        raise _unusable("tls_ciphers", f"OpenSSL knows no cipher of {ciphers[:80]!r}", mend) from error
    if is_profile:
        context.load_dh_params(str(DH_GROUP))


def _load_certificate_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{key} is not the key of {certificate}"
            raise _unusable("tls_key", reason, "name the key that was made with the certificate") from error
        reason = f"{key} cannot be used: {_openssl_reason(error)}"
        raise _unusable("tls_key", reason, "it must be a private key in PEM, without password") from error


def _load_authorities(context: ssl.SSLContext, key: str, path: Path) -> None:
    _read_text(key, path)
    _load_locations(context, key, path, "it must hold certificates in PEM")


def _load_locations(context: ssl.SSLContext, key: str, path: Path, remedy: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise _unusable(key, f"{path} cannot be used: {_openssl_reason(error)}", remedy) from error


def load_crl(context: ssl.SSLContext, path: Path) -> bytes:
    """Refuses certificates that are on a revocation list in the file. Returns the digest of the file.

    A certificate in the file would be trusted like those of `tls_client_ca`, so a file that has one is refused.
    """
    text = _read_text("tls_client_crl", path)
    remedy = "it must hold certificate revocation lists in PEM, one for each authority in tls_client_ca"
    if ssl.PEM_HEADER in text:
        raise _unusable("tls_client_crl", f"{path} has certificates in it", remedy)
    before = context.cert_store_stats()["crl"]
    _load_locations(context, "tls_client_crl", path, remedy)
    if context.cert_store_stats()["crl"] == before:
        raise _unusable("tls_client_crl", f"{path} has no list in it", remedy)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return hashlib.sha256(text.encode()).digest()


def _certificate(path: Path) -> tuple[CertificateValidity, bytes]:
    """Returns the validity of the first certificate in a file, and its digest."""
    text = _read_text("tls_certificate", path)
    try:
        begin = text.index(ssl.PEM_HEADER)
        end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
        der = ssl.PEM_cert_to_DER_cert(text[begin:end])
        return validity_of(der), hashlib.sha256(der).digest()
    except (ValueError, CertificateMalformed) as error:
        raise _unusable("tls_certificate", f"{path} is no certificate", "it must be one in PEM") from error


def _read_text(key: str, path: Path) -> str:
    try:
        return read_bytes(path).decode("ascii", errors="replace")
    except FileUnreadable as error:
        raise _unusable(key, f"{path} {error.problem.reason}", error.problem.mend) from error


def _unusable(key: str, reason: str, remedy: str) -> SettingsRefused:
    return SettingsRefused([Problem("", 0, f"listener.{key}", reason, remedy)])


def _no_password() -> str:
    """Answers OpenSSL's question for the password of a key: a gateway starts unattended."""
    return ""


def _openssl_reason(error: ssl.SSLError) -> str:
    return (error.reason or "it is not PEM").replace("_", " ").lower()


READ_BYTES = 64 * 1024
"""Asked of OpenSSL at once; it returns one record, at most 16 KiB."""
SLICE_BYTES = 16 * 1024
"""Passed to OpenSSL at once: its memory buffers never shrink, so one large message would keep a megabyte as long as the
client stays connected. It is the size of a record.
"""
HANDSHAKE_RECORD, HIGHEST_RECORD = 20, 24
"""The first byte of every TLS record is between these (RFC 8446 section 5.1); an MQTT CONNECT begins with 16."""


class TlsLayer(Layer):
    """The server's side of TLS. Nothing is passed up before the handshake is complete."""

    __slots__ = ("_context", "_has_input", "_incoming", "_is_closed", "_is_open", "_outgoing", "_refusals", "_tls")

    def __init__(self, above: ClientProtocol | Layer, context: ssl.SSLContext, refusals: ConnectionRefusals) -> None:
        super().__init__(above)
        self._context = context
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject  # from the first byte on: a connection that says nothing takes no memory of OpenSSL's
        self._refusals = refusals
        self._has_input = False
        self._is_open = False
        self._is_closed = False

    def data_received(self, data: bytes) -> None:
        """Decrypts *data*, or continues the handshake."""
        if self._is_closed:
            return
        if not self._has_input:
            self._has_input = True
            if not HANDSHAKE_RECORD <= data[0] <= HIGHEST_RECORD:
                self._refuse(
                    ConnectionRefusalCause.PLAIN, f"the first byte is 0x{data[0]:02x}; this listener speaks TLS alone"
                )
                return
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self.client_protocol.begin_handshake()
            if self.client_protocol.connection.closing:  # it was the one to go
                return
        pieces: list[bytes] = []
        for offset in range(0, len(data), SLICE_BYTES):
            self._incoming.write(data if len(data) <= SLICE_BYTES else data[offset : offset + SLICE_BYTES])
            if self._is_open or self._handshake():
                self._read(pieces)
            if self._is_closed:
                break
        self._send()
        if pieces:
            self.above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._is_closed:
            self.below.close()

    def write(self, data: bytes) -> None:
        """Encrypts and sends *data*, if the connection is open."""
        if not self._is_open or self._is_closed:
            return
        if len(data) <= SLICE_BYTES:
            self._tls.write(data)
            self.below.write(self._outgoing.read())
            return
        records = []
        for offset in range(0, len(data), SLICE_BYTES):
            self._tls.write(data[offset : offset + SLICE_BYTES])
            records.append(self._outgoing.read())
        self.below.write(b"".join(records))

    def close(self) -> None:
        """Sends close_notify, which tells the peer that the data is complete, and closes."""
        if self._is_open and not self._is_closed:
            self._is_closed = True
            with suppress(ssl.SSLError):  # it waits for the peer's close_notify, which we do not need
                self._tls.unwrap()
            self._send()
        self.below.close()

    # -- inside -------------------------------------------------------------------------------------------------

    def _read(self, pieces: list[bytes]) -> None:
        """Appends to *pieces* what can be decrypted."""
        read, incoming = self._tls.read, self._incoming
        try:
            while piece := read(READ_BYTES):
                pieces.append(piece)
                if not incoming.pending and not self._tls.pending():
                    return  # the exception that says so would take longer than the read
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:  # what was read before still counts
            self._record_refusal(ConnectionRefusalCause.HANDSHAKE, _ssl_reason(error))
        self._is_closed = True  # by an error, or by the peer's close_notify

    def _handshake(self) -> bool:
        """Continues the handshake. Returns whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert for the client
            cause = ConnectionRefusalCause.HANDSHAKE
            if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
                cause = ConnectionRefusalCause.NO_CERTIFICATE
            elif isinstance(error, ssl.SSLCertVerificationError):
                cause = ConnectionRefusalCause.CERTIFICATE
            self._refuse(cause, _ssl_reason(error))
            return False
        self._is_open = True
        self._send()
        self.client_protocol.end_handshake()
        if certificate := self._tls.getpeercert():
            self.client_protocol.connection.certificate = certificate_of(certificate)
        return True

    def _send(self) -> None:
        if self._outgoing.pending:
            self.below.write(self._outgoing.read())

    def _refuse(self, cause: ConnectionRefusalCause, why: str) -> None:
        self._is_closed = True
        self._record_refusal(cause, why)
        self.below.close()

    def _record_refusal(self, cause: ConnectionRefusalCause, why: str) -> None:
        connection = self.client_protocol.connection
        self._refusals.record(cause, connection.listener_context.name, connection.peer, why)


def _ssl_reason(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()


def certificate_of(certificate: Mapping[str, object]) -> ClientCertificate:
    """Returns the names in a verified certificate, as `SSLObject.getpeercert()` gives it."""
    names = [pair for part in _tuples(certificate.get("subject")) for pair in _tuples(part)]
    common_name = next((str(value) for name, value in names if name == "commonName"), "")
    alternative_names = tuple(
        f"{_NAME_KINDS.get(str(kind), kind)}:{value}" for kind, value in _tuples(certificate.get("subjectAltName"))
    )
    return ClientCertificate(common_name, alternative_names)


_NAME_KINDS = {"IP Address": "IP"}


def _tuples(value: object) -> tuple[tuple[object, object], ...]:
    return value if isinstance(value, tuple) else ()

"""The TLS of a listener: what its certificate files say, checked before anybody relies on them."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.world.doors.x509 import Malformed, Validity, validity_of
from edgebroker.world.privatefile import FileUnreadable, bytes_of
from edgebroker.world.settings.listener import ListenerSettings
from edgebroker.world.settings.problems import Collecting, Problem, SettingsRefused

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
CLIENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Tls:
    """What new connections of a listener get."""

    context: ssl.SSLContext
    validity: Validity
    """Of the listener's own certificate."""
    digest: bytes
    """Of that certificate: another one has another."""
    revoked: bytes = b""
    """Digest of the list of revoked client certificates; empty if there is none."""


def load(listener: ListenerSettings) -> Tls:
    """Read the files of a listener that has TLS. Raises SettingsRefused with all that is wrong with them."""
    assert listener.tls_certificate is not None
    assert listener.tls_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[listener.tls_minimum]
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2: clients could make us compute, for nothing
    context.verify_mode = CLIENTS[listener.tls_client]
    certificate, revoked = None, b""
    problems: list[Problem] = []
    with Collecting(problems):
        certificate = _certificate(listener.tls_certificate)
    with Collecting(problems):
        _must_be_readable("tls_key", listener.tls_key)
        if certificate is not None:  # a key is read with its certificate alone
            _show(context, listener.tls_certificate, listener.tls_key)
    if listener.tls_client_ca is not None:
        with Collecting(problems):
            _trust(context, listener.tls_client_ca)
    if listener.tls_client_crl is not None:
        with Collecting(problems):
            revoked = revoke(context, listener.tls_client_crl)
    if certificate is None or problems:
        raise SettingsRefused(problems)
    return Tls(context, certificate[0], certificate[1], revoked)


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{key} is not the key of {certificate}"
            raise _unusable("tls_key", reason, "name the key that was made with the certificate") from error
        reason = f"{key} cannot be used: {_words(error)}"
        raise _unusable("tls_key", reason, "it must be a private key in PEM, without password") from error


def _trust(context: ssl.SSLContext, path: Path) -> None:
    _must_be_readable("tls_client_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        reason = f"{path} cannot be used: {_words(error)}"
        raise _unusable("tls_client_ca", reason, "it must hold certificates in PEM") from error


def revoke(context: ssl.SSLContext, path: Path) -> bytes:
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
        raise _unusable("tls_client_crl", f"{path} cannot be used: {_words(error)}", mend) from error
    if context.cert_store_stats()["crl"] == before:
        raise _unusable("tls_client_crl", f"{path} has no list in it", mend)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return hashlib.sha256(text.encode()).digest()


def _certificate(path: Path) -> tuple[Validity, bytes]:
    """The validity of the first certificate in a file, and its digest."""
    text = _must_be_readable("tls_certificate", path)
    try:
        begin = text.index(ssl.PEM_HEADER)
        end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
        der = ssl.PEM_cert_to_DER_cert(text[begin:end])
        return validity_of(der), hashlib.sha256(der).digest()
    except (ValueError, Malformed) as error:
        raise _unusable("tls_certificate", f"{path} is no certificate", "it must be one in PEM") from error


def _must_be_readable(key: str, path: Path) -> str:
    try:
        return bytes_of(path).decode("ascii", errors="replace")
    except FileUnreadable as error:
        raise _unusable(key, f"{path} {error.problem.reason}", error.problem.mend) from error


def _unusable(key: str, reason: str, mend: str) -> SettingsRefused:
    return SettingsRefused([Problem("", 0, f"listener.{key}", reason, mend)])


def _no_password() -> str:
    """Asked for the password of a key: a gateway starts with nobody there to type it."""
    return ""


def _words(error: ssl.SSLError) -> str:
    return (error.reason or "it is not PEM").replace("_", " ").lower()

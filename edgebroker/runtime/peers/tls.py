"""Mutual TLS 1.3 between the gateways of a federation: each presents its certificate and verifies the other's."""

from __future__ import annotations

import ssl
from dataclasses import replace

from edgebroker.dataclasses import dataclass
from edgebroker.runtime.listeners.tls import CertificateValidity, load_crl, load_tls
from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.sections import ListenerSettings, OverlaySettings


@dataclass(frozen=True, slots=True)
class PeerTls:
    """The TLS contexts for accepted and for dialled connections. TLS 1.3 only: all gateways run this program."""

    server_context: ssl.SSLContext
    client_context: ssl.SSLContext
    validity: CertificateValidity
    """Of the gateway's own certificate."""
    revoked: bytes = b""
    """Digest of the revocation list; empty if there is none."""

    def renewed(self, new: PeerTls) -> PeerTls:
        """Returns *new*, for future connections; listening sockets keep the present context, which switches to the new
        one.
        """

        def switch_context(tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            tls.context = new.server_context  # the whole context: a certificate store cannot forget an authority

        self.server_context.sni_callback = switch_context
        return replace(new, server_context=self.server_context)


def load_peer_tls(settings: OverlaySettings) -> PeerTls:
    """Reads the TLS files of the settings. Raises SettingsRefused."""
    certificate, key, ca = settings.tls_certificate, settings.tls_key, settings.tls_ca
    listener = ListenerSettings(
        tls_certificate=certificate,
        tls_key=key,
        tls_client="required",
        tls_client_ca=ca,
        tls_client_crl=settings.tls_crl,
        tls_minimum="1.3",
    )
    try:
        tls = load_tls(listener)
    except SettingsRefused as refused:
        raise SettingsRefused([_of_overlay(problem) for problem in refused.problems]) from refused
    tls.context.num_tickets = 0  # session tickets would admit a peer whose certificate was revoked meanwhile
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.minimum_version = ssl.TLSVersion.TLSv1_3
    # a gateway has one name at all its addresses, which is checked against its hello
    client_context.check_hostname = False
    assert certificate is not None
    client_context.load_cert_chain(certificate, key)
    client_context.load_verify_locations(ca)
    if settings.tls_crl is not None:
        load_crl(client_context, settings.tls_crl)
    return PeerTls(tls.context, client_context, tls.validity, tls.revoked)


def _of_overlay(problem: Problem) -> Problem:
    key = problem.key.replace("listener.", "overlay.").replace("_client", "")
    return replace(problem, key=key, mend=problem.mend.replace("tls_client_ca", "tls_ca"))

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
    """For both ends of connections. TLS 1.3 alone: gateways are updated with us."""

    server_context: ssl.SSLContext
    client_context: ssl.SSLContext
    validity: CertificateValidity
    """Of our own certificate."""
    revoked: bytes = b""
    """Digest of the list of revoked certificates; empty if there is none."""

    def renewed(self, new: PeerTls) -> PeerTls:
        """*new*, which holds for connections to come; those that listen go on with the context that they have."""

        def show(line: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            line.context = new.server_context  # as a whole: a store would go on to trust what it trusted before

        self.server_context.sni_callback = show
        return replace(new, server_context=self.server_context)


def load_peer_tls(settings: OverlaySettings) -> PeerTls:
    """What the files say, of which there are all if there is one. Raises SettingsRefused."""
    certificate, key, ca = settings.tls_certificate, settings.tls_key, settings.tls_ca
    asked = ListenerSettings(
        tls_certificate=certificate,
        tls_key=key,
        tls_client="required",
        tls_client_ca=ca,
        tls_client_crl=settings.tls_crl,
        tls_minimum="1.3",
    )
    try:
        tls = load_tls(asked)
    except SettingsRefused as refused:
        raise SettingsRefused([_of_overlay(problem) for problem in refused.problems]) from refused
    tls.context.num_tickets = 0  # who came before and is revoked now would come in with one, its certificate not asked
    dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialling.minimum_version = ssl.TLSVersion.TLSv1_3
    dialling.check_hostname = False  # a gateway has one name at all its addresses, and the hello is held to it
    assert certificate is not None
    dialling.load_cert_chain(certificate, key)
    dialling.load_verify_locations(ca)
    if settings.tls_crl is not None:
        load_crl(dialling, settings.tls_crl)
    return PeerTls(tls.context, dialling, tls.validity, tls.revoked)


def _of_overlay(problem: Problem) -> Problem:
    key = problem.key.replace("listener.", "overlay.").replace("_client", "")
    return replace(problem, key=key, mend=problem.mend.replace("tls_client_ca", "tls_ca"))

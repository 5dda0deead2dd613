"""The certificates by which gateways of a federation know each other: each shows its own, and asks for the other's."""

from __future__ import annotations

import ssl

from edgebroker.dataclasses import dataclass
from edgebroker.world.doors.contexts import CertificateUnusable, load
from edgebroker.world.doors.x509 import Validity
from edgebroker.world.settings.listener import ListenerSettings
from edgebroker.world.settings.overlay import OverlaySettings
from edgebroker.world.settings.problems import Problem, SettingsRefused


@dataclass(frozen=True, slots=True)
class Proofs:
    """For both ends of connections. TLS 1.3 alone: gateways are updated with us."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    validity: Validity
    """Of our own certificate."""

    def renew(self, settings: OverlaySettings) -> None:
        """Read the files, which were looked at, again: connections to come show and accept what they say."""
        assert settings.tls_certificate is not None
        for context in (self.accepting, self.dialling):
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
            context.load_verify_locations(settings.tls_ca)


def load_proofs(settings: OverlaySettings) -> Proofs:
    """What the files say, of which there are all if there is one. Raises SettingsRefused."""
    certificate, key, ca = settings.tls_certificate, settings.tls_key, settings.tls_ca
    asked = ListenerSettings(
        tls_certificate=certificate, tls_key=key, tls_client="required", tls_client_ca=ca, tls_minimum="1.3"
    )
    try:
        tls = load(asked)
    except CertificateUnusable as unusable:
        name, reason, mend = unusable.args
        name = "tls_ca" if name == "tls_client_ca" else name
        raise SettingsRefused([Problem("overlay", 0, f"overlay.{name}", reason, mend)]) from unusable
    dialling = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    dialling.minimum_version = ssl.TLSVersion.TLSv1_3
    dialling.check_hostname = False  # a gateway has one name at all its addresses, and the hello is held to it
    assert certificate is not None
    dialling.load_cert_chain(certificate, key)
    dialling.load_verify_locations(ca)
    return Proofs(tls.context, dialling, tls.validity)

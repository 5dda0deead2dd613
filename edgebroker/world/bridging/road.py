"""The way to a remote: addresses, TLS and WebSocket, as the settings say."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebroker.overlay.address import Address
from edgebroker.world.bridging.line import Host, Line
from edgebroker.world.peering.dialler import NoAnswer, reason_of
from edgebroker.world.settings.bridge import BridgeSettings
from edgebroker.world.settings.problems import Problem, SettingsRefused

if TYPE_CHECKING:
    from edgebroker.world.bridging.websocket import Tunnel

DIAL_S: Final = 10.0
"""For one address, with TLS: a satellite takes 2 s, and three lost SYNs are repeated within 7 s (RFC 6298)."""
USUAL_PORTS: Final = (80, 443)


@dataclass(frozen=True, slots=True)
class Road:
    """How to get there."""

    addresses: tuple[Address, ...]
    context: ssl.SSLContext | None = None
    server_name: str | None = None
    websocket_path: str | None = None

    async def dial(self, host: Host) -> None:
        """Give *host* a line to the first address that answers. Raises NoAnswer."""
        loop = asyncio.get_running_loop()
        reasons: list[str] = []
        for address in self.addresses:
            name = (self.server_name or address.host) if self.context is not None else None
            try:
                dialling = loop.create_connection(
                    lambda address=address: Line(host, self._tunnel(address)),
                    address.host,
                    address.port,
                    ssl=self.context,
                    server_hostname=name,
                )
                await asyncio.wait_for(dialling, DIAL_S)
            except TimeoutError:
                reasons.append(f"{address}: no answer within {DIAL_S:g} s")
            except ssl.SSLCertVerificationError as error:
                reasons.append(f"{address}: its certificate is not accepted: {error.verify_message}")
            except (OSError, UnicodeError) as error:
                reasons.append(f"{address}: {reason_of(error)}")
            else:
                return
        raise NoAnswer("; ".join(reasons))

    def _tunnel(self, address: Address) -> Tunnel | None:
        if self.websocket_path is None:
            return None
        from edgebroker.world.bridging.websocket import Tunnel

        return Tunnel(address.host if address.port in USUAL_PORTS else str(address), self.websocket_path)


def road_of(settings: BridgeSettings) -> Road:
    """Read the files that *settings* name. Raises SettingsRefused."""
    addresses = tuple(Address.parse(one) for one in settings.addresses)
    path = settings.websocket_path if settings.protocol == "websocket" else None
    return Road(addresses, _context(settings), settings.tls_server_name, path)


def _context(settings: BridgeSettings) -> ssl.SSLContext | None:
    if not settings.is_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls_ca is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(settings.tls_ca)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(settings.tls_ca, "tls_ca", error, "it must hold certificates in PEM") from error
    if settings.tls_certificate is not None:
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            mend = "name a certificate and its private key, in PEM and without password"
            raise _unusable(settings.tls_certificate, "tls_certificate", error, mend) from error
    return context


def _unusable(path: Path, key: str, error: Exception, mend: str) -> SettingsRefused:
    return SettingsRefused([Problem(str(path), 0, f"bridge.{key}", f"cannot be used: {reason_of(error)}", mend)])

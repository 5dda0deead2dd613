"""The way to a remote: addresses, TLS and WebSocket, as the settings say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.address import Address
from edgebroker.world.bridging.line import Host, Line
from edgebroker.world.peering.dialler import NoAnswer, dial, reason_of
from edgebroker.world.privatefile import FileRefused, read_private
from edgebroker.world.settings.bridge import BridgeSettings
from edgebroker.world.settings.problems import Problem, SettingsRefused

if TYPE_CHECKING:
    import ssl

    from edgebroker.world.bridging.websocket import Tunnel

USUAL_PORTS: Final = (80, 443)


@dataclass(frozen=True, slots=True)
class Road:
    """How to get there."""

    addresses: tuple[Address, ...]
    context: ssl.SSLContext | None = None
    server_name: str | None = None
    websocket_path: str | None = None

    async def dial(self, host: Host, first: int) -> None:
        """Give *host* a line to the first address that answers, beginning with number *first*.

        Raises NoAnswer, if all have been tried.
        """
        reasons: list[str] = []
        for turn in range(len(self.addresses)):
            at = (first + turn) % len(self.addresses)
            address = self.addresses[at]
            host.tries(at)
            tunnel = self._tunnel(address)
            name = self.server_name or address.host
            try:
                await dial([address], partial(Line, host, tunnel), self.context, server_name=name)
            except NoAnswer as error:
                reasons.append(str(error))
            else:
                return
        host.tries(first)
        raise NoAnswer("; ".join(reasons))

    def _tunnel(self, address: Address) -> Tunnel | None:
        if self.websocket_path is None:
            return None
        from edgebroker.world.bridging.websocket import Tunnel

        host = str(address)  # an IPv6 address stands in brackets (RFC 7230 section 5.4)
        return Tunnel(host.rpartition(":")[0] if address.port in USUAL_PORTS else host, self.websocket_path)


def road_of(settings: BridgeSettings) -> Road:
    """Read the files that *settings* name. Raises SettingsRefused."""
    addresses = tuple(Address.parse(one) for one in settings.addresses)
    path = settings.websocket_path if settings.protocol == "websocket" else None
    return Road(addresses, _context(settings), settings.tls_server_name, path)


def password_of(settings: BridgeSettings) -> bytes | None:
    """The first line of its file, if it names one. Raises SettingsRefused."""
    file = settings.password_file
    if file is None:
        return None
    try:
        return read_private(file).partition("\n")[0].rstrip("\r").encode()
    except FileRefused as error:
        reason = str(error).removeprefix(f"{file}: ")
        mend = "its first line is to be the password"
        raise SettingsRefused([Problem(str(file), 0, "bridge.password_file", reason, mend)]) from error


def _context(settings: BridgeSettings) -> ssl.SSLContext | None:
    if not settings.is_tls:
        return None
    import ssl  # 4 MiB, for who speaks TLS

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

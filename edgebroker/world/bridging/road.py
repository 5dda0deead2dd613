"""The way to a remote: addresses, TLS and WebSocket, as the settings say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edgebroker.dataclasses import dataclass
from edgebroker.overlay.address import Address
from edgebroker.world.bridging.line import Host, Line
from edgebroker.world.peering.dialler import NoAnswer, dial, reason_of
from edgebroker.world.privatefile import FileUnreadable, bytes_of, read_named
from edgebroker.world.settings.bridge import BridgeSettings
from edgebroker.world.settings.problems import Collecting, Problem, SettingsRefused

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
    text = read_named(file, "bridge.password_file", "its first line is to be the password")
    return text.partition("\n")[0].rstrip("\r").encode()


def _context(settings: BridgeSettings) -> ssl.SSLContext | None:
    if not settings.is_tls:
        return None
    import ssl  # 4 MiB, for who speaks TLS

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    problems: list[Problem] = []
    if settings.tls_ca is None:
        context.load_default_certs()
    else:
        with Collecting(problems):
            _trust(context, settings.tls_ca)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        with Collecting(problems):
            _show(context, settings.tls_certificate, settings.tls_key)
    if problems:
        raise SettingsRefused(problems)
    return context


def _trust(context: ssl.SSLContext, path: Path) -> None:
    mend = "it must hold certificates in PEM"
    if unread := _unreadable(path, "tls_ca", mend):
        raise SettingsRefused(unread)
    try:
        context.load_verify_locations(path)
    except OSError as error:  # as those of OpenSSL are
        raise SettingsRefused([_unusable(path, "tls_ca", error, mend)]) from error


def _show(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    mend = "name a certificate and its private key, in PEM and without password"
    # OpenSSL does not say which of the two is missing.
    if unread := _unreadable(certificate, "tls_certificate", mend) + _unreadable(key, "tls_key", mend):
        raise SettingsRefused(unread)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except OSError as error:
        raise SettingsRefused([_unusable(certificate, "tls_certificate", error, mend)]) from error


def _unreadable(path: Path, key: str, mend: str) -> list[Problem]:
    try:
        bytes_of(path)
    except FileUnreadable as error:
        return [replace(error.problem, key=f"bridge.{key}", mend=mend)]
    return []


def _unusable(path: Path, key: str, error: OSError, mend: str) -> Problem:
    return Problem(str(path), 0, f"bridge.{key}", f"cannot be used: {reason_of(error)}", mend)

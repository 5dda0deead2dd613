"""Section `redirect`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Set
from pathlib import Path

from edgebridge.frontend.redirect import Redirect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, Conflict, key
from edgebroker.world.valuekinds import Text, Unusable

_SERVER = re.compile(r"(?:\[(?P<ipv6>[^]]+)\]|[^]:/[]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Servers(Text):
    """Text with servers apart by blanks, each as MQTT 5.0 section 4.11 writes it: whom it misleads comes nowhere."""

    def read(self, value: object, folder: Path) -> str:
        text = Text.read(self, value, folder)
        for server in text.split(" "):
            if not _is_server(server):
                raise Unusable(f"names {server!r}", f"write {self}; an IPv6 address before a port stands in brackets")
        return text


def _is_server(text: str) -> bool:
    found = _SERVER.fullmatch(text)
    if found is None:
        return _is_ipv6(text)
    port, ipv6 = found["port"], found["ipv6"]
    return (port is None or 0 < int(port) <= 65_535) and (ipv6 is None or _is_ipv6(ipv6))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


_SERVERS = Servers(r"[^\s,]{1,261}( [^\s,]{1,261}){0,7}", "up to 8 host or host:port, apart by single blanks")


@dataclass(frozen=True, slots=True)
class RedirectSettings:
    """Where clients are sent instead of being served here."""

    use_another_server: str | None = key(None, _SERVERS, Applied.LIVE)
    server_moved: str | None = key(None, _SERVERS, Applied.LIVE)

    @property
    def redirect(self) -> Redirect | None:
        """Where clients are sent, if they are."""
        if self.server_moved is not None:
            return Redirect(ReasonCode.SERVER_MOVED, self.server_moved)
        if self.use_another_server is not None:
            return Redirect(ReasonCode.USE_ANOTHER_SERVER, self.use_another_server)
        return None

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Both at once say two different things."""
        if self.use_another_server is not None and self.server_moved is not None:
            yield "server_moved", "stands beside use_another_server", "leave one of them out"

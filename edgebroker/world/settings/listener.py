"""Section `listener`: one `[listener]`, or a `[[listener]]` for each."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from edgebridge.session.durability import Durability
from edgebroker.dataclasses import dataclass
from edgebroker.hostport import hostport
from edgebroker.world.settings.durability import DurabilityKind
from edgebroker.world.settings.ports import overlap
from edgebroker.world.settings.section import Applied, Conflict, key
from edgebroker.world.valuekinds import Choice, File, Network, Several, Switch, Text, Whole

PATH_BYTES_MAX = 107  # `sun_path` of Linux has 108, with a zero at the end; we also need four for a name to bind
LIVE = Applied.LIVE
Network_ = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Where devices connect, and on which terms."""

    name: str | None = key(
        None, Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_', '-'"), LIVE
    )
    host: str = key("127.0.0.1", Text(r"[^\s/]{1,253}", "a host name or an IP address"), LIVE)
    port: int = key(1883, Whole(0, 65_535), LIVE)
    path: Path | None = key(None, File(), LIVE)
    path_mode: str = key("0660", Text(r"0[0-7]{3}", "a file mode like 0660"), LIVE)
    protocol: str = key("mqtt", Choice(("mqtt", "websocket")), LIVE)
    websocket_path: str = key(
        "/mqtt", Text(r"\*|/[!-\"$->@-~]{0,255}", "a path that begins with '/', or '*' for any"), LIVE
    )
    websocket_origins: tuple[str, ...] = key(
        (), Several(Text(r"\*|https?://[^\s/]{1,253}", "an origin like https://example.org, or '*'"), 64), LIVE
    )
    tls_certificate: Path | None = key(None, File(), LIVE)
    tls_key: Path | None = key(None, File(), LIVE)
    tls_client: str = key("none", Choice(("none", "optional", "required")), LIVE)
    tls_client_ca: Path | None = key(None, File(), LIVE)
    tls_client_crl: Path | None = key(None, File(), LIVE)
    tls_minimum: str = key("1.2", Choice(("1.2", "1.3")), LIVE)
    proxy_protocol: bool = key(False, Switch(), LIVE)
    proxy_sources: tuple[Network_, ...] = key(
        (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")), Several(Network(), 64), LIVE
    )
    anonymous: bool | None = key(None, Switch(), LIVE)
    connections_max: int | None = key(None, Whole(1, 1_000_000), LIVE)
    durability: Durability | None = key(None, DurabilityKind(), LIVE)

    @property
    def address(self) -> str:
        """Where it listens: `host:port`, or the path of a Unix socket."""
        if self.path is not None:
            return str(self.path)
        return hostport(self.host, self.port)

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.address

    def excludes(self, other: ListenerSettings) -> bool:
        """Whether only one of the two can be opened."""
        if self.path is not None or other.path is not None:
            return self.path == other.path
        return 0 < self.port == other.port and overlap(self.host, other.host)

    @property
    def is_tls(self) -> bool:
        return self.tls_certificate is not None

    def unused(self) -> Iterator[str]:
        """Keys that mean nothing here."""
        if self.path is None:
            yield "path_mode"
        else:
            yield from ("host", "port")
        if self.protocol != "websocket":
            yield from ("websocket_path", "websocket_origins")
        if not self.is_tls:
            yield from ("tls_key", "tls_client", "tls_client_ca", "tls_client_crl", "tls_minimum")
        if not self.proxy_protocol or self.path is not None:
            yield "proxy_sources"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """What does not go together."""
        if self.path is not None:
            for name in sorted({"host", "port"} & given):
                yield name, "stands beside path", "a listener has either host and port or a path"
            if len(os.fsencode(self.path)) > PATH_BYTES_MAX - 4:
                yield "path", f"is longer than {PATH_BYTES_MAX - 4} bytes", "the system allows no more for a socket"
        needed = {
            "path_mode": (self.path is not None, "path"),
            "websocket_path": (self.protocol == "websocket", 'protocol = "websocket"'),
            "websocket_origins": (self.protocol == "websocket", 'protocol = "websocket"'),
            "tls_key": (self.is_tls, "tls_certificate"),
            "tls_client": (self.is_tls, "tls_certificate"),
            "tls_client_ca": (self.is_tls, "tls_certificate"),
            "tls_client_crl": (self.tls_client_ca is not None, "tls_client_ca"),
            "tls_minimum": (self.is_tls, "tls_certificate"),
            "proxy_sources": (self.proxy_protocol and self.path is None, "proxy_protocol = true and a port"),
        }
        for name, (is_useful, what) in needed.items():
            if name in given and not is_useful:
                yield name, f"does nothing without {what}", f"set {what}, or leave the line out"
        if self.is_tls:
            if self.tls_key is None:
                yield "tls_certificate", "stands without tls_key", "name the file with its private key"
            if self.tls_client != "none" and self.tls_client_ca is None:
                yield "tls_client", "needs tls_client_ca", "name the certificates that sign those of clients"
            if self.tls_client == "none" and self.tls_client_ca is not None:
                yield "tls_client_ca", "is not asked of anybody", 'set tls_client to "optional" or "required"'

    @staticmethod
    def identities(listeners: Sequence[ListenerSettings]) -> list[tuple[str, int]]:
        """What makes a listener the same in other settings: its address, and of those with port 0 its rank."""
        seen: dict[str, int] = {}
        found = []
        for one in listeners:
            seen[one.address] = seen.get(one.address, -1) + 1
            found.append((one.address, seen[one.address]))
        return found

    @staticmethod
    def clashes(listeners: Sequence[ListenerSettings]) -> Iterator[tuple[int, Conflict]]:
        """What two listeners cannot have both: (index of the second, what)."""
        names: set[str] = set()
        for index, one in enumerate(listeners):
            if one.name is not None and one.name in names:
                yield index, ("name", f"is {one.name!r} a second time", "give every listener a name of its own")
            if any(map(one.excludes, listeners[:index])):
                name = "port" if one.path is None else "path"
                yield index, (name, f"{one.address} is taken by a listener above", "choose another")
            names.add(one.name or "")

"""Section `overlay`."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.node.ways import USUAL
from edgebroker.world.settings.section import Conflict, key
from edgebroker.world.valuekinds import Choice, File, Text, Whole

STATIC: Final = "static"
DYNAMIC: Final = "dynamic"
TLS = ("tls_certificate", "tls_key", "tls_ca")


@dataclass(frozen=True, slots=True)
class OverlaySettings:
    """The federation that this gateway belongs to, under the name `node.name`; none without `topology`."""

    topology: Path | None = key(None, File())
    host: str | None = key(None, Text(r"[^\s/]{1,253}", "a host name or an IP address"))
    port: int | None = key(None, Whole(1, 65_535))
    routing: str = key(STATIC, Choice((STATIC, DYNAMIC)))
    lease_s: int = key(USUAL.lease_s, Whole(60, 365 * 24 * 3_600))
    tls_certificate: Path | None = key(None, File())
    tls_key: Path | None = key(None, File())
    tls_ca: Path | None = key(None, File())
    tls_crl: Path | None = key(None, File())

    @property
    def is_tls(self) -> bool:
        """Whether peers prove who they are."""
        return self.tls_certificate is not None

    def unused(self) -> Iterator[str]:
        """Keys that mean nothing here."""
        if self.topology is None:
            yield from ("host", "port", "routing", "lease_s", *TLS)
        if not self.is_tls:
            yield "tls_crl"

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """What does not go together."""
        if self.topology is None:
            for name in sorted(given - {"topology"}):
                yield name, "does nothing without topology", "name the topology file, or leave the line out"
        elif self.tls_crl is not None and not self.is_tls:
            yield "tls_crl", "does nothing without tls_certificate", f"set {', '.join(TLS)}, or leave the line out"
        files = {name: getattr(self, name) for name in TLS}
        if self.is_tls or any(files.values()):
            for name, path in files.items():
                if path is None:
                    yield next(iter(given & set(TLS))), f"stands without {name}", f"{', '.join(TLS)} go together"

"""What a world says of a connection: the door it came in by, and what it showed there."""

from __future__ import annotations

from typing import Final

from edgebridge.session.durability import Durability
from edgebridge.session.verdict import Verdict
from edgebroker.dataclasses import dataclass

RESERVED: Final = "$bridge/"
"""Client identifiers that begin so are those of the gateway's own bridges."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """The terms of one listener. Every connection has those that held when it came."""

    name: str = "local"
    """What people call the listener: its name in the settings, else its address."""
    number: int = 0
    """Which listener of this run; the same as long as its address stays."""
    is_anonymous: bool = True
    """Whether a client may come in that names no user."""
    durability: Durability | None = None
    """What is promised to clients that come in here; None: what the front end's terms say."""
    verdict: Verdict | None = None
    """Who comes in here, if nobody needs to be asked: a part of this gateway, whose session lasts as long as it
    wishes."""


LOCAL = Entrance()
"""Where nobody said otherwise: a client of the same process."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a client proved by TLS, to us or to the proxy in front of us (which we trust to tell the truth)."""

    common_name: str
    subject: str = ""
    """The whole name, as `CN=pump-3,O=Example` (RFC 4514); empty if a proxy told only the common name."""
    alternative_names: tuple[str, ...] = ()
    """As `DNS:pump-3.example`, `URI:urn:dev:1`, `IP:192.0.2.1`, `email:a@example`."""

    @property
    def name(self) -> str:
        """The one name to know the client by: the common name, else the first alternative name without its kind."""
        return self.common_name or (self.alternative_names[0].partition(":")[2] if self.alternative_names else "")

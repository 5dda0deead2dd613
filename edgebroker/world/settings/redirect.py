"""Section `redirect`."""

from __future__ import annotations

from collections.abc import Iterator, Set

from edgebridge.frontend.redirect import Redirect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, Conflict, key
from edgebroker.world.valuekinds import Text

_SERVERS = Text(r"[^\s,]{1,261}( [^\s,]{1,261}){0,7}", "up to 8 host or host:port, apart by single blanks")


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

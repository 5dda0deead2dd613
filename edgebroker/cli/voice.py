"""What a gateway says on standard output, where there may be no room for it and nobody who reads."""

from __future__ import annotations

from edgebroker.world.operatorlog import Level, OperatorLog
from edgebroker.world.outlet import Outlet


class Voice:
    """Says lines. Whatever becomes of standard output, it neither fails nor waits.

    A disk that is full, or a device that takes nothing, is told in the log, with what was to be said. That nobody reads
    us (`edgebroker run | head -1`) is somebody's wish, and told to nobody.
    """

    def __init__(self, log: OperatorLog) -> None:
        self._log = log
        self._outlet = Outlet(1, self._unsaid)

    def say(self, line: str) -> None:
        """Print *line*, now or as soon as it is taken."""
        self._outlet.write(line.encode("utf-8", "replace") + b"\n")

    def flush(self) -> None:
        """Print what waits, as far as it is taken."""
        self._outlet.flush()

    async def drain(self) -> None:
        """At the end, give whoever reads us a while to take what waits."""
        await self._outlet.drain()

    def _unsaid(self, line: bytes, error: OSError | None) -> None:
        if error is not None:
            said = line.decode("utf-8", "replace").rstrip("\n")
            self._log.tell(Level.WARNING, "unsaid", f"standard output cannot be written ({error.strerror}): {said}")

"""The parts of a running gateway that may be looked at. Who looks changes nothing, and costs nothing until it looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgebridge.frontend.frontend import Frontend
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.world.doors.listeners import Listeners
from edgebroker.world.operatorlog import OperatorLog
from edgebroker.world.pulse import Pulse
from edgebroker.world.reactor import Reactor
from edgebroker.world.scribe import Scribe
from edgebroker.world.store import Store

if TYPE_CHECKING:
    from edgebroker.storage.deliverylog.writer import DeliveryLog
    from edgebroker.world.blocklist import Blocklist
    from edgebroker.world.bridging.bridging import Bridging
    from edgebroker.world.logdir import LogDir
    from edgebroker.world.peering.peering import Peering
    from edgebroker.world.reload import Outcome
    from edgebroker.world.tracing import Tracing


@dataclass(slots=True)
class Insight:
    """`log` and `log_dir` are None where no delivery log is written."""

    name: str
    """What the operator calls the gateway."""
    frontend: Frontend
    reactor: Reactor
    listeners: Listeners
    pulse: Pulse
    log: DeliveryLog | None
    log_dir: LogDir | None
    folders: Mapping[str, Path]
    """Where the gateway writes, by section of the settings."""
    notices: OperatorLog
    scribe: Scribe
    tracing: Tracing
    store: Store | None
    """What is kept on disk; None where everything is in memory."""
    peering: Peering | None
    """The sockets of peers; None where there are none."""
    bridging: Callable[[], Bridging | None]
    """The bridges to foreign brokers; the first may come while the gateway runs."""
    started_at: Instant
    started_unix_s: float
    """What the wall clock said then; it may have been wrong."""
    blocklist: Blocklist | None = None
    """Keeps on disk whom an operator keeps out; made when somebody is."""
    reread: Callable[[], Awaitable[Outcome | None]] | None = None
    """Reads the settings again, as SIGHUP does; None where nobody can. Its own: the outcome is None if that failed."""

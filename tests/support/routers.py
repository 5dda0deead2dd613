"""Federation routers for tests: links that are up, the messages sent, and where events arrived."""

from __future__ import annotations

from collections import Counter

from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions
from edgebroker.overlay.scot import Scot
from edgebroker.overlay.topology.factor import Factor
from edgebroker.overlay.topology.topology import Topology
from edgelab.simworld.federation import Federation


def federation(path: str = "a-b-c", clusters: int = 3, options: FederationOptions = DEFAULT_OPTIONS) -> Federation:
    made = Federation(Topology.product(Scot(Factor.parse(path), clusters)), options)
    made.connect_all()
    made.settle()
    made.sent.clear()
    return made


def kinds(made: Federation) -> Counter[str]:
    """What was said since this was asked last."""
    found = Counter(type(message).__name__ for _, _, message in made.sent)
    made.sent.clear()
    return found


def came(made: Federation) -> list[str]:
    """Where events came since this was asked last."""
    found = sorted(handed.gateway for handed in made.local_deliveries)
    made.local_deliveries.clear()
    return found

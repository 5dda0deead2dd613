"""The links of a gateway as the topology wants them."""

from __future__ import annotations

from collections.abc import Callable

from edgebroker.dataclasses import dataclass
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.link.heartbeat import IDLE_INTERVAL, LAN_INTERVAL, PATIENCE_MIN, PATIENCE_NEAR
from edgebroker.overlay.link.identity import Identity
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.link.links import Links
from edgebroker.overlay.link.outbox import Storage
from edgebroker.overlay.link.records import StoredLink, StoredLinks
from edgebroker.overlay.link.terms import LinkTerms
from edgebroker.overlay.topology import Topology


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a gateway."""

    run: bytes
    """8 random bytes."""
    store: bytes
    """8 bytes: of the journal's store, or random if there is none."""
    chance: Callable[[], float]
    """Gives numbers from 0 to 1."""


def links_of(
    topology: Topology, name: str, run: Run, now: Instant, storage: Storage | None, stored: StoredLinks, clock: int
) -> Links:
    """The links of gateway *name*, one to each peer. *stored*: what an earlier run left."""
    gateway = topology.gateway(name)
    numbers = {peer: topology.gateway(peer).number for peer in gateway.peers()}
    identity = Identity(topology.federation, name, gateway.number, _sections(topology), numbers, run.run, run.store)
    links = []
    for peer in numbers:
        terms, left = terms_of(topology, name, peer), stored.links.get(peer, StoredLink())
        if storage is not None or stored.is_damaged:
            # The journal may be an older copy, or damaged, and not know the highest numbers that were given. Of a
            # microsecond there was never more than one, so none above these was.
            left.reserved = max(left.reserved, now + clock)
        links.append(Link(peer, identity, now, run.chance, terms, storage, left, clock))
    return Links(identity, links)


def terms_of(topology: Topology, name: str, peer: str) -> LinkTerms:
    """On what terms gateway *name* keeps up the link to *peer*."""
    connection = topology.connection(name, peer)
    uplink = connection.uplink
    return LinkTerms(
        dials=connection.dial.dialler == name,
        heartbeat=IDLE_INTERVAL if uplink.kind == "metered" else LAN_INTERVAL,
        patience=PATIENCE_NEAR if uplink.kind == "lan" else PATIENCE_MIN,
        batch=uplink.batch_ms * MILLISECOND,
        deflates=uplink.kind != "lan",
        bytes_per_s=uplink.bytes_per_s or 0,
        bytes_per_day=uplink.bytes_per_day or 0,
    )


def _sections(topology: Topology) -> dict[str, bytes]:
    """A digest of each part of a topology, so that a difference has a name."""
    return {"topology": bytes.fromhex(topology.digest)}

"""The links of a gateway, made from the topology, the identity of this boot, and what the journal says of links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from edgebroker.dataclasses import dataclass
from edgebroker.digests import sha256
from edgebroker.federation.options import DEFAULT_OPTIONS, FederationOptions, OutboxOptions
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.overlay.link.handshake import (
    SECTION_DIGEST_BYTES,
    SECTIONS_BYTES_MAX,
    GatewayIdentity,
    TopologyExchange,
)
from edgebroker.overlay.link.heartbeat import IDLE_INTERVAL, LAN_INTERVAL, PATIENCE_MIN, PATIENCE_NEAR
from edgebroker.overlay.link.journal_entries import LinkStorage
from edgebroker.overlay.link.journal_records import StoredLink, StoredLinks
from edgebroker.overlay.link.link import Link, LinkTable
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.link.outbox import OutboxBounds
from edgebroker.overlay.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class BootIdentity:
    """One run of a gateway."""

    boot_id: bytes
    """8 random bytes."""
    store_id: bytes
    """8 bytes: of the journal's store, or random if there is none."""
    random: Callable[[], float]
    """Gives numbers from 0 to 1."""
    topologies: TopologyExchange = field(default_factory=TopologyExchange)
    """The signed topology file, and those that peers hand on."""


def create_links(
    topology: Topology,
    name: str,
    run: BootIdentity,
    now: Instant,
    storage: LinkStorage | None,
    stored: StoredLinks,
    clock: int,
    ways: FederationOptions = DEFAULT_OPTIONS,
) -> LinkTable:
    """The links of gateway *name*, one to each peer. *stored*: what an earlier run left."""
    gateway = topology.gateway(name)
    numbers = {peer: topology.gateway(peer).number for peer in gateway.peers()}
    identity = GatewayIdentity(
        topology.federation,
        name,
        gateway.number,
        _topology_digests(topology),
        numbers,
        run.boot_id,
        run.store_id,
        topology_sections(topology),
        run.topologies,
    )
    links = []
    for peer in numbers:
        terms, left = link_options(topology, name, peer), stored.links.get(peer, StoredLink())
        terms = replace(terms, bounds=_outbox_bounds(terms.bounds, ways.outboxes.get(peer, ways.outbox), storage))
        if storage is not None or stored.is_damaged:
            # The journal may be an older copy, or damaged, and not know the highest numbers that were given. Of a
            # microsecond there was never more than one, so none above these was.
            left.reserved = max(left.reserved, now + clock)
        links.append(Link(peer, identity, now, run.random, terms, storage, left, clock))
    stored.messages.clear()
    return LinkTable(identity, links)


def link_options(topology: Topology, name: str, peer: str) -> LinkOptions:
    """On what terms gateway *name* keeps up the link to *peer*."""
    connection = topology.connection(name, peer)
    uplink = connection.uplink
    return LinkOptions(
        dials=connection.dial.dialler == name,
        heartbeat=IDLE_INTERVAL if uplink.kind == "metered" else LAN_INTERVAL,
        patience=PATIENCE_NEAR if uplink.kind == "lan" else PATIENCE_MIN,
        batch=uplink.batch_ms * MILLISECOND,
        deflates=uplink.kind != "lan",
        bytes_per_s=uplink.bytes_per_s or 0,
        bytes_per_day=uplink.bytes_per_day or 0,
    )


def _outbox_bounds(bounds: OutboxBounds, options: OutboxOptions, storage: LinkStorage | None) -> OutboxBounds:
    """Return *bounds* with what the operator says of the outbox. Without a journal all of it is memory."""
    bytes_max = bounds.bytes if options.bytes_max is None else options.bytes_max
    memory = max(bounds.memory_bytes, bytes_max) if storage is None else bounds.memory_bytes
    return replace(
        bounds,
        messages=bounds.messages if options.messages_max is None else options.messages_max,
        bytes=bytes_max,
        is_by_disk=options.bytes_max is None,
        memory_bytes=memory,
        policy=options.policy,
    )


def topology_sections(topology: Topology) -> dict[str, bytes]:
    """A digest of each site and each gateway and of the tree; of all sites and of all gateways, if they are many."""
    meanings = {"tree": "\n".join(line for line in topology.meaning.splitlines() if line.startswith("tree "))}
    meanings |= {f"site {site.name}": str(site.index) for site in topology.sites}
    for one in topology.gateways:
        home, *others = one.positions
        meanings[f"gateway {one.name}"] = " ".join((str(one.number), one.site, home, *sorted(others)))
    if sum(len(name.encode()) + SECTION_DIGEST_BYTES + 3 for name in meanings) > SECTIONS_BYTES_MAX:
        grouped: dict[str, list[str]] = {}
        for name, meaning in meanings.items():
            kind, _, which = name.partition(" ")
            grouped.setdefault(kind + "s" if which else kind, []).append(f"{which} {meaning}")
        meanings = {kind: "\n".join(each) for kind, each in grouped.items()}
    return {name: sha256(meaning.encode()).digest()[:SECTION_DIGEST_BYTES] for name, meaning in meanings.items()}


def _topology_digests(topology: Topology) -> dict[str, bytes]:
    """A digest of each part of a topology, so that a difference has a name."""
    return {"topology": bytes.fromhex(topology.digest)}

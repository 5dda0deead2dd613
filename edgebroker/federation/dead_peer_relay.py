"""Relays past dead neighbours: a dead gateway splits its cluster, and its neighbours connect the parts through other
clusters [SCOT 2.10].

A neighbour is *dead* when its link has been down for DEAD_AFTER. Until it is back, *stand-ins* replace it: the nearest
reachable gateways behind it. Events for the neighbour's side go to each stand-in as a `Relay`, which gateways forward
over whatever connections exist. The other sides do the same, so every two gateways around a dead one exchange events.
This causes no loop, because events from the neighbour's side are not sent back there, whichever gateway sent them.

For the neighbour itself, and for dead gateways behind it, copies are *alone*: for their own clients only. They wait in
the neighbour's outbox until it is back. So every event has exactly one path to each gateway, chosen once, and nothing
is delivered twice when the neighbour is back, however long that takes.

The neighbour is back when it has announced the interests behind it over any path, which it does once it knows them
itself. If only the link to it is cut, it does so at once over other gateways, and is its own stand-in.

Only the routing tables of gateways next to the dead one change; they get an extra link for each stand-in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from edgebroker.federation.effects import SendMessage
from edgebroker.instants import SECOND, Duration
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import Forward, Message, Relay
from edgebroker.overlay.topology.topology import Topology
from edgebroker.overlay.traffic_class import TrafficClass

DEAD_AFTER: Final[Duration] = SECOND
"""A link that was cut and a process that was restarted are usually back earlier; then nothing changes."""
FIRST_CONTACT_TIMEOUT: Final[Duration] = 3 * SECOND
"""A peer that did not connect within this time after a start is dead: it dials at once, and again within two
seconds.
"""
HOPS_MAX: Final = 32
"""Gateways that may forward a relay: longer than any path, and short enough to end loops while link states disagree."""


class DeadPeerRelay:
    """The dead neighbours of one gateway, and their stand-ins."""

    def __init__(self, topology: Topology, name: str, link_state: LinkStateTable) -> None:
        self._topology = topology
        self._link_state = link_state
        self._name = name
        self.behind = {peer: self._walk(peer) for peer in topology.gateway(name).neighbours}
        """Neighbour -> the gateways of the cluster behind it, the nearest first."""
        self.dead: dict[str, tuple[str, ...]] = {}
        """Dead neighbour -> itself and the dead gateways behind it."""
        self.stand_ins: dict[str, tuple[str, ...]] = {}
        """Dead neighbour -> its stand-ins; none if all gateways behind it are dead."""
        self.severed: set[str] = set()
        """Neighbours that are alive but not connected with this gateway."""

    def _walk(self, peer: str) -> tuple[str, ...]:
        """Return the gateways of the cluster behind *peer*, the nearest first."""
        found = [peer]
        for each in found:
            neighbours = self._topology.gateway(each).neighbours
            found += [one for one in neighbours if one != self._name and one not in found]
        return tuple(found[1:])

    # -- dead neighbours and stand-ins ----------------------------------------------------------------------------

    def add_dead(self, peer: str) -> None:
        """Mark the neighbour *peer* as dead."""
        self.severed.discard(peer)
        self.dead.setdefault(peer, ())
        self.stand_ins.setdefault(peer, ())

    def remove_dead(self, peer: str, is_connected: bool) -> tuple[str, ...]:
        """Mark the neighbour *peer* as alive; return its former stand-ins."""
        if is_connected:
            self.severed.discard(peer)
        else:
            self.severed.add(peer)
        self.dead.pop(peer, None)
        return self.stand_ins.pop(peer, ())

    def update_stand_ins(self) -> list[str]:
        """Choose the stand-ins again after reachability changed. Returns the new ones."""
        for peer in [peer for peer in self.severed if not self._link_state.is_reachable(peer)]:
            self.add_dead(peer)
        new = []
        for peer in self.dead:
            dead, stand_ins = self._dead_and_reachable(peer)
            new += [one for one in stand_ins if one not in self.stand_ins[peer]]
            self.dead[peer], self.stand_ins[peer] = dead, stand_ins
        return new

    def _dead_and_reachable(self, peer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return *peer* and the dead gateways connected to it on its side, and the reachable gateways next to those."""
        dead, seen = [peer], {self._name, peer}
        reachable: list[str] = []
        for each in dead:
            for one in self._topology.gateway(each).neighbours:
                if one not in seen:
                    seen.add(one)
                    (reachable if self._link_state.is_reachable(one) else dead).append(one)
        return tuple(dead), tuple(reachable)

    @property
    def is_active(self) -> bool:
        """Whether a neighbour is dead or severed, so that relays are needed."""
        return bool(self.dead or self.severed)

    # -- relays ---------------------------------------------------------------------------------------------------

    def split(self, targets: Sequence[str]) -> tuple[list[str], list[tuple[str, bool]]]:
        """Divide *targets* into neighbours that get a copy over their link, now or when it is up, and gateways that get
        a relay, each with whether it is for that gateway alone.
        """
        plain: dict[str, None] = {}
        relayed: dict[str, bool] = {}
        hidden = {far: peer for peer in self.dead for far in (peer, *self.behind[peer])}
        for target in targets:
            peer = hidden.get(target)
            if peer is None and target not in self.severed:
                plain[target] = None
            elif peer is None or target in self.stand_ins[peer]:
                relayed[target] = False
            elif self.stand_ins[peer]:
                relayed |= dict.fromkeys(self.dead[peer], True)
            else:  # no gateway behind it is alive, so it forwards the events of its outbox when it is back
                plain[peer] = None
        return [*plain], [*relayed.items()]

    def relay(
        self, destination: str, message: Message, service: TrafficClass, is_alone: bool = False
    ) -> list[SendMessage]:
        """Send *message* to *destination* over whatever connections exist."""
        return self.forward(
            Relay(self._link_state.number, self._link_state.number_of(destination), HOPS_MAX, message, is_alone),
            service,
        )

    def forward(self, relay: Relay, service: TrafficClass) -> list[SendMessage]:
        """Return the next hop of a relay. An event always has one; other messages are dropped if the destination is
        unreachable.
        """
        destination = self._link_state.name_of(relay.destination)
        if destination is None:
            return []
        hop = self._link_state.next_hop(destination) if relay.hops else None
        if hop is not None:
            return [SendMessage(hop, replace(relay, hops=relay.hops - 1), service)]
        if isinstance(relay.message, Forward):
            return [SendMessage(self._link_state.static_next_hop(destination), replace(relay, hops=0), service)]
        return []

"""Relays past dead neighbours: a dead gateway splits its cluster, and those next to it connect the parts through
other clusters [SCOT 2.10].

A neighbour whose link has been down for DEAD_AFTER is *away*. Until it is back, those behind it *stand in* for it:
the nearest gateways on the other side that can be reached. What would have gone over the neighbour goes to each of
them as a `Relay`, from gateway to gateway over whatever connections there are; and they do the same from their
side, so that between the gateways around a dead one each talks with each. That is no loop: what comes from the
neighbour's side is not sent there again, whoever sent it.

For the neighbour itself, and others that are away behind it, copies are *alone*: for their own clients only, and
they wait in the neighbour's outbox until it is back. So every event has one way to each gateway, chosen once; and
that is why nothing comes twice when it is back, however long that takes.

It is back when it has said over any way what is wanted behind it, which it does once it knows it itself. If only
our link with it is cut it does so at once, over other gateways, and stands in for itself.

No routing table is touched but those around the dead gateway, and these have links of their own for who stands in.
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
"""A link that was cut and a process that was restarted are back before; then nothing was changed for them."""
FIRST_CONTACT_TIMEOUT: Final[Duration] = 3 * SECOND
"""A peer that a gateway has not met so long after its start is away: it dials at once, and again within two seconds."""
HOPS_MAX: Final = 32
"""Gateways that may choose a relay's way: more than any way has, and few enough if they disagree for a moment."""


class DeadPeerRelay:
    """The neighbours of one gateway that are away, and who stands in for them."""

    def __init__(self, topology: Topology, name: str, reach: LinkStateTable) -> None:
        self._topology = topology
        self._link_state = reach
        self._name = name
        self.behind = {peer: self._walk(peer) for peer in topology.gateway(name).neighbours}
        """Neighbour -> the gateways of the cluster behind it, the nearest first."""
        self.dead: dict[str, tuple[str, ...]] = {}
        """Neighbour that is away -> it, and others behind it that are."""
        self.stand_ins: dict[str, tuple[str, ...]] = {}
        """Neighbour that is away -> who stands in for it; nobody if all behind it is away."""
        self.severed: set[str] = set()
        """Neighbours that live, and with which we have no connection."""

    def _walk(self, peer: str) -> tuple[str, ...]:
        found = [peer]
        for each in found:
            around = self._topology.gateway(each).neighbours
            found += [one for one in around if one != self._name and one not in found]
        return tuple(found[1:])

    # -- who is away ----------------------------------------------------------------------------------------------

    def add_dead(self, peer: str) -> None:
        """The neighbour *peer* is away."""
        self.severed.discard(peer)
        self.dead.setdefault(peer, ())
        self.stand_ins.setdefault(peer, ())

    def remove_dead(self, peer: str, is_connected: bool) -> tuple[str, ...]:
        """The neighbour *peer* is back; return who stood in for it."""
        if is_connected:
            self.severed.discard(peer)
        else:
            self.severed.add(peer)
        self.dead.pop(peer, None)
        return self.stand_ins.pop(peer, ())

    def update_stand_ins(self) -> list[str]:
        """Others may be reached than before: who stands in anew?"""
        for peer in [peer for peer in self.severed if not self._link_state.is_reachable(peer)]:
            self.add_dead(peer)
        new = []
        for peer in self.dead:
            away, stand_ins = self._sides(peer)
            new += [one for one in stand_ins if one not in self.stand_ins[peer]]
            self.dead[peer], self.stand_ins[peer] = away, stand_ins
        return new

    def _sides(self, peer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The gateways behind *peer* that are away, as far as the nearest that are reached; and these."""
        away, seen = [peer], {self._name, peer}
        reached: list[str] = []
        for each in away:
            for one in self._topology.gateway(each).neighbours:
                if one not in seen:
                    seen.add(one)
                    (reached if self._link_state.is_reachable(one) else away).append(one)
        return tuple(away), tuple(reached)

    @property
    def is_active(self) -> bool:
        """Whether anything goes around anybody."""
        return bool(self.dead or self.severed)

    # -- relays ---------------------------------------------------------------------------------------------------

    def split(self, targets: Sequence[str]) -> tuple[list[str], list[tuple[str, bool]]]:
        """Of *targets*: the neighbours that get a copy over their link, now or when it is up; and who gets one as a
        relay, and whether it is for that gateway alone.
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
            else:  # nobody is behind it: it will hand on what waits for it
                plain[peer] = None
        return [*plain], [*relayed.items()]

    def relay(
        self, destination: str, message: Message, service: TrafficClass, is_alone: bool = False
    ) -> list[SendMessage]:
        """Let *message* go to *destination* over whatever connections there are."""
        return self.forward(
            Relay(self._link_state.number, self._link_state.number_of(destination), HOPS_MAX, message, is_alone),
            service,
        )

    def forward(self, relay: Relay, service: TrafficClass) -> list[SendMessage]:
        """The next step of a relay: an event always has one, anything else only while there is a way."""
        destination = self._link_state.name_of(relay.destination)
        if destination is None:
            return []
        hop = self._link_state.next_hop(destination) if relay.hops else None
        if hop is not None:
            return [SendMessage(hop, replace(relay, hops=relay.hops - 1), service)]
        if isinstance(relay.message, Forward):
            return [SendMessage(self._link_state.static_next_hop(destination), replace(relay, hops=0), service)]
        return []

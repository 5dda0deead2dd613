"""Wills of dead gateways: what the clients of a gateway have as wills, another gateway of its site publishes for it.

Each gateway has one *keeper*, its neighbour with the lowest number, so a will has one gateway that publishes it for a
dead one. The gateway tells its keeper of the wills of its clients: all of them when their link opens, changes after
that. The keeper has them in memory, as long as the link is up or the gateway is reachable over no other one.

A gateway is *dead* when its keeper has known no path of open links to it for a set time. A gateway that is alive and
cut off cannot be told from that. Then the keeper publishes the wills whose delays have passed too, and tells the
gateway of each in an event of its site, which is in the same transaction of the journal and waits for the gateway.

A gateway that starts again holds back the wills that it restored until its keeper has answered: the answer is an event
behind those, so the wills that were published are known by then. It names the run to which it answers, because one to
an earlier run may have waited. A gateway that was only cut off closes the connections of the clients whose wills were
published: they connect again, and say that they are there.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from edgebroker.federation.effects import Effect, PublishWills, SendMessage
from edgebroker.federation.retained_claims import WILLS_TOPIC, GatewayPublisher
from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant
from edgebroker.limits import KEPT_WILLS_BYTES_MAX
from edgebroker.overlay.link_state import LinkStateTable
from edgebroker.overlay.messages import PendingWill, PendingWills
from edgebroker.overlay.topology.topology import Topology, TopologyGateway

CHECK_INTERVAL_MAX: Final[Duration] = 5 * SECOND
"""While a gateway is without a link, whether another one has a link with it is looked at so often."""
WILLS_AT_ONCE: Final = 50
"""Wills that are published at once: 10 ms at 200 us each. Others follow after WILLS_INTERVAL."""
WILLS_INTERVAL: Final[Duration] = 20 * MILLISECOND
WILL_BYTES: Final = 600
"""The memory that a will takes beside its texts and payload."""
_NOTICE: Final = Struct(">HQ")
"""Of an event: the number of the gateway that it is for; the fingerprint of a will that was published, followed by the
client's identifier, or the boot to which it answers, followed by nothing.
"""


class WillNotice(NamedTuple):
    """What a keeper tells a gateway: a will of *client* was published; or, without a client, that was all."""

    gateway: int
    number: int
    """The fingerprint of the will, or the boot of the run that asked."""
    client: str


def read_notice(payload: bytes) -> WillNotice | None:
    """Return the notice in the payload of an event; None if it cannot be read."""
    try:
        gateway, number = _NOTICE.unpack_from(payload)
        return WillNotice(gateway, number, payload[_NOTICE.size :].decode())
    except (StructError, UnicodeDecodeError):
        return None


def keeper_of(topology: Topology, gateway: TopologyGateway) -> str | None:
    """Return the gateway that publishes the wills of *gateway* if that is dead; None if it has no neighbour."""
    return min(gateway.neighbours, key=lambda peer: topology.gateway(peer).number, default=None)


class _KeptWill(NamedTuple):
    """A will, and when it is due if its client is gone."""

    will: PendingWill
    due: Instant | None

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        will = self.will
        return WILL_BYTES + len(will.client) + len(will.topic) + len(will.payload) + len(will.properties)


class WillKeeper:
    """The wills that one gateway keeps for others."""

    def __init__(
        self,
        topology: Topology,
        gateway: TopologyGateway,
        link_state: LinkStateTable,
        publisher: GatewayPublisher,
        after: Duration,
    ) -> None:
        """after: how long a gateway must be unreachable; 0: no wills are published."""
        self.keeper = keeper_of(topology, gateway)
        """The gateway that keeps those of this one."""
        wards = (topology.gateway(peer) for peer in gateway.neighbours)
        self._numbers = {one.name: one.number for one in wards if keeper_of(topology, one) == gateway.name}
        self._link_state = link_state
        self._publisher = publisher
        self._after = after
        self._wills: dict[str, dict[str, _KeptWill]] = {name: {} for name in self._numbers}
        self._down_since: dict[str, Instant | None] = {}
        """Gateway without a link to this one -> since when it is known to be unreachable; None: it is reachable."""
        self.next_due: Instant | None = None
        """When to call `fire`."""
        self.bytes = 0
        """The memory that all wills take."""
        self.published = 0
        """Wills of dead gateways that were published."""
        self.not_kept = 0
        """Wills for which there was no room."""

    @property
    def count(self) -> int:
        """The number of wills that are kept."""
        return sum(len(wills) for wills in self._wills.values())

    def receive(self, peer: str, message: PendingWills, now: Instant, now_ms: int) -> list[SendMessage]:
        """Handle what *peer* tells of its wills."""
        wills = self._wills.get(peer)
        if wills is None:
            return []
        self._down_since.pop(peer, None)
        for client in tuple(wills) if message.is_first else message.settled:
            self._forget(wills, client)
        for will in message.wills:
            self._forget(wills, will.client)
            kept = _KeptWill(will, now + will.delay_s * SECOND if will.is_gone else None)
            if self.bytes + kept.size > KEPT_WILLS_BYTES_MAX:
                self.not_kept += 1
                continue
            wills[will.client] = kept
            self.bytes += kept.size
        if not message.wants_answer:
            return []
        payload = _NOTICE.pack(self._numbers[peer], message.boot)
        return self._publisher.publish(WILLS_TOPIC, payload, now_ms, now)

    def _forget(self, wills: dict[str, _KeptWill], client: str) -> None:
        kept = wills.pop(client, None)
        if kept is not None:
            self.bytes -= kept.size

    def link_down(self, peer: str, now: Instant) -> None:
        """Handle the loss of the link to *peer*."""
        if self._after and peer in self._wills:
            self._down_since[peer] = None
            self._plan(now + self._interval)

    @property
    def _interval(self) -> Duration:
        return min(CHECK_INTERVAL_MAX, max(SECOND // 4, self._after // 8))

    def _plan(self, due: Instant) -> None:
        self.next_due = due if self.next_due is None else min(due, self.next_due)

    def fire(self, now: Instant) -> list[Effect]:
        """Look whether gateways are dead, and have their wills published."""
        self.next_due = None
        effects: list[Effect] = []
        for peer, since in self._down_since.items():
            wills = self._wills[peer]
            if self._link_state.is_reachable(peer):
                self._down_since[peer] = None
                for client in tuple(wills):  # it is alive, and its wills change without our hearing of it
                    self._forget(wills, client)
            elif since is None:
                self._down_since[peer] = now
            elif wills and now - since >= self._after:
                effects += self._publish(peer, wills, since, now)
            if wills:
                self._plan(now + self._interval)
        return effects

    def _publish(self, peer: str, wills: dict[str, _KeptWill], since: Instant, now: Instant) -> list[Effect]:
        due = []
        for kept in wills.values():
            at = since + kept.will.delay_s * SECOND if kept.due is None else kept.due
            if at <= now:
                due.append(kept.will)
            if len(due) == WILLS_AT_ONCE:
                self._plan(now + WILLS_INTERVAL)
                break
        for will in due:
            self._forget(wills, will.client)
        self.published += len(due)
        return [PublishWills(self._numbers[peer], tuple(due))] if due else []

    def tell_published(self, gateway: int, will: PendingWill, now_ms: int, now: Instant) -> list[SendMessage]:
        """Tell *gateway* that *will* was published."""
        payload = _NOTICE.pack(gateway, will.fingerprint()) + will.client.encode()
        return self._publisher.publish(WILLS_TOPIC, payload, now_ms, now)

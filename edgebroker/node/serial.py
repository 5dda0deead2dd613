"""The usual way of events through a gateway: decided once for a publisher and topic, or for a whole series.

Nothing is decided here: `Forwarding` is asked, and what it says is remembered while it would say the same. Whoever has
this calls `forget` when interests, advertisements or links have changed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from edgebroker.header import Header
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.peereffects import Send
from edgebroker.node.peers import SEQUENCE_MODULUS, Peers
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.messages import Forward, Series

WAYS_MAX: Final = 10_000
"""Publishers and topics that are remembered, 300 bytes each; they are all forgotten when there are more."""


class Way(NamedTuple):
    """How the events of one publisher under one topic leave."""

    record: Record
    peers: tuple[str, ...]
    """Who gets each of them, as it is."""


class Serial:
    """The usual ways through the gateway of *peers*."""

    def __init__(self, peers: Peers, is_dynamic: bool) -> None:
        """*is_dynamic*: what decides may change at any time; nothing is usual then."""
        self._peers = peers
        self._is_dynamic = is_dynamic
        self._ways: dict[tuple[str, str], Way | None] = {}

    def forget(self) -> None:
        """What decides has changed, or may have."""
        self._ways.clear()

    def way(self, client: str, topic: str, count_max: int) -> Way | None:
        """How up to *count_max* events of a local client leave.

        None: it must be decided for each, for what they contain decides, or they have to wait or to go around.
        """
        key = (client, topic)
        way = self._ways.get(key)
        if way is None:
            if key in self._ways or (record := self._record(client, topic)) is None:
                return None
            found = self._peers.forwarding.usual(topic, record)
            way = None if found is None else Way(record, found)
            if len(self._ways) >= WAYS_MAX:
                self._ways.clear()
            self._ways[key] = way
        if way is None or way.record.publisher.sequence + count_max >= SEQUENCE_MODULUS:
            return None
        return way

    def _record(self, client: str, topic: str) -> Record | None:
        """The advertisement of such events, if they need not wait and go the same way as long as nothing changes."""
        region = self._peers.region
        record = None if self._is_dynamic else region.advertisements.find(client, topic)
        return None if record is None or record in region.waiting else record

    def leave(
        self, way: Way, topic: str, payload: bytes, qos: int, count: int, now: Instant
    ) -> Forward | Series | None:
        """*count* events leave, their payloads one behind the other. Returns what to send; None: nobody wants them."""
        record, peers = way.record, self._peers
        record.used_at = now
        publisher, advertise = record.publisher, record.advertise
        sequence = publisher.sequence + 1
        publisher.sequence += count
        header = Header(
            publisher.number,
            sequence,
            advertise.adv,
            advertise.hc,
            0,
            peers.interests.epoch,
            0,
            0,
            0,
            now // MILLISECOND + peers.unix_offset_ms,
        )
        peers.forwarding.note(header, count)
        if not way.peers:
            return None
        forward = Forward(header, topic, payload, qos, False, advertise.client)
        return forward if count == 1 else Series(forward, count)

    def receive(self, peer: str, series: Series) -> list[Send] | None:
        """*series* came from *peer*: return the copies that leave; local clients may get all of it.

        None: it must be taken event by event.
        """
        if self._peers.sorting.concerns(series.first):
            return None
        sends = self._peers.forwarding.receive_series(peer, series)
        return None if sends is None else _series(sends, series.count)

    def receive_one(self, peer: str, forward: Forward) -> tuple[bool, list[Send]] | None:
        """*forward* came from *peer*: return whether local clients may get it, and the copies that leave.

        None, and nothing has happened: it may have to wait for others.
        """
        return None if self._peers.sorting.concerns(forward) else self._peers.forwarding.receive(peer, forward)


def _series(sends: list[Send], count: int) -> list[Send]:
    made: dict[int, Series] = {}
    for send in sends:
        first = send.message
        assert isinstance(first, Forward)
        made.setdefault(id(first), Series(first, count))
    return [Send(send.peer, made[id(send.message)], send.service) for send in sends]

"""Series of events on their way through a gateway: one decision for all of them, where each would get the same."""

from __future__ import annotations

from edgebroker.header import Header
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.node.peereffects import Send
from edgebroker.node.peers import SEQUENCE_MODULUS, Peers
from edgebroker.overlay.advertisements import Record
from edgebroker.overlay.messages import Forward, Series


class Serial:
    """The way of series through the gateway of *peers*."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def way(self, client: str, topic: str, count_max: int) -> Record | None:
        """The advertisement under which up to *count_max* events of a local client may leave as a series.

        None: they must leave one by one, for what they contain decides, or they have to wait.
        """
        region = self._peers.region
        record = region.advertisements.find(client, topic)
        if record is None or record in region.waiting or not self._peers.forwarding.is_by_topic(topic, record):
            return None
        return record if record.publisher.sequence + count_max < SEQUENCE_MODULUS else None

    def leave(self, record: Record, topic: str, payloads: bytes, count: int, now: Instant) -> list[Send]:
        """*count* events, *payloads* one behind the other, leave on the way that was found: a series for each peer."""
        peers, publisher, advertise = self._peers, record.publisher, record.advertise
        record.used_at = now
        header = Header(
            publisher.number,
            publisher.sequence + 1,
            advertise.adv,
            advertise.hc,
            epoch=peers.interests.epoch,
            published_ms=now // MILLISECOND + peers.unix_offset_ms,
        )
        publisher.sequence += count
        first = Forward(header, topic, payloads, 0, False, advertise.client)
        return _series(peers.forwarding.publish(first, record, peers.unasked(), count), count)

    def receive(self, peer: str, series: Series) -> list[Send] | None:
        """*series* came from *peer*: return the copies that leave; local clients may get all of it.

        None: it must be taken event by event.
        """
        if self._peers.sorting.concerns(series.first):
            return None
        sends = self._peers.forwarding.receive_series(peer, series)
        return None if sends is None else _series(sends, series.count)


def _series(sends: list[Send], count: int) -> list[Send]:
    made: dict[int, Series | Forward] = {}
    for send in sends:
        first = send.message
        assert isinstance(first, Forward)
        made.setdefault(id(first), Series(first, count) if count > 1 else first)
    return [Send(send.peer, made[id(send.message)], send.service) for send in sends]

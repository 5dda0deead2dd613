"""Who publishes what to whom: the traffic pattern of a streaming workload, with its expected outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import packets
from .job import Job

CYCLE_MESSAGES = 100


@dataclass(frozen=True, slots=True)
class Shape:
    """One cycle of writes, repeated for as long as the run lasts.

    writes: (publisher, packets that go out in one `send`), in order.  filters: per subscriber.  deliveries: per
    subscriber, the packets that one cycle must bring it, in the order of publishing.  All packets have one size.
    """

    writes: tuple[tuple[int, tuple[bytes, ...]], ...]
    filters: tuple[tuple[str, ...], ...]
    deliveries: tuple[tuple[bytes, ...], ...]

    @property
    def packet_bytes(self) -> int:
        return len(self.writes[0][1][0])

    @property
    def messages_per_cycle(self) -> int:
        return sum(len(written) for _, written in self.writes)

    @property
    def deliveries_per_message(self) -> int:
        return sum(map(len, self.deliveries)) // self.messages_per_cycle


def one_topic(job: Job) -> Shape:
    """All publishers to one topic in turn, all subscribers on it: 1:1, fan-out and fan-in.

    A cycle has at least 100 messages, so that what the generator does once per cycle does not count.
    """
    per_write = job.packets_per_write
    turns = max(1, CYCLE_MESSAGES // (job.publishers * per_write))
    count = turns * job.publishers * per_write
    every = [packets.publish("bench/one", packets.numbered_payload(n)) for n in range(count)]
    writes = tuple(
        (at // per_write % job.publishers, tuple(every[at : at + per_write])) for at in range(0, len(every), per_write)
    )
    return Shape(writes, (("bench/one",),) * job.subscribers, (tuple(every),) * job.subscribers)


def wildcards(job: Job) -> Shape:
    """100 topics under 10,000 wildcard filters, 100 filters per subscriber; each topic matches exactly one filter.

    Per subscriber: one filter matches one topic, 49 share the topic's first level and lead two levels down before
    they fail, 50 sit behind a `+` and fail on the third level or the fourth.
    """
    lines = range(100)
    filters = tuple(
        (
            f"plant/+/line-{s:02d}/temperature",
            *(f"plant/{n:02d}/+/sensor-{s:02d}/#" for n in range(1, 50)),
            *(f"plant/+/line-{s:02d}/sensor-{n:02d}/#" for n in range(50, 100)),
        )
        for s in range(job.subscribers)
    )
    topics = [f"plant/{n * 7 % 100:02d}/line-{n:02d}/temperature" for n in lines]
    every = tuple(packets.publish(topics[n], packets.numbered_payload(n)) for n in lines)
    deliveries = tuple((every[s],) for s in range(job.subscribers))
    return Shape(((0, every),), filters, deliveries)


SHAPES: dict[str, Callable[[Job], Shape]] = {"one": one_topic, "wildcards": wildcards}

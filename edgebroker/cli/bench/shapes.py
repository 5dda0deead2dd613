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
    subscriber, the packets that one cycle must bring it, in the order of publishing.  With several publishers all
    packets have one size, since they arrive interleaved; every message goes to equally many subscribers.
    """

    writes: tuple[tuple[int, tuple[bytes, ...]], ...]
    filters: tuple[tuple[str, ...], ...]
    deliveries: tuple[tuple[bytes, ...], ...]

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


def mixed(job: Job) -> Shape:
    """One publisher, one subscriber of everything; no packet has the topic or the length of the one before.

    100 topics take turns and payloads have 24 to 123 bytes, 73.5 on average, as on a gateway's uplink. What a broker
    gains from neighbours that look alike, it does not gain here.
    """
    every = tuple(
        packets.publish(f"plant/line-{n % 100:02d}/temperature", packets.numbered_payload(n, 24 + n * 37 % 100))
        for n in range(job.packets_per_write)
    )
    return Shape(((0, every),), (("plant/#",),), (every,))


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


SHAPES: dict[str, Callable[[Job], Shape]] = {"one": one_topic, "mixed": mixed, "wildcards": wildcards}

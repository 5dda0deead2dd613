"""What comes in together, taken apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Final

from edgebridge.upstream.costs import Cell
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.envelope import Reading, opened
from edgebridge.upstream.rules import Rules
from edgebridge.upstream.tally import Cause, Tally
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import PubAck, Publish, PubRec
from edgebridge.wire.properties import Properties, Property, user_properties
from edgebroker.errors import TopicInvalid
from edgebroker.topics import parse_topic_name

HIGHEST: Final = 65_535
"""Of packet identifiers; readings get theirs from here downwards, the remote's begin at the other end."""


class Unbatch:
    """One batch after the other. The remote is answered when all that was in one is answered here."""

    def __init__(
        self, ends: Ends, rules: Rules, tally: Tally, packet_bytes_max: int, cell: Callable[[str], Cell]
    ) -> None:
        """*cell*: where messages of a topic of ours are counted."""
        self._ends = ends
        self._rules = rules
        self._tally = tally
        self._packet_bytes_max = packet_bytes_max
        self._cell = cell
        self._batch: Publish | None = None
        self._next = HIGHEST
        self._octets = 0  # of the batch, as long as none of its messages is counted with them
        self.readings: deque[Publish] = deque()
        """What is still to be handed in."""
        self.open: set[int] = set()
        """Packet identifiers of readings that our front end has not answered."""

    @property
    def is_busy(self) -> bool:
        """Whether there is a batch that the remote is not answered for."""
        return self._batch is not None

    def restart(self) -> None:
        """Another connection begins: the remote sends again what it was not answered for."""
        self._batch = None
        self.readings.clear()
        self.open.clear()

    def apart(self, batch: Publish) -> list[Publish]:
        """The messages that are in *batch*, still without packet identifiers. Raises EnvelopeBroken."""
        self._octets = len(batch.payload) + len(batch.topic)
        return [on for one in opened(batch.payload).readings if (on := self._made(one, batch)) is not None]

    def begin(self, batch: Publish) -> None:
        """Hand in what is in *batch*, of QoS 1 or 2, from now on. Raises EnvelopeBroken."""
        self.readings.extend(self.apart(batch))
        self._batch = batch

    def is_before(self, publish: Publish, is_batch: bool) -> bool:
        """Whether *publish* must wait: for its turn, or because a reading has its packet identifier."""
        return self.is_busy and (is_batch or publish.packet_id in self.open)

    def next(self, taken: Container[int]) -> Publish:
        """The next reading, under a packet identifier that is not *taken*."""
        on = self.readings.popleft()
        while self._next in taken:
            self._next = self._next - 1 or HIGHEST
        on.packet_id, self._next = self._next, self._next - 1 or HIGHEST
        self.open.add(on.packet_id)
        return on

    def take_answer(self) -> PubAck | PubRec | None:
        """What the remote is to hear, if all of its batch is answered."""
        batch = self._batch
        if batch is None or self.readings or self.open:
            return None
        self._batch = None
        return PubAck(batch.packet_id) if batch.qos == 1 else PubRec(batch.packet_id)

    def _made(self, reading: Reading, batch: Publish) -> Publish | None:
        """The message that *reading* is here; None if it does not go on."""
        try:
            heard = self._rules.unbatched(batch.topic, parse_topic_name(reading.topic))
            if heard is None:
                self._lost(Cause.NO_RULE, reading.topic)
                return None
            topic = parse_topic_name(heard.rule.inward(reading.topic))
        except TopicInvalid as error:
            self._lost(Cause.TOPIC, str(error))
            return None
        origin = user_properties(batch.properties)
        properties: Properties = {Property.USER_PROPERTY: list(origin)} if origin else {}
        on = Publish(topic, reading.payload, min(batch.qos, 1), False, batch.dup, properties=properties)
        transform = self._rules.transforms.get(heard.number)
        if transform is not None and (why := transform.spoils(on, self._tally)):
            self._lost(Cause.UNFIT, why)
            return None
        on.packet_id = HIGHEST if on.qos else 0  # another one later, of the same size
        size = len(encode_packet(on, V5))
        if size > self._packet_bytes_max:
            self._lost(Cause.TOO_LARGE, f"{size:,} bytes under {topic}")
            return None
        self._tally.carried(heard.number, self._octets, self._cell(topic))
        self._octets = 0
        return on

    def _lost(self, cause: Cause, what: str) -> None:
        self._tally.dropped[cause] += 1
        self._ends.warn(cause, f"a message in a batch of the remote is lost and counted as {cause}: {what}")

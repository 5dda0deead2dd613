"""What comes in together, taken apart: so much at once, and the rest when others have had their turn."""

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
from edgebroker.limits import KIB
from edgebroker.topics import parse_topic_name

HIGHEST: Final = 65_535
"""Of packet identifiers; readings get theirs from here downwards, the remote's begin at the other end."""
AT_ONCE: Final = 8 * KIB
"""Bytes of payloads in one turn: their transformation may take 1 us each. A batch has up to 256 KiB."""
READING_BYTES: Final = 64
"""What a reading counts beside its payload: it takes 20 us, so those of a turn 2.5 ms."""


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
        self._left = AT_ONCE  # of this turn
        self.readings: deque[Reading] = deque()
        """What is still to be handed in."""
        self.open: set[int] = set()
        """Packet identifiers of readings that our front end has not answered."""

    @property
    def is_busy(self) -> bool:
        """Whether there is a batch that the remote is not answered for."""
        return self._batch is not None

    def restart(self) -> None:
        """Another connection begins: the remote sends again what it was not answered for, but nothing of QoS 0."""
        if self._batch is not None and not self._batch.qos and self.readings:
            self._tally.dropped[Cause.ABSENT] += len(self.readings)
        self._batch, self._left = None, AT_ONCE
        self.readings.clear()
        self.open.clear()

    def begin(self, batch: Publish) -> None:
        """Hand in what is in *batch* from now on. Raises EnvelopeBroken."""
        self.readings.extend(opened(batch.payload).readings)
        self._batch, self._octets = batch, len(batch.payload) + len(batch.topic)

    @property
    def rests(self) -> bool:
        """Whether the rest has to wait for `go_on`."""
        return self._left <= 0 and bool(self.readings)

    def go_on(self) -> None:
        """It is another turn."""
        self._left = AT_ONCE

    def is_before(self, publish: Publish, is_batch: bool) -> bool:
        """Whether *publish* must wait: for its turn, or because a reading has its packet identifier."""
        return self.is_busy and (is_batch or publish.packet_id in self.open)

    def next(self, taken: Container[int]) -> tuple[Publish, bytes] | None:
        """The next reading and its packet, under a packet identifier that is not *taken*; None: it does not go on."""
        assert self._batch is not None
        reading = self.readings.popleft()
        self._left -= READING_BYTES + len(reading.payload)
        while self._next in taken:
            self._next = self._next - 1 or HIGHEST
        made = self._made(reading, self._batch)
        if made is not None and made[0].qos:
            self.open.add(self._next)
            self._next = self._next - 1 or HIGHEST
        return made

    def take_answer(self) -> PubAck | PubRec | None:
        """What the remote is to hear, if all of its batch is answered."""
        batch = self._batch
        if batch is None or self.readings or self.open:
            return None
        self._batch = None
        if not batch.qos:
            return None
        return PubAck(batch.packet_id) if batch.qos == 1 else PubRec(batch.packet_id)

    def _made(self, reading: Reading, batch: Publish) -> tuple[Publish, bytes] | None:
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
        on.packet_id = self._next if on.qos else 0
        data = encode_packet(on, V5)
        if len(data) > self._packet_bytes_max:
            self._lost(Cause.TOO_LARGE, f"{len(data):,} bytes under {topic}")
            return None
        self._tally.carried(heard.number, self._octets, self._cell(topic))
        self._octets = 0
        return on, data

    def _lost(self, cause: Cause, what: str) -> None:
        self._tally.dropped[cause] += 1
        self._ends.warn(cause, f"a message in a batch of the remote is lost and counted as {cause}: {what}")

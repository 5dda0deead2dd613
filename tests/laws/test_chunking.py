"""However the bytes of a conversation are cut into chunks, the broker says the same: byte for byte, per connection.

TCP promises nothing about chunks. A recorded conversation is fed again with every connection's input cut and joined at
random places; a packet may also begin long before it ends, with other clients' packets in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.instants import Instant
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgelab.simworld.broker import ClientLine, SimulatedBroker
from edgelab.simworld.simulation import Simulation
from edgelab.simworld.transcript import TranscriptPlayer

CONVERSATION = """
    alice > CONNECT v=3.1.1 clean=0                       alice < CONNACK
    bob   > CONNECT clean=0 session=600 receive-max=2 will=w/bob will-payload="bob is gone" will-qos=1   bob < CONNACK
    carl  > CONNECT v=3.1.1 keep-alive=60                 carl < CONNACK
    alice > SUBSCRIBE t/# qos=2 $filter/temp%3E30/s/+ qos=1
                                                          alice < SUBACK granted=2,1
    bob   > SUBSCRIBE t/+ s/a qos=2 sub=200 user.$where="temp IS NULL OR temp BETWEEN 20 AND 40"
                                                          bob < SUBACK granted=0,2
    bob   > SUBSCRIBE $filter/%3D/t                       bob < SUBACK granted=0x8F
    carl  > SUBSCRIBE w/#                                 carl < SUBACK granted=0
    carl  > PUBLISH t/1 "plain"                  alice < PUBLISH t/1 "plain"    bob < PUBLISH t/1 sub=200 "plain"
    carl  > PUBLISH t/2 "plain"                  alice < PUBLISH t/2 "plain"    bob < PUBLISH t/2 sub=200 "plain"
    carl  > PUBLISH t/2 "plait"                  alice < PUBLISH t/2 "plait"    bob < PUBLISH t/2 sub=200 "plait"
    carl  > PUBLISH t/2 "plaid"                  alice < PUBLISH t/2 "plaid"    bob < PUBLISH t/2 sub=200 "plaid"
    carl  > PUBLISH t/x/y "alice only"           alice < PUBLISH t/x/y "alice only"
    carl  > PUBLISH t/x/y "alice once"           alice < PUBLISH t/x/y "alice once"
    carl  > PUBLISH nobody "hears this"
    carl  > PUBLISH s/a qos=1 id=1 '{"temp":31}'    carl < PUBACK    alice < PUBLISH s/a qos=1 id=1 '{"temp":31}'
                                                 bob < PUBLISH s/a qos=1 sub=200 '{"temp":31}'
    carl  > PUBLISH s/a qos=2 id=2 '{"temp":29}'    carl < PUBREC    bob < PUBLISH s/a qos=2 id=2 sub=200 '{"temp":29}'
    carl  > PUBREL id=2                          carl < PUBCOMP
    carl  > PUBLISH s/a qos=1 id=3 '{"temp":22}'    carl < PUBACK
    alice > PUBACK
    bob   > PUBREC                               bob < PUBREL id=2
    bob   > PUBACK                               bob < PUBLISH s/a qos=1 id=3 sub=200 '{"temp":22}'
    bob   > PUBCOMP
    bob   > PUBACK
    bob   > PUBLISH t/long/topic alias=1 expiry=100 user.k=v retain=1 "kept"    alice < PUBLISH t/long/topic "kept"
    bob   > PUBLISH "" alias=1 qos=2 id=9 "twice"    bob < PUBREC    alice < PUBLISH t/long/topic qos=2 "twice"
    bob   > PUBLISH "" alias=1 qos=2 id=9 dup=1 "twice"    bob < PUBREC
    bob   > PUBREL id=9                          bob < PUBCOMP
    alice > PUBREC                               alice < PUBREL
    alice cut
    carl  > PUBLISH t/3 qos=1 "waits"            carl < PUBACK    bob < PUBLISH t/3 sub=200 "waits"
    carl  > PUBLISH t/3 "lost"                   bob < PUBLISH t/3 sub=200 "lost"
    wait 30s
    alice > CONNECT v=3.1.1 clean=0              alice < CONNACK present=1    alice < PUBREL
                                                 alice < PUBLISH t/3 qos=1 "waits"
    alice > PUBCOMP
    alice > PUBACK
    dora  > CONNECT                              dora < CONNACK
    dora  > SUBSCRIBE t/long/# sub=3             dora < SUBACK granted=0
                                                 dora < PUBLISH t/long/topic retain=1 expiry=70 user.k=v sub=3 "kept"
    dora  > UNSUBSCRIBE t/long/# t/none          dora < UNSUBACK reasons=0,0x11
    dora  > PINGREQ                              dora < PINGRESP
    again > CONNECT id=dora                      dora < DISCONNECT reason=0x8E    dora < CLOSED    again < CONNACK
    again > 0xf100                               again < DISCONNECT reason=0x81    again < CLOSED
    bob cut                                      carl < PUBLISH w/bob "bob is gone"
    carl  > PUBLISH t/3 "bye"                    alice < PUBLISH t/3 "bye"
    carl  > DISCONNECT
    alice > PINGREQ                              alice < PINGRESP
"""

CHUNKINGS = 3_000
"""Each place between two bytes of a packet is cut at least 264 times, in ever new company."""
PARTS = 4


class Opened(NamedTuple):
    line: int
    now: Instant


class Lost(NamedTuple):
    line: int
    now: Instant


@dataclass(frozen=True, slots=True)
class Fed:
    line: int
    now: Instant
    chunk: bytes


Recorded = list[Opened | Lost | Fed]


class Recorder(SimulatedBroker):
    """Writes down what the front end was told, packet by packet."""

    def __init__(self) -> None:
        super().__init__(Simulation())
        self.recorded: Recorded = []

    def arrived(self, line: ClientLine, chunk: bytes) -> None:
        if all(item.line != line.connection.number for item in self.recorded):
            self.recorded.append(Opened(line.connection.number, self.simulation.now))
        self.recorded.append(Fed(line.connection.number, self.simulation.now, chunk))
        super().arrived(line, chunk)

    def lost(self, line: ClientLine) -> None:
        if line.is_accepted and not line.connection.closing:
            self.recorded.append(Lost(line.connection.number, self.simulation.now))
        super().lost(line)


def replayed(recorded: Recorded, chance: Random) -> dict[int, bytes]:
    """What the broker writes to each line. *chance* decides how often it gets to write, as a busy turn would."""
    frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned")
    frontend.start(0)
    connections: dict[int, Connection] = {}
    written: dict[int, list[bytes]] = {}
    dirty = frontend.dirty

    def turn(now: Instant) -> None:
        while dirty:
            connection = dirty.pop(0)
            written[connection.transport] += frontend.take_output(connection, now)
            if connection.closing:
                frontend.closed(connection, now)

    for item in recorded:
        now = item.now
        if isinstance(item, Fed):
            frontend.feed(connections[item.line], item.chunk, now)
            # The end of a connection may publish a will: that must not be put off behind other clients' packets.
            if chance.random() < 0.7 or any(connection.closing for connection in dirty):
                turn(now)
            continue
        turn(now)
        if isinstance(item, Opened):
            connection = connections[item.line] = frontend.opened("", now)
            connection.transport = item.line
            written[item.line] = []
        else:
            frontend.closed(connections[item.line], now)
            turn(now)
    turn(now)
    return {line: b"".join(chunks) for line, chunks in written.items()}


def rechunked(recorded: Recorded, chance: Random) -> Recorded:
    """The same bytes per line, cut and joined anew. The last byte of each packet keeps its place in the order."""
    pieces: Recorded = []
    for item in recorded:
        if not isinstance(item, Fed):
            pieces.append(item)
            continue
        before = pieces[-1]
        if chance.random() < 0.3 and isinstance(before, Fed) and before.line == item.line:
            pieces[-1] = replace(item, chunk=before.chunk + item.chunk)
            continue
        style = chance.random()
        if style < 0.1:
            cuts = list(range(1, len(item.chunk)))
        elif style < 0.7:
            cuts = sorted({chance.randrange(1, len(item.chunk)) for _ in range(chance.randrange(1, 4))})
        else:
            cuts = []
        chunks = [item.chunk[low:high] for low, high in zip([0, *cuts], [*cuts, len(item.chunk)], strict=True)]
        if len(chunks) > 1 and chance.random() < 0.5:
            place = len(pieces)
            while place and pieces[place - 1].line != item.line and chance.random() < 0.8:
                place -= 1
            early = chunks.pop(0)
            now = pieces[place].now if place < len(pieces) else item.now
            pieces.insert(place, Fed(item.line, now, early))
        pieces += [Fed(item.line, item.now, chunk) for chunk in chunks]
    return pieces


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    broker = Recorder()
    TranscriptPlayer(broker).play(CONVERSATION)
    return broker.recorded


def test_the_replay_says_what_the_conversation_said(recorded: Recorded) -> None:
    """Otherwise the law would hold for something else."""
    broker = Recorder()
    player = TranscriptPlayer(broker)
    player.play(CONVERSATION)
    said = b"".join(b"".join(client.octets) for _, client in sorted(player.clients.items()))
    again = replayed(recorded, Random(0))
    assert sum(map(len, again.values())) == len(said) > 700
    assert len([item for item in recorded if isinstance(item, Fed)]) > 40


@pytest.mark.parametrize("part", range(PARTS))
def test_chunks_do_not_matter(recorded: Recorded, seed: int, part: int) -> None:
    expected = replayed(recorded, Random(0))
    for number in range(part, CHUNKINGS, PARTS):
        chance = Random(f"{seed}/{number}")
        assert replayed(rechunked(recorded, chance), chance) == expected, (
            f"EDGEBROKER_TEST_SEED={seed} .venv/bin/pytest 'tests/laws/test_chunking.py' (chunking {number})"
        )

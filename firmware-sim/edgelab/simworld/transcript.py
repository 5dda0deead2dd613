"""Transcripts: a conversation of clients with a broker, or with a federation, on virtual time.

The script is the assertion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from typing import Any, Final, TypeAlias

from edgebridge.wire.dialect import SPOKEN, V5, Dialect
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Unsubscribe,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import FAILURE, connect_return_code
from edgebroker.instants import HOUR, MILLISECOND, MINUTE, SECOND, Duration
from edgelab.simworld.broker import SimulatedBroker
from edgelab.simworld.client import ENDED, ConnectionEnd, SimulatedClient
from edgelab.simworld.conditions import FAIR, LineConditions
from edgelab.simworld.gateways import SimulatedGateways
from edgelab.simworld.notation import (
    FIELDS,
    PROPERTIES,
    NotationInvalid,
    PacketWord,
    default_of,
    read_packet,
    show_packet,
    words,
)

Answerable: TypeAlias = Publish | PubRec | PubRel

_UNITS: Final = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR}
_VERBS: Final = ("opens", "cut", "leaves", "stalls", "reads", "crashes")
_COLUMN: Final = re.compile(rf"\s{{2,}}(?=[\w-]+\s+[<>]\s|wait\s+\d|[\w-]+\s+(?:{'|'.join(_VERBS)})\b)")
_ENTRY: Final = re.compile(rf"(?P<name>[\w-]+)\s+(?:(?P<arrow>[<>])\s+(?P<what>.+)|(?P<verb>{'|'.join(_VERBS)}))")
_WAIT: Final = re.compile(r"wait\s+(\d+)(ms|s|m|h)")


class TranscriptDiffers(AssertionError):
    """The broker's packets differ from the script; the message is a diff of both."""


@dataclass(frozen=True, slots=True)
class ExpectedPacket:
    """The next packet that a client must receive."""

    name: str
    line: str
    what: Packet | ConnectionEnd
    stated: frozenset[str] = frozenset()
    contained: tuple[PacketWord, ...] = ()

    @classmethod
    def parse(cls, name: str, text: str) -> ExpectedPacket:
        """Parse the text after `name <`."""
        line = f"{name} < {text}"
        if text == "CLOSED":
            return cls(name, line, ENDED)
        rest = text.partition(" ")[2]
        found = words(rest.strip())
        contained = tuple(word for word in found if word.contains)
        for word in contained:
            text = re.sub(rf"""\s*{re.escape(word.key)}~("[^"]*"|'[^']*'|\S+)""", "", text)
        return cls(name, line, read_packet(text), frozenset(word.key for word in found), contained)

    def accepts(self, received: Packet | ConnectionEnd, dialect: Dialect) -> bool:
        """Return whether *received* is the expected packet, as far as *dialect* can express it."""
        what = self.what
        if isinstance(what, ConnectionEnd) or isinstance(received, ConnectionEnd) or type(what) is not type(received):
            return what is received
        for one in FIELDS[type(what)]:
            mine, theirs = getattr(what, one.attribute), getattr(received, one.attribute)
            if one.key and one.key not in self.stated and self._is_default(one.attribute, theirs):
                continue
            if mine != theirs and not self._means(one.attribute, mine, theirs, dialect):
                return False
        return not dialect.has_properties or self._accepts_properties(received)

    def _is_default(self, attribute: str, value: object) -> bool:
        if attribute == "reason":
            return isinstance(value, int) and value < FAILURE
        if attribute == "reasons":
            return isinstance(value, list) and all(one < FAILURE for one in value)
        return attribute == "packet_id" or value == default_of(type(self.what), attribute)

    def _means(self, attribute: str, mine: object, theirs: object, dialect: Dialect) -> bool:
        """Return whether *theirs* is all that *dialect* can express of *mine*."""
        if dialect.has_reasons:
            return False
        if isinstance(self.what, ConnAck) and attribute == "reason":
            assert isinstance(mine, int)
            assert isinstance(theirs, int)
            return connect_return_code(mine) == connect_return_code(theirs)
        if isinstance(self.what, SubAck) and attribute == "reasons":
            assert isinstance(mine, list)
            return [min(one, FAILURE) for one in mine] == theirs
        return attribute in ("reason", "reasons")

    def _accepts_properties(self, received: Packet) -> bool:
        mine, theirs = _properties(self.what), _properties(received)
        if isinstance(received, Publish) and mine != theirs:
            return False
        if any(key not in theirs or theirs[key] != value for key, value in mine.items()):
            return False
        return all(word.value in str(theirs.get(PROPERTIES[word.key], "")) for word in self.contained)


@dataclass(slots=True)
class TranscriptStep:
    """An action, and all packets that must have been received before the next one."""

    action: str
    expected: list[ExpectedPacket] = field(default_factory=list)


def parse(script: str) -> list[TranscriptStep]:
    """Return the steps of *script*. Raises NotationInvalid."""
    steps: list[TranscriptStep] = []
    for entry in _entries(script):
        match = _ENTRY.fullmatch(entry)
        if match is None and _WAIT.fullmatch(entry) is None:
            raise NotationInvalid(f"not an entry of a transcript: {entry!r}")
        if match is not None and match["arrow"] == "<":
            if not steps:
                raise NotationInvalid(f"nobody has done anything before {entry!r}")
            steps[-1].expected.append(ExpectedPacket.parse(match["name"], match["what"].strip()))
        else:
            steps.append(TranscriptStep(re.sub(r"^([\w-]+)\s+", r"\1 ", entry)))
    return steps


def _entries(script: str) -> Iterator[str]:
    for line in script.splitlines():
        if line.strip() and not line.strip().startswith("--"):
            yield from (entry.strip() for entry in _COLUMN.split(line.strip()))


class TranscriptPlayer:
    """Plays transcripts against one broker. Clients stay connected between two `play`s."""

    def __init__(self, broker: SimulatedBroker, dialect: Dialect = V5, conditions: LineConditions = FAIR) -> None:
        self.broker = broker
        self.dialect = dialect
        self.conditions = conditions
        self.clients: dict[str, SimulatedClient] = {}
        self._packet_ids: dict[str, int] = {}
        self._unanswered: dict[str, list[Answerable]] = {}

    def play(self, script: str) -> None:
        """Play *script*. Raises TranscriptDiffers."""
        written: list[str] = []
        happened: list[str] = []
        for step in parse(script):
            written.append(step.action)
            happened.append(step.action)
            self._act(step.action)
            received = {name: self._receive(name, client) for name, client in self.clients.items()}
            expected = [one for one in step.expected if self._is_expressible(one)]
            written += [one.line for one in expected]
            happened += self._account(expected, received)
            if written != happened:
                diff = unified_diff(written, happened, "the script", "what happened", lineterm="", n=100)
                raise TranscriptDiffers("\n".join([f"in MQTT {self.dialect.version}:", *diff]))

    def _is_expressible(self, expected: ExpectedPacket) -> bool:
        client = self.clients.get(expected.name)
        return not isinstance(expected.what, Disconnect) or client is None or client.dialect.has_reasons

    def _account(self, expected: list[ExpectedPacket], received: dict[str, list[Packet | ConnectionEnd]]) -> list[str]:
        """Return the received packets, in the words of the script if they are as expected."""
        lines: list[str] = []
        for one in expected:
            queue = received.get(one.name, [])
            if queue:
                packet = queue.pop(0)
                right = one.accepts(packet, self.clients[one.name].dialect)
                lines.append(one.line if right else f"{one.name} < {_shown(packet)}")
        return lines + [f"{name} < {_shown(packet)}" for name, queue in received.items() for packet in queue]

    def _act(self, action: str) -> None:
        simulation = self.broker.simulation
        if wait := _WAIT.fullmatch(action):
            simulation.run_until(simulation.now + int(wait[1]) * _UNITS[wait[2]])
        else:
            match = _ENTRY.fullmatch(action)
            assert match is not None
            if match["verb"] == "crashes":
                self.broker.crash()
                simulation.run_while(lambda: self.broker.is_busy)
                return
            client = self._client(match["name"])
            if match["verb"]:
                self._act_on_line(client, match["verb"])
            elif match["what"].startswith("0x"):
                client.write(bytes.fromhex(match["what"][2:]))
            else:
                client.send(self._completed(client, match["what"]))
        simulation.run_while(lambda: self.broker.is_busy)

    def _client(self, name: str) -> SimulatedClient:
        if name not in self.clients:
            self.clients[name] = SimulatedClient(name, self.broker, self.conditions)
            self.clients[name].dialect = self.dialect
        return self.clients[name]

    @staticmethod
    def _act_on_line(client: SimulatedClient, verb: str) -> None:
        if verb == "opens":
            client.open()
            return
        line = client.line
        if line is None:
            raise NotationInvalid(f"{client.name} {verb}, but has no connection")
        {"cut": line.cut, "leaves": line.leave, "stalls": line.stall, "reads": line.resume}[verb]()

    def _receive(self, name: str, client: SimulatedClient) -> list[Packet | ConnectionEnd]:
        received = client.receive()
        self._unanswered.setdefault(name, []).extend(
            one for one in received if isinstance(one, PubRec | PubRel) or (isinstance(one, Publish) and one.qos)
        )
        return received

    def _completed(self, client: SimulatedClient, text: str) -> Packet:
        """Return the packet to send, with the identifier that the script omits."""
        if text.startswith("CONNECT"):
            text, dialect = self._version(text)
            connect = read_packet(text)
            assert isinstance(connect, Connect)
            self._unanswered[client.name] = []
            connect.dialect = dialect
            if not re.search(r"\bid=", text):
                connect.client_id = client.name
            return connect
        packet = read_packet(text)
        if isinstance(packet, PubAck | PubRec | PubRel | PubComp):
            unanswered = self._unanswered.setdefault(client.name, [])
            for one in unanswered:
                if _answers(packet, one) and packet.packet_id in (0, one.packet_id):
                    unanswered.remove(one)
                    return replace(packet, packet_id=one.packet_id)
        match packet:
            case Subscribe(packet_id=0) | Unsubscribe(packet_id=0) | Publish(packet_id=0, qos=1 | 2):
                packet.packet_id = self._packet_ids[client.name] = self._packet_ids.get(client.name, 0) + 1
        return packet

    def _version(self, text: str) -> tuple[str, Dialect]:
        """`v=3.1`, `v=3.1.1` and `v=5` on CONNECT choose the dialect; otherwise it is the player's."""
        for dialect in SPOKEN:
            if f" v={dialect.version}" in f"{text} ":
                return text.replace(f" v={dialect.version}", ""), dialect
        return text, self.dialect


def _properties(packet: Packet | ConnectionEnd) -> dict[Property, Any]:
    """Return the properties; subscription identifiers are sorted, because their order has no meaning."""
    properties = dict(getattr(packet, "properties", {}))
    if Property.SUBSCRIPTION_IDENTIFIER in properties:
        properties[Property.SUBSCRIPTION_IDENTIFIER] = sorted(properties[Property.SUBSCRIPTION_IDENTIFIER])
    return properties


def _answers(ack: Packet, received: Answerable) -> bool:
    """Return whether *ack* is a client's reply to *received*."""
    match received:
        case Publish(qos=qos):
            return isinstance(ack, PubAck if qos == 1 else PubRec)
        case PubRec():
            return isinstance(ack, PubRel)
        case PubRel():
            return isinstance(ack, PubComp)


def _shown(received: Packet | ConnectionEnd) -> str:
    return "CLOSED" if isinstance(received, ConnectionEnd) else show_packet(received)


PAUSE: Final[Duration] = 100 * MILLISECOND
"""Time after each action: a few hops of a millisecond, and a sync at each gateway."""


class FederationPlayer(TranscriptPlayer):
    """Plays transcripts against *gateways*; *homes*: client -> gateway."""

    def __init__(self, gateways: SimulatedGateways, homes: Mapping[str, str]) -> None:
        super().__init__(next(iter(gateways)))
        self.gateways = gateways
        self._homes = homes

    def _client(self, name: str) -> SimulatedClient:
        if name not in self.clients:
            self.clients[name] = SimulatedClient(name, self.gateways[self._homes[name]], self.conditions)
            self.clients[name].dialect = self.dialect
        return self.clients[name]

    def _act(self, action: str) -> None:
        super()._act(action)
        simulation = self.gateways.simulation
        simulation.run_until(simulation.now + PAUSE)

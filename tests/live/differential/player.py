"""Plays a script over real sockets and writes down what every client received, step by step.

A script is a list of lines, each one action, or several with ` ; ` between them:

    a > CONNECT id=x clean=0 v=5    a packet, as `edgelab.simworld.notation` writes them; CONNECT opens a connection
    a > 0xf100                      bytes
    a opens                         a connection, and nothing said
    a drops                         the client closes without a word
    a holds, a answers              it stops answering PUBLISH, PUBREC and PUBREL; answers all that waits and goes on

After each line everybody is asked (PINGREQ) until nobody has anything new, so that what happens because of a line is
noted with it. No time passes and none is measured.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import DIALECTS, V5, Dialect
from edgebridge.wire.encode import PING_REQ, encode_packet
from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import FAILURE
from edgelab.simworld.notation import read_packet, show_packet

PATIENCE_S = 20.0  # how long a broker may take to answer; nothing waits that long when all is well
ROUNDS_MAX = 50
CLOSED = "CLOSED"

Received = dict[str, list[str]]
"""What each client received because of one line: packets as lines, CLOSED at the end."""

# What a broker tells of itself, or says in words of its own.
_OWN_WORDS = {
    Property.RECEIVE_MAXIMUM,
    Property.TOPIC_ALIAS_MAXIMUM,
    Property.MAXIMUM_PACKET_SIZE,
    Property.SHARED_SUBSCRIPTION_AVAILABLE,
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
    Property.RETAIN_AVAILABLE,
    Property.MAXIMUM_QOS,
    Property.REASON_STRING,
}


class BrokerIsStuck(AssertionError):
    """A broker neither answers nor closes."""


@dataclass
class Peer:
    """One client: its connection, and what it has to answer."""

    name: str
    dialect: Dialect = V5
    line: socket.socket | None = None
    connected: bool = False
    holding: bool = False
    waiting: list[Packet] = field(default_factory=list)
    received: list[Packet | str] = field(default_factory=list)
    packet_id: int = 0
    framer: Framer = field(default_factory=lambda: Framer(1 << 28))
    pongs: int = 0
    due: set[tuple[type[Packet], int]] = field(default_factory=set)
    """Answers the broker still owes: it may hold them back until the disk has what they promise."""
    aliases: dict[int, str] = field(default_factory=dict)

    def open(self, port: int) -> None:
        self.abandon()
        self.line = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.framer = Framer(1 << 28)
        self.connected = False
        self.holding = False
        self.waiting = []
        self.pongs = 0
        self.due = set()
        self.aliases = {}

    def say(self, packet: Packet) -> None:
        """Write *packet*, and note which answer is due."""
        match packet:
            case Publish(qos=1, packet_id=packet_id):
                self.due.add((PubAck, packet_id))
            case Publish(qos=2, packet_id=packet_id):
                self.due.add((PubRec, packet_id))
            case PubRec(packet_id):
                self.due.add((PubRel, packet_id))
            case PubRel(packet_id):
                self.due.add((PubComp, packet_id))
            case Subscribe(packet_id):
                self.due.add((SubAck, packet_id))
            case Unsubscribe(packet_id):
                self.due.add((UnsubAck, packet_id))
        self.write(encode_packet(packet, self.dialect))

    def write(self, octets: bytes) -> None:
        assert self.line is not None
        with contextlib.suppress(ConnectionError):  # the broker may have closed: the end is read later
            self.line.sendall(octets)

    def read(self) -> bool:
        """Take what comes next; False at the end of the connection, which is then closed."""
        assert self.line is not None
        if not select.select([self.line], [], [], PATIENCE_S)[0]:
            due = ", ".join(sorted(f"{kind.__name__.upper()} id={number}" for kind, number in self.due))
            raise BrokerIsStuck(f"{self.name} hears nothing, and waits for {due or 'PINGRESP, CONNACK or the end'}")
        try:
            octets = self.line.recv(1 << 16)
        except ConnectionError:
            octets = b""
        if not octets:
            self.abandon()
            self.received.append(CLOSED)
            return False
        self.framer.feed(octets)
        while (frame := self.framer.next_frame()) is not None:
            try:
                packet = decode_packet(*frame, self.dialect)
            except ProtocolError as error:
                self.received.append(f"UNREADABLE {frame[0]:02x} {frame[1].hex()}: {error.what}")
                continue
            self._take(packet)
        return True

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, PingResp):
            self.pongs += 1
            return
        if isinstance(packet, Publish):
            packet = self._named(packet)
        self.received.append(packet)
        self.due.discard((type(packet), getattr(packet, "packet_id", 0)))
        if isinstance(packet, ConnAck):
            self.connected = packet.reason < FAILURE
        if isinstance(packet, PubRec | PubRel) or (isinstance(packet, Publish) and packet.qos):
            self.waiting.append(packet)
            if not self.holding:
                self.answer()

    def answer(self) -> None:
        """Answer all that waits."""
        for packet in self.waiting:
            match packet:
                case Publish(packet_id=packet_id, qos=qos):
                    answer: Packet = PubAck(packet_id) if qos == 1 else PubRec(packet_id)
                case PubRec(packet_id, reason):
                    if reason >= FAILURE:
                        continue
                    answer = PubRel(packet_id)
                case PubRel(packet_id):
                    answer = PubComp(packet_id)
                case _:
                    continue
            self.say(answer)
        self.waiting = []

    def _named(self, publish: Publish) -> Publish:
        """*publish* with the topic its alias stands for."""
        properties = dict(publish.properties)
        alias = properties.pop(Property.TOPIC_ALIAS, None)
        if alias is None:
            return publish
        assert isinstance(alias, int)
        topic = publish.topic or self.aliases[alias]
        self.aliases[alias] = topic
        return replace(publish, topic=topic, properties=properties)

    def ping(self) -> None:
        """Ask, and read until the answer has come or the connection has ended."""
        if self.line is None or not self.connected:
            return
        wanted = self.pongs + 1
        self.write(PING_REQ)
        while self.line is not None and (self.pongs < wanted or self.due):
            self.read()

    def abandon(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None
        self.connected = False


class Player:
    """Plays scripts against the broker on *port*, one after the other."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peers: dict[str, Peer] = {}

    def play(self, script: list[str]) -> list[Received]:
        """What everybody received, line by line. All clients are gone afterwards, with their sessions."""
        self.peers = {}
        try:
            received = []
            for line in script:
                try:
                    received.append(self._line(line))
                except BrokerIsStuck as stuck:
                    raise BrokerIsStuck(f"{line}: {stuck}") from None
            return received
        finally:
            self._clear(script)

    def _line(self, line: str) -> Received:
        for action in line.split(" ; "):
            name, _, what = action.partition(" ")
            peer = self.peers.setdefault(name, Peer(name))
            self._act(peer, what)
        self._settle(peer)
        received = {one.name: in_order(map(_shown, one.received)) for one in self.peers.values() if one.received}
        for one in self.peers.values():
            one.received = []
        return received

    def _act(self, peer: Peer, what: str) -> None:
        if what == "opens":
            peer.open(self.port)
        elif what == "drops":
            if peer.line is not None:
                peer.line.shutdown(socket.SHUT_WR)
                while peer.read():
                    pass
                peer.received = [item for item in peer.received if item != CLOSED]
        elif what == "holds":
            peer.holding = True
        elif what == "answers":
            peer.holding = False
            if peer.line is not None:
                peer.answer()
        elif what.startswith("> 0x"):
            if peer.line is not None:
                peer.write(bytes.fromhex(what[4:]))
                self._until_it_is_clear(peer)
        else:
            self._send(peer, what.removeprefix("> "))

    def _send(self, peer: Peer, text: str) -> None:
        version = re.search(r" v=(\S+)", text)
        packet: Any = read_packet(re.sub(r" v=\S+", "", text))
        if isinstance(packet, Connect):
            (packet.dialect,) = [one for one in DIALECTS if version is not None and one.version == version[1]]
            if peer.line is None or peer.connected:
                peer.open(self.port)
            peer.dialect = packet.dialect
            peer.write(encode_packet(packet, packet.dialect))
            self._until_it_is_clear(peer)
            return
        if peer.line is None:
            return
        match packet:
            case Subscribe(packet_id=0) | Unsubscribe(packet_id=0) | Publish(packet_id=0, qos=1 | 2):
                peer.packet_id += 1
                packet = replace(packet, packet_id=peer.packet_id)
        peer.say(packet)
        if isinstance(packet, Disconnect):
            while peer.read():
                pass
            peer.received = [item for item in peer.received if item != CLOSED]

    @staticmethod
    def _until_it_is_clear(peer: Peer) -> None:
        """Before CONNACK nobody can be asked: the broker accepts, or it closes."""
        while peer.line is not None and not peer.connected:
            peer.read()

    def _settle(self, actor: Peer) -> None:
        """Ask the one who acted, then all, until nothing new comes."""
        actor.ping()
        for _ in range(ROUNDS_MAX):
            before = sum(len(peer.received) for peer in self.peers.values())
            for peer in self.peers.values():
                peer.ping()
            if sum(len(peer.received) for peer in self.peers.values()) == before:
                return
        raise BrokerIsStuck("it never comes to rest")

    def _clear(self, script: list[str]) -> None:
        """End every session and forget every retained message the script may have left."""
        for peer in self.peers.values():
            peer.abandon()
        identifiers = set(re.findall(r"CONNECT id=(\w+)", "\n".join(script)))
        topics = set(re.findall(r"PUBLISH (\S+)", "\n".join(script))) | set(
            re.findall(r"will=(\S+)", "\n".join(script))
        )
        cleaner = Peer("cleaner")
        for identifier in sorted(identifiers):
            cleaner.open(self.port)
            cleaner.write(encode_packet(Connect(identifier, dialect=V5), V5))
            self._until_it_is_clear(cleaner)
            cleaner.write(encode_packet(Disconnect(), V5))
            while cleaner.read():
                pass
        cleaner.open(self.port)
        cleaner.write(encode_packet(Connect("cleaner", dialect=V5), V5))
        self._until_it_is_clear(cleaner)
        for topic in sorted(topics - {'""'}):
            if not topic.startswith("$") and "+" not in topic and "#" not in topic:
                cleaner.write(encode_packet(Publish(topic, b"", retain=True), V5))
        cleaner.ping()
        cleaner.abandon()


def in_order(lines: Iterable[str]) -> list[str]:
    """*lines* with messages behind answers, and by topic: order means something within a topic only."""
    found = list(lines)
    messages = sorted((line for line in found if line.startswith("PUBLISH ")), key=lambda line: line.split(" ")[1])
    releases = [line for line in found if line.startswith("PUBREL")]
    rest = [line for line in found if not line.startswith(("PUBLISH ", "PUBREL")) and line != CLOSED]
    return rest + messages + releases + [line for line in found if line == CLOSED]


def _shown(item: Packet | str) -> str:
    """*item* as a line, without what brokers choose freely."""
    if isinstance(item, str):
        return item
    properties = {key: value for key, value in getattr(item, "properties", {}).items() if key not in _OWN_WORDS}
    match item:
        case ConnAck():
            properties.pop(Property.USER_PROPERTY, None)
            if Property.ASSIGNED_CLIENT_IDENTIFIER in properties:
                properties[Property.ASSIGNED_CLIENT_IDENTIFIER] = "some"
        case Publish() | PubRel():
            item = replace(item, packet_id=0)
    if Property.MESSAGE_EXPIRY_INTERVAL in properties:  # the scripts use 1000; a few seconds may have passed
        left = properties[Property.MESSAGE_EXPIRY_INTERVAL]
        properties[Property.MESSAGE_EXPIRY_INTERVAL] = 1000 if 900 <= left <= 1000 else left
    if Property.SUBSCRIPTION_IDENTIFIER in properties:
        properties[Property.SUBSCRIPTION_IDENTIFIER] = sorted(properties[Property.SUBSCRIPTION_IDENTIFIER])
    if properties or getattr(item, "properties", None):
        item = replace(item, properties=dict(sorted(properties.items())))  # type: ignore[call-arg]
    return show_packet(item)

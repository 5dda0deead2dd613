"""Scripts for two brokers: several clients of both versions, drawn from a seed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from edgebridge.wire.dialect import DIALECTS, Dialect

from .offences import OFFENCES

TOPICS = ("a", "b", "a/b", "a/c", "b/c", "a/b/c", "/a", "a/", "c")
FILTERS = (
    "#",
    "+",
    "a",
    "b",
    "a/#",
    "a/+",
    "+/b",
    "+/#",
    "a/b",
    "a/b/#",
    "a/+/c",
    "/+",
    "/#",
    "+/+",
    "b/c",
    "a/b/c",
    "c",
)
BAD_FILTERS = ("a#", "a/#/b", "a+", "+a/b", "#/a", '""')
NAMES = ("a", "b", "c", "d")
EXPIRY = 1000


@dataclass
class Client:
    """What the generator remembers of one client."""

    name: str
    dialect: Dialect
    connected: bool = False
    holding: bool = False
    aliases: list[int] = field(default_factory=list)
    packet_id: int = 100  # above what the player numbers by itself


class Generator:
    """Draws one script."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._lines: list[str] = []
        self._payload = 0
        self._clients = [Client(name, chance.choice(DIALECTS)) for name in NAMES[: chance.randint(2, 4)]]

    def script(self) -> list[str]:
        """The lines."""
        chance = self._chance
        for client in self._clients:
            self._connect(client)
        for _ in range(chance.randint(8, 30)):
            client = chance.choice(self._clients)
            if not client.connected:
                self._connect(client)
                continue
            kinds, weights = zip(
                (self._subscribe, 22),
                (self._publish, 40),
                (self._unsubscribe, 5),
                (self._leave, 7),
                (self._drop, 6),
                (self._hold, 6),
                (self._twice, 4),
                (self._stray, 2),
                (self._take_over, 2),
                strict=True,
            )
            chance.choices(kinds, weights)[0](client)
        if chance.random() < 0.5:
            self._offend(chance.choice(self._clients))
        return self._lines

    def _say(self, client: Client, what: str) -> None:
        self._lines.append(f"{client.name} {what}")

    def _flag(self, name: str, probability: float) -> str:
        return f" {name}=1" if self._chance.random() < probability else ""

    def _bytes(self) -> str:
        """A payload nobody else has, now and then an empty one."""
        if self._chance.random() < 0.06:
            return ""
        self._payload += 1
        return f" {json.dumps(str(self._payload))}"

    # -- coming and going ---------------------------------------------------------------------------------------

    def _connect(self, client: Client) -> None:
        chance = self._chance
        if chance.random() < 0.1:
            client.dialect = chance.choice(DIALECTS)
        v5 = client.dialect.has_properties
        line = f"> CONNECT id={client.name} v={client.dialect.version} clean={chance.choice((0, 1, 1, 0, 0))}"
        if chance.random() < 0.3:
            line += f" keep-alive={chance.choice((60, 300, 65535))}"
        if v5:
            if chance.random() < 0.6:
                line += f" session={chance.choice((0, 600, 86400))}"
            if chance.random() < 0.15:
                line += f" receive-max={chance.choice((1, 2, 10, 65535))}"
            if chance.random() < 0.05:
                line += f" bytes-max={chance.choice((60, 200))}"
            if chance.random() < 0.1:
                line += f" problems={chance.choice((0, 1))}"
            if chance.random() < 0.05:
                line += f" alias-max={chance.choice((0, 1, 10))}"
        if chance.random() < 0.35:
            line += f" will={chance.choice(TOPICS)} will-payload={self._will_payload()}"
            line += f" will-qos={chance.choice((0, 0, 1, 2))}" + self._flag("will-retain", 0.3)
            if v5 and chance.random() < 0.3:
                line += f" will-delay={chance.choice((0, 900))}"
            if v5 and chance.random() < 0.3:
                line += " will-user.k=v will-user.a=b"
        self._say(client, line)
        client.connected = True
        client.aliases = []
        client.holding = False
        if chance.random() < 0.1:
            self._hold(client)

    def _will_payload(self) -> str:
        self._payload += 1
        return f"w{self._payload}"

    def _take_over(self, client: Client) -> None:
        """Another connection of the same client, on a line of its own."""
        other = Client(client.name + "2", client.dialect)
        session = " session=600" if client.dialect.has_properties else ""
        clean = self._chance.choice((0, 1))
        self._say(other, f"> CONNECT id={client.name} v={client.dialect.version} clean={clean}{session}")
        self._say(other, self._chance.choice(("> DISCONNECT", "drops")))
        client.connected = False

    def _leave(self, client: Client) -> None:
        line = "> DISCONNECT"
        if client.dialect.has_properties:
            if self._chance.random() < 0.3:
                line += f" reason={self._chance.choice(('0x04', '0x00', '0x81'))}"
            if self._chance.random() < 0.1:
                line += " session=300"
        self._say(client, line)
        client.connected = False

    def _drop(self, client: Client) -> None:
        self._say(client, "drops")
        client.connected = False

    def _hold(self, client: Client) -> None:
        client.holding = not client.holding
        self._say(client, "holds" if client.holding else "answers")

    # -- subscribing --------------------------------------------------------------------------------------------

    def _subscribe(self, client: Client) -> None:
        chance = self._chance
        line = "> SUBSCRIBE"
        v5 = client.dialect.has_properties
        for _ in range(chance.choices((1, 2, 3), (6, 2, 1))[0]):
            text = chance.choice(FILTERS)
            if client.holding and f" {text} " in line:
                continue  # what the two brokers do then is compared, but not what it means for a window
            line += f" {text} qos={chance.randint(0, 2)}"
            if v5:
                line += self._flag("no-local", 0.1) + self._flag("as-published", 0.2)
                if chance.random() < 0.3:
                    line += f" handling={chance.randint(0, 2)}"
        if v5 and chance.random() < 0.25:
            line += f" sub={chance.choice((1, 2, 127, 128, 268_435_455))}"
        self._say(client, line)

    def _unsubscribe(self, client: Client) -> None:
        filters = self._chance.sample(FILTERS, self._chance.choice((1, 1, 2)))
        self._say(client, f"> UNSUBSCRIBE {' '.join(filters)}")

    # -- publishing ---------------------------------------------------------------------------------------------

    def _publish(self, client: Client) -> None:
        chance = self._chance
        qos = chance.choice((0, 1) if client.holding else (0, 0, 1, 1, 2))  # who holds would not release QoS 2
        topic = chance.choice(TOPICS)
        rest = f" qos={qos}" + self._flag("retain", 0.25)
        if qos and chance.random() < 0.05:
            rest += " dup=1"
        if client.dialect.has_properties:
            topic, more = self._properties(client, topic)
            rest += more
        self._say(client, f"> PUBLISH {topic}{rest}{self._bytes()}")

    def _properties(self, client: Client, topic: str) -> tuple[str, str]:
        chance = self._chance
        more = ""
        if chance.random() < 0.1:
            more += " format=1"
        if chance.random() < 0.15:
            more += f" expiry={EXPIRY}"
        if chance.random() < 0.1:
            more += " type=text/plain"
        if chance.random() < 0.1:
            more += " response=re/ply correlation=0x00ff"
        if chance.random() < 0.15:
            more += " user.k=v user.a=b user.k=w"
        if chance.random() < 0.12:
            alias = chance.randint(1, 10)
            if alias in client.aliases and chance.random() < 0.6:
                topic = '""'
            else:
                client.aliases.append(alias)
            more += f" alias={alias}"
        return topic, more

    def _twice(self, client: Client, times: int = 1) -> None:
        """A QoS 2 message sent again before its PUBREL."""
        if client.holding:
            return
        client.packet_id += 1
        retain = self._flag("retain", 0.1)
        name = client.name
        publish = f"{name} > PUBLISH {self._chance.choice(TOPICS)} id={client.packet_id} qos=2{retain}{self._bytes()}"
        again = publish.replace(" qos=2", " qos=2 dup=1")
        self._lines.append(" ; ".join([f"{name} holds", publish, *[again] * times, f"{name} answers"]))

    def _stray(self, client: Client) -> None:
        """An acknowledgement of nothing."""
        kind = self._chance.choice(("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"))
        self._say(client, f"> {kind} id={self._chance.randint(40_000, 50_000)}")

    # -- offences -----------------------------------------------------------------------------------------------

    def _offend(self, client: Client) -> None:
        """The last thing that happens: the two brokers may be in different states afterwards."""
        chance = self._chance
        kind = chance.random()
        if kind < 0.15:
            self._say(client, f"> SUBSCRIBE a qos=1 {chance.choice(BAD_FILTERS)}" if client.connected else "opens")
        elif kind < 0.2 and client.connected:
            self._twice(client, 2)
        elif kind < 0.25 and client.connected:
            self._say(client, "holds")
            self._say(client, f"> PUBLISH {chance.choice(TOPICS)} qos=2{self._flag('retain', 0.3)}{self._bytes()}")
        elif kind < 0.45:
            stranger = Client("z", client.dialect)
            self._say(stranger, "opens")
            self._say(stranger, f"> 0x{chance.choice([one.octets for one in OFFENCES if one.version == '-'])}")
        elif client.connected:
            version = client.dialect.version
            octets = chance.choice([one.octets for one in OFFENCES if one.version == version])
            self._say(client, f"> 0x{octets}")


def script(seed: int, number: int) -> list[str]:
    """The script *number* of *seed*."""
    return Generator(Random(f"{seed}/{number}")).script()

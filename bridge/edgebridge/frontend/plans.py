"""How a topic's publications leave: the route of the node, sorted by what must be written for each reader."""

from __future__ import annotations

from edgebridge.frontend.connection import Connection
from edgebridge.wire.errors import MalformedPacket, TopicNameInvalid
from edgebroker.errors import TopicInvalid
from edgebroker.node.routes import Route, Routes
from edgebroker.topics import parse_topic_name


class Plan:
    """One topic's readers. `is_quick`: all are connected and take the same bytes, so QoS 0 runs are copied whole.

    `readers` and `texts` go together; the first `readers_v311` of them speak 3.1.1, the rest version 5.
    """

    __slots__ = ("is_joined", "is_quick", "readers", "readers_v311", "route", "takes_long", "texts", "topic")

    def __init__(self, topic: str, route: Route, is_joined: bool) -> None:
        self.topic = topic
        self.route = route
        self.is_joined = is_joined and not topic.startswith("$")
        """Its publications may be for readers at other gateways."""
        self.takes_long = is_joined or topic.startswith("$")
        """For others than readers here, or for nobody."""
        self.readers: list[Connection] = []
        self.texts: list[str] = []
        self.is_quick = route.extractor is None and not topic.startswith("$") and not route.groups
        by_dialect: dict[bool, list[tuple[Connection, str]]] = {False: [], True: []}
        for copy in route.copies:
            connection: Connection | None = copy.receiver.connection
            if connection is None or copy.has_no_local or copy.identifiers or connection.packet_bytes_max:
                self.is_quick = False
            else:
                by_dialect[connection.is_v5].append((connection, copy.label))
        self.readers_v311 = len(by_dialect[False])
        for connection, text in by_dialect[False] + by_dialect[True]:
            self.readers.append(connection)
            self.texts.append(text)


class Plans:
    """The plans of the topics seen lately, by the topic's bytes as they come off the wire."""

    __slots__ = ("_epoch", "is_joined", "known", "routes")

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._epoch = -1
        self.is_joined = False
        """There are other gateways, who may want any publication."""
        self.known: dict[bytes, Plan] = {}

    def forget(self) -> None:
        """A reader came or went: what was planned for it does not hold any more."""
        self.known = self.routes.emptied(self.known)

    def refresh(self) -> None:
        """Forget everything if routes have changed since. To be called before looking into `known`."""
        if self._epoch != self.routes.epoch:
            self._epoch = self.routes.epoch
            self.known = self.routes.emptied(self.known)

    def plan(self, octets: bytes) -> Plan:
        """The plan of the topic written as *octets*. Raises MalformedPacket, TopicNameInvalid."""
        self.refresh()
        plan = self.known.get(octets)
        if plan is None:
            topic = _topic_of(octets)
            route = self.routes.route(topic)
            self.refresh()  # a full route cache starts anew, and so do we: there are never more plans than routes
            plan = self.known[octets] = Plan(topic, route, self.is_joined)
        return plan


def _topic_of(octets: bytes) -> str:
    try:
        topic = octets.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("the topic is no UTF-8", v311="MQTT-1.5.3-1", v5="MQTT-1.5.4-1") from None
    if "\0" in topic:
        raise MalformedPacket("the topic holds U+0000", v311="MQTT-1.5.3-2", v5="MQTT-1.5.4-2")
    try:
        return parse_topic_name(topic)
    except TopicInvalid as error:
        raise TopicNameInvalid(str(error), v311="MQTT-3.3.2-2", v5="MQTT-3.3.2-2") from None

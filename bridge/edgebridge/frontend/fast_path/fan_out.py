"""The fan-out of a topic: its route, sorted by the bytes that each reader gets, and cached by the encoded topic."""

from __future__ import annotations

from edgebridge.frontend.connection import Connection
from edgebridge.wire.errors import MalformedPacket, TopicNameInvalid
from edgebroker.errors import TopicInvalid
from edgebroker.node.routes import Route, Routes
from edgebroker.topics import FILE_TREE, check_levels, is_reserved, parse_topic_name

_FILE_REQUEST = FILE_TREE.encode()


class FanOut:
    """One topic's readers. `is_quick`: all are connected and take the same bytes, so QoS 0 runs are copied whole.

    `readers` and `texts` go together; the first `readers_v311` of them speak 3.1.1, the rest version 5.
    """

    __slots__ = (
        "is_federated",
        "is_reserved",
        "is_uniform",
        "labels",
        "needs_slow_path",
        "readers",
        "readers_v311",
        "route",
        "topic",
    )

    def __init__(self, topic: str, route: Route, is_joined: bool) -> None:
        self.topic = topic
        self.route = route
        self.is_reserved = is_reserved(topic)
        """The topic is in a tree of the broker itself: its publications take the long way, which knows requests."""
        self.is_federated = is_joined and not self.is_reserved and not route.may_have_remote_members
        """Its publications may be for readers at other gateways, but not for members of groups there."""
        self.needs_slow_path = is_joined or self.is_reserved
        """For others than readers here, or for nobody."""
        self.readers: list[Connection] = []
        self.labels: list[str] = []
        self.is_uniform = route.extractor is None and not self.is_reserved and not route.groups
        by_dialect: dict[bool, list[tuple[Connection, str]]] = {False: [], True: []}
        for copy in route.copies:
            connection: Connection | None = copy.receiver.connection
            if connection is None or copy.has_no_local or copy.identifiers or connection.packet_bytes_max:
                self.is_uniform = False
            else:
                by_dialect[connection.is_v5].append((connection, copy.label))
        self.readers_v311 = len(by_dialect[False])
        for connection, text in by_dialect[False] + by_dialect[True]:
            self.readers.append(connection)
            self.labels.append(text)


class FanOutCache:
    """The plans of the topics seen lately, by the topic's bytes as they come off the wire."""

    __slots__ = ("_epoch", "cached", "is_federated", "routes")

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self._epoch = -1
        self.is_federated = False
        """There are other gateways, who may want any publication."""
        self.cached: dict[bytes, FanOut] = {}

    def invalidate(self) -> None:
        """A reader came or went: what was planned for it does not hold any more."""
        self.cached = self.routes.emptied(self.cached)

    def refresh(self) -> None:
        """Forget everything if routes have changed since. To be called before looking into `known`."""
        if self._epoch != self.routes.epoch:
            self._epoch = self.routes.epoch
            self.cached = self.routes.emptied(self.cached)

    def fan_out(self, octets: bytes) -> FanOut:
        """The plan of the topic written as *octets*. Raises MalformedPacket, TopicNameInvalid."""
        self.refresh()
        plan = self.cached.get(octets)
        if plan is None and octets.startswith(_FILE_REQUEST):
            octets = _FILE_REQUEST[:-1]  # each has a topic of its own: together they would push out all others
            plan = self.cached.get(octets)
        if plan is None:
            topic = _decode_topic(octets, self.routes.topic_levels_max)
            route = self.routes.route(topic)
            self.refresh()  # a full route cache starts anew, and so do we: there are never more plans than routes
            plan = self.cached[octets] = FanOut(topic, route, self.is_federated)
        return plan


def _decode_topic(octets: bytes, levels_max: int) -> str:
    try:
        topic = octets.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("the topic is no UTF-8", v311="MQTT-1.5.3-1", v5="MQTT-1.5.4-1") from None
    if "\0" in topic:
        raise MalformedPacket("the topic holds U+0000", v311="MQTT-1.5.3-2", v5="MQTT-1.5.4-2")
    if "+" in topic or "#" in topic:
        raise MalformedPacket("a PUBLISH has a topic with wildcards", v311="MQTT-3.3.2-2", v5="MQTT-3.3.2-2")
    try:
        check_levels(topic, levels_max)
        return parse_topic_name(topic)
    except TopicInvalid as error:
        raise TopicNameInvalid(str(error), v311="section 4.7.3", v5="section 4.13.2") from None

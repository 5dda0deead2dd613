"""In the delivery log every message has an origin, so that a report counts nothing twice that two logs have."""

from __future__ import annotations

from collections import Counter

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import V5, V311, V311_BRIDGE, Dialect
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Packet, Publish, Subscribe, SubscriptionOption, Will
from edgebroker.log_schema import Fate
from edgebroker.log_schema import MessageOrigin as Origin
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.publication import Publication
from edgebroker.storage.deliverylog.reader import LogFile, read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog


class LoggedFrontend:
    """A front end with a delivery log."""

    def __init__(self) -> None:
        self.log = DeliveryLog("node", "boot")
        self.ledger = Ledger(self.log)
        self.frontend = Frontend(Node(self.ledger), FrontendOptions(), lambda: "unused")
        self.frontend.start(0)

    def tell(self, name: str, *packets: Packet, dialect: Dialect = V5, leaves: bool = False) -> None:
        connection = self.frontend.opened(name, 0)
        for packet in packets:
            self.frontend.feed(connection, encode_packet(packet, dialect), 1)
            self.frontend.take_output(connection, 2)
        if leaves:
            self.frontend.closed(connection, 3)

    def logged(self) -> LogFile:
        self.frontend.close_books(3)
        segment = read_segment(self.log.header(0, 0) + b"".join(self.log.take(4, closing=True)), growing=True)
        assert segment.damage == []
        return segment


def origins(segment: LogFile, fate: Fate) -> Counter[Origin]:
    """The origins in the rows of *fate*, which those in the digests must equal."""
    rows, digests = segment.tables["delivery"], segment.tables["digest"]
    counted: Counter[Origin] = Counter()
    for each, origin, count in zip(digests["fate"], digests["origin"], digests["count"], strict=True):
        counted[Origin(origin)] += count * (each == fate)
    found = Counter(Origin(origin) for each, origin in zip(rows["fate"], rows["origin"], strict=True) if each == fate)
    assert fate is Fate.MATCHED or found == +counted
    return +counted


def test_wills_retained_messages_and_bridges_are_told_from_clients() -> None:
    world = LoggedFrontend()
    early = Subscribe(1, [SubscriptionOption("#")])
    world.tell("reader", Connect("reader", dialect=V5), early)
    world.tell("probe", Connect("probe", dialect=V311), Publish("t", b"1"), dialect=V311)
    world.tell("probe", Connect("kept", dialect=V311), Publish("kept", b"1", retain=True), dialect=V311)
    world.tell("gone", Connect("gone", will=Will("w", b"1"), dialect=V5), leaves=True)
    world.tell("other", Connect("other", dialect=V311_BRIDGE), Publish("b", b"1"), dialect=V311_BRIDGE)
    world.tell("late", Connect("late", dialect=V5), Subscribe(1, [SubscriptionOption("kept")]))
    segment = world.logged()
    expected = Counter({Origin.CLIENT: 2, Origin.WILL: 1, Origin.BRIDGE: 1, Origin.RETAINED: 1})
    assert origins(segment, Fate.PUBLISHED) == expected
    assert origins(segment, Fate.MATCHED) == expected


def test_who_was_a_bridge_and_connects_as_a_client_is_one() -> None:
    world = LoggedFrontend()
    for dialect in (V311_BRIDGE, V311):
        world.tell("c", Connect("c", dialect=dialect), Publish("b", b"1", qos=1, packet_id=1), dialect=dialect)
    assert origins(world.logged(), Fate.PUBLISHED) == Counter({Origin.BRIDGE: 1, Origin.CLIENT: 1})


def test_a_message_of_an_earlier_run_is_resumed_in_this_one() -> None:
    world = LoggedFrontend()
    publication = Publication("p", "t", b"1", 1, False, 0)
    world.ledger.take_up(1, publication, 1)
    world.ledger.made(1, "p", "s", publication.number, 1, 1, publication.origin)
    world.ledger.deliver(1, publication, "s", "t", 1)
    segment = world.logged()
    for fate in (Fate.PUBLISHED, Fate.MATCHED, Fate.DELIVERED):
        assert origins(segment, fate) == Counter({Origin.RESUMED: 1})


def test_series_of_a_bridge_and_of_a_client_stay_apart_where_qos_0_gets_no_rows() -> None:
    log = DeliveryLog("node", "boot", sample_qos0=0)
    ledger = Ledger(log)
    for origin in (Origin.CLIENT, Origin.PEER, Origin.CLIENT):
        ledger.accept(1, "p", 5, "t", 0, 8, 1, origin=origin)
    ledger.end_run(2)
    segment = read_segment(log.header(0, 0) + b"".join(log.take(4, closing=True)), growing=True)
    digests = segment.tables["digest"]
    assert dict(zip(digests["origin"], digests["count"], strict=True)) == {
        Origin.CLIENT: 10,
        Origin.PEER: 5,
    }

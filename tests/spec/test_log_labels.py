"""In the delivery log a subscription is shown with its content filter, whichever carrier brought it."""

from __future__ import annotations

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Packet, Publish, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Properties, Property
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog


def labels(text: str, properties: Properties) -> set[str]:
    """The filter column of the rows that a matching message leaves for a subscriber of *text*."""
    log = DeliveryLog("node", "boot")
    frontend = Frontend(Node(Ledger(log)), FrontendOptions(), lambda: "unused")
    frontend.start(0)
    reader = frontend.opened("reader", 0)
    packets: list[Packet] = [
        Connect("reader", dialect=V5),
        Subscribe(1, [SubscriptionOption(text)], properties),
        Publish("t/a", b'{"temp":31}'),
    ]
    for packet in packets:
        frontend.feed(reader, encode_packet(packet, V5), 1)
    frontend.take_output(reader, 2)
    frontend.closed(reader, 3)
    frontend.close_books(3)
    segment = read_segment(log.header(0, 0) + b"".join(log.take(4, closing=True)), growing=True)
    assert segment.damage == []
    delivered = {label for label in segment.tables["delivery"]["filter"] if label}
    assert delivered == set(segment.tables["filter"]["filter"])
    return delivered


@pytest.mark.parametrize(
    ("text", "where", "label"),
    [
        ("t/#", None, "t/#"),
        ("$filter/temp > 30/t/#", None, "$filter/temp > 30/t/#"),
        ("t/#", "temp > 30", "$filter/temp > 30/t/#"),
    ],
)
def test_the_filter_is_in_the_label(text: str, where: str | None, label: str) -> None:
    properties: Properties = {} if where is None else {Property.USER_PROPERTY: [("$where", where)]}
    assert labels(text, properties) == {label}

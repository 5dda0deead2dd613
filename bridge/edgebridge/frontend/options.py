"""What MQTT adds to a subscription of the node."""

from __future__ import annotations

from typing import NamedTuple

from edgebroker.node.subscriptions import Copy


class Options(NamedTuple):
    """`identifier` is 0 if the client gave none (MQTT 5.0 section 3.8.2.1.2)."""

    identifier: int = 0
    retain_as_published: bool = False


def identifiers_of(copy: Copy) -> tuple[int, ...]:
    """The subscription identifiers a copy carries: of every subscription that matched [MQTT-3.3.4-3]."""
    return tuple(
        subscription.options.identifier for subscription in copy.subscriptions if subscription.options.identifier
    )


def retain_of(copy: Copy, retain: bool) -> bool:
    """The RETAIN flag of a live message for this copy [MQTT-3.3.1-12, MQTT-3.3.1-13]."""
    return retain and any(subscription.options.retain_as_published for subscription in copy.subscriptions)

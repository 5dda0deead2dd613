"""What CONNACK tells a version 5 client beyond the answer: only what is limited here, or what it asked for."""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.terms import Terms
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import Properties, Property, number
from edgebroker.names import ClientId

IDENTIFIER: Final = "%c"
"""In a response prefix: the client's identifier."""


def keep_alive_s(terms: Terms, connect: Connect) -> int:
    """The keep alive that holds, 0 for none. A 3.1.1 client cannot be told of another, so its own holds."""
    limit = terms.keep_alive_s_max
    if limit and connect.dialect.has_properties and not 0 < connect.keep_alive_s <= limit:
        return limit
    return connect.keep_alive_s


def offers(terms: Terms, connect: Connect, client_id: ClientId) -> Properties:
    """The properties."""
    offered: Properties = {}
    held = keep_alive_s(terms, connect)
    if held != connect.keep_alive_s:
        offered[Property.SERVER_KEEP_ALIVE] = held  # [MQTT-3.1.2-21]
    if not terms.retained_messages_max:
        offered[Property.RETAIN_AVAILABLE] = 0
    if terms.response_prefix is not None and number(connect.properties, Property.REQUEST_RESPONSE_INFORMATION, 0):
        prefix = terms.response_prefix.replace(IDENTIFIER, client_id)
        if "+" not in prefix and "#" not in prefix:  # an identifier may have them, a topic may not
            offered[Property.RESPONSE_INFORMATION] = prefix  # [MQTT-3.1.2-28]
    return offered

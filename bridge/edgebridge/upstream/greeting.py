"""CONNECT to either end, and SUBSCRIBE after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edgebridge.session.acquaintance import NEVER
from edgebridge.upstream.rules import Rules, Wanted
from edgebridge.upstream.terms import U16_MAX, Granted, Terms
from edgebridge.wire.dialect import V5, Dialect
from edgebridge.wire.origin import BRIDGE_PROPERTY
from edgebridge.wire.packets import Connect, Publish, Subscribe, SubscriptionOption, Unsubscribe, Will
from edgebridge.wire.properties import Properties, Property

REQUESTS_MAX: Final = 512
"""SUBSCRIBEs for as many rules as a bridge may have, and UNSUBSCRIBEs for as many that it had before."""
WINDOW_MAX: Final = U16_MAX - REQUESTS_MAX
"""Messages on their way: their packet identifiers and those of requests are of one space (MQTT-2.2.1-3)."""
SEND_ALWAYS, SEND_IF_NEW, SEND_NEVER = 0, 1, 2  # retain handling (section 3.8.3.1)


def connect_remote(
    terms: Terms, dialect: Dialect, clean_start: bool, will_qos: int = 1, will_retains: bool = True
) -> Connect:
    """Who we are to the remote. *will_qos*, *will_retains*: of the notification that it sends when we are gone."""
    properties: Properties = {}
    if dialect.has_properties:
        properties = {
            Property.SESSION_EXPIRY_INTERVAL: NEVER,
            Property.RECEIVE_MAXIMUM: terms.receive_maximum,
            Property.MAXIMUM_PACKET_SIZE: terms.packet_bytes_max,
            Property.USER_PROPERTY: [(BRIDGE_PROPERTY, terms.identity)],
        }
    will = Will(terms.notification_topic, b"0", will_qos, will_retains) if terms.notification_topic else None
    return Connect(
        terms.client_id, clean_start, terms.keep_alive_s, terms.username, terms.password, will, properties, dialect
    )


def connect_local(terms: Terms, granted: Granted, is_open: bool, ends: int) -> Connect:
    """Who we are to our own front end: what it may send unacknowledged is what the remote takes.

    *is_open*: the remote is there. *ends*: when the session does, which tells what the remote knows of it.
    """
    # While it is not, what is sent goes nowhere, and the queue's bounds hold for it no more: as little as MQTT allows.
    window = min(terms.inflight_max, granted.receive_maximum, WINDOW_MAX) if is_open else 1
    properties: Properties = {Property.SESSION_EXPIRY_INTERVAL: ends, Property.RECEIVE_MAXIMUM: window}
    return Connect(terms.local_client_id, False, 0, properties=properties, dialect=V5)


def notification(terms: Terms, granted: Granted, word: bytes) -> Publish:
    """Whether the bridge is there."""
    return Publish(terms.notification_topic, word, retain=granted.retains)


def subscribe_remote(rules: Rules, granted: Granted, ids: Iterator[int]) -> Iterator[tuple[Wanted, Subscribe]]:
    """One SUBSCRIBE for each rule, so that each has its identifier. *ids*: packet identifiers that are free."""
    for wanted in rules.into:
        properties: Properties = {}
        if granted.identifies and rules.into_needs_identifiers:
            properties = {Property.SUBSCRIPTION_IDENTIFIER: [wanted.identifier]}
        handling = SEND_IF_NEW if granted.session_present else SEND_ALWAYS
        option = SubscriptionOption(wanted.text, min(wanted.rule.qos, granted.maximum_qos), True, True, handling)
        yield wanted, Subscribe(next(ids), [option], properties)


def subscribe_local(rules: Rules, handling: int, ids: Iterator[int]) -> Iterator[tuple[Wanted, Subscribe]]:
    """The same at our own front end, with *handling* of what is retained there."""
    for wanted in rules.out:
        option = SubscriptionOption(wanted.text, wanted.rule.qos, True, True, handling)
        properties: Properties = {}
        if rules.out_needs_identifiers:
            properties = {Property.SUBSCRIPTION_IDENTIFIER: [wanted.identifier]}
        yield wanted, Subscribe(next(ids), [option], properties)


def unsubscribe_local(rules: Rules, subscribed: Sequence[str], ids: Iterator[int]) -> Unsubscribe | None:
    """What the session has, and no rule wants any more."""
    gone = sorted(set(subscribed) - {wanted.text for wanted in rules.out})
    return Unsubscribe(next(ids), gone) if gone else None

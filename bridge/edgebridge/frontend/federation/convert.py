"""Conversion between a publication and a forwarded event: the MQTT properties cross with the event."""

from __future__ import annotations

from edgebridge.wire.errors import ProtocolError
from edgebridge.wire.properties import Carrier, Properties, Property, encode_properties, read_properties
from edgebroker.federation.group_members import GROUPS_TOPIC, GroupEvent
from edgebroker.header import EventHeader
from edgebroker.instants import MILLISECOND, Instant
from edgebroker.log_schema import MessageOrigin
from edgebroker.overlay.messages import Forward
from edgebroker.publication import Publication

SEPARATE_PROPERTIES = (Property.USER_PROPERTY, Property.CONTENT_TYPE)
"""Properties that have fields of their own, because filters may ask for them."""


def encode_other_properties(publication: Publication) -> bytes:
    """The properties of *publication* that no field of `Forward` has; empty if there are none."""
    if not publication.properties:
        return b""
    rest = {name: value for name, value in publication.properties.items() if name not in SEPARATE_PROPERTIES}
    return encode_properties(rest) if rest else b""


def forward_retained(publication: Publication, header: EventHeader, now: Instant) -> Forward:
    """*publication*, a retained message, as it was sent with *header*."""
    expires_at = publication.expires_at
    return Forward(
        header,
        publication.topic,
        publication.payload,
        publication.qos,
        True,
        publication.publisher,
        tuple(publication.user),
        publication.content_type,
        encode_other_properties(publication),
        None if expires_at is None else max(0, expires_at - now) // MILLISECOND,
    )


def to_publication(forward: Forward, now: Instant) -> Publication:
    """What came from a peer at *now*, as if its publisher were here. Properties that cannot be read are left out. An
    event for members of a group at one gateway is what was published.
    """
    if forward.topic == GROUPS_TOPIC and (copy := GroupEvent.unwrap(forward)) is not None:
        forward = copy.event
    properties: Properties = {}
    if forward.properties:
        try:
            properties, _ = read_properties(forward.properties, 0, Carrier.PUBLISH)
        except ProtocolError:
            properties = {}
    if forward.user:
        properties[Property.USER_PROPERTY] = list(forward.user)
    if forward.content_type is not None:
        properties[Property.CONTENT_TYPE] = forward.content_type
    expires = forward.expires_in_ms
    publication = Publication(
        forward.client,
        forward.topic,
        forward.payload,
        forward.qos,
        forward.retain,
        now,
        properties=properties or None,
        expires_at=None if expires is None else now + expires * MILLISECOND,
        user=forward.user,
        content_type=forward.content_type,
        properties_bytes=len(encode_properties(properties)),
    )
    publication.origin = MessageOrigin.PEER
    return publication

"""Acknowledgements with a reason string, for version 5 clients that asked for problem information."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from edgebridge.frontend.connection import Connection
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Ack
from edgebridge.wire.properties import Property

UNKNOWN_PACKET_ID: Final = "no message with this packet identifier is on its way"


def send_ack(connection: Connection, ack: Ack, why: str) -> None:
    """Send *ack*, with the words *why* if there are any and the client wants and takes them [MQTT-3.1.2-29].

    A packet that would be too large goes without [MQTT-3.4.2-2], [MQTT-3.5.2-2], [MQTT-3.6.2-2], [MQTT-3.7.2-2].
    """
    packet = encode_packet(ack, connection.dialect)
    if why and connection.is_v5 and connection.has_problem_information:
        explained = encode_packet(replace(ack, properties={Property.REASON_STRING: why}), connection.dialect)
        if connection.fits(explained):
            packet = explained
    connection.send(packet)

"""Who looks over the shoulder of every gateway: what is on the platter of its disk, and what it writes to its clients.

P1 is judged here and not by what the broker says of itself: at the instant when a gateway writes PUBACK or a PUBREC,
the message must have been on its platter, if anybody was promised it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

from edgebridge.wire.framing import Framer
from edgebridge.wire.reasons import FAILURE
from edgebroker.instants import Instant
from edgebroker.simworld.client import PACKET_BYTES_MAX
from edgebroker.simworld.gateways import Gateways
from edgebroker.simworld.network import Line

from .device import Acting

MARK: Final = re.compile(rb"<[a-z]+-\d+/\d+>")
"""What every payload ends with, and what finds it again wherever it is kept."""
PUBACK: Final = 4
PUBREC: Final = 5


def marks(octets: bytes) -> list[bytes]:
    """The messages of which *octets* have the end."""
    return MARK.findall(octets)


def mark_of(payload: bytes) -> bytes:
    """The mark of one message."""
    (mark,) = MARK.findall(payload)
    return bytes(mark)


class Witness:
    """Sees disks and lines."""

    def __init__(self, gateways: Gateways, devices: Mapping[str, Acting]) -> None:
        self.stored: dict[str, set[bytes]] = {}
        """Gateway -> marks that were on its platter."""
        self.hasty: list[tuple[str, bytes, Instant]] = []
        """Gateway, payload and when: it was acknowledged, and it was not on the platter."""
        self._devices = devices
        self._framers: dict[Line, Framer] = {}
        for gateway in gateways:
            seen = self.stored[gateway.name] = set()
            assert gateway.store is not None
            gateway.store.disk.watch = partial(_note, seen)
            gateway.watch = partial(self._written, gateway.name)

    def _written(self, gateway: str, line: Line, octets: bytes) -> None:
        framer = self._framers.get(line)
        if framer is None:
            framer = self._framers[line] = Framer(PACKET_BYTES_MAX)
        framer.feed(octets)
        while (frame := framer.next_frame()) is not None:
            first, body = frame
            if first >> 4 in (PUBACK, PUBREC) and (len(body) < 3 or body[2] < FAILURE):
                self._acknowledged(gateway, line, int.from_bytes(body[:2]))

    def _acknowledged(self, gateway: str, line: Line, packet_id: int) -> None:
        device = self._devices.get(line.peer)
        if device is None or device.client.line is not line:
            return
        payload = device.awaits(packet_id)
        if payload is not None and mark_of(payload) not in self.stored[gateway]:
            self.hasty.append((gateway, payload, device.home.simulation.now))


def _note(seen: set[bytes], octets: bytes) -> None:
    seen.update(marks(octets))

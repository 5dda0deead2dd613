"""The account of a run: the fate of every message, and the journal for audits by others.

Per QoS and in total, at the end of a run: `published = acknowledged + sent + failed`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Protocol

from edgedevices.message import DeviceMessage

QOS_LEVELS = (0, 1, 2)


class LineWriter(Protocol):
    """Appends texts."""

    def write(self, text: str, /) -> object:
        """Appends *text*."""
        ...


class MessageLedger:
    """Counts fates. *journal*: an open text file that gets one JSON line per message once its fate is known."""

    def __init__(self, journal: LineWriter | None = None) -> None:
        self._journal = journal
        self.published = Counter[int]()
        """Messages that devices produced, per QoS."""
        self.acknowledged = Counter[int]()
        """QoS 1 and 2: PUBACK or PUBCOMP with a success code was received."""
        self.sent = Counter[int]()
        """QoS 0: passed to the operating system. A lost connection may still lose the last ones."""
        self.failed = Counter[int]()
        self.failures = Counter[str]()
        """Failed messages per cause."""
        self.payload_bytes = 0
        self.connected = 0
        """Connections that the broker accepted, including the first ones."""
        self.online = 0
        """Devices connected now."""
        self.reconnects = 0
        self.losses = Counter[str]()
        """Failed attempts to connect and connections that ended unexpectedly, per reason."""

    def publish(self, message: DeviceMessage) -> None:
        """Records that a device produced *message*."""
        self.published[message.qos] += 1

    def acknowledge(self, message: DeviceMessage) -> None:
        """Records that the broker acknowledged *message* (QoS 1 or 2)."""
        self.acknowledged[message.qos] += 1
        self._write(message, "acknowledged")

    def send(self, message: DeviceMessage) -> None:
        """Records that *message* (QoS 0) was passed to the system."""
        self.sent[message.qos] += 1
        self._write(message, "sent")

    def fail(self, message: DeviceMessage, cause: str) -> None:
        """Records that *message* failed."""
        self.failed[message.qos] += 1
        self.failures[cause] += 1
        self._write(message, "failed", cause)

    @property
    def open(self) -> int:
        """Messages without a fate."""
        return self.published.total() - self.acknowledged.total() - self.sent.total() - self.failed.total()

    def summary(self) -> dict[str, Any]:
        """Returns the account as JSON values."""
        return {
            "published": self.published.total(),
            "acknowledged": self.acknowledged.total(),
            "sent": self.sent.total(),
            "failed": self.failed.total(),
            "failures": dict(sorted(self.failures.items())),
            "qos": {
                str(qos): {
                    "published": self.published[qos],
                    ("acknowledged" if qos else "sent"): (self.acknowledged if qos else self.sent)[qos],
                    "failed": self.failed[qos],
                }
                for qos in QOS_LEVELS
                if self.published[qos]
            },
            "payload_bytes": self.payload_bytes,
            "connections": self.connected,
            "reconnects": self.reconnects,
            "losses": dict(sorted(self.losses.items())),
        }

    def _write(self, message: DeviceMessage, outcome: str, cause: str | None = None) -> None:
        if self._journal is None:
            return
        record: dict[str, Any] = {
            "topic": message.topic,
            "qos": message.qos,
            "retain": message.retain,
            "device": message.device,
            "seq": message.seq,
            **message.noted(),
            "outcome": outcome,
            "sent_us": message.sent_us,
        }
        if cause is not None:
            record["cause"] = cause
        self._journal.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")

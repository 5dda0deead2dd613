"""Translates limits: of queues, windows, packets and session expiry. mosquitto.conf(5), "General options"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from edgebroker import limits
from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft, ValueUnusable, within
from edgebroker.cli.mosquitto_import.rules import (
    DAY_S,
    Rule,
    bound,
    first_word,
    missing,
    needless,
    switch,
    truth,
    whole,
)

_UNITS_S: Final = {"s": 1, "h": 3_600, "d": DAY_S, "w": 7 * DAY_S, "m": 30 * DAY_S, "y": 365 * DAY_S}
_HEAD_BYTES_MAX: Final = limits.TOPIC_BYTES_MAX + 16
"""The most bytes of a PUBLISH without payload and properties: no message that Mosquitto accepts is refused."""


def size(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """`max_packet_size`, `message_size_limit`: evaluated by `packet_sizes` when all lines have been read."""
    whole(line)
    draft.sizes[line.name] = line


def packet_sizes(draft: ImportDraft) -> Iterator[LineVerdict]:
    """Set the packet size to the smaller of `max_packet_size`, and `message_size_limit`, which limits the payload."""
    bounds: dict[ConfLine, int] = {}
    for line in draft.sizes.values():
        if not whole(line):
            note = f"nothing is without limit here: {limits.PACKET_BYTES_MAX:,} bytes"
            yield line.differs(note)
            continue
        head = _HEAD_BYTES_MAX if line.name == "message_size_limit" else 0
        bounds[line] = within("limits", "packet_bytes_max", whole(line) + head)
    least = min(bounds, key=bounds.__getitem__, default=None)
    for line, written in bounds.items():
        if line is least:
            yield _packet_size(line, written, draft.put("limits", "packet_bytes_max", written, line))
        elif least is not None:
            note = f"{least.name} bounds packets to {bounds[least]:,} bytes already"
            yield line.needless(note)


def _packet_size(line: ConfLine, written: int, name: str) -> LineVerdict:
    if line.name == "message_size_limit":
        note = (
            f"bounds the packet ({written:,} bytes: payload, topic, head), not the payload alone; "
            "who sends a larger one is disconnected, Mosquitto drops the message"
        )
        return line.differs(note, name)
    if written != whole(line):
        return line.differs(f"the nearest that is taken here: {written:,}", name)
    return line.translated(name)


def session_expiry(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`persistent_client_expiration`: a number and one of s (since 2.1), h, d, w, m, y."""
    found = re.fullmatch(r"([0-9]{1,9})([shdwmy])", first_word(line), re.ASCII)
    if found is None or not int(found[1]):
        raise ValueUnusable("persistent_client_expiration takes a number and one of s, h, d, w, m, y, as in 14d")
    seconds = int(found[1]) * _UNITS_S[found[2]]
    written = within("limits", "session_expiry_s_max", seconds)
    name = draft.put("limits", "session_expiry_s_max", written, line)
    if written != seconds:
        return line.differs(f"the longest that is taken here: {written:,} s", name)
    return line.translated(name, note=f"{seconds:,} s")


def retain_available(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`retain_available false`: no message is retained."""
    if truth(line):
        return line.needless("it is so already")
    name = draft.put("limits", "retained_messages_max", 0, line)
    note = (
        "a retained message of a 3.1.1 client goes to who has subscribed and is not kept, where Mosquitto closes; "
        "a version 5 client is disconnected (0x9A), as by Mosquitto"
    )
    return line.differs(note, name)


def inflight_bytes(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`max_inflight_bytes`: there is no such key, but the limit of a queue's bytes includes the window."""
    if not whole(line):
        return line.needless("what is under way to a client is bounded by limits.queue_bytes_max")
    return line.missing(
        "what is under way to a client is bounded in messages (limits.inflight_max) and by limits.queue_bytes_max"
    )


OPTIONS: Final[dict[str, Rule]] = {
    "max_queued_messages": bound("limits", "queue_messages_max", unlimited=1_000_000),
    "max_queued_bytes": bound("limits", "queue_bytes_max", unlimited=1_024 * limits.MIB),
    "max_inflight_messages": bound("limits", "inflight_max", unlimited=65_535),
    "max_inflight_bytes": inflight_bytes,
    "max_packet_size": size,
    "message_size_limit": size,
    "persistent_client_expiration": session_expiry,
    "retain_available": retain_available,
    "retain_expiry_interval": needless("expired retained messages are forgotten every minute"),
    "global_max_connections": bound("limits", "connections_max", unlimited=1_000_000, least=-1),
    "global_max_clients": bound("quota", "sessions_max", unlimited=1_000_000, least=-1),
    "queue_qos0_messages": switch(
        on=missing("QoS 0 messages are not queued for absent clients: let them be published with QoS 1"),
        off=needless("it is so already"),
    ),
    "upgrade_outgoing_qos": switch(
        on=missing("a message is delivered at the lower of its two QoS, as the standard says: publish with the higher"),
        off=needless("it is so already"),
    ),
    "allow_duplicate_messages": switch(
        on=needless("a client with overlapping subscriptions gets one copy, at the highest QoS of them"),
        off=needless("it is so already"),
    ),
    "memory_limit": bound(
        "quota",
        "memory_bytes_max",
        unlimited=limits.MEMORY_BYTES_MAX,
        note="what clients fill, on top of about 40 MiB; who is refused hears so (0x97), nothing fails half-way",
    ),
    "packet_buffer_size": needless("packets are read as they come, at any size"),
}

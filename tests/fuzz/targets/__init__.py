"""Everything that reads bytes of strangers, of files and of disks, by name."""

from __future__ import annotations

from tests.fuzz.frame.target import Target

from . import (
    accounts,
    bridges,
    broker,
    configuration,
    control,
    deliverylog,
    files,
    filters,
    linkrecords,
    links,
    listeners,
    packets,
    payloads,
    records,
    segments,
)

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (
        packets,
        broker,
        listeners,
        payloads,
        bridges,
        filters,
        configuration,
        control,
        accounts,
        segments,
        records,
        deliverylog,
        files,
        links,
        linkrecords,
    )
    for target in module.TARGETS
}

KINDS: dict[str, tuple[str, ...]] = {
    "MQTT packets": ("packets", "frontend"),
    "WebSocket frames": ("websocket", "websocket-frames"),
    "CBOR": ("cbor", "bridge-payloads", "bridge-envelopes"),
    "filter language": ("filter", "like", "subscription"),
    "settings": ("settings", "mosquitto-conf", "bridge-control"),
    "journal": ("journal", "records"),
    ".edl readers": ("delivery-log",),
    "links": ("link", "link-hello", "link-frames", "link-deflated", "link-records", "link-records-whole"),
}
"""What strangers reach, or what must be right after a crash: those targets share the time that a kind gets."""
LESS = {"links": 6.0}
"""Kinds that get so many times less: a peer has shown its certificate before it says anything."""
OTHERS = "all others"
OTHERS_PART = 40.0
"""Each target of no kind gets so many times less than a kind."""


def kind_of(target: str) -> str:
    """The kind of *target*, or OTHERS."""
    return next((kind for kind, names in KINDS.items() if target in names), OTHERS)


def share_of(target: str, seconds: float) -> float:
    """The seconds that *target* gets if every kind gets so many *seconds*."""
    kind = kind_of(target)
    return seconds / OTHERS_PART if kind == OTHERS else seconds / LESS.get(kind, 1.0) / len(KINDS[kind])

"""User Properties of MQTT 5 that mean something to a gateway: trace contexts, and what bridges tell each other.

PUBLISH             traceparent: CONTEXT                the position in a trace (W3C "Trace Context: MQTT protocol")
PUBLISH             edgebroker-origin: GATEWAY HOPS     who had the message first, and how many bridges it has crossed
CONNECT, CONNACK    edgebroker-bridge: GATEWAY          who dials, who answers

A `traceparent` goes from publisher to readers unaltered like every user property [5: MQTT-3.3.2-17]; the broker is no
party of the trace and adds nothing to it. It is only read so that the logs name a message that was sampled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from edgebridge.wire.properties import Properties, user_properties
from edgebroker.log_schema import TraceParent

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_CHARS_MAX: Final = 512  # version 0 has 55; a later one may add to it, but not without end
_SAMPLED: Final = 0x01
BRIDGE_PROPERTY: Final = "edgebroker-bridge"
ORIGIN_PROPERTY: Final = "edgebroker-origin"
GATEWAY_CHARS_MAX: Final = 200
"""Of a name in these properties: room for a host name and an identity."""
_HOPS_CHARS_MAX: Final = 3  # nothing crosses a thousand bridges


class TraceContext(NamedTuple):
    """One position in a trace."""

    trace_id: str
    parent_id: str
    is_sampled: bool

    @classmethod
    def parse(cls, text: str) -> TraceContext | None:
        """Read a `traceparent`; None if it is none, which the standard says to treat as absent."""
        found = _FORM.fullmatch(text) if len(text) <= _CHARS_MAX else None
        if found is None:
            return None
        version, trace_id, parent_id, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not parent_id.strip("0"):
            return None
        return cls(trace_id, parent_id, bool(int(flags, 16) & _SAMPLED))


def sampled(user: Sequence[tuple[str, str]]) -> TraceParent | None:
    """The position that user properties name, if there is exactly one context and it asks to be recorded."""
    said = None
    for name, value in user:
        if name == TRACEPARENT:
            if said is not None:
                return None
            said = value
    context = TraceContext.parse(said) if said else None
    return TraceParent(context.trace_id, context.parent_id) if context is not None and context.is_sampled else None


def _are_hops(said: str) -> bool:
    return said.isascii() and said.isdigit() and len(said) <= _HOPS_CHARS_MAX


class Origin(NamedTuple):
    """Where a message comes from. Without a gateway: from nowhere else."""

    gateway: str = ""
    hops: int = 0

    @classmethod
    def of(cls, properties: Properties) -> Origin:
        """What the properties of a PUBLISH say; what makes no sense says nothing."""
        for name, value in user_properties(properties):
            if name == ORIGIN_PROPERTY:
                gateway, _, hops = value.rpartition(" ")
                if 0 < len(gateway) <= GATEWAY_CHARS_MAX and _are_hops(hops):
                    return cls(gateway, int(hops))
        return cls()

    def pair(self) -> tuple[str, str]:
        """The user property."""
        return ORIGIN_PROPERTY, f"{self.gateway} {self.hops}"

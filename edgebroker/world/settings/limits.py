"""Section `limits`."""

from __future__ import annotations

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import key
from edgebroker.world.valuekinds import Whole


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The bounds of `edgebroker.limits` that an operator may move, under the same names."""

    out_bytes_max: int = key(limits.OUT_BYTES_MAX, Whole(16 * limits.KIB, 256 * limits.MIB))
    queue_messages_max: int = key(limits.QUEUE_MESSAGES_MAX, Whole(1, 1_000_000))
    queue_bytes_max: int = key(limits.QUEUE_BYTES_MAX, Whole(1 * limits.KIB, 1_024 * limits.MIB))
    queued_messages_max: int = key(limits.QUEUED_MESSAGES_MAX, Whole(1, 100_000_000))
    queued_bytes_max: int = key(limits.QUEUED_BYTES_MAX, Whole(1 * limits.KIB, 1_048_576 * limits.MIB))
    inflight_max: int = key(limits.INFLIGHT_MAX, Whole(1, 65_535))
    receive_maximum: int = key(limits.RECEIVE_MAXIMUM, Whole(1, 65_535))
    packet_bytes_max: int = key(limits.PACKET_BYTES_MAX, Whole(128, 255 * limits.MIB))  # MQTT says 256
    connections_max: int = key(limits.CONNECTIONS_MAX, Whole(1, 1_000_000))
    retained_messages_max: int = key(limits.RETAINED_MESSAGES_MAX, Whole(0, 10_000_000))
    session_expiry_s_max: int = key(limits.SESSION_EXPIRY_S_MAX, Whole(0, 0xFFFF_FFFE))  # 0xFFFFFFFF means never

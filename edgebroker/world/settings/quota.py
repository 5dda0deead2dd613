"""Section `quota`."""

from __future__ import annotations

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, key
from edgebroker.world.valuekinds import Whole


@dataclass(frozen=True, slots=True)
class QuotaSettings:
    """How much one client, one address and all together may ask. `frontend.quota` has the same names."""

    connect_bytes_max: int = key(limits.CONNECT_BYTES_MAX, Whole(256, 512 * limits.KIB), Applied.LIVE)
    connects_per_s: int = key(limits.CONNECTS_PER_S, Whole(0, 1_000_000), Applied.LIVE)
    connects_per_address_per_s: int = key(limits.CONNECTS_PER_ADDRESS_PER_S, Whole(0, 1_000_000), Applied.LIVE)
    publish_messages_per_s: int = key(0, Whole(0, 10_000_000), Applied.LIVE)
    publish_bytes_per_s: int = key(0, Whole(0, 1_024 * limits.MIB), Applied.LIVE)
    filter_tests_max: int = key(limits.FILTER_TESTS_PER_CLIENT_MAX, Whole(1, 10_000_000), Applied.LIVE)
    filter_patterns_max: int = key(limits.FILTER_PATTERNS_PER_CLIENT_MAX, Whole(0, 1_000_000), Applied.LIVE)
    filter_attributes_max: int = key(limits.FILTER_ATTRIBUTES_PER_CLIENT_MAX, Whole(1, 1_000_000), Applied.LIVE)
    filter_clients_max: int = key(limits.FILTER_CLIENTS_MAX, Whole(1, 100_000), Applied.LIVE)
    subscriptions_max: int = key(limits.SUBSCRIPTIONS_PER_CLIENT_MAX, Whole(1, 1_000_000), Applied.LIVE)
    memory_bytes_max: int = key(limits.MEMORY_BYTES_MAX, Whole(4 * limits.MIB, 1 << 40), Applied.LIVE)

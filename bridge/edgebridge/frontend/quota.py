"""How much one client, one address and all together may ask of a gateway."""

from __future__ import annotations

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant
from edgebroker.tokenbucket import Meter


@dataclass(frozen=True, slots=True)
class Quota:
    """The bounds of section `quota` of the settings, under the same names. 0 is no bound where that is said."""

    connect_bytes_max: int = limits.CONNECT_BYTES_MAX
    connects_per_s: int = limits.CONNECTS_PER_S
    """0: no bound; so many seconds' worth as CONNECTS_BURST_S says may come at once."""
    connects_per_address_per_s: int = limits.CONNECTS_PER_ADDRESS_PER_S
    """0: no bound."""
    publish_messages_per_s: int = 0
    """Per client; 0: no bound."""
    publish_bytes_per_s: int = 0
    """Per client; 0: no bound."""
    filter_tests_max: int = limits.FILTER_TESTS_PER_CLIENT_MAX
    """Elementary tests in all content filters of one client; `session.filterbill` says how they are counted."""
    filter_patterns_max: int = limits.FILTER_PATTERNS_PER_CLIENT_MAX
    """`LIKE` patterns in them that are no plain prefix."""
    filter_attributes_max: int = limits.FILTER_ATTRIBUTES_PER_CLIENT_MAX
    """Different attributes that they ask for."""
    filter_clients_max: int = limits.FILTER_CLIENTS_MAX
    """All clients of one user, or of one address if nobody is asked who he is, have so many times that together."""
    subscriptions_max: int = limits.SUBSCRIPTIONS_PER_CLIENT_MAX
    """Of one client."""
    memory_bytes_max: int = limits.MEMORY_BYTES_MAX
    """What input, output, queues and retained messages of all clients may hold together."""

    def meter(self, now: Instant) -> Meter | None:
        """What counts a client's publications; None if it may publish as fast as it likes."""
        if not (self.publish_messages_per_s or self.publish_bytes_per_s):
            return None
        return Meter(self.publish_messages_per_s, self.publish_bytes_per_s, now)


QUOTA = Quota()
"""The default."""

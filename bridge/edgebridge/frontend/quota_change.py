"""Change of the quota while the front end runs: a new quota holds at once, also for clients that are connected."""

from __future__ import annotations

from edgebridge.frontend.connection_rate import ConnectionRateLimit
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import Quota
from edgebroker.instants import Instant


def change_quota(frontend: Frontend, quota: Quota, now: Instant) -> None:
    """Let *quota* hold. What was granted stays granted; how fast a client published until now is forgotten."""
    before, frontend.quota = frontend.quota, quota
    if quota == before:
        return
    turned_away = frontend.connection_rate.rejected
    frontend.connection_rate = ConnectionRateLimit(quota, now)
    frontend.connection_rate.rejected = turned_away
    frontend.input.connect_bytes_max = quota.connect_bytes_max
    frontend.subscribe_handler.filter_quota.quota = quota
    frontend.node.subscriptions_per_client_max = quota.subscriptions_max
    frontend.memory_limit.bytes_max = quota.memory_bytes_max
    frontend.memory_limit.check(now)
    for connection in frontend.connections.values():
        connection.meter = quota.meter(now)
    frontend.input_scheduler.end_pauses(now)  # of hours, perhaps: they were made of the rate of before

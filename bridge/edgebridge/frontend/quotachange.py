"""Another quota for a front end that runs: it holds at once, also for who is connected."""

from __future__ import annotations

from edgebridge.frontend.admission import Admission
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.quota import Quota
from edgebroker.instants import Instant


def change_quota(frontend: Frontend, quota: Quota, now: Instant) -> None:
    """Let *quota* hold. What was granted stays granted; how fast a client published until now is forgotten."""
    before, frontend.quota = frontend.quota, quota
    if quota == before:
        return
    turned_away = frontend.admission.turned_away
    frontend.admission = Admission(quota, now)
    frontend.admission.turned_away = turned_away
    frontend.input.connect_bytes_max = quota.connect_bytes_max
    frontend.subscribing.filters.quota = quota
    frontend.node.subscriptions_per_client_max = quota.subscriptions_max
    frontend.memory.bytes_max = quota.memory_bytes_max
    frontend.memory.check(now)
    for connection in frontend.connections.values():
        connection.meter = quota.meter(now)
    frontend.turns.end_pauses(now)  # of hours, perhaps: they were made of the rate of before

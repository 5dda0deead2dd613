"""The choice of a queue for a session: a plain outbox, or a policy queue, which is imported only when needed."""

from __future__ import annotations

from edgebridge.session.queue.outbox import Allowance, OverflowPolicy, SessionOutbox
from edgebroker.instants import Duration


def outbox_for(
    messages_max: int,
    bytes_max: int,
    policy: OverflowPolicy,
    allowance: Allowance,
    age_us: Duration = 0,
    is_live_first: bool = False,
) -> SessionOutbox:
    """The plainest one that does what is asked of it; `Spool` explains the rest."""
    if policy not in (OverflowPolicy.KEEP_LAST, OverflowPolicy.DOWN_SAMPLE) and not age_us and not is_live_first:
        return SessionOutbox(messages_max, bytes_max, policy, allowance)
    from edgebridge.session.queue.policy_queue import PolicyQueue  # for who wants it

    return PolicyQueue(messages_max, bytes_max, policy, allowance, age_us, is_live_first)

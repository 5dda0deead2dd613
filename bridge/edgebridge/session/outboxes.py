"""Which queue a session gets."""

from __future__ import annotations

from edgebridge.session.outbox import Allowance, Outbox, QueueFull
from edgebroker.instants import Duration


def outbox_for(
    messages_max: int,
    bytes_max: int,
    policy: QueueFull,
    allowance: Allowance,
    age_us: Duration = 0,
    is_live_first: bool = False,
) -> Outbox:
    """The plainest one that does what is asked of it; `Spool` explains the rest."""
    if policy not in (QueueFull.KEEP_LAST, QueueFull.DOWN_SAMPLE) and not age_us and not is_live_first:
        return Outbox(messages_max, bytes_max, policy, allowance)
    from edgebridge.session.spool import Spool  # for who wants it

    return Spool(messages_max, bytes_max, policy, allowance, age_us, is_live_first)

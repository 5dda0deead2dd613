"""Whether there is room for a message where a full queue refuses its publisher (`QueueFull.REFUSE`)."""

from __future__ import annotations

from edgebridge.session.outbox import QueueFull
from edgebridge.session.session import Session
from edgebroker.node.groups import Group
from edgebroker.node.routes import Route
from edgebroker.publication import Publication


def has_room(publication: Publication, route: Route) -> bool:
    """Whether no queue refuses *publication*, which is not accepted yet: every copy can be sent or queued, and so can
    that of whom each group would choose.
    """
    if not publication.qos:
        return True
    size = publication.held_bytes()
    for copy in route.copies_for(publication):
        session: Session = copy.receiver
        if copy.qos and session.outbox.refuses(size):
            return False
    return all(group.has_room(publication, route.may_read) or not _refuses(group, size) for group in route.wanting())


def _refuses(group: Group, size: int) -> bool:
    return any(member.qos and member.receiver.outbox.refuses(size) for member in group.members)


def would_have_room(publication: Publication, route: Route) -> bool:
    """As `has_room`, if nothing waited anywhere: who says it again later would be refused again."""
    size = publication.held_bytes()
    if any(copy.qos and _is_too_small(copy.receiver, size) for copy in route.copies_for(publication)):
        return False
    return all(
        any(not member.qos or not _is_too_small(member.receiver, size) for member in group.members)
        for group in route.wanting()
    )


def _is_too_small(session: Session, size: int) -> bool:
    return session.outbox.policy is QueueFull.REFUSE and size > session.outbox.bytes_max

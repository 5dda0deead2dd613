"""Whether there is room for a message where a full queue refuses its publisher (`QueueFull.REFUSE`)."""

from __future__ import annotations

from edgebridge.session.outbox import QueueFull
from edgebridge.session.session import Session
from edgebroker.node.groups import Group
from edgebroker.node.routes import Route
from edgebroker.node.subscriptions import Copy
from edgebroker.publication import Publication


def has_room(publication: Publication, route: Route) -> bool:
    """Whether no queue refuses *publication*, which is not accepted yet: every copy can be sent or queued, and so can
    that of whom each group would choose. All of them together, not only each by itself.
    """
    if not publication.qos:
        return True
    size = publication.held_bytes()
    copies = route.copies_for(publication)
    for copy in copies:
        session: Session = copy.receiver
        if copy.qos and session.refuses(size):
            return False
    if not all(group.has_room(publication, route.may_read) or not _refuses(group, size) for group in route.wanting()):
        return False
    return _fit_together(size, _readers(publication, copies, route))


def _readers(publication: Publication, copies: tuple[Copy, ...], route: Route) -> list[Session]:
    """Who gets a copy that may have to wait, once for each."""
    chosen = [group.would_choose(publication, route.may_read) for group in dict.fromkeys(route.wanting())]
    members = [member.receiver for member in chosen if member is not None and member.qos]
    return [*(copy.receiver for copy in copies if copy.qos), *members]


def _fit_together(size: int, readers: list[Session]) -> bool:
    """Whether the queues that refuse have room when each reader's copy has come, and none leaves meanwhile."""
    if len(readers) < 2:
        return True
    waiting: dict[Session, int] = {}
    for session in readers:
        is_sent = session not in waiting and session.takes_at_once
        waiting[session] = waiting.get(session, 0) + (not is_sent)
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not QueueFull.REFUSE or session.outbox.has_room_for(size, copies, in_all)
        for session, copies in waiting.items()
        if copies
    )


def _refuses(group: Group, size: int) -> bool:
    return any(member.qos and member.receiver.refuses(size) for member in group.members)


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

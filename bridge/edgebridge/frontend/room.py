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
    groups = route.wanting()
    if not all(group.has_room(publication, route.may_read) or not _refuses(group, size) for group in groups):
        return False
    if not groups and (not copies or copies[0].receiver.outbox.has_room_for(size, 0, len(copies))):
        return True  # no session has two, and each was asked
    return _fit_together(size, _readers(publication, copies, route))


def _readers(publication: Publication, copies: tuple[Copy, ...], route: Route) -> list[Session]:
    """Who gets a copy that may have to wait, once for each."""
    chosen = [group.would_choose(publication, route.may_read) for group in dict.fromkeys(route.wanting())]
    members = [member.receiver for member in chosen if member is not None and member.qos]
    return [*(copy.receiver for copy in copies if copy.qos), *members]


def _fit_together(size: int, readers: list[Session]) -> bool:
    """Whether the queues that refuse have room when each reader's copy has come, and none leaves meanwhile."""
    waiting = _waiting(readers)
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not QueueFull.REFUSE or session.outbox.has_room_for(size, copies, in_all)
        for session, copies in waiting.items()
    )


def _waiting(readers: list[Session]) -> dict[Session, int]:
    """How many copies would wait for whom. Of several for one reader only the first is on its way for certain."""
    waiting: dict[Session, int] = {}
    for session in readers:
        waiting[session] = waiting.get(session, 0) + (session in waiting or not session.takes_at_once())
    return {session: copies for session, copies in waiting.items() if copies}


def _refuses(group: Group, size: int) -> bool:
    return any(member.qos and member.receiver.refuses(size) for member in group.members)


def would_have_room(publication: Publication, route: Route) -> bool:
    """As `has_room`, if nothing waited anywhere: who says it again later would be refused again."""
    size = publication.held_bytes()
    if any(copy.qos and _is_too_small(copy.receiver, size) for copy in route.copies_for(publication)):
        return False
    for group in route.wanting():
        if all(member.qos and _is_too_small(member.receiver, size) for member in group.members):
            return False
    waiting = _waiting(_readers(publication, route.copies_for(publication), route))
    in_all = sum(waiting.values())
    return all(
        session.outbox.policy is not QueueFull.REFUSE or session.outbox.could_hold_copies(size, copies, in_all)
        for session, copies in waiting.items()
    )


def _is_too_small(session: Session, size: int) -> bool:
    return session.outbox.policy is QueueFull.REFUSE and size > session.outbox.bytes_max

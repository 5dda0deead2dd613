"""Read access: the subscribers that may read a publication. The node asks; the front end answers from the rights of its
clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from edgebroker.names import ClientId
from edgebroker.node.shared_groups import RemoteMembers
from edgebroker.node.subscriptions import Copy, Subscription
from edgebroker.publication import Publication


class Permission(Protocol):
    """The right of one receiver to read the publications of one topic."""

    @property
    def is_always(self) -> bool:
        """Whether it may read every publication."""

    @property
    def is_never(self) -> bool:
        """Whether it may read none."""

    def permits(self, publication: Publication) -> bool:
        """Return whether it may read *publication*."""


PermissionQuery: TypeAlias = Callable[[Any, str], Permission | None]
"""(receiver, topic) -> its permission; None if it may read everything."""


class ReadAccess:
    """Applies read permissions at one topic. `conditions` are the clients whose permission depends on the
    publication.
    """

    __slots__ = ("_ask", "_topic", "conditions", "is_denying")

    def __init__(self, ask: PermissionQuery, topic: str) -> None:
        self._ask = ask
        self._topic = topic
        self.conditions: dict[ClientId, Permission] = {}
        self.is_denying = False
        """Whether a client that subscribed to the topic may not read it."""

    def allowed_subscriptions(self, subscriptions: Iterable[Subscription]) -> list[Subscription]:
        """Return those of *subscriptions* whose clients may read at least some publications of the topic."""
        allowed: list[Subscription] = []
        for subscription in subscriptions:
            permission = self._ask(subscription.receiver, self._topic)
            if permission is not None:
                if permission.is_never:
                    self.is_denying = True
                    continue
                if not permission.is_always:
                    self.conditions[subscription.client] = permission
            allowed.append(subscription)
        return allowed

    def allowed_copies(self, copies: tuple[Copy, ...], publication: Publication) -> tuple[Copy, ...]:
        """Return those of *copies* whose receivers may read *publication*."""
        if not self.conditions:
            return copies
        verdicts: dict[Permission, bool] = {}  # many receivers share few permissions
        allowed: list[Copy] = []
        for copy in copies:
            permission = self.conditions.get(copy.subscriptions[0].client)
            if permission is not None:
                if permission not in verdicts:
                    verdicts[permission] = permission.permits(publication)
                if not verdicts[permission]:
                    self.is_denying = True
                    continue
            allowed.append(copy)
        return tuple(allowed)

    def permits(self, member: Subscription, publication: Publication) -> bool:
        """Return whether the client of *member* may read *publication*; another gateway may, and judges for its own."""
        if isinstance(member.receiver, RemoteMembers):
            return True
        permission = self._ask(member.receiver, self._topic)
        return permission is None or permission.permits(publication)

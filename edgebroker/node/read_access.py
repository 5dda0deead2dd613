"""Read access: which subscribers may get a publication. The node asks; the front end answers from the rights of
its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from edgebroker.names import ClientId
from edgebroker.node.subscriptions import Copy, Subscription
from edgebroker.publication import Publication


class Permission(Protocol):
    """An answer for one receiver and one topic."""

    @property
    def is_always(self) -> bool:
        """Whether every publication may be read."""

    @property
    def is_never(self) -> bool:
        """Whether none may."""

    def permits(self, publication: Publication) -> bool:
        """Whether *publication* may be read."""


PermissionQuery: TypeAlias = Callable[[Any, str], Permission | None]
"""(receiver, topic) -> its permission; None if nothing is forbidden to it."""


class ReadAccess:
    """Stands at one topic. `conditions` are the clients whose copies need a look at each publication."""

    __slots__ = ("_ask", "_topic", "conditions", "is_denying")

    def __init__(self, ask: PermissionQuery, topic: str) -> None:
        self._ask = ask
        self._topic = topic
        self.conditions: dict[ClientId, Permission] = {}
        self.is_denying = False
        """Whether somebody who asked for the topic may not read it."""

    def allowed_subscriptions(self, subscriptions: Iterable[Subscription]) -> list[Subscription]:
        """Those of *subscriptions* whose clients may read something of the topic."""
        admitted: list[Subscription] = []
        for subscription in subscriptions:
            permission = self._ask(subscription.receiver, self._topic)
            if permission is not None:
                if permission.is_never:
                    self.is_denying = True
                    continue
                if not permission.is_always:
                    self.conditions[subscription.client] = permission
            admitted.append(subscription)
        return admitted

    def allowed_copies(self, copies: tuple[Copy, ...], publication: Publication) -> tuple[Copy, ...]:
        """Those of *copies* that their readers may have."""
        if not self.conditions:
            return copies
        verdicts: dict[Permission, bool] = {}  # many readers, few conditions
        passed: list[Copy] = []
        for copy in copies:
            permission = self.conditions.get(copy.subscriptions[0].client)
            if permission is not None:
                if permission not in verdicts:
                    verdicts[permission] = permission.permits(publication)
                if not verdicts[permission]:
                    self.is_denying = True
                    continue
            passed.append(copy)
        return tuple(passed)

    def permits(self, member: Subscription, publication: Publication) -> bool:
        """Whether the client of *member* may have *publication*."""
        permission = self._ask(member.receiver, self._topic)
        return permission is None or permission.permits(publication)

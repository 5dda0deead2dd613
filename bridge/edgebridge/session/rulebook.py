"""An access-control file in use: the rights of each client, and what was decided so far."""

from __future__ import annotations

from edgebridge.session.acl import Acl
from edgebridge.session.rights import Decisions, Rights
from edgebridge.session.ruletree import RuleTree


class RuleBook:
    """Gives clients their rights. Rules do not change: another file is another rule book."""

    def __init__(self, acl: Acl, decisions: Decisions | None = None) -> None:
        """*decisions*: where those of other rule books are remembered too, if there are many."""
        self.acl = acl
        self._trees: dict[str, RuleTree] = {}
        self._decisions = decisions or Decisions()

    def rights(self, user: str, client: str, within: Rights | None = None) -> Rights:
        """What *client* may do, who proved to be *user* (empty: nobody in particular)."""
        tree = self._trees.get(user)
        if tree is None and user in self.acl.users:
            tree = self._trees[user] = RuleTree(self.acl.users[user])
        return Rights(self.acl, tree, user, client, self._decisions, within)

"""An access-control list in use: it gives each client its rights and shares rule trees and cached decisions."""

from __future__ import annotations

from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRuleTree, DecisionCache, Rights


class AclRights:
    """Gives clients their rights. Rules do not change: another file is another rule book."""

    def __init__(self, acl: Acl, decisions: DecisionCache | None = None) -> None:
        """*decisions*: where those of other rule books are remembered too, if there are many."""
        self.acl = acl
        self._trees: dict[str, AclRuleTree] = {}
        self._decisions = decisions or DecisionCache()

    def rights(self, user: str, client: str, within: Rights | None = None) -> Rights:
        """What *client* may do, who proved to be *user* (empty: nobody in particular)."""
        tree = self._trees.get(user)
        if tree is None and user in self.acl.users:
            tree = self._trees[user] = AclRuleTree(self.acl.users[user])
        return Rights(self.acl, tree, user, client, self._decisions, within)

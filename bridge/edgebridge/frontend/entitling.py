"""What clients may do: the rights of each session, and the question that routes ask before they make a copy for it."""

from __future__ import annotations

from edgebridge.frontend.authenticating import Authenticating
from edgebridge.frontend.entrance import RESERVED
from edgebridge.session.rights import ALWAYS, Decision, Rights
from edgebridge.session.session import Session
from edgebroker.node.routes import Routes


class Entitling:
    """Gives sessions their rights, and sees to it that routes know nothing that does not hold any more."""

    def __init__(self, routes: Routes, authenticating: Authenticating) -> None:
        self._routes = routes
        self._authenticating = authenticating
        self.guard()

    def guard(self) -> None:
        """Let routes ask who may read what, if the files forbid anything to anybody."""
        access = self._authenticating.access
        self._routes.ask = None if access.rules is None and access.tokens is None else self._permission
        self._routes.forget()

    def entitle(self, session: Session) -> None:
        """Give *session* the rights of its user. A bridge that is no user has those of its own rules."""
        if session.client_id.startswith(RESERVED) and not session.user:
            return
        before, access = session.rights, self._authenticating.access
        if before is not None and before.origin == access.origin(session.user, session.claims):
            return  # a fleet that comes back changes nothing
        session.rights = access.rights(session.user, session.client_id, session.claims)
        if session.subscribed and (before is not None or session.rights is not None):
            self._routes.forget()

    def _permission(self, session: Session, topic: str) -> Decision:
        """What routes ask before they make a copy for *session*."""
        if session.rights is None:
            self.entitle(session)
        rights: Rights | None = session.rights
        return ALWAYS if rights is None else rights.read(topic)

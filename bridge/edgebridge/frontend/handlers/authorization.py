"""Authorization: gives each session the rights of its user, and tells routes whether a session may read a topic."""

from __future__ import annotations

from edgebridge.frontend.handlers.authentication import Authenticator
from edgebridge.frontend.memory_accounts import user_of_account
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.acl import AccessKind
from edgebridge.session.authorization import ALWAYS, AccessDecision, Rights
from edgebridge.session.journal.transfer_records import client_of
from edgebridge.session.session import Session
from edgebroker.node.routes import Routes
from edgebroker.publication import Publication


class Authorizer:
    """Gives sessions their rights, and sees to it that routes know nothing that does not hold any more."""

    def __init__(self, routes: Routes, authenticator: Authenticator) -> None:
        self._routes = routes
        self._authenticator = authenticator
        self.guard_routes()

    def guard_routes(self) -> None:
        """Let routes ask who may read what, if the files forbid anything to anybody."""
        access = self._authenticator.access
        self._routes.ask = None if access.rules is None and access.tokens is None else self._permission
        self._routes.forget()

    def authorize(self, session: Session) -> None:
        """Give *session* the rights of its user. A bridge that is no user has those of its own rules."""
        if session.client_id.startswith(BRIDGE_CLIENT_PREFIX) and not session.user:
            return
        before, access = session.rights, self._authenticator.access
        if before is not None and before.origin == access.origin(session.user, session.claims):
            return  # a fleet that comes back changes nothing
        session.rights = access.rights(session.user, client_of(session.client_id), session.claims)
        if session.subscribed and (before is not None or session.rights is not None):
            self._routes.forget()

    @property
    def checks_retain_source(self) -> bool:
        """Whether retained messages are kept back whose publishers may not publish them any more."""
        access = self._authenticator.access
        return access.rules is not None and access.check_retain_source

    def may_still_publish(self, kept: Publication, account: str) -> bool:
        """Whether the client that published *kept*, a retained message, still has the right to.

        *account*: that of the client. What came from a bridge or a peer was judged by its own rules.
        """
        if not self.checks_retain_source or (user := user_of_account(account)) is None:
            return True
        rights = self._authenticator.access.rights(user, kept.publisher)
        return rights is None or rights.decide(kept.topic, AccessKind.WRITE).permits(kept)

    def _permission(self, session: Session, topic: str) -> AccessDecision:
        """What routes ask before they make a copy for *session*."""
        if session.rights is None:
            self.authorize(session)
        rights: Rights | None = session.rights
        return ALWAYS if rights is None else rights.read(topic)

"""The bound on sessions: of all, and half of it for one account (`memory_accounts.account_of`).

A session outlives its connection for up to a month, so sessions that nobody comes back for would keep newcomers out for
as long. When there is no room, the anonymous session whose client left first ends, if no message waits for it. What
was acknowledged for somebody is never given up for a newcomer, nor is the session of a user.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgebridge.frontend.memory_accounts import account_of_user
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX
from edgebridge.session.session import Session

ACCOUNT_SHARE: Final = 2
"""One account may have one part in so many of `sessions_max`: as many sessions as connections by default."""
EXAMINED_MAX: Final = 64
"""Sessions that are looked at for one newcomer: 20 us. Those with messages go to the end and are not in the way."""


class SessionQuota:
    """Counts sessions by account, and knows which may end for a newcomer."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self.refused: Counter[str] = Counter()
        """Sessions that were refused: `all` for want of any, `account` because of the share of one user or address."""
        self._counts: Counter[str] = Counter()
        self._away: dict[str, dict[Session, None]] = {}
        """Sessions without a user whose client is away, by account, the one that left first in front."""

    def refusal(self, account: str, sessions: int) -> str:
        """Why an *account* gets no other session while there are so many *sessions* in all; empty if it does."""
        if sessions >= self.sessions_max:
            return "too many sessions"
        if account and self._counts[account] >= max(1, self.sessions_max // ACCOUNT_SHARE):
            return "too many sessions of one user or address"
        return ""

    def session_to_end(self, account: str, sessions: int) -> Session | None:
        """The session that may end so that *account* gets another; None if there is none.

        While only the account is at its share, it is one of its own.
        """
        if sessions < self.sessions_max:
            return self._abandoned(account)
        found = self._abandoned(account)
        if found is None and self._away:
            found = self._abandoned(max(self._away, key=lambda one: len(self._away[one])))
        return found

    def count_refusal(self, sessions: int) -> None:
        """A session was refused while there were so many *sessions* in all."""
        self.refused["all" if sessions >= self.sessions_max else "account"] += 1

    def charge(self, session: Session, account: str) -> None:
        """*session*, whose client is there, belongs to *account* from now on; the gateway has no share."""
        if session.account != account:
            self._count(session.account, -1)
            self._count(account, 1)
            session.account = account

    def restore(self, session: Session) -> None:
        """*session* was read back from the journal, which does not say from which address an anonymous client came."""
        self.charge(session, account_of_user(session.user))
        self.client_left(session)

    def client_left(self, session: Session) -> None:
        """The client of *session*, which goes on, is away."""
        if not session.user and not session.client_id.startswith(BRIDGE_CLIENT_PREFIX):
            self._away.setdefault(session.account, {})[session] = None

    def client_came(self, session: Session) -> None:
        """The client of *session* is there."""
        away = self._away.get(session.account)
        if away is not None and away.pop(session, session) is None and not away:
            del self._away[session.account]

    def release(self, session: Session) -> None:
        """*session* has ended."""
        self.client_came(session)
        self._count(session.account, -1)
        session.account = ""

    def _count(self, account: str, change: int) -> None:
        if account:
            self._counts[account] += change
            if not self._counts[account]:
                del self._counts[account]

    def _abandoned(self, account: str) -> Session | None:
        away = self._away.get(account, {})
        for _ in range(min(EXAMINED_MAX, len(away))):
            session = next(iter(away))
            if not session.outbox and not len(session.inflight):
                return session
            del away[session]
            away[session] = None
        return None

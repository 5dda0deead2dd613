"""What must be found out about a client that names itself: is this the password, does this token hold?"""

from __future__ import annotations

from typing import TypeAlias

from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.recentproofs import RecentProofs
from edgebridge.session.token import ClockUnknown, TokenInvalid, TokenKeys, is_token
from edgebridge.session.verdict import WRONG, Proof, Verdict
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant


@dataclass(frozen=True, slots=True)
class PasswordQuestion:
    """Is this the password of that user? Takes tens of milliseconds."""

    passwords: PasswordFile
    user: str
    password: bytes

    @property
    def is_slow(self) -> bool:
        """Whether it must not be answered where others wait."""
        return self.passwords.decoy is not None and self.passwords.decoy.cost > 1_000

    @property
    def mark(self) -> str:
        """What the file says of the user."""
        user = self.passwords.users.get(self.user)
        return "" if user is None else str(user.hash)

    def answer(self, unix_s: int) -> Verdict:
        """The verdict."""
        if not self.passwords.accepts(self.user, self.password):
            return WRONG
        return self._passed()

    def recalled(self, proofs: RecentProofs, now: Instant) -> Verdict | None:
        """The verdict, if the password was found right a short while ago."""
        return self._passed() if proofs.knows(self.user, self.password, self.mark, now) else None

    def note(self, proofs: RecentProofs, now: Instant) -> None:
        """The password was found right."""
        proofs.note(self.user, self.password, self.mark, now)

    def _passed(self) -> Verdict:
        return Verdict(user=self.user, proof=Proof.PASSWORD, mark=self.mark)


@dataclass(frozen=True, slots=True)
class TokenQuestion:
    """Does this token hold now? Takes some tens of microseconds, and the time of day."""

    keys: TokenKeys
    user: str
    """Who the client says it is; empty: whoever the token names."""
    password: bytes
    mark: str = ""
    is_slow: bool = False

    def recalled(self, proofs: RecentProofs, now: Instant) -> Verdict | None:
        """None: tokens end, so each is read anew."""
        return None

    def note(self, proofs: RecentProofs, now: Instant) -> None:
        """Nothing is remembered of tokens."""

    def answer(self, unix_s: int) -> Verdict:
        """The verdict."""
        try:
            token = self.keys.read(self.password, unix_s)
        except ClockUnknown as error:
            return Verdict(ReasonCode.SERVER_UNAVAILABLE, str(error))
        except TokenInvalid as error:
            return Verdict(WRONG.reason, f"the token does not hold: {error}")
        if self.user not in ("", token.user):
            return Verdict(WRONG.reason, "the token names another user")
        mark = self.keys.mark(token.key_id)
        return Verdict(user=token.user, proof=Proof.TOKEN, mark=mark, lasts_s=token.until - unix_s, claims=token.claims)


Question: TypeAlias = PasswordQuestion | TokenQuestion


def question(passwords: PasswordFile | None, tokens: TokenKeys | None, user: str, password: bytes) -> Question | None:
    """What to ask of who comes with *user* and *password*; None if no answer could let it in."""
    if tokens is not None and is_token(password):
        return TokenQuestion(tokens, user, password)
    if passwords is None or not user or not password:
        return None
    return PasswordQuestion(passwords, user, password)

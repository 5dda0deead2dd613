"""The checks of credentials that take time or a clock: a password against its hash, a signed token against its key."""

from __future__ import annotations

from typing import TypeAlias

from edgebridge.session.credentials import WRONG_CREDENTIALS, AuthenticationResult, CredentialKind
from edgebridge.session.password_cache import PasswordCache
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.token import ClockUnknown, TokenInvalid, TokenKeys, is_token
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.instants import Instant


@dataclass(frozen=True, slots=True)
class PasswordCheck:
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

    def check(self, unix_s: int) -> AuthenticationResult:
        """The verdict."""
        if not self.passwords.accepts(self.user, self.password):
            return WRONG_CREDENTIALS
        return self._passed()

    def cached_result(self, proofs: PasswordCache, now: Instant) -> AuthenticationResult | None:
        """The verdict, if the password was found right a short while ago."""
        return self._passed() if proofs.contains(self.user, self.password, self.mark, now) else None

    def store_result(self, proofs: PasswordCache, now: Instant) -> None:
        """The password was found right."""
        proofs.add(self.user, self.password, self.mark, now)

    def _passed(self) -> AuthenticationResult:
        return AuthenticationResult(user=self.user, credential=CredentialKind.PASSWORD, mark=self.mark)


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """Does this token hold now? Takes some tens of microseconds, and the time of day."""

    keys: TokenKeys
    user: str
    """Who the client says it is; empty: whoever the token names."""
    password: bytes
    mark: str = ""
    is_slow: bool = False

    def cached_result(self, proofs: PasswordCache, now: Instant) -> AuthenticationResult | None:
        """None: tokens end, so each is read anew."""
        return None

    def store_result(self, proofs: PasswordCache, now: Instant) -> None:
        """Nothing is remembered of tokens."""

    def check(self, unix_s: int) -> AuthenticationResult:
        """The verdict."""
        try:
            token = self.keys.read(self.password, unix_s)
        except ClockUnknown as error:
            return AuthenticationResult(ReasonCode.SERVER_UNAVAILABLE, str(error))
        except TokenInvalid as error:
            return AuthenticationResult(WRONG_CREDENTIALS.reason, f"the token does not hold: {error}")
        if self.user not in ("", token.user):
            return AuthenticationResult(WRONG_CREDENTIALS.reason, "the token names another user")
        mark = self.keys.mark(token.key_id)
        return AuthenticationResult(
            user=token.user,
            credential=CredentialKind.TOKEN,
            mark=mark,
            expires_in_s=token.until - unix_s,
            claims=token.claims,
        )


CredentialCheck: TypeAlias = PasswordCheck | TokenCheck


def credential_check(
    passwords: PasswordFile | None, tokens: TokenKeys | None, user: str, password: bytes
) -> CredentialCheck | None:
    """What to ask of who comes with *user* and *password*; None if no answer could let it in."""
    if tokens is not None and is_token(password):
        return TokenCheck(tokens, user, password)
    if passwords is None or not user or not password:
        return None
    return PasswordCheck(passwords, user, password)

"""Who may come in, and what they may do: the files of an operator put together. Replaced as a whole on reload.

    answer = access.ask("anna", b"secret", is_anonymous=False)
    verdict = answer if isinstance(answer, Verdict) else answer.answer(unix_s)

Questions that need a hash or the time of day are answered by the world, because they are slow or because only it has a
clock. Nothing here changes, so they may be answered in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from edgebridge.session.acl import Acl
from edgebridge.session.passwordfile import PasswordFile
from edgebridge.session.rights import Rights
from edgebridge.session.rulebook import RuleBook
from edgebridge.session.scramsecret import ScramSecret
from edgebridge.session.token import ClockUnknown, TokenInvalid, TokenKeys, is_token
from edgebridge.session.verdict import ANYBODY, NAMELESS, WRONG, Proof, Verdict
from edgebridge.wire.reasons import ReasonCode


class CertificateUser(Enum):
    """What in a client certificate is the user's name."""

    NOBODY = "nobody"
    """A certificate lets a client come to the door; who it is, it says in CONNECT."""
    COMMON_NAME = "common name"
    ALTERNATIVE_NAME = "alternative name"
    """The first of them, without its kind."""


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
        return self.passed()

    def passed(self) -> Verdict:
        """The verdict if the password is right."""
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


@dataclass(frozen=True, slots=True)
class Access:
    """What the operator's files say. Without any, everybody may do everything, as far as listeners let them in."""

    passwords: PasswordFile | None = None
    certificate_user: CertificateUser = CertificateUser.NOBODY
    rules: RuleBook | None = None
    tokens: TokenKeys | None = None

    def ask(
        self, username: str | None, password: bytes | None, is_anonymous: bool, certified: str = ""
    ) -> Verdict | Question:
        """Who comes with this CONNECT? *is_anonymous*: the listener lets in who names no user.

        *certified* is the user that a client certificate names; it comes before all a packet says.
        """
        if certified:
            return Verdict(user=certified, proof=Proof.CERTIFICATE, mark=self.certificate_user.value)
        if username is None and password is None:
            return ANYBODY if is_anonymous else NAMELESS
        if self.tokens is not None and password is not None and is_token(password):
            return TokenQuestion(self.tokens, username or "", password)
        if self.passwords is None and self.tokens is not None:
            return WRONG
        if self.passwords is None:  # names cannot be checked here: who gives one is as anonymous as who gives none
            return ANYBODY if is_anonymous else WRONG
        if not username or not password:
            return WRONG
        return PasswordQuestion(self.passwords, username, password)

    def named_by(self, common_name: str, alternative_names: tuple[str, ...]) -> str:
        """The user that a client certificate names, empty if certificates name nobody here.

        *alternative_names* as `DNS:pump-3.example`, `URI:urn:dev:1`.
        """
        match self.certificate_user:
            case CertificateUser.COMMON_NAME:
                return common_name
            case CertificateUser.ALTERNATIVE_NAME:
                return alternative_names[0].partition(":")[2] if alternative_names else ""
            case CertificateUser.NOBODY:
                return ""

    def still_holds(self, verdict: Verdict, is_anonymous: bool) -> bool:
        """Whether who came in by *verdict* would still be let in, now that these files hold."""
        match verdict.proof:
            case Proof.NOTHING:
                return is_anonymous
            case Proof.PASSWORD:
                user = None if self.passwords is None else self.passwords.users.get(verdict.user)
                return user is not None and str(user.hash) == verdict.mark
            case Proof.SCRAM:
                return verdict.mark == str(self.scram_secret(verdict.user))
            case Proof.TOKEN:
                key_id = verdict.mark.partition(":")[0]
                return self.tokens is not None and self.tokens.mark(key_id) == verdict.mark
            case Proof.CERTIFICATE:
                return verdict.mark == self.certificate_user.value
        return True

    def rights(self, user: str, client: str, claims: Acl | None = None) -> Rights | None:
        """What *client* may do, who is *user*; None: everything. *claims* of a token only ever narrow it."""
        within = None if claims is None else RuleBook(claims).rights(user, client)
        rights = within if self.rules is None else self.rules.rights(user, client, within)
        if rights is not None:
            rights.origin = self.origin(user, claims)
        return rights

    def origin(self, user: str, claims: Acl | None) -> tuple[object, str, Acl | None]:
        """What rights are made of: while it is the same, they are."""
        return self.rules, user, claims

    def scram_secret(self, user: str) -> ScramSecret | None:
        """What SCRAM-SHA-256 needs to know of *user*; None if there is no such user, or no such secret."""
        entry = None if self.passwords is None else self.passwords.users.get(user)
        return None if entry is None else entry.scram


OPEN = Access()
"""Nothing is asked."""

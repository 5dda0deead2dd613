"""Who may come in, and what they may do: the files of an operator put together. Replaced as a whole on reload.

    answer = access.ask("anna", b"secret", is_anonymous=False)
    verdict = answer if isinstance(answer, Verdict) else answer.answer(unix_s)

Questions that need a hash or the time of day are answered by the world, because they are slow or because only it has a
clock. Nothing here changes, so they may be answered in any thread.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final

from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights, DecisionCache, Rights
from edgebridge.session.credentials import (
    ANONYMOUS,
    CREDENTIALS_REQUIRED,
    WRONG_CREDENTIALS,
    AuthenticationResult,
    CredentialKind,
)
from edgebroker.dataclasses import dataclass
from edgebroker.errors import clipped

if TYPE_CHECKING:  # hashes, SCRAM and tokens take 1.5 MiB, and a gateway without such files has no use for them
    from edgebridge.session.credential_checks import CredentialCheck
    from edgebridge.session.passwordfile import PasswordFile
    from edgebridge.session.scram import ScramSecret
    from edgebridge.session.token import TokenKeys


class CertificateUser(Enum):
    """What in a client certificate is the user's name."""

    NOBODY = "nobody"
    """A certificate lets a client come to the door; who it is, it says in CONNECT."""
    COMMON_NAME = "common name"
    ALTERNATIVE_NAME = "alternative name"
    """The first of them, without its kind."""


USER_SEPARATOR: Final = ":"
"""Ends the user name in a client identifier. No name in a password file has one, so no user's prefix is another's."""


class ClientIdRule(Enum):
    """Who may use a client identifier. The owner of a session is the user of the client that used it last."""

    OWNED = "owned"
    """While a session has an owner, its owner alone. A session of an anonymous client has none."""
    USER_PREFIX = "user-prefix"
    """As OWNED; and identifiers of a user are the user name, or begin with it and a colon."""
    FREE = "free"
    """Whoever connects, unless a client of another user is connected. A session is not handed to another user."""

    def refusal(self, user: str, client_id: str, owner: str, is_connected: bool) -> str:
        """Return why *user* may not use *client_id*, for the operator's log; empty if it may.

        user: empty for an anonymous client. client_id: as CONNECT has it, empty if the server assigns one. owner: the
        owner of the session that has the identifier, empty if there is none. is_connected: whether that session has
        a connection.
        """
        if owner not in ("", user) and (is_connected or self is not ClientIdRule.FREE):
            return f"its session belongs to the user {clipped(owner)}"
        is_bound = self is ClientIdRule.USER_PREFIX and user and client_id and owner != user
        if is_bound and client_id != user and not client_id.startswith(user + USER_SEPARATOR):
            return f"it is not the user name {clipped(user)}, nor begins with that and '{USER_SEPARATOR}'"
        return ""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """What the operator's files say. Without any, everybody may do everything, as far as listeners let them in."""

    passwords: PasswordFile | None = None
    certificate_user: CertificateUser = CertificateUser.NOBODY
    rules: AclRights | None = None
    tokens: TokenKeys | None = None
    client_ids: ClientIdRule = field(default=ClientIdRule.OWNED, compare=False)
    """Asked for each CONNECT. Not compared: by itself it asks no client who it is."""
    check_retain_source: bool = field(default=True, compare=False)
    """Whether a retained message is kept back while the client that published it may not publish it any more."""
    decisions: DecisionCache = field(default_factory=DecisionCache, compare=False)
    """About clients whose tokens have claims: each has a rule book of its own."""

    def authenticate(
        self, username: str | None, password: bytes | None, is_anonymous: bool, certified: str = ""
    ) -> AuthenticationResult | CredentialCheck:
        """Who comes with this CONNECT? *is_anonymous*: the listener lets in who names no user.

        *certified* is the user that a client certificate names; it comes before all a packet says. An empty user name
        without a password, or with an empty one, names nobody, as in Mosquitto.
        """
        if certified:
            return AuthenticationResult(
                user=certified, credential=CredentialKind.CERTIFICATE, mark=self.certificate_user.value
            )
        if not username and not password:
            return ANONYMOUS if is_anonymous else CREDENTIALS_REQUIRED
        if self.passwords is None and self.tokens is None:
            # Names cannot be checked here: who gives one is as anonymous as who gives none.
            return ANONYMOUS if is_anonymous else WRONG_CREDENTIALS
        from edgebridge.session.credential_checks import credential_check

        return credential_check(self.passwords, self.tokens, username or "", password or b"") or WRONG_CREDENTIALS

    def certificate_user_name(self, common_name: str, alternative_names: tuple[str, ...]) -> str:
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

    def is_still_valid(self, verdict: AuthenticationResult, is_anonymous: bool) -> bool:
        """Whether who came in by *verdict* would still be let in, now that these files hold."""
        match verdict.credential:
            case CredentialKind.NOTHING:
                return is_anonymous
            case CredentialKind.PASSWORD:
                user = None if self.passwords is None else self.passwords.users.get(verdict.user)
                return user is not None and str(user.hash) == verdict.mark
            case CredentialKind.SCRAM:
                return verdict.mark == str(self.scram_secret(verdict.user))
            case CredentialKind.TOKEN:
                key_id = verdict.mark.partition(":")[0]
                return self.tokens is not None and self.tokens.mark(key_id) == verdict.mark
            case CredentialKind.CERTIFICATE:
                return verdict.mark == self.certificate_user.value
        return True

    def rights(self, user: str, client: str, claims: Acl | None = None) -> Rights | None:
        """What *client* may do, who is *user*; None: everything. *claims* of a token only ever narrow it."""
        within = None if claims is None else AclRights(claims, self.decisions).rights(user, client)
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

    @property
    def scram_decoy(self) -> bytes:
        """What salts of users that do not exist are made of: nobody knows it, and it is the same after a restart.

        Otherwise who asks before and after one would learn by their salts which users exist. Empty if there are none.
        """
        hashed = None if self.passwords is None else self.passwords.decoy
        if hashed is None:
            return b""
        import hashlib

        return hashlib.sha256(str(hashed).encode()).digest()


OPEN = AccessPolicy()
"""Nothing is asked."""

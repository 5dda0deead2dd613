"""The result of authentication: user name, kind of credential, and the reason code for CONNACK."""

from __future__ import annotations

from enum import Enum
from typing import Final

from edgebridge.session.acl import Acl
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass

SCRAM_METHOD: Final = "SCRAM-SHA-256"
"""The name of SCRAM as an authentication method of MQTT 5 (section 4.12) and of SASL."""


class CredentialKind(Enum):
    """How a client proved who it is."""

    NOTHING = "nothing"
    """It did not: an anonymous client."""
    PASSWORD = "password"
    CERTIFICATE = "certificate"
    TOKEN = "token"
    SCRAM = "scram"


@dataclass(frozen=True, slots=True)
class AuthenticationResult:
    """Come in as `user` if `reason` is SUCCESS; else `reason` and `why` are what the client hears."""

    reason: ReasonCode = ReasonCode.SUCCESS
    why: str = ""
    user: str = ""
    """Empty: nobody in particular."""
    credential: CredentialKind = CredentialKind.NOTHING
    mark: str = ""
    """What the proof was made with. If that is not what it was, after the files were read again, it does not hold."""
    expires_in_s: int | None = None
    """How long it holds, in seconds; None: until further notice."""
    claims: Acl | None = None
    """What a token allows at most; None: whatever its user may do."""

    @property
    def is_accepted(self) -> bool:
        """Whether the client may come in."""
        return self.reason == ReasonCode.SUCCESS


ANONYMOUS = AuthenticationResult()
"""An anonymous client comes in."""
WRONG_CREDENTIALS = AuthenticationResult(ReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong user name or password")
"""One answer for both: it does not tell which names exist."""
CREDENTIALS_REQUIRED = AuthenticationResult(ReasonCode.NOT_AUTHORIZED, "this listener wants a user name and a password")

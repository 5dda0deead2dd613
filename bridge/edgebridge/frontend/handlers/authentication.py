"""Authentication between CONNECT and CONNACK: the identity of a client is checked while no other client waits.

A check that needs a hash or the wall clock is a `Verification`. It stands in `waiting` until the world takes it, runs
it in any thread and hands the verdict to `Frontend.verified`. Until then the connection is held: its input is kept
and not read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import source_of
from edgebridge.session.access import OPEN, AccessPolicy
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.password_cache import PasswordCache
from edgebridge.wire.packets import Connect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import VERIFICATION_TIMEOUT_S, VERIFICATIONS_MAX, VERIFICATIONS_PER_ADDRESS_MAX
from edgebroker.node.timers import TimerQueue

if TYPE_CHECKING:
    from edgebridge.session.credential_checks import CredentialCheck

BUSY = AuthenticationResult(ReasonCode.SERVER_BUSY, "too many clients are being asked who they are: come again later")


class Verification:
    """One question about one connection. `run` may be called in any thread."""

    __slots__ = ("connection", "question")

    def __init__(self, connection: Connection, question: CredentialCheck) -> None:
        self.connection = connection
        self.question = question

    @property
    def is_slow(self) -> bool:
        """Whether to run it takes so long that it must not be done where others wait."""
        return self.question.is_slow

    @property
    def is_awaited(self) -> bool:
        """Whether the client is still there. Who hangs up gives its place to others, and shall cost nothing more."""
        return self.connection.state is ConnectionState.AUTHENTICATING and not self.connection.closing

    def run(self, unix_s: int) -> AuthenticationResult:
        """The verdict. *unix_s*: what the wall clock says, in seconds since 1970."""
        return self.question.check(unix_s)


class Authenticator:
    """Asks who a client is, and remembers who was found right."""

    def __init__(self, timers: TimerQueue, access: AccessPolicy = OPEN, secret: bytes = b"") -> None:
        self._timers = timers
        self.access = access
        self.waiting: list[Verification] = []
        """What the world is to run."""
        self._running: dict[int, tuple[Connect, CredentialCheck]] = {}
        self._sources: Counter[str] = Counter()  # of those: so that one address does not keep all others out
        self._proofs = PasswordCache(secret)

    def __len__(self) -> int:
        """How many connections wait for their verdict."""
        return len(self._running)

    def verify(self, connection: Connection, connect: Connect, now: Instant) -> AuthenticationResult | None:
        """Who says *connect*? None: that takes time, and the connection is held until the answer comes."""
        listener_context, certified = connection.listener_context, self.certificate_user(connection)
        if listener_context.verdict is not None:
            return listener_context.verdict
        answer = self.access.authenticate(connect.username, connect.password, listener_context.is_anonymous, certified)
        if isinstance(answer, AuthenticationResult):
            return answer
        if (recalled := answer.cached_result(self._proofs, now)) is not None:
            return recalled
        source = source_of(connection.peer)
        if len(self._running) >= VERIFICATIONS_MAX or self._sources[source] >= VERIFICATIONS_PER_ADDRESS_MAX:
            return BUSY
        self._sources[source] += 1
        connection.state = ConnectionState.AUTHENTICATING
        connection.is_held = True
        self._running[connection.number] = connect, answer
        self._timers.set(("connect", connection.number), now + VERIFICATION_TIMEOUT_S * SECOND)
        self.waiting.append(Verification(connection, answer))
        return None

    def certificate_user(self, connection: Connection) -> str:
        """The user that the client's certificate names; empty if it names nobody."""
        certificate = connection.certificate
        if certificate is None:
            return ""
        return self.access.certificate_user_name(certificate.common_name, certificate.alternative_names)

    def take_waiting(self) -> list[Verification]:
        """What the world is to run now; it is asked once."""
        taken, self.waiting = self.waiting, []
        return taken

    def complete(self, connection: Connection, verdict: AuthenticationResult, now: Instant) -> Connect | None:
        """The CONNECT that *verdict* is about; None if nobody waits for it any more. The connection is held no
        longer.
        """
        running = self._running.pop(connection.number, None)
        if running is None:
            return None
        self._release_source(connection)
        connect, question = running
        if verdict.is_accepted:
            question.store_result(self._proofs, now)
        connection.state = ConnectionState.AWAITING_CONNECT
        connection.is_held = False
        return connect

    def still_holds(self, connection: Connection, verdict: AuthenticationResult) -> bool:
        """Whether *verdict* is still right: other files may hold since it was asked for."""
        return self.access.is_still_valid(verdict, connection.listener_context.is_anonymous)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        if self._running.pop(connection.number, None) is not None:
            self._release_source(connection)

    def _release_source(self, connection: Connection) -> None:
        source = source_of(connection.peer)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]

    def replace_access(self, access: AccessPolicy) -> None:
        """Other files hold from now on."""
        self.access = access
        self._proofs.clear()

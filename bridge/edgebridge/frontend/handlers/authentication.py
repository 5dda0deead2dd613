"""Authentication between CONNECT and CONNACK: the identity of a client is checked while no other client waits.

A check that needs a hash or the wall clock is a `Verification`. It waits until the world takes it, runs it in any
thread and hands the verdict to `Frontend.verified`. Until then the connection is held: its input is kept and not read.
Passwords are checked in turn for each address, and for each user whose last password from an address was right: wrong
passwords from a few addresses delay nobody else by more than one check of each.
"""

from __future__ import annotations

from collections import Counter, deque
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
from edgebroker.limits import ADDRESSES_MAX, VERIFICATION_TIMEOUT_S, VERIFICATIONS_MAX, VERIFICATIONS_PER_ADDRESS_MAX
from edgebroker.node.timers import TimerQueue

if TYPE_CHECKING:
    from edgebridge.session.credential_checks import CredentialCheck

BUSY = AuthenticationResult(ReasonCode.SERVER_BUSY, "too many clients are being asked who they are: come again later")


class Verification:
    """One question about one connection. `run` may be called in any thread."""

    __slots__ = ("connection", "is_displaced", "question")

    def __init__(self, connection: Connection, question: CredentialCheck) -> None:
        self.connection = connection
        self.question = question
        self.is_displaced = False
        """Whether the client is told to come again later, because others have not had their turn yet."""

    @property
    def is_slow(self) -> bool:
        """Whether to run it takes so long that it must not be done where others wait."""
        return self.question.is_slow and not self.is_displaced

    @property
    def is_awaited(self) -> bool:
        """Whether the client is still there. Who hangs up gives its place to others, and shall cost nothing more."""
        return self.connection.state is ConnectionState.AUTHENTICATING and not self.connection.closing

    def run(self, unix_s: int) -> AuthenticationResult:
        """The verdict. *unix_s*: what the wall clock says, in seconds since 1970."""
        return BUSY if self.is_displaced else self.question.check(unix_s)


class VerificationQueue:
    """Slow checks that wait for a thread, by *flow*: an address, or a user who was found right from it before.

    The flows take turns, so a client waits for one check of each other flow, however many these have.
    """

    def __init__(self) -> None:
        self._flows: dict[str, deque[Verification]] = {}

    def __len__(self) -> int:
        return sum([len(flow) for flow in self._flows.values()])

    def add(self, flow: str, verification: Verification) -> None:
        """Add *verification* as the last of its *flow*; a new flow has its turn after all others."""
        self._flows.setdefault(flow, deque()).append(verification)

    def take(self, count: int) -> list[Verification]:
        """Remove and return up to *count* checks in the order of the turns. Those of clients that left are dropped."""
        taken: list[Verification] = []
        while self._flows and len(taken) < count:
            name = next(iter(self._flows))
            flow = self._flows.pop(name)
            verification = flow.popleft()
            if flow:
                self._flows[name] = flow
            if verification.is_awaited:
                taken.append(verification)
        return taken

    def take_from_longest(self, longer_than: int) -> Verification | None:
        """Remove and return the last check of the longest flow; None if no flow has more than *longer_than*, or than
        one: the last one of a flow stays.
        """
        name = max(self._flows, key=lambda name: len(self._flows[name]), default="")
        flow = self._flows.get(name)
        if flow is None or len(flow) <= max(longer_than, 1):
            return None
        return flow.pop()


class Authenticator:
    """Asks who a client is, and remembers who was found right."""

    def __init__(self, timers: TimerQueue, access: AccessPolicy = OPEN, secret: bytes = b"") -> None:
        self._timers = timers
        self.access = access
        self._quick: list[Verification] = []
        self._slow = VerificationQueue()
        self._running: dict[int, tuple[Connect, CredentialCheck, str]] = {}  # the last is the flow
        self._flows: Counter[str] = Counter()  # of those: so that one address does not keep all others out
        self._known: dict[str, None] = {}  # flows of users whose last password from an address was right
        self.displaced = 0
        """Checks that made room for those of other addresses."""
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
        flow = self._flow_of(connection, answer.user)
        if self._flows[flow] >= VERIFICATIONS_PER_ADDRESS_MAX:
            return BUSY
        if len(self._running) >= VERIFICATIONS_MAX and not self._displace_one(self._flows[flow]):
            return BUSY
        self._flows[flow] += 1
        connection.state = ConnectionState.AUTHENTICATING
        connection.is_held = True
        self._running[connection.number] = connect, answer, flow
        self._timers.set(("connect", connection.number), now + VERIFICATION_TIMEOUT_S * SECOND)
        verification = Verification(connection, answer)
        if answer.is_slow:
            self._slow.add(flow, verification)
        else:
            self._quick.append(verification)
        return None

    def _flow_of(self, connection: Connection, user: str) -> str:
        """In whose turn *user*'s password is checked: the user's own, after a right one, else that of the address."""
        source = source_of(connection.peer)
        own = f"{source} {user}"
        return own if own in self._known else source

    def _displace_one(self, longer_than: int) -> bool:
        """Make room: the flow with the most checks, if it has more than *longer_than*, loses its last one."""
        displaced = self._slow.take_from_longest(longer_than)
        if displaced is None:
            return False
        displaced.is_displaced = True
        self._quick.append(displaced)
        self.displaced += 1
        return True

    def certificate_user(self, connection: Connection) -> str:
        """The user that the client's certificate names; empty if it names nobody."""
        certificate = connection.certificate
        if certificate is None:
            return ""
        return self.access.certificate_user_name(certificate.common_name, certificate.alternative_names)

    def take_waiting(self, slow_max: int) -> list[Verification]:
        """What the world is to run now, each once: all that is quick, and up to *slow_max* of the rest, in turns."""
        taken, self._quick = self._quick, []
        return taken + self._slow.take(slow_max)

    def complete(self, connection: Connection, verdict: AuthenticationResult, now: Instant) -> Connect | None:
        """The CONNECT that *verdict* is about; None if nobody waits for it any more. The connection is held no
        longer.
        """
        running = self._running.pop(connection.number, None)
        if running is None:
            return None
        connect, question, flow = running
        self._release_flow(flow)
        if verdict.is_accepted:
            question.store_result(self._proofs, now)
            self._remember(f"{source_of(connection.peer)} {question.user}")
        connection.state = ConnectionState.AWAITING_CONNECT
        connection.is_held = False
        return connect

    def still_holds(self, connection: Connection, verdict: AuthenticationResult) -> bool:
        """Whether *verdict* is still right: other files may hold since it was asked for."""
        return self.access.is_still_valid(verdict, connection.listener_context.is_anonymous)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        running = self._running.pop(connection.number, None)
        if running is not None:
            self._release_flow(running[2])

    def _release_flow(self, flow: str) -> None:
        self._flows[flow] -= 1
        if not self._flows[flow]:
            del self._flows[flow]

    def _remember(self, flow: str) -> None:
        self._known.pop(flow, None)
        if len(self._known) >= ADDRESSES_MAX:
            del self._known[next(iter(self._known))]
        self._known[flow] = None

    def replace_access(self, access: AccessPolicy) -> None:
        """Other files hold from now on."""
        self.access = access
        self._proofs.clear()

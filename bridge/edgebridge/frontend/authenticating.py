"""Between CONNECT and CONNACK: finding out who it is, without anybody else waiting for it.

What takes a hash or the time of day is a `Verification`. It waits in `waiting` until the world fetches it; the world
runs it wherever it likes and hands the verdict to `Frontend.verified`. Until then the connection is held: what it sends
is kept and not read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from edgebridge.frontend.admission import source_of
from edgebridge.frontend.connection import Connection
from edgebridge.session.access import OPEN, Access
from edgebridge.session.lifecycle import State
from edgebridge.session.recentproofs import RecentProofs
from edgebridge.session.verdict import Verdict
from edgebridge.wire.packets import Connect
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import SECOND, Instant
from edgebroker.limits import VERIFICATION_TIMEOUT_S, VERIFICATIONS_MAX, VERIFICATIONS_PER_ADDRESS_MAX
from edgebroker.node.timers import Timers

if TYPE_CHECKING:
    from edgebridge.session.questions import Question

BUSY = Verdict(ReasonCode.SERVER_BUSY, "too many clients are being asked who they are: come again later")


class Verification:
    """One question about one connection. `run` may be called in any thread."""

    __slots__ = ("connection", "question")

    def __init__(self, connection: Connection, question: Question) -> None:
        self.connection = connection
        self.question = question

    @property
    def is_slow(self) -> bool:
        """Whether to run it takes so long that it must not be done where others wait."""
        return self.question.is_slow

    @property
    def is_awaited(self) -> bool:
        """Whether the client is still there. Who hangs up gives its place to others, and shall cost nothing more."""
        return self.connection.state is State.AUTHENTICATING and not self.connection.closing

    def run(self, unix_s: int) -> Verdict:
        """The verdict. *unix_s*: what the wall clock says, in seconds since 1970."""
        return self.question.answer(unix_s)


class Authenticating:
    """Asks who a client is, and remembers who was found right."""

    def __init__(self, timers: Timers, access: Access = OPEN, secret: bytes = b"") -> None:
        self._timers = timers
        self.access = access
        self.waiting: list[Verification] = []
        """What the world is to run."""
        self._running: dict[int, tuple[Connect, Question]] = {}
        self._sources: Counter[str] = Counter()  # of those: so that one address does not keep all others out
        self._proofs = RecentProofs(secret)

    def __len__(self) -> int:
        """How many connections wait for their verdict."""
        return len(self._running)

    def ask(self, connection: Connection, connect: Connect, now: Instant) -> Verdict | None:
        """Who says *connect*? None: that takes time, and the connection is held until the answer comes."""
        entrance, certified = connection.entrance, self.certified(connection)
        if entrance.verdict is not None:
            return entrance.verdict
        answer = self.access.ask(connect.username, connect.password, entrance.is_anonymous, certified)
        if isinstance(answer, Verdict):
            return answer
        if (recalled := answer.recalled(self._proofs, now)) is not None:
            return recalled
        source = source_of(connection.peer)
        if len(self._running) >= VERIFICATIONS_MAX or self._sources[source] >= VERIFICATIONS_PER_ADDRESS_MAX:
            return BUSY
        self._sources[source] += 1
        connection.state = State.AUTHENTICATING
        connection.is_held = True
        self._running[connection.number] = connect, answer
        self._timers.set(("connect", connection.number), now + VERIFICATION_TIMEOUT_S * SECOND)
        self.waiting.append(Verification(connection, answer))
        return None

    def certified(self, connection: Connection) -> str:
        """The user that the client's certificate names; empty if it names nobody."""
        certificate = connection.certificate
        if certificate is None:
            return ""
        return self.access.named_by(certificate.common_name, certificate.alternative_names)

    def take(self) -> list[Verification]:
        """What the world is to run now; it is asked once."""
        taken, self.waiting = self.waiting, []
        return taken

    def answered(self, connection: Connection, verdict: Verdict, now: Instant) -> Connect | None:
        """The CONNECT that *verdict* is about; None if nobody waits for it any more. The connection is held no
        longer.
        """
        running = self._running.pop(connection.number, None)
        if running is None:
            return None
        self._left(connection)
        connect, question = running
        if verdict.is_yes:
            question.note(self._proofs, now)
        connection.state = State.AWAITING_CONNECT
        connection.is_held = False
        return connect

    def holds(self, connection: Connection, verdict: Verdict) -> bool:
        """Whether *verdict* is still right: other files may hold since it was asked for."""
        return self.access.still_holds(verdict, connection.entrance.is_anonymous)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        if self._running.pop(connection.number, None) is not None:
            self._left(connection)

    def _left(self, connection: Connection) -> None:
        source = source_of(connection.peer)
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]

    def replace(self, access: Access) -> None:
        """Other files hold from now on."""
        self.access = access
        self._proofs.forget()

"""What we say to the remote of ourselves, and what its CONNACK makes of it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from edgebridge.upstream import greeting
from edgebridge.upstream.ends import Ends
from edgebridge.upstream.terms import Granted, Memory, Terms
from edgebridge.upstream.words import in_words
from edgebridge.wire.dialect import V311, V311_BRIDGE, Dialect
from edgebridge.wire.packets import ConnAck, Disconnect
from edgebridge.wire.reasons import FAILURE, ReasonCode
from edgebroker.instants import Instant

PRIVATE_TRIES: Final = 2
"""Connections in vain that say that this is a bridge; then one says that it is any client."""
PRIVATE_TRIES_KNOWN: Final = 12
"""The same where the last greeting was an answer to a bridge. What stands before a broker that is down takes
connections and ends them; but there may be another broker meanwhile, which cannot bear what bridges say."""
MOVE_ON: Final = frozenset(
    {
        ReasonCode.SERVER_BUSY,
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.USE_ANOTHER_SERVER,
        ReasonCode.SERVER_MOVED,
    }
)
"""Good-byes after which another address is better. The one it names is not dialled: an operator says whom to trust."""


class Again(Enum):
    """The remote is to be dialled once more, and at once: we say something else then."""

    AT_ONCE = "at once"


class Introduction:
    """From one connection to the next: what was said in vain is said in another way."""

    def __init__(self, terms: Terms, memory: Memory, ends: Ends, knows_bridges: bool = False) -> None:
        self.knows_bridges = knows_bridges
        """Whether the remote greeted us last when we had said that this is a bridge, in version 3.1.1."""
        self._terms = terms
        self._ends = ends
        self._may_be_private = terms.try_private and terms.dialect is V311
        self._is_plain = not self._may_be_private
        self._will_qos, self._will_retains = 1, True  # until a remote refuses such a will
        self._memory = memory
        self._is_in_doubt = memory.is_in_doubt()
        self._awaits_answer = False  # to a CONNECT that a remote may have taken
        self._in_vain = 0  # connections to one address that ended before CONNACK, one after the other
        # A session of ours that begins anew numbers its messages anew: the remote would take them for old ones.
        self._is_anew = terms.wants_exactly_once and not memory.has_met()

    def begin(self) -> None:
        """Say who we are."""
        dialect = self._dialect
        self._is_in_doubt |= self._awaits_answer
        # What a remote cannot bear begins no session there: it would be in doubt each time.
        self._awaits_answer = dialect is not V311_BRIDGE or self.knows_bridges
        self._ends.granted = Granted(dialect)
        will = self._will_qos, self._will_retains
        self._ends.tell_remote(greeting.connect_remote(self._terms, dialect, self._is_anew, *will))

    def note(self, now: Instant) -> None:
        """Keep what is in doubt from now on, or no longer, for the case that we are killed before more is known."""
        if self._awaits_answer:
            self._memory.doubt(now)
        elif not self._is_in_doubt:
            self._memory.trust(now)

    def is_known(self) -> None:
        """What the last CONNACK said of our session is acted upon: of what was before it there is no doubt any more."""
        self._is_in_doubt = False

    def unanswered(self) -> bool:
        """The remote closed the connection before CONNACK; whether nothing else is left to be said to this one."""
        if not self._may_be_private:
            return True
        # Twice may mean that it cannot bear what bridges say first; once, anything.
        tries = PRIVATE_TRIES_KNOWN if self.knows_bridges else PRIVATE_TRIES
        self._in_vain = (self._in_vain + 1) % (tries + 1)
        self._is_plain = self._in_vain == tries
        return self._in_vain == 0

    def answered(self, connack: ConnAck) -> Granted | Again | str:
        """What the remote grants; or why there is nothing to be had."""
        self._awaits_answer = False
        if connack.reason >= FAILURE:
            if connack.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and not self._is_plain:
                # It does not know what bridges say first: once more, as any client.
                self._is_plain, self._may_be_private = True, False
                return Again.AT_ONCE
            if self._lowers_will(connack.reason):
                return Again.AT_ONCE
            return f"the remote refuses us: {in_words(connack.reason, connack.properties)}"
        granted = Granted.of(connack, self._dialect, self._terms.keep_alive_s, self._is_in_doubt)
        if granted.identity and granted.identity == self._terms.identity:
            return "the remote is this gateway itself"
        if self._is_anew:
            self._is_anew = False
            if not self._dialect.has_properties:  # for 3.1.1 a session that begins anew ends with its connection
                self._ends.tell_remote(Disconnect())
                return Again.AT_ONCE
        self._in_vain = 0
        self.knows_bridges = self._dialect is V311_BRIDGE
        self._is_plain = not self._may_be_private  # that it greets any client does not say that it knows no bridges
        return granted

    def _lowers_will(self, reason: ReasonCode) -> bool:
        """Whether the will asks for less from now on. What a remote bears it says in CONNACK only, when it was told."""
        if reason == ReasonCode.RETAIN_NOT_SUPPORTED and self._will_retains:
            self._will_retains = False
        elif reason == ReasonCode.QOS_NOT_SUPPORTED and self._will_qos:
            self._will_qos = 0
        else:
            return False
        return bool(self._terms.notification_topic)

    @property
    def _dialect(self) -> Dialect:
        return self._terms.dialect if self._is_plain else V311_BRIDGE

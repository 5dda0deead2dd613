"""What the front end remembers of a bridge: its session, as the bridge may see it and bound it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from edgebridge.frontend.bounds import Bounds, bound, described
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.replaying import Replays
from edgebridge.session.acquaintance import DOUBTED, NEVER, NOT_MET, NOT_TOLD
from edgebridge.session.records import gone_record
from edgebridge.session.session import Session
from edgebridge.wire.fields import U16_MAX
from edgebroker.instants import Instant
from edgebroker.names import ClientId


class BridgeSession:
    """The session of one bridge, looked up anew each time: it may begin and end."""

    def __init__(self, frontend: Frontend, client_id: str) -> None:
        self._frontend = frontend
        self._client_id = ClientId(client_id)
        self._noted = 0  # the record that has to be on disk before the remote is asked for its session

    @property
    def session(self) -> Session | None:
        """It; None if there is none."""
        return self._frontend.connecting.sessions.get(self._client_id)

    def is_known(self) -> bool:
        """Whether it has a session."""
        return self.session is not None

    def has_met(self) -> bool:
        """Whether the remote was there since that session began: the end that it was given first is not for ever."""
        return self.session is not None and self.session.expiry_s in (NEVER, NOT_TOLD, DOUBTED)

    def part(self, now: Instant) -> None:
        """What it met is no longer who it will meet: nothing there belongs to this session."""
        if self.session is not None:
            self._ends(self.session, NOT_MET, now)

    def has_told(self) -> bool:
        """Whether the remote has all that was retained here when it met this session, or lost its own."""
        return self.session is not None and self.session.expiry_s in (NEVER, DOUBTED)

    def is_in_doubt(self) -> bool:
        """Whether the remote was asked for that session, and nothing came of it yet."""
        return self.session is not None and self.session.expiry_s == DOUBTED

    def doubt(self, now: Instant) -> None:
        """The remote is about to be asked for the session: if we are killed then, it may have begun another."""
        session, keeping = self.session, self._frontend.keeping
        if session is not None and session.expiry_s == NEVER:
            session.expiry_s, session.gone_at = DOUBTED, now
            if session.number:
                self._noted = keeping.append(gone_record(session, now + keeping.clock), True, now)

    def trust(self, now: Instant) -> None:
        """It has refused us, and begun nothing."""
        if self.session is not None and self.session.expiry_s == DOUBTED:
            self._ends(self.session, NEVER, now)

    def is_noted(self) -> bool:
        """Whether the remote may be asked: the doubt is on disk; or the disk takes nothing, and an operator knows."""
        return self._noted <= self._frontend.keeping.synced or self._frontend.keeping.is_refusing

    def is_telling(self) -> bool:
        """Whether something of that still waits to be sent."""
        return self.session is not None and bool(self.session.replays)

    def tell_all(self, now: Instant) -> None:
        """The remote is to be told all that is retained, once, but for what waits for it already."""
        session, is_state = self.session, self._frontend.delivery.is_state
        if session is None:
            return
        self._ends(session, NOT_TOLD, now)
        entries = [*session.inflight, *session.outbox]  # as it is now: 1 ms for 100,000
        publications = (entry.publication for entry in entries)
        replays = Replays(one.topic if is_state(one) else None for one in publications)
        replays.look()  # the rest, if there is more, in other turns
        for replay in session.replays or ():
            if replay.given is None:
                replays.owe(replay.subscription, replay.request, replay.skips_own)
            else:
                replays.append(replay)
        session.replays = replays

    def told(self, now: Instant) -> None:
        """It has been told."""
        session = self.session
        if session is not None:
            session.replays = session.replays or None  # with what it remembers of them
            self._ends(session, NEVER, now)

    def _ends(self, session: Session, expiry_s: int, now: Instant) -> None:
        session.expiry_s, session.gone_at = expiry_s, now
        self._frontend.keeping.gone(session, now)

    def subscribed(self) -> Sequence[str]:
        """The texts of its subscriptions."""
        return tuple(self._frontend.node.subscriptions.of(self._client_id))

    def received(self) -> Sequence[int]:
        """Packet identifiers of the QoS 2 messages that it published and did not release."""
        return () if self.session is None else sorted(self.session.received)

    def send_again(self, now: Instant) -> int:
        """The remote forgot that it has messages whose PUBREC came: they are sent again. How many.

        It has a new session by now, so after a crash nothing would tell that it forgot: the journal has to.
        """
        session = self.session
        if session is None:
            return 0
        released = [entry for entry in session.inflight if entry.released]
        for entry in released:
            entry.released = False
            if entry.number:
                self._frontend.keeping.sent(session, entry, now)
        return len(released)

    def oldest(self) -> tuple[int, str, int] | None:
        """Packet identifier, topic and bytes of the message that waits longest for its answer."""
        session = self.session
        entry = None if session is None else next(iter(session.inflight), None)
        if entry is None:
            return None
        return entry.packet_id, entry.publication.topic, len(entry.publication.payload)

    def can_retain(self, topic: str, size: int) -> bool:
        """Whether there is room for a message of *topic* with *size* bytes among those that are retained."""
        return self._frontend.retained.has_room(topic, size)

    def window(self) -> int:
        """How many messages it may have on their way at once."""
        return 0 if self.session is None else self.session.inflight.window

    def wall(self, now: Instant) -> int:
        """Microseconds since 1970, as far as the gateway knows."""
        return now + self._frontend.keeping.clock

    def is_too_old(self, packet_id: int, now: Instant) -> bool:
        """Whether the message that it sent us under this identifier has waited for longer than any may."""
        session = self.session
        if session is None or not session.outbox.age_us:
            return False
        publication = next((one.publication for one in session.inflight if one.packet_id == packet_id), None)
        return (
            publication is not None
            and now - publication.accepted_at > session.outbox.age_us
            and not self._frontend.delivery.is_state(publication)
        )

    def spare(self, count: int) -> Sequence[int]:
        """Packet identifiers of which no message is on its way, nor will be soon: those that were given long ago."""
        session = self.session
        last = 0 if session is None else session.inflight.last_id
        taken = set() if session is None else {entry.packet_id for entry in session.inflight}
        backwards = ((last - step - 1) % U16_MAX + 1 for step in range(U16_MAX))
        free = (packet_id for packet_id in backwards if packet_id not in taken)
        return list(islice(chain(free, taken), count))  # a window of before may have been larger

    def bound(self, bounds: Bounds, now: Instant) -> None:
        """What may wait in it is said by *bounds* from now on."""
        if self.session is not None:
            bound(self._frontend, self.session, bounds, now)

    def described(self, now: Instant) -> dict[str, Any]:
        """What waits in it, and what was dropped of that."""
        return described(self.session, now)

"""QoS 1 and 2 messages waiting for a client: for a slot in its window, or for the client itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum

from edgebridge.session.carriers import SHARE_PREFIX
from edgebridge.session.inflight import Entry


class QueueFull(StrEnum):
    """What becomes of messages when a queue is full. A user chooses; every drop is counted by its cause."""

    DROP_NEWEST = "drop-newest"
    """What comes is dropped: the reader gets what it missed first."""
    DROP_OLDEST = "drop-oldest"
    """What waits longest makes room: the reader gets what is new."""
    KEEP_LAST = "keep-last"
    """Of each topic only the last message waits, full or not; beyond that as drop-oldest."""
    REFUSE = "refuse"
    """The publisher is refused (0x97) before anybody gets the message: nothing that was taken is dropped."""


class Allowance:
    """What all queues of a broker may hold together, and what they do hold."""

    __slots__ = ("bytes", "bytes_max", "messages", "messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0


class Outbox:
    """A queue bounded in messages and in the bytes they hold, of itself and with all others together."""

    __slots__ = (
        "_allowance",
        "_bytes",
        "_entries",
        "_last",
        "bytes_max",
        "dropped",
        "groups",
        "messages_max",
        "policy",
    )

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        policy: QueueFull = QueueFull.DROP_NEWEST,
        allowance: Allowance | None = None,
    ) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.policy = policy
        self.dropped = 0
        """Messages that had no room, since the session began."""
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._allowance = allowance or Allowance(messages_max, bytes_max)
        self._last: dict[str, Entry] = {}  # of each topic, if only that may wait
        self.groups: dict[str, int] = {}
        """Of how many messages that wait the session is a group's member, by the group's name."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def held_bytes(self) -> int:
        """What the messages in it hold."""
        return self._bytes

    def has_room(self, size: int) -> bool:
        """Whether a message that holds *size* bytes fits."""
        allowance = self._allowance
        return (
            len(self._entries) < self.messages_max
            and self._bytes + size <= self.bytes_max
            and allowance.messages < allowance.messages_max
            and allowance.bytes + size <= allowance.bytes_max
        )

    def superseded_by(self, entry: Entry) -> Entry | None:
        """Take out and return the message that need not wait any more, because *entry* has the same topic."""
        if self.policy is not QueueFull.KEEP_LAST:
            return None
        before = self._last.get(entry.publication.topic)
        if before is not None:
            self._entries.remove(before)
            self._left(before)
        return before

    def make_room(self, entry: Entry) -> Entry | None:
        """Take out and return the oldest message, if it must go for *entry*. None if none must, or none may."""
        size = entry.publication.held_bytes()
        if self.policy not in (QueueFull.DROP_OLDEST, QueueFull.KEEP_LAST) or not self._entries:
            return None
        if self.has_room(size) or size > self.bytes_max:
            return None
        self.dropped += 1
        return self.take()

    def has_more(self, size: int) -> bool:
        """Whether a message of *size* bytes may wait beyond the queue's own bounds: while all queues together hold less
        than half of what they may. The other half is for those that keep to theirs.
        """
        allowance = self._allowance
        return 2 * allowance.messages < allowance.messages_max and 2 * (allowance.bytes + size) <= allowance.bytes_max

    def offer(self, entry: Entry, is_promised: bool = False) -> bool:
        """Queue *entry*; False if there is no room. *is_promised*: nobody can be refused now, `has_more` will do."""
        size = entry.publication.held_bytes()
        if not self.has_room(size) and not (is_promised and self.has_more(size)):
            self.dropped += 1
            return False
        self.restore(entry)
        return True

    def restore(self, entry: Entry) -> None:
        """Queue *entry* whatever the bounds: it was let in when they were asked, before a restart."""
        size = entry.publication.held_bytes()
        self._entries.append(entry)
        self._bytes += size
        self._allowance.messages += 1
        self._allowance.bytes += size
        if self.policy is QueueFull.KEEP_LAST:
            self._last[entry.publication.topic] = entry
        if entry.text.startswith(SHARE_PREFIX):
            self.groups[entry.text] = self.groups.get(entry.text, 0) + 1

    def pick(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out the entries that are *wanted*, oldest first."""
        picked = [entry for entry in self._entries if wanted(entry)]
        if picked:
            out = set(map(id, picked))
            self._entries = deque([entry for entry in self._entries if id(entry) not in out])
            for entry in picked:
                self._left(entry)
        return picked

    def take(self) -> Entry:
        """The oldest entry. Raises IndexError if there is none."""
        entry = self._entries.popleft()
        self._left(entry)
        return entry

    def clear(self) -> None:
        """Let go of everything: the session ends."""
        while self._entries:
            self.take()

    def _left(self, entry: Entry) -> None:
        size = entry.publication.held_bytes()
        self._bytes -= size
        self._allowance.messages -= 1
        self._allowance.bytes -= size
        if self._last.get(entry.publication.topic) is entry:
            del self._last[entry.publication.topic]
        if entry.text in self.groups:
            self.groups[entry.text] -= 1
            if not self.groups[entry.text]:
                del self.groups[entry.text]

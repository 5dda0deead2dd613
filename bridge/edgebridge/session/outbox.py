"""QoS 1 and 2 messages waiting for a client: for a slot in its window, or for the client itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from edgebridge.session.inflight import Entry


class Outbox:
    """A queue bounded in messages and in the bytes they hold. What does not fit is the newest, and is refused."""

    __slots__ = ("_bytes", "_entries", "bytes_max", "messages_max")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def held_bytes(self) -> int:
        """What all entries hold."""
        return self._bytes

    def offer(self, entry: Entry) -> bool:
        """Queue *entry*; False if a bound would be passed."""
        size = entry.publication.held_bytes()
        if len(self._entries) >= self.messages_max or self._bytes + size > self.bytes_max:
            return False
        self._entries.append(entry)
        self._bytes += size
        return True

    def pick(self, wanted: Callable[[Entry], bool]) -> list[Entry]:
        """Take out the entries that are *wanted*, oldest first."""
        picked = [entry for entry in self._entries if wanted(entry)]
        if picked:
            out = set(map(id, picked))
            self._entries = deque([entry for entry in self._entries if id(entry) not in out])
            self._bytes -= sum([entry.publication.held_bytes() for entry in picked])
        return picked

    def take(self) -> Entry:
        """The oldest entry. Raises IndexError if there is none."""
        entry = self._entries.popleft()
        self._bytes -= entry.publication.held_bytes()
        return entry

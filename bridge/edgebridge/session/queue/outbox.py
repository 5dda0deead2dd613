"""The queue of QoS 1 and 2 messages that wait for one session: for a slot in its window, or for its client.

The middle of a long queue of a durable session is on the disk. In the order of sending there are: the *head*, which was
read back from a page; *pages*, which are on the disk or on their way there (`frontend.journal.queue_pager`); and the
*tail*, where messages arrive. Without pages all messages are in the tail, or some still in the head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from itertools import chain, islice
from operator import is_

from edgebridge.session.inflight import QueueEntry
from edgebridge.session.queue.page import QueuePage
from edgebridge.session.subscription_text import SHARE_PREFIX
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause
from edgebroker.publication import Publication


class OverflowPolicy(StrEnum):
    """What becomes of messages when a queue is full. A user chooses; every drop is counted by its cause."""

    DROP_NEWEST = "drop-newest"
    """What comes is dropped: the reader gets what it missed first."""
    DROP_OLDEST = "drop-oldest"
    """What waits longest makes room: the reader gets what is new."""
    KEEP_LAST = "keep-last"
    """Of each topic only the last message waits, full or not; beyond that as drop-oldest."""
    DOWN_SAMPLE = "down-sample"
    """Of each topic every second message goes, and never the last: the reader gets less and less of what is older."""
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

    @property
    def is_nearly_full(self) -> bool:
        """Whether all queues together hold nine tenths of what they may, or more."""
        return reaches_nine_tenths(self.messages, self.messages_max) or reaches_nine_tenths(self.bytes, self.bytes_max)


def reaches_nine_tenths(count: int, most: int) -> bool:
    """Whether *count* is nine tenths of *most*, or more."""
    return 0 < most - most // 10 <= count


class SessionOutbox:
    """A queue bounded in messages and in the bytes they hold, of itself and with all others together."""

    __slots__ = (
        "_allowance",
        "_bytes",
        "_entries",
        "_head",
        "_messages",
        "age_us",
        "bytes_max",
        "cause",
        "dropped",
        "dropped_by",
        "expiring",
        "groups",
        "is_live_first",
        "messages_max",
        "next_expiry_check_at",
        "paged_bytes",
        "paged_messages",
        "pages",
        "policy",
    )

    def __init__(
        self,
        messages_max: int,
        bytes_max: int,
        policy: OverflowPolicy = OverflowPolicy.DROP_NEWEST,
        allowance: Allowance | None = None,
    ) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.policy = policy
        self.dropped = 0
        """Messages that had no room, since the session began."""
        self.dropped_by: dict[Cause, int] | None = None
        """All that were for the reader and were given up, by cause; None: nobody wants to know."""
        self.cause = Cause.QUEUE_FULL
        """Why what `make_room` took out last has to go."""
        self.age_us = 0
        """How long a message may wait (`Spool`); 0: as long as the session lasts."""
        self.is_live_first = False
        """Whether what comes while the reader is there goes before what waited for it (`Spool`)."""
        self.expiring = 0
        """How many of the messages in it will expire."""
        self.next_expiry_check_at: Instant = 0
        """When somebody looks for those that have; 0: nobody does."""
        self._head: list[QueueEntry] = []  # an empty deque takes 760 bytes, in each session
        self.pages: list[QueuePage] = []
        """Parts of the queue that are on the disk or on their way there, in the order of sending."""
        self.paged_messages = 0
        """Messages in `pages`..."""
        self.paged_bytes = 0
        """...and what they hold."""
        self._entries: deque[QueueEntry] = deque()
        self._messages = 0
        self._bytes = 0
        self._allowance = allowance or Allowance(messages_max, bytes_max)
        self.groups: dict[str, int] = {}
        """Of how many messages that wait the session is a group's member, by the group's name."""

    def __len__(self) -> int:
        return self._messages

    def __iter__(self) -> Iterator[QueueEntry]:
        """Iterate over the messages that are in memory, in the order of sending."""
        writing = chain.from_iterable([page.entries for page in self.pages if page.entries is not None])
        return chain(self.before_pages(), writing, self.behind_pages())

    def before_pages(self) -> Iterator[QueueEntry]:
        """Iterate over what is sent before any page."""
        return iter(self._head)

    def behind_pages(self) -> Iterator[QueueEntry]:
        """Iterate over what is sent behind all pages."""
        return iter(self._entries)

    @property
    def held_bytes(self) -> int:
        """What the messages in it hold, in memory or on the disk."""
        return self._bytes

    @property
    def is_nearly_full(self) -> bool:
        """Whether it holds nine tenths of the messages or bytes that it may, or more."""
        return reaches_nine_tenths(self._messages, self.messages_max) or reaches_nine_tenths(
            self._bytes, self.bytes_max
        )

    @property
    def head_messages(self) -> int:
        """Messages that were read back from a page."""
        return len(self._head)

    @property
    def tail_messages(self) -> int:
        """Messages behind all pages."""
        return self._messages - self.paged_messages - len(self._head)

    def is_ready(self) -> bool:
        """Whether a message can be dequeued: one waits, and the first page need not be read before."""
        return self._messages > 0 and (not self.pages or len(self._head) > 0)

    def count_dropped(self, cause: Cause, count: int) -> None:
        """So many that were for the reader were given up; somebody may want to know."""
        counts = self.dropped_by
        if counts is not None:
            counts[cause] = counts.get(cause, 0) + count

    def has_room(self, size: int) -> bool:
        """Whether a message that holds *size* bytes fits."""
        allowance = self._allowance
        return (
            self._messages < self.messages_max
            and self._bytes + size <= self.bytes_max
            and allowance.messages < allowance.messages_max
            and allowance.bytes + size <= allowance.bytes_max
        )

    def has_room_for(self, size: int, copies: int, copies_of_all: int) -> bool:
        """As `has_room`, for so many *copies* of a message while so many are to wait in all queues together."""
        allowance = self._allowance
        return (
            self._messages + copies <= self.messages_max
            and self._bytes + copies * size <= self.bytes_max
            and allowance.messages + copies_of_all <= allowance.messages_max
            and allowance.bytes + copies_of_all * size <= allowance.bytes_max
        )

    def could_hold_copies(self, size: int, copies: int, copies_of_all: int) -> bool:
        """As `has_room_for`, if nothing waited anywhere. Of a single copy its own queue is not asked again."""
        allowance = self._allowance
        return (
            (copies < 2 or (copies <= self.messages_max and copies * size <= self.bytes_max))
            and copies_of_all <= allowance.messages_max
            and copies_of_all * size <= allowance.bytes_max
        )

    def could_hold(self, size: int) -> bool:
        """Whether a message that holds *size* bytes would fit if nothing waited here."""
        allowance = self._allowance
        return (
            size <= self.bytes_max
            and allowance.messages - self._messages < allowance.messages_max
            and allowance.bytes - self._bytes + size <= allowance.bytes_max
        )

    def refuses(self, size: int) -> bool:
        """Whether who publishes a message that holds *size* bytes is to be told that there is no room."""
        return self.policy is OverflowPolicy.REFUSE and not self.has_room(size)

    def superseded_by(self, entry: QueueEntry) -> QueueEntry | None:
        """Take out and return the message that need not wait any more, because *entry* has the same topic. None if none
        does, or *entry* cannot wait itself.
        """
        return None

    def holds_later(self, publication: Publication) -> bool:
        """Whether a later message of its topic waits, and only the last one is to (`Spool`)."""
        return False

    def make_room(self, entry: QueueEntry) -> QueueEntry | None:
        """Take out and return the message that goes next for *entry*. None if none must, or none may."""
        if self.policy is not OverflowPolicy.DROP_OLDEST or not self.is_ready():
            return None
        size = entry.publication.held_bytes()
        if self.has_room(size) or not self.could_hold(size):
            return None
        self.dropped += 1
        return self.dequeue()

    def has_shared_room(self, size: int) -> bool:
        """Whether a message of *size* bytes may wait beyond the queue's own bounds: while all queues together hold less
        than half of what they may. The other half is for those that keep to theirs.
        """
        allowance = self._allowance
        return 2 * allowance.messages < allowance.messages_max and 2 * (allowance.bytes + size) <= allowance.bytes_max

    def enqueue(self, entry: QueueEntry, is_promised: bool = False) -> bool:
        """Queue *entry*; False if there is no room. *is_promised*: nobody can be refused now, `has_more` will do."""
        size = entry.publication.held_bytes()
        if not self.has_room(size) and not (is_promised and self.has_shared_room(size)):
            self.dropped += 1
            return False
        self.restore(entry)
        return True

    def restore(self, entry: QueueEntry) -> None:
        """Queue *entry* whatever the bounds: it was let in when they were asked, before a restart."""
        size = entry.publication.held_bytes()
        self._entries.append(entry)
        self._came(entry, size)

    def move_from(self, old: SessionOutbox) -> None:
        """Let what waits in *old*, of the same allowance, wait here, whatever the bounds. Nothing waits here yet."""
        self._head.extend(old.before_pages())
        self.pages, self.paged_messages, self.paged_bytes = old.pages, old.paged_messages, old.paged_bytes
        self._fill(list(old.behind_pages()))
        self._messages, self._bytes, self.groups = old._messages, old._bytes, old.groups
        self.expiring, self.next_expiry_check_at = old.expiring, old.next_expiry_check_at

    def _fill(self, entries: list[QueueEntry]) -> None:
        self._entries.extend(entries)

    def _came(self, entry: QueueEntry, size: int) -> None:
        self._messages += 1
        self._bytes += size
        self._allowance.messages += 1
        self._allowance.bytes += size
        self.expiring += entry.publication.expires_at is not None
        if entry.text.startswith(SHARE_PREFIX):
            self.groups[entry.text] = self.groups.get(entry.text, 0) + 1

    def remove_if(self, wanted: Callable[[QueueEntry], bool]) -> list[QueueEntry]:
        """Take out the entries in memory that are *wanted*, oldest first, but none that are on their way to a page."""
        return self._remove_from_head(wanted) + self._remove_from_tail(wanted)

    def _remove_from_head(self, wanted: Callable[[QueueEntry], bool]) -> list[QueueEntry]:
        picked, self._head = self._split(self._head, wanted)
        return picked

    def _remove_from_tail(self, wanted: Callable[[QueueEntry], bool]) -> list[QueueEntry]:
        picked, kept = self._split(self._entries, wanted)
        if picked:
            self._entries = deque(kept)
        return picked

    def _split(
        self, entries: Iterable[QueueEntry], wanted: Callable[[QueueEntry], bool]
    ) -> tuple[list[QueueEntry], list[QueueEntry]]:
        picked: list[QueueEntry] = []
        kept: list[QueueEntry] = []
        for entry in entries:
            (picked if wanted(entry) else kept).append(entry)
        for entry in picked:
            self._left(entry)
        return picked, kept

    def dequeue_expired(self, now: Instant, most: int) -> list[QueueEntry]:
        """Take out and return what has expired in memory, oldest first, and no more than *most* of it."""
        in_memory = chain(self.before_pages(), self.behind_pages())
        taken = list(islice((entry for entry in in_memory if entry.publication.has_expired(now)), most))
        if (
            not self.pages and not self._head and all(map(is_, taken, self._entries))
        ):  # all of it is oldest, as it mostly is
            return [self.dequeue() for _ in taken]
        out = set(map(id, taken))
        return self.remove_if(lambda entry: id(entry) in out)

    def next_expiry(self) -> Instant | None:
        """When the next message or page expires; None if none of them ever will. A page expires with its last one."""
        in_memory = chain(self.before_pages(), self.behind_pages())
        instants = chain((entry.publication.expires_at for entry in in_memory), [one.expires_at for one in self.pages])
        return min((at for at in instants if at is not None), default=None)

    def dequeue(self) -> QueueEntry:
        """Take out and return what is sent next, which is the oldest. Raises IndexError if nothing is `is_ready`."""
        if self._head:
            entry = self._head.pop(0)
        elif self.pages:
            raise IndexError("the first page is not in memory")
        else:
            entry = self._entries.popleft()
        self._left(entry)
        return entry

    def clear(self) -> list[QueuePage]:
        """Let go of everything: the session ends. Returns its pages."""
        pages = list(self.pages)
        for page in pages:
            self.remove_page(page)
        while self._messages:
            self.dequeue()
        return pages

    # -- pages ------------------------------------------------------------------------------------------------------

    def can_page(self) -> bool:
        """Whether a part of it may be moved to the disk. What waits for a shared subscription stays in memory, from
        where another member can take it over.
        """
        return not self.groups

    def take_page(self, messages_max: int, bytes_max: int) -> list[QueueEntry]:
        """Take out the oldest messages behind all pages, for one more page: so many, or up to the one that reaches
        *bytes_max*. `add_page` must follow.
        """
        taken: list[QueueEntry] = []
        size = 0
        while len(taken) < messages_max and size < bytes_max and self.tail_messages:
            entry = self._take_first_of_tail()
            size += entry.publication.held_bytes()
            taken.append(entry)
        return taken

    def _take_first_of_tail(self) -> QueueEntry:
        entry = self._entries.popleft()
        self._left(entry)
        return entry

    def add_page(self, page: QueuePage) -> None:
        """Let *page* be the last one."""
        self.pages.append(page)
        self._count_page(page, 1)

    def remove_page(self, page: QueuePage) -> None:
        """Let go of *page* and the messages in it."""
        self.pages.remove(page)
        self._count_page(page, -1)

    def page_in(self, entries: list[QueueEntry]) -> None:
        """Let *entries*, which are those of the first page, be in memory again instead of it."""
        self.remove_page(self.pages[0])
        for entry in entries:
            self._head.append(entry)
            self._came(entry, entry.publication.held_bytes())

    def restore_head(self, entry: QueueEntry) -> None:
        """As `restore`, for what was sent before all pages."""
        self._head.append(entry)
        self._came(entry, entry.publication.held_bytes())

    def _count_page(self, page: QueuePage, sign: int) -> None:
        messages, size, allowance = sign * page.count, sign * page.held_bytes, self._allowance
        self.paged_messages += messages
        self.paged_bytes += size
        self._messages += messages
        self._bytes += size
        allowance.messages += messages
        allowance.bytes += size
        self.expiring += sign * page.expiring

    def resume(self) -> None:
        """The reader is back: what waits now is its backlog."""

    def oldest_at(self) -> Instant | None:
        """When the message was accepted that waits at the head; None if none does."""
        if self._head:
            return self._head[0].publication.accepted_at
        if self.pages:
            return self.pages[0].accepted_at
        return self._entries[0].publication.accepted_at if self._entries else None

    def _left(self, entry: QueueEntry) -> None:
        size = entry.publication.held_bytes()
        self._messages -= 1
        self._bytes -= size
        self._allowance.messages -= 1
        self._allowance.bytes -= size
        self.expiring -= entry.publication.expires_at is not None
        if entry.text in self.groups:
            self.groups[entry.text] -= 1
            if not self.groups[entry.text]:
                del self.groups[entry.text]

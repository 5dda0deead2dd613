"""The last retained message of each topic (MQTT 5.0 section 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edgebridge.session.footprint import RETAINED_BYTES, retained_bytes
from edgebroker.instants import SECOND, Instant
from edgebroker.publication import Publication
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter

WILDCARDS: Final = (MULTI_LEVEL, SINGLE_LEVEL)
PURGE_US: Final = SECOND
"""For want of room what has expired is looked for so often at most: 10 ms where 100,000 messages ever will."""


class _TopicNode:
    """A node of the tree of topics: the *label* holds the levels that lead to it from its parent, at least one."""

    __slots__ = ("children", "label", "topic")

    def __init__(self, label: str, topic: str = "", children: dict[str, _TopicNode] | None = None) -> None:
        self.label = label
        self.topic = topic
        """The whole topic, if it has a message; else empty."""
        self.children = children
        """By the first level of their labels; None: there are none."""


class RetainedStore:
    """Topic -> publication, found by topic filter. Bounded in messages, in the bytes they hold, and in their footprint,
    which is also summed by the accounts that the messages belong to (`frontend.memory_accounts`).

    A path-compressed trie of topics, so that a filter visits only what it may match. Levels without a branch are one
    node: with a node for each level, a message of 254 bytes of topic and 127 levels took 29 KB.

    A walk goes on while the trie changes. So nodes are replaced when they are divided or joined, and those that a walk
    may still hold keep their label; the dictionary of children is handed on from the old node to the new one.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.memory_bytes_max = 1 << 62
        """Of the footprint of all messages."""
        self.memory_bytes = 0
        """The footprint of all messages."""
        self._messages: dict[str, tuple[Publication, str]] = {}  # with the account; a tuple takes 56 bytes
        self._memory_by_account: dict[str, int] = {}
        self._root = _TopicNode("", children={})
        self._bytes = 0
        self._expiring: dict[str, Instant] = {}
        self._purged_at: Instant = -PURGE_US
        self.not_retained = 0
        """Messages that went to their readers and are not retained: the disk takes nothing, or there is no room for
        them here and they came from another gateway, which retains them."""
        self.expired = 0
        """Messages that were forgotten because their time was over."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def held_bytes(self) -> int:
        """What all messages hold."""
        return self._bytes

    def memory_by_account(self) -> dict[str, int]:
        """The footprint of the messages of each account. A copy."""
        return dict(self._memory_by_account)

    def growth(self, publication: Publication) -> int:
        """By how many bytes the footprint grows if *publication* replaces the message of its topic."""
        before = self.find(publication.topic)
        return retained_bytes(publication) - (0 if before is None else retained_bytes(before))

    def has_room(self, topic: str, size: int) -> bool:
        """Whether a message of *topic* that holds *size* bytes could be kept now."""
        before = self.find(topic)
        growth = size if before is None else size - before.held_bytes()
        return self._fits(before is None, growth, growth + (RETAINED_BYTES + len(topic) if before is None else 0))

    def _fits(self, messages: int, octets: int, memory: int) -> bool:
        """Whether so many messages more, and so much more of what they hold, are within the bounds."""
        return (
            len(self._messages) + messages <= self.messages_max
            and self._bytes + octets <= self.bytes_max
            and self.memory_bytes + memory <= self.memory_bytes_max
        )

    def retain(self, publication: Publication, account: str = "") -> bool:
        """Replace the topic's message; an empty payload clears it [MQTT-3.3.1-6]. False if there is no room.

        What has expired gives up its place. *account*: who it belongs to; empty: the gateway.
        """
        topic = publication.topic
        if not publication.payload:
            self.clear(topic)
            return True
        before = self.find(topic)
        growth = publication.held_bytes() - (before.held_bytes() if before else 0)
        if not self._fits(before is None, growth, self.growth(publication)):
            now = publication.accepted_at
            if not self._expiring or now - self._purged_at < PURGE_US:
                return False
            self.purge(now)
            return self.retain(publication, account)
        if before is None:
            self._insert(topic)
        else:
            self._forget_size(topic)
        self._messages[topic] = publication, account
        self._bytes += publication.held_bytes()
        memory = retained_bytes(publication)
        self.memory_bytes += memory
        self._memory_by_account[account] = self._memory_by_account.get(account, 0) + memory
        if publication.expires_at is None:
            self._expiring.pop(topic, None)
        else:
            self._expiring[topic] = publication.expires_at
        return True

    def _forget_size(self, topic: str) -> None:
        """The message of *topic* goes: it counts no more."""
        publication, account = self._messages[topic]
        self._bytes -= publication.held_bytes()
        memory = retained_bytes(publication)
        self.memory_bytes -= memory
        self._memory_by_account[account] -= memory
        if not self._memory_by_account[account]:
            del self._memory_by_account[account]

    def purge(self, now: Instant) -> None:
        """Forget what has expired. To be called now and then: nobody may ever subscribe to it."""
        self._purged_at = now
        for topic in [topic for topic, expires_at in self._expiring.items() if now >= expires_at]:
            self.clear(topic)
            self.expired += 1

    def find(self, topic: str) -> Publication | None:
        """The message of *topic*."""
        kept = self._messages.get(topic)
        return None if kept is None else kept[0]

    def account_of(self, topic: str) -> str:
        """The account that the message of *topic* belongs to; empty: the gateway, or there is none."""
        kept = self._messages.get(topic)
        return "" if kept is None else kept[1]

    def holds(self, publication: Publication) -> bool:
        """Whether *publication* says what its topic's message says, or that there is none any more.

        It may be a copy that was made for a subscriber.
        """
        if not publication.retain:
            return False
        kept = self.find(publication.topic)
        if kept is None:
            return not publication.payload
        return (kept.publisher, kept.payload) == (publication.publisher, publication.payload)

    def clear(self, topic: str) -> None:
        """Forget the message of *topic*, and the levels nobody needs any more."""
        if topic in self._messages:
            self._forget_size(topic)
            del self._messages[topic]
            self._expiring.pop(topic, None)
            self._remove(topic)

    def topics(self) -> list[str]:
        """The topics that have a message now."""
        return list(self._messages)

    def _insert(self, topic: str) -> None:
        """Add a topic that is not in the trie."""
        levels = topic.split("/")
        node, at = self._root, 0
        while at < len(levels):
            if node.children is None:
                node.children = {}
            child = node.children.get(levels[at])
            if child is None:
                node.children[levels[at]] = _TopicNode("/".join(levels[at:]), topic)
                return
            label = child.label.split("/")
            common = _common_levels(label, levels[at:])
            if common < len(label):
                lower = _TopicNode("/".join(label[common:]), child.topic, child.children)
                child = _TopicNode("/".join(label[:common]), "", {label[common]: lower})
                node.children[levels[at]] = child
            node, at = child, at + common
        node.topic = topic

    def _remove(self, topic: str) -> None:
        """Remove a topic that is in the trie."""
        levels = topic.split("/")
        path: list[tuple[_TopicNode, str]] = []  # each parent, and the key of the next node in it
        node, at = self._root, 0
        while at < len(levels):
            assert node.children is not None
            path.append((node, levels[at]))
            node = node.children[levels[at]]
            at += node.label.count("/") + 1
        node.topic = ""
        while path and not node.topic:
            parent, key = path.pop()
            assert parent.children is not None
            children = node.children or {}
            if len(children) > 1:
                return
            if children:
                (only,) = children.values()
                parent.children[key] = _TopicNode(f"{node.label}/{only.label}", only.topic, only.children)
                return
            del parent.children[key]
            if not parent.children and parent is not self._root:
                parent.children = None
            node = parent

    def matching(self, topic_filter: TopicFilter, now: Instant) -> list[Publication]:
        """The messages whose topics *topic_filter* matches; those that have expired are forgotten on the way."""
        found = [publication for publication in self.walk(topic_filter) if publication is not None]
        for publication in found:
            if publication.has_expired(now):
                self.clear(publication.topic)
                self.expired += 1
        return [publication for publication in found if not publication.has_expired(now)]

    def walk(self, topic_filter: TopicFilter) -> Iterator[Publication | None]:
        """As `matching`, one place at a time: None where there is no message. Those that have expired come too.

        The store may change meanwhile. What was there all the time comes, as it is then; what came or went may or may
        not.
        """
        levels = topic_filter.levels
        yield None
        for child in self._next(self._root, levels[0]):
            if levels[0] in WILDCARDS and child.label.startswith("$"):
                continue  # a wildcard passes over topics that begin with `$` [MQTT-4.7.2-1]
            yield from self._walk(child, levels, 0)

    def _walk(self, node: _TopicNode, levels: tuple[str, ...], depth: int) -> Iterator[Publication | None]:
        """*depth*: which of *levels* the first level of the label of *node* must match."""
        yield None
        for level in node.label.split("/"):
            if depth == len(levels):
                return
            wanted = levels[depth]
            if wanted == MULTI_LEVEL:
                break
            if wanted not in (SINGLE_LEVEL, level):
                return
            depth += 1
        is_end = depth == len(levels)
        if is_end or levels[depth] == MULTI_LEVEL:
            yield self.find(node.topic)
        if not is_end:
            for child in self._next(node, levels[depth]):
                yield from self._walk(child, levels, depth)

    def _next(self, node: _TopicNode, wanted: str) -> Iterator[_TopicNode]:
        """The children of *node* whose labels begin with a level that *wanted* matches, as they are when asked for."""
        children = node.children
        if children is None:
            return
        for key in list(children) if wanted in WILDCARDS else (wanted,):
            child = children.get(key)
            if child is not None:
                yield child


def _common_levels(one: list[str], other: list[str]) -> int:
    """With how many equal levels both begin."""
    count = 0
    for level, wanted in zip(one, other, strict=False):
        if level != wanted:
            break
        count += 1
    return count

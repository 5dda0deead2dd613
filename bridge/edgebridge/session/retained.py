"""The last retained message of each topic (MQTT 5.0 section 3.3.1.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from edgebroker.instants import SECOND, Instant
from edgebroker.publication import Publication
from edgebroker.topics import MULTI_LEVEL, SINGLE_LEVEL, TopicFilter

PURGE_US: Final = SECOND
"""For want of room what has expired is looked for so often at most: 10 ms where 100,000 messages ever will."""
_MESSAGE = ""
"""The key of a topic's message within its node. Sub-levels have keys that start with "/", so it is no level."""


class RetainedStore:
    """Topic -> publication, found by topic filter. Bounded in messages and in the bytes they hold.

    A tree of levels, so that a filter visits only what it may match.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self._root: dict[str, Any] = {}
        self._count = 0
        self._bytes = 0
        self._expiring: dict[str, Instant] = {}
        self._purged_at: Instant = -PURGE_US
        self.not_retained = 0
        """Messages that went to their readers and are not retained: the disk takes nothing, or there is no room for
        them here and they came from another gateway, which retains them."""
        self.expired = 0
        """Messages that were forgotten because their time was over."""

    def __len__(self) -> int:
        return self._count

    @property
    def held_bytes(self) -> int:
        """What all messages hold."""
        return self._bytes

    def has_room(self, topic: str, size: int) -> bool:
        """Whether a message of *topic* that holds *size* bytes could be kept now."""
        messages, octets = self._with(topic, size)
        return messages <= self.messages_max and octets <= self.bytes_max

    def _with(self, topic: str, size: int) -> tuple[int, int]:
        """How many messages and bytes there would be."""
        before = self.find(topic)
        return self._count + (before is None), self._bytes + size - (before.held_bytes() if before else 0)

    def retain(self, publication: Publication) -> bool:
        """Replace the topic's message; an empty payload clears it [MQTT-3.3.1-6]. False if there is no room.

        What has expired gives up its place.
        """
        topic = publication.topic
        if not publication.payload:
            self.clear(topic)
            return True
        size, now = publication.held_bytes(), publication.accepted_at
        messages, octets = self._with(topic, size)
        if messages > self.messages_max or octets > self.bytes_max:
            if not self._expiring or now - self._purged_at < PURGE_US:
                return False
            self.purge(now)
            return self.retain(publication)
        node = self._root
        for level in topic.split("/"):
            node = node.setdefault("/" + level, {})
        node[_MESSAGE] = publication
        self._count, self._bytes = messages, octets
        if publication.expires_at is None:
            self._expiring.pop(topic, None)
        else:
            self._expiring[topic] = publication.expires_at
        return True

    def purge(self, now: Instant) -> None:
        """Forget what has expired. To be called now and then: nobody may ever subscribe to it."""
        self._purged_at = now
        for topic in [topic for topic, expires_at in self._expiring.items() if now >= expires_at]:
            self.clear(topic)
            self.expired += 1

    def find(self, topic: str) -> Publication | None:
        """The message of *topic*."""
        node: dict[str, Any] | None = self._root
        for level in topic.split("/"):
            node = node.get("/" + level) if node else None
        found: Publication | None = node.get(_MESSAGE) if node else None
        return found

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
        path: list[tuple[dict[str, Any], str]] = []
        node = self._root
        for level in topic.split("/"):
            key = "/" + level
            if key not in node:
                return
            path.append((node, key))
            node = node[key]
        publication = node.pop(_MESSAGE, None)
        if publication is None:
            return
        self._expiring.pop(topic, None)
        self._count -= 1
        self._bytes -= publication.held_bytes()
        for parent, key in reversed(path):
            if parent[key]:
                break
            del parent[key]

    def topics(self) -> list[str]:
        """The topics that have a message now."""
        found: list[str] = []
        waiting = [self._root]
        while waiting:
            for key, child in waiting.pop().items():
                if key == _MESSAGE:
                    found.append(child.topic)
                else:
                    waiting.append(child)
        return found

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
        return self._walk(self._root, topic_filter.levels, 0)

    def _walk(self, node: dict[str, Any], levels: tuple[str, ...], depth: int) -> Iterator[Publication | None]:
        """*depth*: which of *levels* is next; `#` stays next however far below it *node* is."""
        yield None
        if depth == len(levels):
            if _MESSAGE in node:
                yield node[_MESSAGE]
            return
        level = levels[depth]
        if level in (MULTI_LEVEL, SINGLE_LEVEL):
            below = depth if level == MULTI_LEVEL else depth + 1
            for key in list(node):
                child = node.get(key)
                if child is None or (node is self._root and key.startswith("/$")):
                    continue  # a wildcard passes over topics that begin with `$` [MQTT-4.7.2-1]
                if key != _MESSAGE:
                    yield from self._walk(child, levels, below)
                elif level == MULTI_LEVEL:
                    yield child
        elif "/" + level in node:
            yield from self._walk(node["/" + level], levels, depth + 1)

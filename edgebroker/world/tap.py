"""Somebody who watches some clients or topics: what of it is for them, kept in a bounded buffer that may lose lines."""

from __future__ import annotations

from collections import deque
from fnmatch import fnmatchcase
from typing import Any, Final

from edgebroker.topics import TopicFilter

LINES_MAX: Final = 2_000
"""About 500 KiB; they are fetched five times a second. A gap is better than a gateway that waits for who watches it."""
IDS_MAX: Final = 1_000
"""Packet identifiers whose acknowledgements are shown too. What is older is forgotten."""

Line = dict[str, Any]


class Tap:
    """Lines that match `client`, a name in which `*` stands for anything, and `topic`. None of either matches all."""

    def __init__(self, client: str | None, topic: TopicFilter | None) -> None:
        self._client = client
        self._topic = topic
        self._lines: deque[Line] = deque()
        self._missed = 0
        self._ids: dict[tuple[int, str, int], None] = {}

    def wants_client(self, client: str) -> bool:
        """Whether *client* is watched."""
        return self._client is None or fnmatchcase(client, self._client)

    def wants_topic(self, topic: str) -> bool:
        """Whether messages to *topic* are watched."""
        return self._topic is None or self._topic.matches(topic)

    def packet(self, line: Line, connection: int, topic: str | None) -> None:
        """A packet of a watched client; *topic* if it is a PUBLISH. Of a watched topic, acknowledgements follow."""
        if self._topic is not None:
            key = (connection, line["way"], line.get("packet_id", 0))
            # What acknowledges a message that came in goes out, and the other way round; PUBREL follows the message.
            answered = (connection, "out" if line["way"] == "in" else "in", key[2])
            if topic is not None:
                if not self.wants_topic(topic):
                    return
                if key[2]:
                    self._ids[key] = None
                    if len(self._ids) > IDS_MAX:
                        del self._ids[next(iter(self._ids))]
            elif not key[2] or (answered not in self._ids and key not in self._ids):
                return
        self.add(line)

    def add(self, line: Line) -> None:
        """Keep *line* until it is fetched."""
        if len(self._lines) >= LINES_MAX:
            self._missed += 1
        else:
            self._lines.append(line)

    def miss(self, count: int) -> None:
        """So many things were not even looked at."""
        self._missed += count

    def take(self) -> list[Line]:
        """What was kept since the last call; at its end, a line that counts what was lost."""
        lines = list(self._lines)
        self._lines.clear()
        missed, self._missed = self._missed, 0
        return [*lines, {"way": "gap", "missed": missed}] if missed else lines

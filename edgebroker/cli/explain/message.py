"""The message that the options of the command line describe."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import click

from edgebroker.errors import TopicInvalid
from edgebroker.event import Value
from edgebroker.filters import Extractor
from edgebroker.filters.names import AttributeName, Source
from edgebroker.topics import parse_topic_name


@dataclass(frozen=True, slots=True)
class Message:
    """One publication."""

    payload: str
    """As typed: bytes that are no UTF-8 stay what they are."""
    topic: str | None
    qos: int
    retain: bool
    publisher: str
    user: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        if self.topic is not None:
            try:
                parse_topic_name(self.topic)
            except TopicInvalid as error:
                raise click.UsageError(f"--topic-name: {error}") from None

    def attributes(self, names: Collection[str]) -> dict[str, Value]:
        """Those of the attributes *names* that the message has. Raises click.UsageError if its topic must be known."""
        if self.topic is None:
            sources = {name: AttributeName.parse(name).source for name in names}
            asked = sorted(name for name, source in sources.items() if source in (Source.TOPIC, Source.LEVEL))
            if asked:
                raise click.UsageError(f"the filter asks for {asked[0]}: say the message's topic with --topic-name")
        return Extractor(names).extract(
            self.payload.encode("utf-8", "surrogateescape"),
            topic=self.topic or "",
            qos=self.qos,
            retain=self.retain,
            client=self.publisher,
            user=self.user,
        )

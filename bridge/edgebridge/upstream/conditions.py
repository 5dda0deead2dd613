"""Whether the condition of a rule is true of a message that a bridge has in its hands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgebridge.wire.packets import Publish
from edgebridge.wire.properties import Property, text, user_properties

if TYPE_CHECKING:
    from edgebroker.filters import Extractor, Filter


class Conditions:
    """Of the rules of one bridge: each is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Filter, Extractor]] = {}

    def holds(self, where: str, publish: Publish) -> bool:
        """Whether *where* is true of *publish*, under the topic that it has there."""
        from edgebroker.filters import Extractor, Filter  # 1 MiB, for who has conditions

        known = self._known.get(where)
        if known is None:
            condition = Filter.parse(where)
            known = self._known[where] = condition, Extractor(condition.attributes)
        condition, extractor = known
        return condition.accepts(
            extractor.extract(
                publish.payload,
                topic=publish.topic,
                qos=publish.qos,
                retain=publish.retain,
                client="",
                user=user_properties(publish.properties),
                content_type=text(publish.properties, Property.CONTENT_TYPE, "") or None,
            )
        )

"""Who would get a message: of each subscription whose topic filter matches, whether it does, and if not, why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from edgebridge.frontend.frontend import Frontend
from edgebroker.filters.attributes import Extractor
from edgebroker.node.subscriptions import Subscription
from edgebroker.publication import Publication
from edgebroker.world.reactor import clock

SLICE: Final = 5_000
"""Subscriptions looked at in one turn of the loop: about 1 ms."""


class Answer(StrEnum):
    """Whether a subscription gets the message."""

    YES = "yes"
    IN_TURN = "in turn"
    """It is a member of a group, of which one gets it."""
    CONTENT = "no: content"
    """Its content filter says no, or cannot tell."""
    PERHAPS = "if the content is right"
    """Its filter, or a rule for its client, wants to know what is in the message, and nobody said."""
    AWAY = "no: away"
    """What comes at QoS 0 does not wait."""
    NOT_ALLOWED = "no: not allowed"
    """Its client may not read the topic, or not this message."""


async def readers(frontend: Frontend, topic: str, payload: bytes | None, qos: int, count: int) -> dict[str, Any]:
    """The first *count* subscriptions that *topic*, a topic name, concerns, by client. *payload*: None if any."""
    node = frontend.node
    publication = Publication("", topic, payload or b"", qos, False, clock())
    resolution = node.routes.tree.resolve(topic)
    accepting: set[int] = set()
    if payload is not None and resolution.contents:
        extractor = Extractor(resolution.wanted)
        attributes = extractor.extract(
            payload, topic=topic, qos=qos, retain=False, client="", user=(), content_type=None
        )
        accepting = set(node.routes.tree.match(resolution, attributes))
    plain = set(resolution.plain)
    concerned = [one for number in plain if (one := node.subscriptions.by_number.get(number)) is not None]
    if resolution.contents:  # whom they hang on is not told by the tree: look at everybody, between others' turns
        ends, end_of = set(map(id, resolution.ends)), node.routes.tree.end_of
        numbers = iter([number for number in node.subscriptions.by_number if number not in plain])
        while some := list(islice(numbers, SLICE)):
            concerned += [
                one
                for number in some
                if (one := node.subscriptions.by_number.get(number)) is not None and id(end_of(number)) in ends
            ]
            await asyncio.sleep(0)
    concerned = [one for one in concerned if not one.subscriber.is_gone]
    concerned.sort(key=lambda one: (one.client, one.number))

    def answer(one: Subscription) -> Answer:
        permission = None if node.routes.ask is None else node.routes.ask(one.receiver, topic)
        has_rules = permission is not None and not permission.is_always
        if permission is not None and permission.is_never:
            return Answer.NOT_ALLOWED
        if permission is not None and has_rules and payload is not None and not permission.permits(publication):
            return Answer.NOT_ALLOWED
        is_filtered = one.number not in plain
        if is_filtered and payload is not None and one.number not in accepting:
            return Answer.CONTENT
        if not min(qos, one.qos) and one.receiver.connection is None:
            return Answer.AWAY
        if payload is None and (is_filtered or has_rules):
            return Answer.PERHAPS
        return Answer.YES if one.group is None else Answer.IN_TURN

    answers = [answer(one) for one in concerned]
    return {
        "topic": topic,
        "concerned": len(concerned),
        "answers": dict(Counter(answers)),
        "readers": list(_rows(concerned[:count], answers, qos)),
    }


def _rows(concerned: list[Subscription], answers: list[Answer], qos: int) -> Iterator[dict[str, Any]]:
    for one, answer in zip(concerned, answers, strict=False):
        yield {
            "client": one.client,
            "connected": one.receiver.connection is not None,
            "filter": one.text,
            "label": one.label,
            "qos": min(qos, one.qos),
            "no_local": one.no_local,
            "gets_it": answer,
        }

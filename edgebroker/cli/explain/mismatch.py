"""Why a topic filter does not match a topic: the first level that stands in the way."""

from __future__ import annotations

from edgebroker.topics import MULTI_LEVEL, SEPARATOR, SINGLE_LEVEL, TopicFilter


def mismatch(topic_filter: TopicFilter, topic: str) -> str:
    """Why *topic_filter* does not match the topic name *topic*; "" if it does."""
    if topic_filter.matches(topic):
        return ""
    names = topic.split(SEPARATOR)
    if topic.startswith("$") and topic_filter.levels[0] in (SINGLE_LEVEL, MULTI_LEVEL):
        return f"a topic that begins with $ is not matched by {topic_filter.levels[0]} as first level"
    for number, (level, name) in enumerate(zip(topic_filter.levels, names, strict=False), 1):
        if level not in (SINGLE_LEVEL, MULTI_LEVEL, name):
            return f"level {number} of the topic is {name!r}, not {level!r}"
    wanted = len(topic_filter.levels) - (topic_filter.levels[-1] == MULTI_LEVEL)
    least = "at least " if topic_filter.levels[-1] == MULTI_LEVEL else ""
    return f"the topic has {_levels(len(names))}, the topic filter asks for {least}{wanted}"


def _levels(count: int) -> str:
    return f"{count} level{'s' * (count != 1)}"

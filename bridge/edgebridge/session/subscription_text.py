"""The text of a subscription: topic filter, shared group, and content filter (`$filter/` or user property `$where`).

    sensors/#                                   no content filter
    $filter/temp%3E30/sensors/#                 a percent-encoded content filter, then the topic filter
    $share/group/sensors/#                      a shared subscription (MQTT 5.0 section 4.8.2)
    $share/group/$filter/temp%3E30/sensors/#    both

docs/filters.md, "Carriers", is the specification.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from edgebroker.dataclasses import dataclass
from edgebroker.errors import FilterInvalid, FilterTooComplex, TopicInvalid
from edgebroker.filters import Filter
from edgebroker.limits import FILTER_BYTES_MAX
from edgebroker.topics import TopicFilter

FILTER_PREFIX: Final = "$filter/"
SHARE_PREFIX: Final = "$share/"
WHERE_PROPERTY: Final = "$where"
"""The user property of SUBSCRIBE whose value is a filter for every topic filter of the packet, not encoded."""

_MUST_BE_ENCODED: Final = {"%": "%25", "/": "%2F", "+": "%2B", "#": "%23", "\0": "%00"}
_ENCODED_RUN: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ENCODED_MAX: Final = 3 * FILTER_BYTES_MAX
"""Characters: a byte takes three at most. To decode 64 KiB, which stand for too much in any case, takes 8 ms."""
_MISENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|[+#]")

# A filter takes about 120 us to read, and a fleet asks for the same few over and over. One takes about 2 KiB, the
# largest we know 32 KiB: at most 8 MiB in all.
_CACHED_FILTERS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """One entry of a SUBSCRIBE, taken apart."""

    topic_filter: TopicFilter
    """The inner topic filter: what access control looks at."""
    filter: Filter | None
    """The content filter, both carriers together; None takes every event."""
    share: str | None
    """The group of a shared subscription."""
    text: str
    """As written: its identity for a later SUBSCRIBE or UNSUBSCRIBE."""


def parse_subscription(text: str, where: str | None = None) -> SubscriptionRequest:
    """Read *text*, a topic filter as MQTT carries it, and *where*, the value of `$where` if there is one.

    Raises TopicInvalid, FilterInvalid (whose column counts in the decoded filter; in the encoded one where the reason
    says so), FilterTooComplex.
    """
    share, rest = _split_share(text)
    carried: Filter | None = None
    if rest.startswith(FILTER_PREFIX):
        encoded, slash, rest = rest[len(FILTER_PREFIX) :].partition("/")
        if not slash or not rest:
            raise TopicInvalid("after $filter/ come a filter, '/' and a topic filter: $filter/temp%3E30/sensors/#")
        if len(encoded) > _ENCODED_MAX:
            raise FilterTooComplex(f"a filter has at most {FILTER_BYTES_MAX} bytes, {FILTER_PREFIX} carries more")
        carried = _filter(_decoded(encoded))
        if rest.startswith((FILTER_PREFIX, SHARE_PREFIX)):
            raise TopicInvalid("one $filter/ per subscription, and $share/ before it: $share/group/$filter/.../topic")
    topic_filter = TopicFilter.parse(rest)
    if where is not None:
        asked = _filter(where)
        carried = asked if carried is None else carried.conjoined(asked)
    return SubscriptionRequest(topic_filter, carried, share, text)


def encode_subscription(expression: str, topic: str) -> str:
    """The subscription text that carries *expression* for *topic*; both are taken as they are, unchecked."""
    return FILTER_PREFIX + "".join(_MUST_BE_ENCODED.get(character, character) for character in expression) + "/" + topic


@lru_cache(_CACHED_FILTERS_MAX)
def _filter(text: str) -> Filter:
    """As `Filter.parse`; filters read lately are remembered, refusals are not."""
    return Filter.parse(text)


def _split_share(text: str) -> tuple[str | None, str]:
    """The share group, if any, and what follows it."""
    if not text.startswith(SHARE_PREFIX):
        return None, text
    group, slash, rest = text[len(SHARE_PREFIX) :].partition("/")
    if not group or "+" in group or "#" in group:
        raise TopicInvalid("after $share/ comes the name of a group, without + and #: $share/group/topic")
    if group == FILTER_PREFIX[:-1]:
        raise TopicInvalid("the name of the group is missing: $share/group/$filter/temp%3E30/sensors/#")
    if not slash or not rest:
        raise TopicInvalid("after $share/group/ comes a topic filter")
    if rest.startswith(SHARE_PREFIX):
        raise TopicInvalid("one $share/ per subscription")
    return group, rest


def _decoded(encoded: str) -> str:
    """*encoded* without its percent signs. Raises FilterInvalid."""
    wrong = _MISENCODED.search(encoded)
    if wrong:
        found = wrong[0]
        reason = (
            "'%' is followed by two hexadecimal digits; a percent sign itself is written %25"
            if found == "%"
            else f"'{found}' inside $filter/.../ is written {_MUST_BE_ENCODED[found]}"
        )
        raise FilterInvalid(f"{reason} (column of the encoded filter)", wrong.start() + 1)
    return _ENCODED_RUN.sub(_characters, encoded)


def _characters(run: re.Match[str]) -> str:
    octets = bytes.fromhex(run[0].replace("%", ""))
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise FilterInvalid(
            f"the bytes {octets[error.start : error.end].hex(' ')} are no UTF-8 (column of the encoded filter)",
            run.start() + 3 * error.start + 1,
        ) from None

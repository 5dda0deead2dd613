"""The header of events between gateways, and the fingerprints by which gateways compare what they hold."""

from __future__ import annotations

import pytest

from edgebroker.errors import HeaderInvalid
from edgebroker.filters import Filter
from edgebroker.header import HOSTED_MAX, LAYOUT, EventHeader, host_of, hosted
from edgebroker.interest import Interest
from edgebroker.limits import CLUSTERS_MAX, GATEWAY_NUMBER_MAX
from edgebroker.overlay.messages import Advertise
from edgebroker.topics import TopicFilter

SMALLEST = EventHeader(0, 0, 0, 0)
LARGEST = EventHeader(
    2**32 - 1, 2**32 - 1, 2**32 - 1, 255, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**16 - 1, 2**16 - 1, 2**48 - 1
)
SOME = EventHeader(hosted(3, 7), 1, hosted(3, 9), 2, 0b101, 17, 1, 4, 5, 1_700_000_000_123)


def test_a_header_has_at_most_32_bytes() -> None:
    assert LAYOUT.size <= 32


@pytest.mark.parametrize("header", [SMALLEST, LARGEST, SOME])
def test_what_is_packed_is_unpacked(header: EventHeader) -> None:
    assert EventHeader.unpack(header.pack()) == header


def test_a_header_is_as_documented() -> None:
    assert SOME.pack().hex(" ", -4) == ("00c00007 00000001 00c00009 02000500 11000000 01000400 05018bcf e5687b"), (
        "publisher, sequence, adv; hc, civ, epoch, trace, group, view, published_ms"
    )


@pytest.mark.parametrize("wrong", [EventHeader(2**32, 1, 0, 0), EventHeader(0, 0, 0, 256), EventHeader(0, 0, 0, 0, -1)])
def test_a_field_out_of_range_is_refused(wrong: EventHeader) -> None:
    with pytest.raises(HeaderInvalid, match="out of range"):
        wrong.pack()


@pytest.mark.parametrize("size", [0, 30, 32])
def test_a_header_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(HeaderInvalid, match=f"has 31 bytes, not {size}"):
        EventHeader.unpack(bytes(size))


def test_hosted_numbers_name_their_gateway() -> None:
    assert host_of(hosted(GATEWAY_NUMBER_MAX, HOSTED_MAX)) == GATEWAY_NUMBER_MAX
    assert hosted(GATEWAY_NUMBER_MAX, HOSTED_MAX) == 2**32 - 1
    assert EventHeader(1, 1, 1, 1, 2**CLUSTERS_MAX - 1).pack()
    assert SOME.eid == (hosted(3, 7), 1)


def interest(topic: str, where: str) -> Interest:
    (predicate,) = Filter.parse(where).predicates
    return Interest(TopicFilter.parse(topic), predicate)


def test_equal_interests_have_equal_fingerprints_and_others_have_others() -> None:
    some = [
        interest(topic, where)
        for topic in ("a/#", "a/+")
        for where in ("x > 1", "x >= 1", "x < 1", "y > 1", "x = 1", "x = '1'", "x LIKE '%a%'", "x NOT LIKE '%a%'")
    ]
    again = [Interest(TopicFilter.parse(one.topic_filter.text), one.predicate) for one in some]
    fingerprints = [one.fingerprint() for one in some]
    assert fingerprints == [one.fingerprint() for one in again]
    assert len(set(fingerprints)) == len(some)
    assert all(0 <= one < 2**64 for one in fingerprints)


def test_an_interest_accepts_by_topic_and_content() -> None:
    hot = interest("a/+", "x > 1 AND y = 'b'")
    assert hot.accepts("a/1", {"x": 2, "y": "b"})
    assert not hot.accepts("b/1", {"x": 2, "y": "b"})
    assert not hot.accepts("a/1", {"x": 1, "y": "b"})
    assert not hot.accepts("a/1", {"x": 2})


def test_the_fingerprint_of_an_advertisement_tells_all_that_is_remembered() -> None:
    first = Advertise(1, 2, "c", TopicFilter.parse("t/#"), 0, 60, True)
    others = [
        Advertise(2, 2, "c", TopicFilter.parse("t/#"), 0, 60, True),
        Advertise(1, 3, "c", TopicFilter.parse("t/#"), 0, 60, True),
        Advertise(1, 2, "d", TopicFilter.parse("t/#"), 0, 60, True),
        Advertise(1, 2, "c", TopicFilter.parse("t"), 0, 60, True),
        Advertise(1, 2, "c", TopicFilter.parse("t/#"), 1, 60, True),
    ]
    assert first.fingerprint() not in {other.fingerprint() for other in others}
    assert len({other.fingerprint() for other in others}) == len(others)

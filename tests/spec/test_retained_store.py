"""The store of retained messages: bounds, replacement, expiry."""

from __future__ import annotations

from edgebridge.session.retained import RetainedStore
from edgebroker.instants import SECOND
from edgebroker.publication import Publication
from edgebroker.topics import TopicFilter


def retained(topic: str, payload: bytes = b"1", expires_at: int | None = None) -> Publication:
    return Publication("publisher", topic, payload, 0, True, 0, expires_at=expires_at)


def test_what_has_expired_gives_its_room_back_though_nobody_asks() -> None:
    store = RetainedStore(messages_max=2, bytes_max=1_000_000)
    assert store.retain(retained("a", expires_at=10))
    assert store.retain(retained("b"))
    assert not store.retain(retained("c"))
    store.purge(9)
    assert len(store) == 2
    store.purge(10)
    assert len(store) == store.expired == 1
    assert store.retain(retained("c"))


def test_what_has_expired_gives_its_room_to_what_comes() -> None:
    store = RetainedStore(messages_max=2, bytes_max=1_000_000)
    for topic, expires_at in (("a", 10), ("b", SECOND + 10)):
        assert store.retain(retained(topic, expires_at=expires_at))
    assert not store.retain(Publication("publisher", "c", b"1", 0, True, 9))
    assert store.retain(Publication("publisher", "c", b"1", 0, True, SECOND + 9))
    assert sorted(store.topics()) == ["b", "c"]
    assert not store.retain(Publication("publisher", "d", b"1", 0, True, SECOND + 10)), "it was looked a moment ago"


def test_a_message_that_replaces_one_that_expires_stays() -> None:
    store = RetainedStore(messages_max=2, bytes_max=1_000_000)
    store.retain(retained("a", b"old", expires_at=10))
    store.retain(retained("a", b"new"))
    store.purge(10)
    assert [kept.payload for kept in store.matching(TopicFilter.parse("a"), 10)] == [b"new"]


def test_an_empty_payload_clears_and_an_unknown_topic_is_nothing_to_clear() -> None:
    store = RetainedStore(messages_max=2, bytes_max=1_000_000)
    store.retain(retained("a/b", expires_at=10))
    assert store.retain(retained("a/b", b""))
    assert store.retain(retained("nowhere", b""))
    assert len(store) == 0
    store.purge(10)
    assert store.matching(TopicFilter.parse("#"), 0) == []


def test_wildcards_pass_over_a_dollar_at_the_beginning_of_a_topic_and_nowhere_else() -> None:
    store = RetainedStore(messages_max=9, bytes_max=1_000_000)
    for topic in ("a/$b", "/$c", "$d/e", "f"):
        store.retain(retained(topic))
    found = {
        text: {kept.topic for kept in store.matching(TopicFilter.parse(text), 0)}
        for text in ("#", "+/#", "+/+", "$d/#")
    }
    assert found == {"#": {"a/$b", "/$c", "f"}, "+/#": {"a/$b", "/$c", "f"}, "+/+": {"a/$b", "/$c"}, "$d/#": {"$d/e"}}

"""The checkers of the simulated world find what they are for: each is shown a good run with one thing made wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from edgebroker.log_schema import Fate
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.checkers import disordered, doubled, missed, unaccounted, unbalanced, unwanted, wants
from edgelab.simworld.participant import Participant, PublishedMessage, ReceivedMessage
from edgelab.simworld.workload import GRANTED, Workload


@pytest.fixture(scope="module")
def finished() -> Workload:
    workload = Workload(2)  # two of its steady devices subscribed to everything at QoS 2
    assert not workload.run(150).broken
    return workload


@pytest.fixture
def reader(finished: Workload) -> Iterator[Participant]:
    """The steady device that heard most at QoS 2; what it heard is put right again afterwards."""
    reader = max(finished.steady, key=lambda one: sum(heard.qos == 2 for heard in one.received))
    heard = list(reader.received)
    yield reader
    reader.received[:] = heard


def exactly_once(finished: Workload, reader: Participant) -> ReceivedMessage:
    """A QoS 2 message that *reader* cannot have missed."""
    kept = {said.payload for one in finished.everybody if one.kept for said in one.published}
    return next(heard for heard in reader.received if heard.qos == 2 and heard.payload in kept)


def test_a_message_that_was_lost(finished: Workload, reader: Participant) -> None:
    lost = exactly_once(finished, reader)
    reader.received.remove(lost)
    (complaint,) = missed(finished.everybody, finished.steady, GRANTED)
    assert complaint.startswith(f"{reader.name} missed PublishedMessage(")
    assert str(lost.payload) in complaint


def test_a_message_that_came_twice(finished: Workload, reader: Participant) -> None:
    reader.received.append(exactly_once(finished, reader))
    (complaint,) = doubled(finished.everybody)
    assert complaint.endswith("2 times")


def test_a_message_nobody_asked_for(finished: Workload, reader: Participant) -> None:
    publisher = finished.fickle[0]
    publisher.published.append(PublishedMessage(publisher.name, "elsewhere", b"unwanted", 0))
    reader.received.append(ReceivedMessage(reader.name, "elsewhere", b"unwanted", 0, 0))
    (complaint,) = unwanted(finished.everybody)
    publisher.published.pop()
    assert complaint.endswith("which it never asked for")


def test_a_message_nobody_said(finished: Workload, reader: Participant) -> None:
    reader.received[0] = replace(reader.received[0], payload=reader.received[0].payload + b" ")
    (complaint,) = unwanted(finished.everybody)
    assert complaint.endswith("which nobody said")


def test_messages_in_the_wrong_order(finished: Workload, reader: Participant) -> None:
    reader.received.reverse()
    assert any(f"{reader.name} heard" in complaint for complaint in disordered(finished.everybody, finished.steady))


def test_a_copy_without_a_fate(finished: Workload) -> None:
    finished.broker.ledger.matched += 1
    (complaint,) = unaccounted(finished.broker, finished.everybody)
    finished.broker.ledger.matched -= 1
    assert complaint == "1 copies are open in the ledger, 0 wait and 0 are unwritten"


def test_a_fate_of_the_wrong_message() -> None:
    """The numbers of copies agree; the messages do not."""
    log = DeliveryLog("gateway", "boot")
    head = log.header(0, 0)
    log.matched(0, "p", "s", 1, 2, 1)
    for number in (1, 3):
        log.fate(0, "p", "s", number, 1, "t", "t", 1, Fate.DELIVERED, 0, 0, 0)
    (complaint,) = unbalanced(head + b"".join(log.take(0, closing=True)))
    assert complaint == "('p', 's', 1): copies made (2, 3, 3), fates (2, 4, 2) (count, sum, xor)"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("site/#", True), ("site/+", False), ("$filter/temp%3E30/site/#", True), ("$filter/temp%3E31/site/#", False)],
)
def test_brute_force_knows_what_is_wanted(text: str, wanted: bool) -> None:
    assert wants(text, PublishedMessage("p", "site/north/door", b'{"temp":31}', 0)) is wanted

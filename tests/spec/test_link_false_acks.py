"""Acknowledgements of numbers that a gateway never sent delete nothing: they end the connection, and are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebroker.instants import SECOND
from edgebroker.overlay.link.codec.frames import FrameWriter, SignalCode, signal_item
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.events import LinkDown, LinkRefusal
from edgebroker.overlay.link.handshake import Hello, ReceiveState, RefusalCode, encode_hello
from edgebroker.overlay.link.options import LinkOptions
from edgebroker.overlay.traffic_class import TrafficClass

from ..support.link_pair import LinkPair

WAITING = 20
FAR_AHEAD = (1 << 64) - 1


def hello_of_b(pair: LinkPair, received: ReceiveState) -> Hello:
    """A hello that somebody wrote who has seen one of b: with the ids of both gateways, and a count of its own."""
    a, b = pair.a.links.identity, pair.b.links.identity
    return Hello(b.federation, "b", b.number, b.topology, b.run, b.store, 1_000, a.name, received)


def pair_with_waiting_messages() -> LinkPair:
    """Gateways that are linked until b is off; then messages for it wait at a."""
    pair = LinkPair(LinkOptions(dials=False), other_options=LinkOptions()).start()
    pair.publish()
    pair.run(SECOND)
    pair.b.crash(is_power_cut=False)
    pair.run(SECOND)
    for _ in range(WAITING):
        pair.publish()
    pair.run(SECOND)
    return pair


def waiting(pair: LinkPair) -> int:
    return sum(map(len, pair.link.outbox.queues.values()))


def refusals(pair: LinkPair) -> list[tuple[RefusalCode, str]]:
    return [(event.code, event.reason) for event in pair.events(LinkRefusal) if isinstance(event, LinkRefusal)]


def forged(pair: LinkPair, hello: Hello) -> LinkConnection:
    """A connection on which *hello* arrives at a."""
    connection = pair.a.links.accept(pair.simulation.now)
    connection.feed(encode_hello(hello), pair.simulation.now)
    pair.a.turn()
    return connection


@pytest.mark.parametrize("number", [WAITING, FAR_AHEAD])
@pytest.mark.parametrize("service", [TrafficClass.LIVE, TrafficClass.BACKLOG, TrafficClass.CONTROL])
def test_a_hello_that_acknowledges_what_was_never_sent_is_refused(service: TrafficClass, number: int) -> None:
    pair = pair_with_waiting_messages()
    sent = pair.link.outbox.queues[service].sent_upto
    a = pair.a.links.identity
    number = min(sent + number, FAR_AHEAD)
    connection = forged(pair, hello_of_b(pair, ReceiveState(a.run, a.store, {service: number})))
    assert connection.is_over
    assert pair.link.connection is None
    assert waiting(pair) == WAITING
    assert pair.link.false_acks == 1
    [(code, reason)] = refusals(pair)
    assert code is RefusalCode.UNSENT
    assert code.wants_somebody
    assert f"b acknowledges number {number} of {service.name}, and a has sent it none above {sent}" in reason


def test_a_forged_hello_leaves_the_link_of_the_peer_open() -> None:
    pair = LinkPair(LinkOptions(dials=False), other_options=LinkOptions()).start()
    linked, a = pair.link.connection, pair.a.links.identity
    assert linked is not None
    forged(pair, hello_of_b(pair, ReceiveState(a.run, a.store, {TrafficClass.LIVE: FAR_AHEAD})))
    assert pair.link.connection is linked


def test_an_acknowledgement_of_what_was_never_sent_ends_the_connection() -> None:
    pair = pair_with_waiting_messages()
    for later in (TrafficClass.LIVE, TrafficClass.LOGS):
        hello = hello_of_b(pair, ReceiveState())
        connection = forged(pair, replace(hello, count=hello.count + later))
        assert connection.is_open
        frames = FrameWriter(False)
        frames.add(signal_item(SignalCode.ACK, int(later), FAR_AHEAD))
        connection.feed(frames.take(), pair.simulation.now)
        pair.a.turn()
        assert connection.is_over
        assert "acknowledges number" in connection.reason
        assert waiting(pair) == WAITING
    assert pair.link.false_acks == 2
    downs = [event.reason for event in pair.events(LinkDown) if isinstance(event, LinkDown)]
    assert sum("has sent it none above" in reason for reason in downs) == 2


def test_what_waits_is_delivered_when_the_peer_itself_is_back() -> None:
    pair = pair_with_waiting_messages()
    a = pair.a.links.identity
    forged(pair, hello_of_b(pair, ReceiveState(a.run, a.store, {TrafficClass.BACKLOG: FAR_AHEAD})))
    pair.b.boot()
    pair.b.start()
    pair.run(5 * SECOND)
    assert waiting(pair) == 0
    assert len(pair.b.kept) == WAITING + 1


def test_what_an_earlier_run_sent_may_be_acknowledged() -> None:
    """The acknowledgement of the last message may arrive with the hello after a restart."""
    pair = LinkPair().start()
    pair.publish()
    pair.run(SECOND)
    for _ in range(3):
        pair.a.crash(is_power_cut=True)
        pair.a.boot()
        pair.a.start()
        pair.run(5 * SECOND)
        pair.publish()
        pair.run(5 * SECOND)
    assert pair.link.false_acks == 0
    assert not pair.events(LinkRefusal)
    assert len(pair.b.kept) == 4

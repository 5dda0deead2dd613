"""Two gateways with different topologies: the refusal says in what they differ and whose is older, and the older one
gets the newer file.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgebridge.frontend.federation.link_setup import BootIdentity, create_links, topology_sections
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.connection import LinkConnection
from edgebroker.overlay.link.handshake import (
    HELLO_BYTES_MAX,
    OFFERS_MAX,
    SECTIONS_BYTES_MAX,
    TOPOLOGY_BYTES_MAX,
    TOPOLOGY_MAGIC,
    Hello,
    TopologyExchange,
    decode_hello,
    encode_hello,
    topology_bytes,
)
from edgebroker.overlay.link.journal_records import StoredLinks
from edgebroker.overlay.link.link import Link
from edgebroker.overlay.topology.draft import UPLINKS, DraftGateway
from edgebroker.overlay.topology.planner import plan
from edgebroker.overlay.topology.topology import Topology

DRAFT = plan("plant", {"north": 1, "south": 1}, UPLINKS["wan"], 1)
OLD = Topology(DRAFT)
NEW = Topology(plan("plant", {"north": 1, "south": 1, "west": 1}, UPLINKS["wan"], 1))
NORTH, SOUTH = (gateway.name for gateway in OLD.gateways)
DAY = 24 * 3_600


def link_of(topology: Topology, name: str, peer: str, version: int, takes_files: bool = True) -> Link:
    exchange = TopologyExchange(version, b"file %d" % version if version else b"", takes_files)
    boot = BootIdentity(name.encode()[:8].ljust(8), name.encode()[:8].ljust(8), lambda: 0.5, exchange)
    link = create_links(topology, name, boot, 0, None, StoredLinks(), 0)[peer]
    link.options = replace(link.options, dials=True)
    return link


def meet(dialler: Link, acceptor: Link, now: int = 0) -> LinkConnection:
    """Let one dial the other, and carry what both say; the connection at the dialler."""
    dialler.start(now)
    table = create_table(acceptor)
    dialled, accepted = dialler.dialled(now), table
    for _ in range(4):
        accepted.feed(dialled.flush(now, 1 << 20), now)
        dialled.feed(accepted.flush(now, 1 << 20), now)
    return dialled


def create_table(acceptor: Link) -> LinkConnection:
    """An accepted connection at the gateway of *acceptor*."""
    return LinkConnection(lambda *said: answer(acceptor, *said), None, 0, acceptor.identity.topologies)


def answer(acceptor: Link, connection: LinkConnection, hello: Hello, now: int) -> Link:
    acceptor.identity.check(hello)
    acceptor.offered(connection, hello, now)
    return acceptor


@pytest.mark.parametrize(
    ("versions", "age"),
    [
        ((0, 0), "; neither is signed, so none tells which is older"),
        ((0, 5), f"; that of {NORTH} is not signed"),
        ((1_000 + 3 * DAY, 1_000), f"; that of {SOUTH} is 3 days older"),
        ((1_000, 1_000 + 7_200), f"; that of {NORTH} is 120 minutes older"),
        ((1_000, 1_001), f"; that of {NORTH} is 1 s older"),
    ],
)
def test_a_refusal_says_what_differs_and_whose_is_older(versions: tuple[int, int], age: str) -> None:
    north = link_of(OLD, NORTH, SOUTH, versions[0])
    south = link_of(NEW, SOUTH, NORTH, versions[1])
    connection = meet(south, north)
    assert connection.is_over
    [west] = [one.name for one in NEW.gateways if one.site == "west"]
    assert connection.reason == (
        f"refused: the topologies of {NORTH} and {SOUTH} differ in gateway {west} ({NORTH} has none), site west"
        f" ({NORTH} has none){age}"
    )


def test_a_changed_gateway_and_one_that_only_the_other_side_lacks_are_named() -> None:
    other = replace(DRAFT, gateways=tuple(replace(one, number=one.number + 3) for one in DRAFT.gateways))
    north, south = link_of(NEW, NORTH, SOUTH, 0), link_of(OLD, SOUTH, NORTH, 0)
    reason = meet(south, north).reason
    assert f"site west ({SOUTH} has none); neither" in reason
    sections = topology_sections(OLD), topology_sections(Topology(other))
    assert {name for name in sections[0] if sections[0][name] != sections[1][name]} == {
        f"gateway {NORTH}",
        f"gateway {SOUTH}",
    }


def test_the_sections_of_a_large_federation_fit_into_a_hello() -> None:
    large = Topology(plan("plant", {f"site-{number}": 20 for number in range(15)}, UPLINKS["wan"], 1))
    assert topology_sections(large).keys() == {"tree", "sites", "gateways"}
    first = large.gateways[0]
    hello = encode_hello(
        Hello(
            "plant",
            first.name,
            0,
            {"topology": bytes(8)},
            bytes(8),
            bytes(8),
            1,
            "x",
            sections=topology_sections(large),
        )
    )
    assert len(hello) < HELLO_BYTES_MAX
    small = topology_sections(OLD)
    assert len(small) == 5
    assert sum(len(name) + 7 for name in small) < SECTIONS_BYTES_MAX


def test_an_older_gateway_sends_no_sections_and_is_told_in_what_part_it_differs() -> None:
    north = link_of(OLD, NORTH, SOUTH, 7)
    hello = Hello("plant", SOUTH, 1, {"topology": b"x"}, bytes(8), bytes(8), 1, NORTH)
    assert decode_hello(encode_hello(hello)) == hello
    connection = create_table(north)
    connection.feed(encode_hello(hello), 0)
    assert connection.reason.endswith(f"differ in topology; that of {SOUTH} is not signed")
    assert not connection.flush(0, 1_000).startswith(TOPOLOGY_MAGIC), "it could not read it"


@pytest.mark.parametrize("is_same", [True, False])
def test_the_newer_file_is_handed_on_whoever_dials(is_same: bool) -> None:
    older = OLD if is_same else NEW
    for newer_dials in (True, False):
        newer, late = link_of(OLD, NORTH, SOUTH, 2_000), link_of(older, SOUTH, NORTH, 1_000)
        received = late.identity.topologies.received
        for now in range(0, 20_000_000, 2_000_000):  # as often as it is dialled again
            meet(newer, late, now) if newer_dials else meet(late, newer, now)
            if received:
                break
        assert list(received) == [b"file 2000"]
        assert not newer.identity.topologies.received


def test_a_gateway_that_leaves_the_file_gets_it_three_times() -> None:
    newer, late = link_of(NEW, NORTH, SOUTH, 2_000), link_of(OLD, SOUTH, NORTH, 1_000)
    for now in range(10):
        connection = create_table(newer)
        hello = Hello(
            "plant", SOUTH, 1, late.identity.topology, bytes(8), bytes(8), now + 1, NORTH,
            capabilities=frozenset(("topology",)), topology_version=1_000, sections=late.identity.sections,
        )  # fmt: skip
        connection.feed(encode_hello(hello), now)
        assert connection.flush(now, 1_000).startswith(TOPOLOGY_MAGIC) == (now < OFFERS_MAX)


def test_a_file_that_is_too_long_or_not_wanted_ends_the_connection() -> None:
    with pytest.raises(FrameBroken, match="a topology of 131073 bytes; the limit is 131072"):
        topology_bytes(TOPOLOGY_MAGIC + (TOPOLOGY_BYTES_MAX + 1).to_bytes(4))
    connection = create_table(link_of(OLD, NORTH, SOUTH, 0, takes_files=False))
    connection.feed(TOPOLOGY_MAGIC + bytes(4), 0)
    assert connection.reason.startswith("no gateway speaks there")
    twice = create_table(link_of(OLD, NORTH, SOUTH, 5))
    twice.feed(TOPOLOGY_MAGIC + (1).to_bytes(4) + b"x" + TOPOLOGY_MAGIC + bytes(4), 0)
    assert twice.reason.startswith("no gateway speaks there")


def test_a_gateway_that_has_left_the_plan_is_still_named() -> None:
    """Sections of gateways are by name, whatever their numbers."""
    gone = replace(DRAFT, gateways=(*DRAFT.gateways[:1], DraftGateway("gw-other", 7, "south", address=())))
    assert f"gateway {SOUTH}" not in topology_sections(Topology(gone))

"""The demo of a federation: its audit of delivery logs finds what is planted, its account of uplinks is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgebridge.wire.dialect import V5
from edgebroker.cli import main
from edgebroker.cli.topology.toml_text import toml_text
from edgebroker.log_schema import Cause, Fate
from edgebroker.names import Address
from edgebroker.runtime.delivery_log import OpenSegment
from edgebroker.runtime.topology_file import load_topology
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.demo.audit import ACKNOWLEDGED, SENT, DevicePublication, Receipt, audit
from edgelab.demo.federation.gateway_process import clear
from edgelab.demo.federation.layout import Layout
from edgelab.demo.federation.log_audit import LogAudit
from edgelab.demo.federation.mishaps import Mishaps
from edgelab.demo.federation.outcome import CopyLoad, FederationOutcome, UplinkTraffic, alternatives, packet_bytes
from edgelab.demo.federation.play import SITE_SPECS
from edgelab.demo.federation.relays import RELAYED, RelayNetwork, UplinkRelay
from edgelab.demo.subscriber_specs import SubscriberSpec

WARM = SubscriberSpec("warm", "t/#", 1, V5, "v > 5")
ALL = SubscriberSpec("all", "t/+/a", 0, V5)


def publication(device: str, seq: int, value: int, topic: str = "t/x/a", qos: int = 1) -> DevicePublication:
    payload = f'{{"v":{value},"n":"{device}-{seq}"}}'.encode()
    return DevicePublication(device, seq, topic, payload, qos, False, ACKNOWLEDGED if qos else SENT, sent_us=seq)


# -- what crosses between sites --------------------------------------------------------------------------------------


def test_a_packet_has_the_bytes_that_the_standard_says() -> None:
    short = DevicePublication("d", 1, "a/b", b"12345", 0, False, SENT)
    assert packet_bytes(short) == 2 + 2 + 3 + 5
    assert packet_bytes(replace(short, qos=1)) == 2 + 2 + 3 + 2 + 5
    assert packet_bytes(replace(short, payload=bytes(122))) == 2 + 127
    assert packet_bytes(replace(short, payload=bytes(123))) == 3 + 128


def test_bridges_take_what_a_topic_asks_for_and_floods_everything() -> None:
    published = [
        publication("north", 1, 9),
        publication("north", 2, 1),
        publication("north", 3, 9, "t/x/b"),
        publication("north", 4, 9, "u"),
        publication("south", 1, 9),
        publication("east", 1, 9),
    ]
    pairs = {("north", "south"): 3, ("north", "east"): 1, ("south", "east"): 2}
    specs = {"south": [WARM], "east": [ALL]}
    found = alternatives(pairs, published, lambda one: one.device, specs)
    size = [packet_bytes(one) for one in published]
    assert found["north", "south"].by_topic == CopyLoad(3, sum(size[:3]))
    assert found["north", "south"].wanted == CopyLoad(2, size[0] + size[2])
    assert found["north", "south"].flooded == CopyLoad(18, 3 * sum(size))
    assert found["north", "east"].by_topic == found["north", "east"].wanted == CopyLoad(2, size[0] + size[1])
    assert found["south", "east"].by_topic == CopyLoad(2, size[4] + size[5]), "each site wants what the other has"


@pytest.mark.parametrize(
    ("topic_filter", "matches"),
    [("t/#", True), ("#", True), ("t/x/a", True), ("t/x/a/#", True), ("+/x/+", True), ("t/x", False), ("t/y/#", False)],
)
def test_topics_are_matched_level_by_level(topic_filter: str, matches: bool) -> None:
    specs = {"b": [SubscriberSpec("w", topic_filter, 1, V5)]}
    found = alternatives({("a", "b"): 1}, [publication("d", 1, 1)], lambda _: "a", specs)
    assert found["a", "b"].by_topic.events == matches


# -- the layout ------------------------------------------------------------------------------------------------------


def test_nine_gateways_are_joined_by_nine_uplinks_each_through_its_relay(tmp_path: Path) -> None:
    layout = Layout(3, 3)
    assert len(layout.gateways) == len(layout.uplinks) == 9
    path = tmp_path / "topology.toml"
    doors = {one.name: (Address("127.0.0.1", 10_000 + one.number),) for one in layout.gateways}
    relays = {pair: 20_000 + at for at, pair in enumerate(layout.uplinks)}
    path.write_text(toml_text(layout.draft(doors, {pair: Address("127.0.0.1", at) for pair, at in relays.items()})))
    topology = load_topology(path)
    assert topology.digest == layout.topology.digest, "where gateways are reached is no part of the meaning"
    for (one, other), port in relays.items():
        dial = topology.connection(one, other).dial
        assert (dial.dialler, dial.addresses) == (one, (Address("127.0.0.1", port),))


def test_paths_are_counted_as_events_travel() -> None:
    layout = Layout(3, 3)
    assert str(layout.route("gw-north1", "gw-north1", 1)) == "QoS 1, one gateway"
    assert layout.route("gw-north1", "gw-north3", 0) == (0, 2, 0)
    assert layout.route("gw-north1", "gw-south1", 0) == (1, 0, 0)
    assert str(layout.route("gw-north1", "gw-east3", 2)) == "QoS 2, another site, 3 links"


def test_every_site_has_a_subscriber_and_none_is_alone() -> None:
    layout = Layout(3, 3)
    places = [place for place, _ in zip(layout.places(), SITE_SPECS, strict=False)]
    assert len(set(places)) == len(SITE_SPECS)
    assert {layout.site(place) for place in places} == set(layout.sites)


# -- a relay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_per_s", [None, 100_000.0])
def test_a_relay_passes_everything_on_in_order_and_counts_it(bytes_per_s: float | None) -> None:
    sent = bytes(range(256)) * 100

    async def play() -> tuple[bytes, dict[str, int]]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        relay = UplinkRelay(("one", "other"), Address(*server.sockets[0].getsockname()), 0.001)
        relay.bytes_per_s = bytes_per_s
        async with server, relay.open():
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            writer.write(sent)
            heard = await reader.readexactly(len(sent))
            writer.close()
            return heard, dict(relay.carried)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            writer.write(data)
        writer.close()

    heard, carried = asyncio.run(play())
    assert heard == sent
    assert carried == {"one": len(sent), "other": len(sent)}


def test_a_relay_without_anybody_behind_it_hangs_up() -> None:
    async def play() -> bytes:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        nobody = Address(*server.sockets[0].getsockname())
        server.close()
        await server.wait_closed()
        relay = UplinkRelay(("one", "other"), nobody, 0.0)
        async with relay.open():
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

    assert asyncio.run(play()) == b""


# -- the audit of the logs -------------------------------------------------------------------------------------------

Fault = Callable[[DeliveryLog, DeliveryLog], None]


def logs(folder: Path, fault: Fault | None = None, *, cut_short: bool = False) -> LogAudit:
    """Two gateways: `d` publishes at *one*, `s` reads at *other*; a *fault* is written before the logs end."""
    one, other = DeliveryLog("one", "b1"), DeliveryLog("other", "b2")
    for number in (1, 2, 3):
        one.published(number, "d", number, 1, "t", 1, 8, 1, event=(7, number))
        one.matched(number, "d", "gateway:other", number, 1, 1)
        one.fate(number + 9, "d", "gateway:other", number, 1, "t", "", 1, Fate.DELIVERED, 0, 9, 8)
        if number < 3 or not cut_short:
            arrives(other, number, number)
    if fault is not None:
        fault(one, other)
    for log, is_final in ((one, True), (other, not cut_short)):
        segment = OpenSegment(folder / log.node, log.header(0, 0))
        for block in log.take(100, closing=True):
            segment.append(block)
        segment.finish(final=is_final)
    return LogAudit.read({"one": folder / "one", "other": folder / "other"})


def arrives(
    log: DeliveryLog, number: int, sequence: int, end: Fate = Fate.DELIVERED, cause: Cause = Cause.NONE
) -> None:
    log.published(number + 5, "d", number, 1, "t", 1, 8, 1, event=(7, sequence))
    log.matched(number + 5, "d", "s", number, 1, 1)
    log.fate(number + 8, "d", "s", number, 1, "t", "t", 1, end, cause, 3, 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_clean_logs_have_no_findings(folder: Path) -> None:
    books = logs(folder)
    assert list(books.findings()) == []
    assert (books.events, books.handed_over, books.cut_short) == (3, 3, [])
    assert books.received("other", "s") == {(7, 1), (7, 2), (7, 3)}


def test_what_a_killed_gateway_had_not_written_is_not_called_lost(folder: Path) -> None:
    books = logs(folder, cut_short=True)
    assert list(books.findings()) == []
    assert [run.gateway for run in books.cut_short] == ["other"]
    assert books.received("other", "s") is None


def lost_between(one: DeliveryLog, other: DeliveryLog) -> None:
    one.published(20, "d", 4, 1, "t", 1, 8, 1, event=(7, 4))
    one.matched(20, "d", "gateway:other", 4, 1, 1)
    one.fate(21, "d", "gateway:other", 4, 1, "t", "", 1, Fate.DELIVERED, 0, 9, 8)


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        (lost_between, "one gave other 1 events that other knows nothing of"),
        (lambda one, other: arrives(other, 4, 2), "other gave clients 1 events twice: 7-2 for s"),
        (
            lambda one, other: arrives(other, 4, 9, Fate.DROPPED, Cause.QUEUE_FULL),
            "other: 1 copies with QoS 1 or 2 for s were dropped (queue_full)",
        ),
        (lambda one, other: arrives(other, 4, 9, Fate.QUEUED), "other: 1 copies with QoS 1 or 2 for s were queued"),
        (
            lambda one, other: other.matched(30, "d", "s", 9, 1, 0),
            "other: of QoS 0 from d for s 1 copies were made and 0 ended",
        ),
    ],
    ids=["lost between gateways", "twice", "dropped", "left waiting", "without an end"],
)
def test_every_planted_fault_is_named(fault: Fault, finding: str, folder: Path) -> None:
    assert list(logs(folder, fault).findings()) == [finding]


def test_damage_is_a_finding(folder: Path) -> None:
    logs(folder)
    (file,) = (folder / "other").glob("*.edl")
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    found = list(LogAudit.read({"one": folder / "one", "other": folder / "other"}).findings())
    assert "other: its log has 1 damaged places" in found


# -- order, repetition and the outcome -------------------------------------------------------------------------------


def receipts(published: list[DevicePublication], *order: int) -> list[Receipt]:
    return [Receipt(published[at].topic, published[at].payload, published[at].qos) for at in order]


def test_only_what_went_around_a_dead_gateway_may_be_overtaken() -> None:
    published = [publication("d", seq, 9) for seq in (1, 2, 3)]
    heard = receipts(published, 0, 2, 1)
    assert len(audit(WARM, published, heard).reordered) == 1
    around = audit(WARM, published, heard, went_around=lambda one: one.seq == 2)
    assert (around.overtaken, around.reordered) == (1, [])
    assert len(audit(WARM, published, heard, went_around=lambda one: one.seq == 3).reordered) == 1


def outcome(books: LogAudit, heard: list[Receipt], published: list[DevicePublication]) -> FederationOutcome:
    pair = ("north", "south")
    instead, early = (
        alternatives({pair: 1}, told, lambda _: "north", {"south": [WARM]})[pair] for told in (published, [])
    )
    crossing = UplinkTraffic(400, 2, instead, 100, early)
    return FederationOutcome(
        1.0, 2, 1, published, [audit(WARM, published, heard)], {"warm": "other"}, 0, books, {pair: crossing},
        {"one": 1 << 20}, {Layout(2, 1).route("gw-north1", "gw-south1", 1): [11_000, 12_000, 13_000]}, RELAYED, {}, [],
    )  # fmt: skip


def test_an_outcome_says_what_crossed_and_what_was_found(folder: Path) -> None:
    published = [publication("d", seq, value) for seq, value in ((1, 9), (2, 1), (3, 9))]
    clean = outcome(logs(folder), receipts(published, 0, 2), published)
    assert clean.problems() == []
    said = clean.as_object()
    (uplink,) = said["uplinks"]
    assert (uplink["by_topic"]["events"], uplink["wanted"]["events"]) == (3, 2)
    assert uplink["share_of_by_topic"] == 400 / sum(map(packet_bytes, published))
    assert uplink["share_until_the_kill"] is None, "nothing was published before"
    assert said["delays"] == [{"uplinks": 1, "inside": 0, "qos": 1, "count": 3, "p50_us": 12_000, "links_us": 10_000}]
    assert said["p50_to_another_site_us"] == 12_000
    delays = [line for line in clean.lines() if "p50" in line]
    assert "p50 12 ms, links 10 ms: another site, all of them (3 messages)" in delays[0]
    assert "p50 12 ms, links 10 ms: QoS 1, another site, 1 links (3 messages)" in delays[1]


def test_what_end_to_end_and_the_logs_find_are_problems(folder: Path) -> None:
    published = [publication("d", seq, 9) for seq in (1, 2)]
    failed = outcome(logs(folder, lost_between), receipts(published, 0), published)
    assert failed.problems() == [
        "warm: lost 1, first d #2 (QoS 1, t/x/a)",
        "one gave other 1 events that other knows nothing of",
    ]
    assert failed.as_object()["ok"] is False
    assert [line for line in failed.lines() if line.startswith("FAILED")] == [
        f"FAILED      {problem}" for problem in failed.problems()
    ]


def test_times_before_any_mishap_are_calm() -> None:
    async def joined() -> None: ...

    mishaps = Mishaps(10.0, RelayNetwork(Layout(2, 1)), joined, print)
    assert mishaps.is_calm(1)
    assert not mishaps.went_around(5_000_000)


# -- the command -----------------------------------------------------------------------------------------------------


def test_an_earlier_demos_files_are_cleared_and_no_others(tmp_path: Path) -> None:
    ours = ["topology.toml", "fleet.jsonl", "fleet.out", "gw-north1-2.log", "log/gw-north1/x.edl"]
    others = ["notes.txt", "log/notes.txt", "log/gw-north1/notes.txt"]
    for name in (*ours, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    clear(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(others)


def test_several_gateways_need_several_sites(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--gateways", "3", "--dir", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "give --sites 2 or more too" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_federation_needs_no_spark_and_names_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgelab.demo.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["demo", "--sites", "3", "--dir", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "the demo needs paho: pip install 'edgebroker[sim]'" in result.stderr

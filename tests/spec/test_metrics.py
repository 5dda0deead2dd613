"""`/metrics` is text of OpenMetrics 1.0: every page is read back here with the grammar of the specification."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from edgebridge.frontend.federation.join import attach_files
from edgebridge.frontend.file_service import FileService
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Publish
from edgebroker.files.chunk_store import ChunkStore
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.metrics import NAMED_SESSIONS, Exposition, metrics_page
from edgebroker.runtime.http.session_census import RANKS, SESSIONS_PER_TURN, take_census
from edgebroker.runtime.loop.lag import LAG_BOUNDS_S, LoopLagMonitor
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import USUAL_CAUSES
from edgebroker.runtime.process import ProcessUsage
from edgebroker.topics import TopicFilter

from ..support.gateway_in_process import come, say, with_gateway
from ..support.openmetrics_reader import Family, read
from ..support.topologies import TWO_GATEWAYS


@pytest.mark.parametrize(
    "page",
    [
        b"# TYPE a gauge\na 1\n",
        b"# TYPE a gauge\na 1\n# EOF",
        b"# TYPE a counter\na 1\n# EOF\n",
        b"# TYPE a gauge\na{b=1} 1\n# EOF\n",
        b'# TYPE a gauge\na{b="\n"} 1\n# EOF\n',
        b"# TYPE a gauge\na 1\na 1\n# EOF\n",
        b"# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
        b"# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\n# EOF\n",
        b'# TYPE a histogram\na_bucket{le="1.0"} 2\na_bucket{le="+Inf"} 1\na_sum 0\na_count 1\n# EOF\n',
        b'# TYPE a histogram\na_bucket{le="1.0"} 2\na_sum 0\na_count 2\n# EOF\n',
    ],
)
def test_the_reader_of_these_tests_finds_faults(page: bytes) -> None:
    with pytest.raises(AssertionError):
        read(page)


# -- the writer -------------------------------------------------------------------------------------------------


def test_label_values_are_escaped() -> None:
    page = Exposition()
    page.family("a", "gauge", 'says "b\\c"\nand d')
    page.sample("", 1, client='quoted " back\\slash\nline \ud800')
    family = read(page.text())["a"]
    [((_, [(_, value)]), _)] = family.samples.items()
    assert value == r"quoted \" back\\slash\nline ?"
    assert family.meaning == r"says \"b\\c\"\nand d"


def test_a_histogram_adds_its_buckets_up() -> None:
    page = Exposition()
    page.histogram("a_seconds", "x", "seconds", (0.5, 1.0), (1, 2, 4), 9.5)
    family = read(page.text())["a_seconds"]
    assert [family.value("_bucket", le=le) for le in ("0.5", "1.0", "+Inf")] == [1, 3, 7]
    assert (family.value("_sum"), family.value("_count")) == (9.5, 7)


def test_lateness_falls_into_the_bucket_of_its_bound() -> None:
    monitor = LoopLagMonitor()
    for late_s in (0.0, LAG_BOUNDS_S[0], LAG_BOUNDS_S[0] + 1e-9, LAG_BOUNDS_S[-1] + 1):
        monitor.record(late_s)
    assert (monitor.counts[0], monitor.counts[1], monitor.counts[-1], sum(monitor.counts)) == (2, 1, 1, 4)
    assert monitor.recent_lag()[2] == LAG_BOUNDS_S[-1] + 1
    assert LoopLagMonitor().recent_lag() == (0.0, 0.0, 0.0)


def test_a_callback_that_fails_does_not_stop_the_lag_monitor() -> None:
    async def story() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        monitor, beats = LoopLagMonitor(), asyncio.Semaphore(0)
        monitor.on_each_beat(lambda: 1 // 0)
        monitor.on_each_beat(beats.release)
        monitor.start()
        for _ in range(2):
            await beats.acquire()
        monitor.stop()
        assert sum(monitor.counts) == 2
        return told

    assert [type(context["exception"]) for context in asyncio.run(story())] == [ZeroDivisionError] * 2


# -- the page of a gateway --------------------------------------------------------------------------------------


async def page_of(gateway: Gateway) -> dict[str, Family]:
    return read(await metrics_page(gateway.view))


def test_a_page_tells_what_became_of_every_message(tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        reader = come(gateway, "reader", "a/#")
        come(gateway, "other", "$filter/t%3E1/a/#")
        writer = come(gateway, "writer")
        for number in range(1, 4):
            say(gateway, writer, Publish("a/b", b'{"t": 2}', 1, packet_id=number))
        say(gateway, writer, Publish("nobody", b"x", 0, retain=True))
        say(gateway, writer, Publish("$SYS/x", b"x", 0))
        reader.close()
        gateway.frontend.closed(reader, clock())
        say(gateway, writer, Publish("a/b", b'{"t": 0}', 1, packet_id=9))
        page = await page_of(gateway)
        totals = {name: family.value("_total") for name, family in page.items() if ("_total", ()) in family.samples}
        assert totals["edgebroker_messages_published"] == 5
        assert totals["edgebroker_messages_filtered"] == 1
        unreadable = page["edgebroker_payloads_unreadable"]
        assert unreadable.value("_total", asked_by="clients") == 0
        say(gateway, writer, Publish("a/b", b'{"t": 2', 0))
        assert (await page_of(gateway))["edgebroker_payloads_unreadable"].value("_total", asked_by="clients") == 1
        assert page["edgebroker_messages_refused"].value("_total", cause="reserved_topic") == 1
        assert totals["edgebroker_copies_made"] == 7
        dropped = sum(page["edgebroker_copies_dropped"].samples.values())
        ended = totals["edgebroker_copies_delivered"] + totals["edgebroker_copies_expired"] + dropped
        assert totals["edgebroker_copies_made"] == ended + page["edgebroker_copies_open"].value()
        assert page["edgebroker_sessions"].value(state="connected") == 2
        assert page["edgebroker_sessions"].value(state="away") == 1
        assert page["edgebroker_connections"].value() == 2
        assert page["edgebroker_subscriptions"].value() == 2
        assert page["edgebroker_matching_predicates"].value() == 1
        own = gateway.frontend.retained.matching(TopicFilter.parse("$SYS/#"), 0)
        assert page["edgebroker_retained_messages"].value() == 1 + len(own)
        assert page["edgebroker_queue_messages"].value() == 1
        assert page["edgebroker_session_queue_messages"].value(client="reader") == 1
        assert page["edgebroker_inflight_messages"].value() == 6
        assert page["edgebroker_log_blocks_lost"].value("_total") == 0
        assert page["edgebroker_build"].kind == "info"

    with_gateway(story, log_dir=tmp_path / "log", data=tmp_path / "data")


def test_drops_and_refusals_carry_their_reason() -> None:
    async def story(gateway: Gateway) -> None:
        writer = come(gateway, "writer")
        gone = come(gateway, "gone", "a")
        gateway.frontend.closed(gone, clock())
        say(gateway, writer, Publish("a", b"x", 0))
        gateway.frontend.feed(writer, b"\xf0\x00" * 2, 0)
        page = await page_of(gateway)
        assert page["edgebroker_copies_dropped"].value("_total", cause="offline") == 1
        counts = {label[1]: count for (_, [label]), count in page["edgebroker_refusals"].samples.items()}
        assert counts.pop("quota_exceeded") == counts.pop("server_busy") == 0, "there from the start"
        [(reason, count)] = counts.items()
        assert count == 1
        assert reason in ("protocol_error", "bad_authentication_method", "malformed_packet")
        assert "edgebroker_log_rows" not in page, "no delivery log is written"

    with_gateway(story)


def test_few_sessions_are_named_however_many_there_are() -> None:
    async def story(gateway: Gateway) -> None:
        writer = come(gateway, "writer")
        count = 2 * SESSIONS_PER_TURN + 1
        for number in range(count):
            client = come(gateway, f"c{number:04}", "all", *(["some"] if number % 100 == 0 else []))
            gateway.frontend.closed(client, clock())
        for topic in ("all", "some"):
            say(gateway, writer, Publish(topic, b"x", 1, packet_id=1))
        named = (await page_of(gateway))["edgebroker_session_queue_messages"].samples
        assert list(named.values()) == [2.0] * NAMED_SESSIONS
        assert [dict(labels)["client"] for _, labels in named] == [f"c{n * 100:04}" for n in range(NAMED_SESSIONS)]
        census = await take_census(gateway.frontend)
        assert (census.sessions, census.connected, census.ranked) == (count + 1, 1, [])
        assert (census.queue_messages, census.queue_longest) == (count + 11, 2)

    with_gateway(story)


@pytest.mark.parametrize("rank", RANKS)
def test_the_foremost_session_comes_first_by_every_rank(rank: str) -> None:
    async def story(gateway: Gateway) -> None:
        writer = come(gateway, "writer")
        come(gateway, "less", "a")
        come(gateway, "more", "a", "b", "c")
        far = [come(gateway, "far", "c", "d", "e", "f"), come(gateway, "further", "c", "e", "f", "g", "h")]
        for away in far:
            gateway.frontend.closed(away, clock())
        for number, topic in enumerate("abceef", 1):
            say(gateway, writer, Publish(topic, b"x", 1, packet_id=number))
        ranked = (await take_census(gateway.frontend, rank, 3)).ranked
        values = [RANKS[rank](session) for session in ranked]
        assert values == sorted(values, reverse=True)
        assert values[0] == max(map(RANKS[rank], gateway.frontend.connect_handler.sessions.values())) > 0
        assert len(ranked) <= 3

    with_gateway(story)


def test_bytes_are_counted_on_both_sides() -> None:
    async def story(gateway: Gateway, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        packet = encode_packet(Connect("c", dialect=V5), V5)
        writer.write(packet)
        first = await reader.readexactly(2)
        answer = first + await reader.readexactly(first[1])
        decode_packet(answer[0], answer[2:], V5)
        page = await page_of(gateway)
        assert page["edgebroker_received_bytes"].value("_total") == len(packet)
        assert page["edgebroker_sent_bytes"].value("_total") == len(answer)
        writer.close()

    with_gateway(story)


def test_the_process_is_described_where_the_machine_can() -> None:
    now = ProcessUsage.now()
    assert now.cpu_s > 0
    assert now.descriptors_max > 0
    if Path("/proc/self/statm").exists():
        assert now.resident_bytes is not None
        assert now.resident_bytes > 1_000_000


def test_without_proc_two_metrics_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_STATM", "_DESCRIPTORS"):
        monkeypatch.setattr(f"edgebroker.runtime.process.{name}", Path("/proc/no/such/file"))

    async def story(gateway: Gateway) -> None:
        page = await page_of(gateway)
        assert "process_cpu_seconds" in page
        assert not {"process_resident_memory_bytes", "process_open_fds"} & set(page)

    with_gateway(story)


def test_what_the_system_had_not_taken_when_a_reader_left_is_counted() -> None:
    """At QoS 0 it counts as delivered, for MQTT has no answer to that: these bytes say how much of it was not."""

    async def story(gateway: Gateway, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)):
            async with asyncio.timeout(20):
                while not gateway.frontend.connections:
                    await asyncio.sleep(0.001)
                [connection] = gateway.frontend.connections.values()
                connection.transport.write(bytes(32 << 20))  # more than the buffers of both ends
        async with asyncio.timeout(20):
            while gateway.frontend.connections:
                await asyncio.sleep(0.001)
        assert (await page_of(gateway))["edgebroker_cut_bytes"].value("_total") > 0

    with_gateway(story)


def test_the_documentation_lists_every_metric(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = {"messages": 0, "bytes": 0, "oldest_s": None, "dropped": {"too_old": 3, "refused": 2}}
    monkeypatch.setattr("edgebridge.frontend.bridge_session.BridgeSession.described", lambda memory, now: queue)
    rows = re.findall(r"^\| `(\w+)` \|", (root / "docs/operations.md").read_text(), re.MULTILINE)
    listed = {name for name in rows if name.startswith(("edgebroker_", "process_"))}

    async def story(gateway: Gateway) -> None:
        suffixes = {"counter": "_total", "info": "_info"}
        frontend = gateway.frontend
        frontend.publish_handler.file_service = FileService(ChunkStore(1), frontend.events, frontend.host)
        attach_files(frontend, 1, clock())
        page = await page_of(gateway)
        assert listed == {name + suffixes.get(family.kind, "") for name, family in page.items()}
        assert page["edgebroker_bridge_up"].value(bridge="up") == 0
        assert page["edgebroker_bridge_active"].value(bridge="up") == 0
        assert page["edgebroker_bridge_messages"].value("_total", bridge="up", direction="in") == 0
        dropped = page["edgebroker_bridge_dropped"]
        assert dropped.value("_total", bridge="up", direction="out", cause="too_old") == 3, "out of its queue"
        assert "refused" not in str(dropped.samples), "counted by what the bridge refused it for"

    with_peers_and_bridges(story, tmp_path)


def with_peers_and_bridges(story: Callable[[Gateway], Awaitable[None]], folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/bridges.toml").write_text(BRIDGE)
    topology = folder / "topology.toml"
    topology.write_text(TWO_GATEWAYS.format(7884, 7885))
    with_gateway(story, log_dir=folder / "log", data=folder / "data", topology=topology, name="gw-here")


BRIDGE = '[[bridge]]\nname = "up"\naddresses = ["127.0.0.1:1"]\ntopic = ["a"]\npaused = true\npair = "up"\n'


def names_in(root: Path) -> dict[str, set[str]]:
    """File of deploy/ -> the metrics its expressions name."""
    board = json.loads((root / "deploy/grafana/edgebroker.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown += [one["expr"] for one in board["annotations"]["list"]]
    shown += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    rules = re.findall(r"^ +expr: (.*)$", (root / "deploy/prometheus/edgebroker.rules.yml").read_text(), re.MULTILINE)
    return {
        name: {found for text in texts for found in re.findall(r"\b(?:edgebroker|process)_\w+", text)}
        for name, texts in (("grafana", shown), ("prometheus", rules))
    }


def test_dashboard_and_alerts_name_metrics_that_there_are(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, in a gateway with bridges and peers whose card has been watched for an hour."""
    monkeypatch.setattr("edgebroker.runtime.journal.wear.WearTotals.bytes_per_day", 1.0)

    async def story(gateway: Gateway) -> None:
        page = await page_of(gateway)
        suffixes = {"counter": "_total", "info": "_info", "histogram": "_bucket"}
        known = {name + suffixes.get(family.kind, "") for name, family in page.items()}
        for file, named in names_in(root).items():
            assert len(named) >= 5
            assert named <= known, file

    with_peers_and_bridges(story, tmp_path)


def test_nobody_is_woken_for_drops_that_are_everyday_life(root: Path) -> None:
    """The alert leaves out what the operator's log tells as information only."""
    rules = (root / "deploy/prometheus/edgebroker.rules.yml").read_text()
    (causes,) = re.findall(r'edgebroker_copies_dropped_total\{cause!~"([^"]*)"', rules)
    assert set(causes.split("|")) == {cause.name.lower() for cause in USUAL_CAUSES}


def test_panels_of_the_dashboard_do_not_overlap(root: Path) -> None:
    panels = json.loads((root / "deploy/grafana/edgebroker.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24

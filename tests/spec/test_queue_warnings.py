"""Full queues and their pages, as `/health`, `/metrics`, `/clients` and the alert rules tell of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebridge.session.inflight import Inflight
from edgebridge.session.queue.outbox import Allowance, SessionOutbox
from edgebridge.session.session import Session
from edgebridge.wire.packets import Publish
from edgebroker.instants import MINUTE, SECOND, Instant
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.http.health import has_nearly_full_queue, report
from edgebroker.runtime.http.metrics import metrics_page
from edgebroker.runtime.http.pages import status
from edgebroker.runtime.http.session_census import take_census
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import CLIENTS_MAX, LogPump, OperatorLog

from ..support.gateway_in_process import come, say, with_gateway


def fill(gateway: Gateway, readers: Iterable[str], count: int, messages_max: int, payload: bytes = b"x") -> None:
    """Let *count* messages come for each of *readers*, who are away and may have *messages_max* waiting."""
    for name in readers:
        connection = come(gateway, name, f"to/{name}")
        connection.close()
        gateway.frontend.closed(connection, clock())
        gateway.frontend.connect_handler.sessions[ClientId(name)].outbox.messages_max = messages_max
    writer = come(gateway, "writer")
    for name in readers:
        for number in range(1, count + 1):
            say(gateway, writer, Publish(f"to/{name}", payload, 1, packet_id=number))


def queue_lines(gateway: Gateway) -> list[str]:
    return [line for line in report(gateway.view)["warnings"] if line.startswith("queues: ")]


@pytest.mark.parametrize(("count", "is_told"), [(17, False), (18, True), (20, True)])
def test_a_queue_that_reaches_nine_tenths_of_its_bound_is_a_warning(count: int, is_told: bool, tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        fill(gateway, ["pump 3"], count, 20)
        nearly_full = 'queues: nearly full, at nine tenths or more of what may wait, for "pump 3"'
        assert queue_lines(gateway) == [nearly_full] * is_told
        assert f"edgebroker_queues_nearly_full {int(is_told)}\n".encode() in await metrics_page(gateway.view)

    with_gateway(story, data=tmp_path / "data")


def test_what_a_queue_dropped_is_a_warning_that_names_ten_clients(tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        names = [f"pump-{number}" for number in range(13)]
        fill(gateway, names, 7, 5)
        full, dropped = queue_lines(gateway)
        assert full.endswith("for " + ", ".join(names[:10]) + " and 3 more")
        latest = [f"{name} (queue_full)" for name in names[:2:-1]]
        assert dropped.endswith("dropped in the last 15 minutes for " + ", ".join(latest) + " and 3 more")
        assert report(gateway.view)["status"] == "ok", "to restart it would mend nothing"

    with_gateway(story, data=tmp_path / "data")


def test_a_queue_in_memory_is_no_warning_before_it_drops_something() -> None:
    session = Session(ClientId("c"), Inflight(1), SessionOutbox(0, 0))
    session.number = 1
    assert not has_nearly_full_queue(session), "nothing may wait, so nothing is lost to a bound"
    allowance = Allowance(100, 1_000)
    allowance.bytes = 899
    assert not allowance.is_nearly_full
    allowance.bytes = 900
    assert allowance.is_nearly_full


def test_drops_of_queues_are_remembered_for_15_minutes_and_no_others() -> None:
    now: list[Instant] = [0]
    frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned")
    pump = LogPump(frontend, OperatorLog(lambda line: None), lambda: now[0])
    frontend.ledger.count_dropped("a", Cause.THINNED, 3)
    frontend.ledger.count_dropped("away", Cause.OFFLINE, 3)
    frontend.ledger.count_dropped("slow", Cause.OUT_BUFFER_FULL, 3)
    assert pump.recent_queue_drops() == {"a": Cause.THINNED}
    now[0] += 14 * MINUTE
    frontend.ledger.count_dropped("b", Cause.MEMORY_FULL, 1)
    assert list(pump.recent_queue_drops()) == ["b", "a"], "the latest first"
    now[0] += 1 * MINUTE + 1 * SECOND
    pump.close_minute()
    assert pump.recent_queue_drops() == {"b": Cause.MEMORY_FULL}
    for number in range(2 * CLIENTS_MAX):
        frontend.ledger.count_dropped(f"c{number}", Cause.QUEUE_FULL, 1)
        pump.collect_drops()
    assert len(pump.recent_queue_drops()) == CLIENTS_MAX + 1, "all beyond are one"


def test_pages_and_clients_tell_how_much_of_a_queue_is_on_the_disk(tmp_path: Path) -> None:
    async def story(gateway: Gateway) -> None:
        fill(gateway, ["archive"], 2_000, 10_000, b"x" * 64)
        gateway.view.reactor.arm_timer()
        session = gateway.frontend.connect_handler.sessions[ClientId("archive")]
        while not session.outbox.paged_messages:
            await asyncio.sleep(0.01)
        census = await take_census(gateway.frontend)
        queue = status(gateway.view, census)["queue"]
        assert 0 < queue["paged"] == session.outbox.paged_messages < queue["messages"]
        assert 0 < queue["paged_bytes"] == session.outbox.paged_bytes < queue["bytes"]
        page = (await metrics_page(gateway.view)).decode()
        found = dict(re.findall(r"^edgebroker_(queue_page\w+) (\d+)$", page, re.MULTILINE))
        assert found.keys() == {"queue_paged_messages", "queue_paged_bytes", "queue_pages"}
        assert all(map(int, found.values()))

    with_gateway(story, data=tmp_path / "data")


def test_causes_have_a_series_from_the_start() -> None:
    """`increase` of Prometheus does not see the first burst of a series that begins with it."""

    async def story(gateway: Gateway) -> None:
        page = (await metrics_page(gateway.view)).decode()
        for cause in ("queue_full", "thinned", "memory_full", "damaged"):
            assert f'edgebroker_copies_dropped_total{{cause="{cause}"}} 0\n' in page
        assert 'edgebroker_messages_refused_total{cause="queue_full"} 0\n' in page
        assert 'edgebroker_memory_refused_total{kind="sessions"} 0\n' in page
        assert 'cause="content"' not in page, "no copy is dropped for it"

    with_gateway(story)


def test_alert_rules_fire_on_a_single_burst(root: Path) -> None:
    rules = (root / "deploy/prometheus/edgebroker.rules.yml").read_text()
    by_name = {text.split("\n", 1)[0]: text for text in rules.split("- alert: ")[1:]}
    for name in ("DropsMessages", "RefusesMessages", "HasNoRoom", "MemoryRefused"):
        text = by_name[f"Edgebroker{name}"]
        assert re.search(r"increase\(.*\[15m\]\)\) > 0\n", text), name
        assert "for:" not in text, name
    assert "max_over_time(edgebroker_held_bytes[15m])" in by_name["EdgebrokerMemoryTight"]

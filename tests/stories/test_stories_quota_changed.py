"""Another quota for a gateway that runs: it holds at once, for who is connected too."""

from __future__ import annotations

from typing import Any

import pytest

from edgebridge.frontend.admin import change_quota
from edgebridge.frontend.options import Quota
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import PingReq, Publish
from edgebroker.instants import SECOND

from .test_stories_quota import COME


def test_another_quota_holds_at_once(play: Any) -> None:
    """For who is connected too; what was granted stays granted."""
    play(COME + "    a > SUBSCRIBE $filter/a%3E1/t b    a < SUBACK granted=0,0")
    frontend = play.broker.frontend
    now = play.broker.simulation.now
    quota = Quota(
        connect_bytes_max=100,
        connects_per_s=1,
        connects_per_address_per_s=1,
        publish_bytes_per_s=1_000,
        filter_tests_max=1,
        subscriptions_max=2,
        memory_bytes_max=50_000,
    )
    change_quota(frontend, quota, now)
    assert frontend.memory_limit.bytes_max == 50_000
    play("a > SUBSCRIBE $filter/b%3E1/t    a < SUBACK granted=0x97    a > SUBSCRIBE c    a < SUBACK granted=0x97")
    play(f'b opens    b > CONNECT will=t will-payload="{"x" * 200}"    b < CLOSED')
    play(f'a > PUBLISH b "{"x" * 900}"    a < PUBLISH b "{"x" * 900}"')
    frontend.feed(
        play.client("a").line.connection, encode_packet(PingReq(), play.dialect) * 900, play.broker.simulation.now
    )
    assert play.client("a").line.connection.is_held
    assert frontend.input_scheduler.slowed == 1
    play.broker.simulation.run_until(play.broker.simulation.now + 10 * SECOND)
    assert not play.client("a").line.connection.is_held
    assert len(play.client("a").receive()) == 900
    change_quota(frontend, Quota(), now)
    assert play.client("a").line.connection.meter is None
    play("a > SUBSCRIBE $filter/b%3E1/t    a < SUBACK granted=0    a > SUBSCRIBE c    a < SUBACK granted=0")
    change_quota(frontend, quota, play.broker.simulation.now)
    fresh = [frontend.opened("192.0.2.1:1", play.broker.simulation.now).closing for _ in range(12)]
    assert fresh == [False] * 10 + [True] * 2
    assert frontend.connection_rate.rejected == 2


@pytest.mark.parametrize("rate", [0, 1_000])
def test_who_waits_for_a_quota_that_holds_no_more_goes_on(play: Any, rate: int) -> None:
    """What was published too fast for 1 a second would be waited for a quarter of an hour."""
    play(COME, quota=Quota(publish_messages_per_s=1))
    frontend, client, simulation = play.broker.frontend, play.client("a"), play.broker.simulation
    publishes = b"".join(encode_packet(Publish("t", b"", 0), play.dialect) for _ in range(100))
    for _ in range(10):
        frontend.feed(client.line.connection, publishes, simulation.now)
        simulation.run_until(simulation.now + SECOND // 10)
    assert client.line.connection.is_held
    change_quota(frontend, Quota(publish_messages_per_s=rate), simulation.now)
    play("b > CONNECT    b < CONNACK")
    assert not client.line.connection.is_held
    play("a > PINGREQ    a < PINGRESP")

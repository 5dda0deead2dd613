"""Token buckets, and which connections share one."""

from __future__ import annotations

import pytest

from edgebridge.frontend import connection_rate
from edgebridge.frontend.connection_rate import ConnectionRateLimit, source_of
from edgebridge.frontend.options import Quota
from edgebroker.instants import SECOND
from edgebroker.tokenbucket import Meter, TokenBucket


def test_a_burst_and_a_rate() -> None:
    bucket = TokenBucket(2, 5, 0)
    assert [bucket.admits(0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.admits(SECOND) for _ in range(3)] == [True, True, False]
    assert not bucket.is_full(2 * SECOND)
    assert bucket.is_full(100 * SECOND)


def test_what_is_owed_is_waited_for() -> None:
    bucket = TokenBucket(10, 10, 0)
    assert bucket.charge(10, 0) == 0
    wait = bucket.charge(25, 0)
    assert 2.5 * SECOND <= wait <= 2.5 * SECOND + 1
    assert bucket.charge(0, wait) == 0
    assert 0 < bucket.charge(1, wait) <= SECOND // 10 + 1


def test_a_meter_waits_for_the_scarcer() -> None:
    meter = Meter(10, 1_000, 0)
    assert meter.charge(1, 999, 0) == 0
    assert meter.charge(0, 1_001, 0) == SECOND + 1
    assert Meter(0, 1_000, 0).charge(10_000, 1, 0) == 0


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("192.0.2.1:4711", "192.0.2.1"),
        ("::1:4711", "::/64"),
        ("[2001:db8:1:2:3:4:5:6]:1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:4:5:6:1", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1:4711", "192.0.2.1"),
        ("fe80::1%eth0:4711", "fe80::/64"),
        ("unix socket", "unix socket"),
        ("/run/edgebroker.sock", "/run/edgebroker.sock"),
        ("", ""),
        (":", ":"),
    ],
)
def test_whose_connections_are_counted_together(peer: str, source: str) -> None:
    assert source_of(peer) == source


def test_the_table_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rate, "ADDRESSES_MAX", 10)
    limit = ConnectionRateLimit(Quota(connects_per_s=0, connects_per_address_per_s=1))
    for number in range(100):
        assert limit.admits(f"192.0.2.{number}:1", 0)
        limit.admits("192.0.2.200:1", 0)
    assert len(limit) == 10
    assert not limit.admits("192.0.2.200:1", 0)  # who comes all the time is not forgotten


def test_no_bound_at_all() -> None:
    limit = ConnectionRateLimit(Quota(connects_per_s=0, connects_per_address_per_s=0))
    assert all(limit.admits("192.0.2.1:1", 0) for _ in range(10_000))
    assert not len(limit)

"""P7: every copy that was made has exactly one fate in the delivery log, wherever a run is stopped."""

from __future__ import annotations

import pytest

from edgebridge.frontend.options import FrontendOptions
from edgebroker.log_schema import DELIVERY, Cause, Fate
from edgebroker.storage.deliverylog.reader import read_segment
from edgebroker.storage.deliverylog.writer import DeliveryLog
from edgelab.simworld.checkers import unaccounted, unbalanced
from edgelab.simworld.workload import Workload

ACTIONS = 150
NARROW = FrontendOptions(out_bytes_max=500, queue_messages_max=5, inflight_max=3)
"""So narrow that everything is dropped now and then, for every reason."""


def books(seed: int, terms: FrontendOptions | None, settled: bool) -> tuple[Workload, bytes]:
    """A run and its delivery log; without *settled* the broker stops amid everything."""
    log = DeliveryLog("gateway", "boot")
    head = log.header(0, 0)
    workload = Workload(seed, terms, log)
    if settled:
        workload.run(ACTIONS)
    else:
        workload.live(ACTIONS)
    assert not list(unaccounted(workload.broker, workload.everybody))
    workload.broker.stop()
    return workload, head + b"".join(log.take(workload.simulation.now, closing=True))


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "amid everything"])
@pytest.mark.parametrize("terms", [None, NARROW], ids=["roomy", "narrow"])
def test_published_is_the_sum_of_fates(seed: int, terms: FrontendOptions | None, settled: bool) -> None:
    causes: set[int] = set()
    fates: set[int] = set()
    for number in range(15):
        workload, log = books(seed + number, terms, settled)
        broken = list(unbalanced(log))
        assert not broken, "\n".join([f"seed {seed + number}", *broken])
        rows = read_segment(log, growing=True).tables[DELIVERY.name]
        ledger = workload.broker.ledger
        assert rows["fate"].count(Fate.PUBLISHED) == ledger.published
        assert rows["fate"].count(Fate.FILTERED) == ledger.filtered
        assert rows["fate"].count(Fate.DELIVERED) == ledger.delivered
        assert rows["fate"].count(Fate.DROPPED) == sum(ledger.dropped.values())
        assert rows["fate"].count(Fate.QUEUED) == ledger.queued
        causes.update(rows["cause"])
        fates.update(rows["fate"])
    assert {Fate.DELIVERED, Fate.DROPPED, Fate.FILTERED, Fate.PUBLISHED} <= fates
    assert {Cause.NO_SUBSCRIBER, Cause.CONTENT, Cause.OFFLINE, Cause.SESSION_ENDED} <= causes
    if terms is NARROW:
        assert {Cause.QUEUE_FULL, Cause.OUT_BUFFER_FULL} <= causes
    if not settled:
        assert Fate.QUEUED in fates

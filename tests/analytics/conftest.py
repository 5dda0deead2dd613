"""One Spark session for all tests of the analytics, and simulated delivery logs whose truth is known."""

from __future__ import annotations

import heapq
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgebroker.log_schema import Cause, Fate
from edgebroker.runtime.delivery_log import OpenSegment
from edgebroker.storage.deliverylog.writer import DeliveryLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNIX_US = 1_760_000_000_000_000  # when the simulated gateways believe they start
SUBSCRIBERS = {"archive": 1, "cold": 0, "truck": 1, "twice": 2, "sleepy": 1}
"""Client id -> the QoS it subscribed with."""


@dataclass
class Truth:
    """What was planted, by (node, boot)."""

    lost: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    duplicated: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    fates: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """(QoS, fate, cause) -> how many."""


@dataclass
class Gateway:
    """A broker's run that writes a delivery log and now and then breaks a promise."""

    folder: Path
    node: str
    boot: str
    truth: Truth
    random: random.Random
    sample_qos0: int = 1
    loss: float = 0.0
    duplication: float = 0.0
    block_rows: int = 200

    def run(self, messages: int, files: int = 2, *, close: bool = True, gap_us: int = 400_000) -> list[Path]:
        """Publish *messages*, about one every *gap_us*, into so many files; an unclosed last one stays a `.part`."""
        log = DeliveryLog(self.node, self.boot, self.sample_qos0, self.block_rows)
        self.truth.lost[self.node, self.boot] = []
        self.truth.duplicated[self.node, self.boot] = []
        pending: list[tuple[Any, ...]] = []
        written: list[Path] = []
        now_us = self.random.randrange(10**9)
        log.anchor(now_us, UNIX_US - 10**12)  # a clock that is corrected later
        number = 0
        for nth in range(files):
            segment = OpenSegment(self.folder, log.header(now_us, UNIX_US + nth))
            for _ in range(messages // files):
                number += 1
                now_us += self.random.randrange(2 * gap_us)
                while pending and pending[0][0] <= now_us:
                    self.end(log, *heapq.heappop(pending))
                self.publish(log, number, now_us, pending)
                for block in log.take(now_us):
                    segment.append(block)
            log.anchor(now_us, UNIX_US + now_us)
            last = nth == files - 1
            if last and close:
                for _, message, publisher, subscriber, topic, qos, *_, size in sorted(pending):
                    self.note(log, now_us, message, publisher, subscriber, topic, qos, Fate.QUEUED, Cause.NONE, 1, size)
            for block in log.take(now_us, closing=close or not last):
                segment.append(block)
            if last and not close:
                segment.abandon()
                written.append(segment.path)
            else:
                written.append(segment.finish(final=last))
        return written

    def publish(self, log: DeliveryLog, number: int, now_us: int, pending: list[tuple[Any, ...]]) -> None:
        """One message, to some of the subscribers."""
        chance = self.random
        publisher, qos, size = f"sensor-{chance.randrange(4)}", chance.choice((0, 0, 1, 2)), chance.randrange(20, 90)
        topic = f"sites/north/{publisher}"
        wanted = [name for name in SUBSCRIBERS if chance.random() < 0.4]
        log.published(now_us, publisher, number, 1, topic, qos, size, len(wanted))
        self.truth.fates[qos, Fate.PUBLISHED, Cause.NONE] += 1
        for name in SUBSCRIBERS:
            log.selectivity(now_us, name, f"{name} > 1", 1, int(name in wanted))
        if not wanted:
            cause = chance.choice((Cause.NO_SUBSCRIBER, Cause.CONTENT))
            log.filtered(now_us, publisher, number, 1, topic, qos, cause, size)
            self.truth.fates[qos, Fate.FILTERED, cause] += 1
        for name in wanted:
            copy_qos = min(qos, SUBSCRIBERS[name])
            log.matched(now_us, publisher, name, number, 1, copy_qos)
            self.truth.fates[copy_qos, Fate.MATCHED, Cause.NONE] += 1
            if chance.random() < self.loss:
                self.truth.lost[self.node, self.boot].append(number)
                continue
            fate, cause = chance.choices(
                (
                    (Fate.DELIVERED, Cause.NONE),
                    (Fate.EXPIRED, Cause.NONE),
                    (Fate.DROPPED, Cause.OFFLINE if copy_qos == 0 else Cause.QUEUE_FULL),
                    (Fate.DROPPED, Cause.REFUSED),
                ),
                (90, 4, 4, 2),
            )[0]
            times = 2 if fate is Fate.DELIVERED and chance.random() < self.duplication else 1
            for _ in range(times):
                wait_us = int(chance.lognormvariate(7 + copy_qos, 1.2))
                heapq.heappush(
                    pending,
                    (now_us + wait_us, number, publisher, name, topic, copy_qos, fate, cause, wait_us, size),
                )
            if times == 2:
                self.truth.duplicated[self.node, self.boot].append(number)

    def end(self, log: DeliveryLog, at_us: int, message: int, publisher: str, subscriber: str, *rest: Any) -> None:
        """A copy comes to its end, at its time."""
        topic, qos, fate, cause, wait_us, size = rest
        self.note(log, at_us, message, publisher, subscriber, topic, qos, fate, cause, wait_us, size)

    def note(self, log: DeliveryLog, now_us: int, message: int, publisher: str, subscriber: str, *rest: Any) -> None:
        """Write an end into the log and into the truth."""
        topic, qos, fate, cause, wait_us, size = rest
        log.fate(now_us, publisher, subscriber, message, 1, topic, "+/#", qos, fate, cause, wait_us, size)
        self.truth.fates[qos, fate, cause] += 1


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark, started once, as `edgeanalytics` starts it."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from edgeanalytics.java import choose
    from edgeanalytics.session import spark_session

    with spark_session(choose(os.environ), "local[2]") as session:
        yield session


@pytest.fixture(scope="session")
def gateway() -> type[Gateway]:
    return Gateway


@pytest.fixture(scope="session")
def truth() -> type[Truth]:
    return Truth

"""What the benchmark asks of its load generator, and what comes back: one JSON object each way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One run of one load against one broker on 127.0.0.1.

    load: `stream`, `acknowledged`, `paced`, `idle`, `readings`, `killed`, or one of `bench bridge`.  window: published
    messages that may be under way at once; it keeps every broker below the point where it drops QoS 0 messages.
    rate: messages per second, open loop.  is_irregular: they come at any time, not evenly.  subscriber_port,
    further_pid: of the broker where subscribers are, if that is another one.  is_durable: subscribers' sessions last.
    """

    load: str
    port: int = 0
    subscriber_port: int = 0
    broker_pid: int = 0
    further_pid: int = 0
    seconds: float = 2.0
    warmup_s: float = 0.3
    messages_max: int = 100_000_000
    shape: str = "one"
    publishers: int = 1
    subscribers: int = 1
    subscriptions: int = 1
    packets_per_write: int = 1
    window: int = 1
    rate: int = 0
    is_irregular: bool = False
    is_tls: bool = False
    is_durable: bool = False
    qos: int = 1
    """Of messages, where the load does not say it."""

    @property
    def reading_port(self) -> int:
        """Where subscribers connect."""
        return self.subscriber_port or self.port

    @property
    def broker_pids(self) -> tuple[int, ...]:
        """The processes of the broker, or of both."""
        return (self.broker_pid, self.further_pid) if self.further_pid else (self.broker_pid,)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LoadJob:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class LoadSample:
    """What one run measured. A run with a `failure` has no figures that may be used."""

    values: dict[str, float] = field(default_factory=dict)
    failure: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LoadSample:
        return cls(**json.loads(text))


class LoadFailed(Exception):
    """Messages were lost, doubled, damaged or late beyond the time limit; the run does not count."""

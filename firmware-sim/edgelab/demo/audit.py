"""The end-to-end audit: the messages that devices published against those that subscribers received.

It asks nothing of the broker. A message is known by its topic and its exact bytes, so that an altered message is
both missing and unknown. The devices' journals are read from JSON lines (docs/devices.md, "The summary").
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from edgebroker.cbor import encode_cbor
from edgebroker.errors import EdgebrokerError
from edgebroker.filters import Extractor
from edgelab.demo.subscriber_specs import SubscriberSpec

ACKNOWLEDGED: Final = "acknowledged"
SENT: Final = "sent"
NAMED_MAX: Final = 20
"""Messages named per finding: enough to look into, few enough to read."""

Key: TypeAlias = tuple[str, bytes]
"""Topic and payload."""


@dataclass(frozen=True, slots=True)
class DevicePublication:
    """A message as its device noted it. `device` is also the MQTT client identifier; `outcome` as in the journal.

    sent_us: when it was sent first, by this machine's monotonic clock; None if that is not known.
    """

    device: str
    seq: int | None
    topic: str
    payload: bytes
    qos: int
    retain: bool
    outcome: str
    sent_us: int | None = None

    @property
    def key(self) -> Key:
        """What tells it apart."""
        return self.topic, self.payload

    @property
    def is_due(self) -> bool:
        """Whether subscribers must get it: acknowledged, or QoS 0 and given to a connection that did not break."""
        return self.outcome in (ACKNOWLEDGED, SENT)

    def __str__(self) -> str:
        return f"{self.device} #{self.seq} (QoS {self.qos}, {self.topic})"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message as a subscriber got it. at_us: when, by this machine's monotonic clock. is_again: with DUP set."""

    topic: str
    payload: bytes
    qos: int
    at_us: int = 0
    is_again: bool = False

    @property
    def key(self) -> Key:
        """What tells it apart."""
        return self.topic, self.payload


@dataclass(slots=True)
class SubscriberAccount:
    """What one subscriber should have got, and got. The lists name every message concerned."""

    spec: SubscriberSpec
    candidates: int = 0
    """Messages whose topic the subscription matches."""
    wanted: int = 0
    """Of these, the ones that its content filter accepts."""
    received: int = 0
    lost: list[str] = field(default_factory=list)
    """Wanted, due, and not received."""
    duplicates: list[str] = field(default_factory=list)
    """Received more often than published."""
    wrong: list[str] = field(default_factory=list)
    """Received, but not wanted, never published, or with a QoS that is neither the message's nor the subscription's."""
    reordered: list[str] = field(default_factory=list)
    """Received after a later message of the same device, topic and QoS."""
    repeated: int = 0
    """Copies with QoS 1 that came again after a broken connection, as QoS 1 allows."""
    overtaken: int = 0
    """Copies that came after a later message, having gone around a link that was down, as docs/overlay.md allows."""

    @property
    def is_right(self) -> bool:
        """Nothing lost, doubled, wrong or out of order."""
        return not (self.lost or self.duplicates or self.wrong or self.reordered)


def audit(
    spec: SubscriberSpec,
    publications: Sequence[DevicePublication],
    receipts: Iterable[Receipt],
    *,
    may_repeat: Callable[[DevicePublication, Receipt], bool] = lambda publication, receipt: False,
    went_around: Callable[[DevicePublication], bool] = lambda publication: False,
) -> SubscriberAccount:
    """Hold *receipts* of the subscriber with this *wish*, in the order they came, against *publications*.

    may_repeat: whether a copy with QoS 1 may come again, because a connection broke before it was acknowledged.
    went_around: whether later messages may overtake it, because it may have gone around a link that was down.
    """
    account = SubscriberAccount(spec)
    published = {publication.key: publication for publication in publications}
    due: Counter[Key] = Counter()
    possible: Counter[Key] = Counter()
    for publication in _candidates(spec, publications):
        account.candidates += 1
        if accepts(spec, publication):
            account.wanted += 1
            possible[publication.key] += 1
            due[publication.key] += publication.is_due
    seen: Counter[Key] = Counter()
    last: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    for receipt in receipts:
        account.received += 1
        seen[receipt.key] += 1
        found = published.get(receipt.key)
        if found is None:
            account.wrong.append(f"never published: {receipt.topic} {_shown(receipt.payload)}")
        elif not possible[receipt.key]:
            account.wrong.append(f"not wanted: {found}")
        elif receipt.qos != min(found.qos, spec.qos):
            account.wrong.append(f"delivered with QoS {receipt.qos}, not {min(found.qos, spec.qos)}: {found}")
        elif seen[receipt.key] > possible[receipt.key]:
            if receipt.qos == 1 and may_repeat(found, receipt):
                account.repeated += 1
            else:
                account.duplicates.append(str(found))
        elif found.seq is not None:
            line = found.device, found.topic, found.qos
            if found.seq < last[line] and went_around(found):
                account.overtaken += 1
            elif found.seq < last[line]:
                account.reordered.append(f"{found} after #{last[line]}")
            last[line] = max(last[line], found.seq)
    account.lost += [str(published[key]) for key, count in due.items() for _ in range(count - seen[key])]
    return account


def _candidates(spec: SubscriberSpec, publications: Iterable[DevicePublication]) -> Iterable[DevicePublication]:
    return (publication for publication in publications if spec.topic_filter.matches(publication.topic))


def accepts(spec: SubscriberSpec, publication: DevicePublication) -> bool:
    """Whether the wish's content filter is true for *publication*; asked of the tree as written, without an index."""
    if spec.content_filter is None:
        return True
    attributes = Extractor(spec.content_filter.attributes).extract(
        publication.payload,
        topic=publication.topic,
        qos=publication.qos,
        retain=publication.retain,
        client=publication.device,
    )
    return spec.content_filter.accepts(attributes)


def _shown(payload: bytes) -> str:
    return repr(payload[:80]) + ("..." if len(payload) > 80 else "")


class JournalInvalid(EdgebrokerError):
    """A journal cannot be read; the message names file and line."""


def read_journal(path: Path) -> list[DevicePublication]:
    """The messages in *path*, in the order in which their fates were decided. Raises JournalInvalid."""
    try:
        with path.open(encoding="utf-8") as file:
            return list(_publications(path, file))
    except (OSError, UnicodeDecodeError) as error:
        raise JournalInvalid(f"{path} cannot be read: {error}") from error


def _publications(path: Path, lines: Iterator[str]) -> Iterator[DevicePublication]:
    for number, line in enumerate(lines, 1):
        try:
            yield _publication(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalInvalid(f"{path}, line {number}: not a journal's line ({error!r})") from error


def _publication(record: dict[str, Any]) -> DevicePublication:
    return DevicePublication(
        device=record["device"],
        seq=record["seq"],
        topic=record["topic"],
        payload=encoded(record["payload"], record["form"]),
        qos=record["qos"],
        retain=record["retain"],
        outcome=record["outcome"],
        sent_us=record.get("sent_us"),
    )


def encoded(body: Any, form: str) -> bytes:
    """*body* as the bytes that the device sent: compact UTF-8 JSON, or CBOR."""
    if form == "cbor":
        return encode_cbor(body)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class LineCounter:
    """How many lines a file that somebody else writes has by now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0

    def lines(self) -> int:
        """Whole lines so far; 0 while there is no file."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                grown = file.read()
        except OSError:
            return self._lines
        self._offset += len(grown)
        self._lines += grown.count(b"\n")
        return self._lines

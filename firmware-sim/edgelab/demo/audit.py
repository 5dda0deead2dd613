"""The end-to-end audit: the messages that devices published against those that subscribers received.

It requests nothing from the broker. A message is identified by its topic and its exact bytes, so that an altered
message is both missing and unknown. The devices' journals are read from JSON lines (docs/devices.md, "The summary").
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
"""The most messages listed per finding."""

Key: TypeAlias = tuple[str, bytes]
"""Topic and payload."""


@dataclass(frozen=True, slots=True)
class DevicePublication:
    """A message as its device recorded it. `device` is also the MQTT client identifier; `outcome` as in the journal.

    sent_us: the time at which it was sent first, by this machine's monotonic clock; None if unknown.
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
        """Return topic and payload, which identify the message."""
        return self.topic, self.payload

    @property
    def is_due(self) -> bool:
        """Return whether subscribers must receive it: acknowledged, or QoS 0 on a connection that did not break."""
        return self.outcome in (ACKNOWLEDGED, SENT)

    def __str__(self) -> str:
        return f"{self.device} #{self.seq} (QoS {self.qos}, {self.topic})"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message that a subscriber received. at_us: the time, by this machine's monotonic clock. is_again: with
    DUP set.
    """

    topic: str
    payload: bytes
    qos: int
    at_us: int = 0
    is_again: bool = False

    @property
    def key(self) -> Key:
        """Return topic and payload, which identify the message."""
        return self.topic, self.payload


@dataclass(slots=True)
class SubscriberAccount:
    """The messages that one subscriber should have received, and those that it received. The lists name messages."""

    spec: SubscriberSpec
    candidates: int = 0
    """Messages whose topic the subscription matches."""
    wanted: int = 0
    """Of these, the ones that its content filter accepts."""
    received: int = 0
    lost: list[str] = field(default_factory=list)
    """Accepted, due, and not received."""
    duplicates: list[str] = field(default_factory=list)
    """Received more often than published."""
    wrong: list[str] = field(default_factory=list)
    """Received, but not accepted, never published, or with a QoS that is neither the message's nor the
    subscription's.
    """
    reordered: list[str] = field(default_factory=list)
    """Received after a later message of the same device, topic and QoS."""
    repeated: int = 0
    """Copies with QoS 1 that were received again after a broken connection, as QoS 1 allows."""
    overtaken: int = 0
    """Copies that arrived after a later message because they took a detour around a link that was down
    (docs/overlay.md).
    """

    @property
    def is_right(self) -> bool:
        """Return whether nothing is lost, doubled, wrong or out of order."""
        return not (self.lost or self.duplicates or self.wrong or self.reordered)


def audit(
    spec: SubscriberSpec,
    publications: Sequence[DevicePublication],
    receipts: Iterable[Receipt],
    *,
    may_repeat: Callable[[DevicePublication, Receipt], bool] = lambda publication, receipt: False,
    went_around: Callable[[DevicePublication], bool] = lambda publication: False,
) -> SubscriberAccount:
    """Compare *receipts* of the subscriber with *spec*, in the order of their arrival, with *publications*.

    may_repeat: whether a copy with QoS 1 may be sent again, because a connection broke before it was acknowledged.
    went_around: whether later messages may overtake it, because it may have taken a detour around a link that was down.
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
    received: Counter[Key] = Counter()
    last_seq: defaultdict[tuple[str, str, int], int] = defaultdict(int)
    for receipt in receipts:
        account.received += 1
        received[receipt.key] += 1
        original = published.get(receipt.key)
        if original is None:
            account.wrong.append(f"never published: {receipt.topic} {_shown(receipt.payload)}")
        elif not possible[receipt.key]:
            account.wrong.append(f"not wanted: {original}")
        elif receipt.qos != min(original.qos, spec.qos):
            account.wrong.append(f"delivered with QoS {receipt.qos}, not {min(original.qos, spec.qos)}: {original}")
        elif received[receipt.key] > possible[receipt.key]:
            if receipt.qos == 1 and may_repeat(original, receipt):
                account.repeated += 1
            else:
                account.duplicates.append(str(original))
        elif original.seq is not None:
            flow = original.device, original.topic, original.qos
            if original.seq < last_seq[flow] and went_around(original):
                account.overtaken += 1
            elif original.seq < last_seq[flow]:
                account.reordered.append(f"{original} after #{last_seq[flow]}")
            last_seq[flow] = max(last_seq[flow], original.seq)
    account.lost += [str(published[key]) for key, count in due.items() for _ in range(count - received[key])]
    return account


def _candidates(spec: SubscriberSpec, publications: Iterable[DevicePublication]) -> Iterable[DevicePublication]:
    return (publication for publication in publications if spec.topic_filter.matches(publication.topic))


def accepts(spec: SubscriberSpec, publication: DevicePublication) -> bool:
    """Return whether the content filter of *spec* accepts *publication*; evaluates the tree as written, without an
    index.
    """
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
    """Return the messages in *path*, in the order in which their outcomes were known. Raises JournalInvalid."""
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
    """Return *body* as the bytes that the device sent: compact UTF-8 JSON, or CBOR."""
    if form == "cbor":
        return encode_cbor(body)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class LineCounter:
    """Counts the lines of a file that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._lines = 0

    def lines(self) -> int:
        """Return the number of complete lines so far; 0 if the file does not exist."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                grown = file.read()
        except OSError:
            return self._lines
        self._offset += len(grown)
        self._lines += grown.count(b"\n")
        return self._lines

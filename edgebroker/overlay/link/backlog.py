"""The parts of a BACKLOG that are on the disk, and the flows that must go on in the BACKLOG.

The middle of a long BACKLOG is in *pages*: successive messages, each page in a file of its own. What a file contains is
one stream of zlib, and in it a CBOR array with a row for each message (`PageRow`). The owner of the files is
`federation.link_pager`; a record of the journal names each page (`journal_records`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from edgebroker.cbor import CborReader, encode_cbor
from edgebroker.instants import Instant
from edgebroker.limits import JOURNAL_RECORD_BYTES_MAX
from edgebroker.overlay.link.class_queue import LinkPage, QueuedMessage, event_of
from edgebroker.overlay.link.codec.errors import FrameBroken
from edgebroker.overlay.link.codec.messages import link_cbor, read_alone
from edgebroker.overlay.messages import EventSeries, Forward, Message

FlowKey = tuple[str, str]
"""Publisher and topic."""
FLOW_SLOTS: Final = 1 << 16
"""Flows of pages are told apart by so many values: a table of them takes 5 MiB at most, where a million names would
take 250. A flow that shares its value with one in a page goes to the BACKLOG too, which costs it a delay.
"""
_SLOT: Final = Struct(">H")
_COMPRESSION: Final = 1
_CBOR: Final = link_cbor(1 << 62)
"""No bound but the length of the record."""


def flow_key(event: Forward) -> FlowKey:
    """Return the flow of *event*."""
    return event.client, event.topic


def _flow_slot(flow: FlowKey) -> int:
    return zlib.crc32("\0".join(flow).encode()) % FLOW_SLOTS


def page_flows(entries: Iterable[QueuedMessage]) -> bytes:
    """Return what stands for the flows of *entries* in a page: two bytes for each."""
    flows = {flow_key(event) for entry in entries if (event := event_of(entry.message)) is not None}
    return b"".join(map(_SLOT.pack, sorted(set(map(_flow_slot, flows)))))


class PageRow(NamedTuple):
    """One message in a page."""

    number: int
    account: int
    """Its number in the accounts of the run that wrote the page; 0 if they do not name it."""
    expires_in: int | None
    """Microseconds from `LinkPage.written_at` until it expires."""
    item: bytes
    """The message, encoded without reference to others."""


def encode_rows(rows: Iterable[PageRow]) -> bytes:
    """Return the content of a page."""
    return zlib.compress(encode_cbor([list(row) for row in rows]), _COMPRESSION)


def decode_rows(content: bytes) -> list[PageRow]:
    """Return what `encode_rows` was given. Raises FrameBroken for anything else."""
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, JOURNAL_RECORD_BYTES_MAX)
    except zlib.error as error:
        raise FrameBroken(f"a page that cannot be decompressed: {error}") from error
    if not stream.eof or stream.unused_data:
        raise FrameBroken("a page that is not whole, or too large")
    reader = CborReader(data, _CBOR)
    values = reader.item()
    if type(values) is not list or reader.at != len(data):
        raise FrameBroken("a page that is no list")
    rows = []
    for value in values:
        if type(value) is not list or tuple(map(type, value)) not in _ROW_TYPES:
            raise FrameBroken("a row of a page that is none")
        rows.append(PageRow(*value))
    if any(a.number >= b.number for a, b in pairwise(rows)):
        raise FrameBroken("a page whose numbers do not ascend")
    return rows


_ROW_TYPES: Final = ((int, int, int, bytes), (int, int, type(None), bytes))


def read_entry(
    number: int, expires_at: Instant | None, item: bytes, known: dict[bytes, Message] | None = None
) -> QueuedMessage | None:
    """Return the event or the series in *item*, which waited as *number*; None if it is not understood. *known*: items
    that were decoded already, so that the links which wait with the same one share it.
    """
    message = None if known is None else known.get(item)
    if message is None:
        try:
            message, _ = read_alone(item, may_be_series=True)
        except FrameBroken:
            return None
        if known is not None:
            known[item] = message
    event = message.first if isinstance(message, EventSeries) else event_of(message)
    return None if event is None or event.qos == 0 else QueuedMessage(message, number, expires_at)


def read_page(page: LinkPage, content: bytes) -> tuple[list[QueuedMessage], list[int]]:
    """Return the messages in the *content* of *page*, and their numbers in the accounts. Raises FrameBroken."""
    rows = decode_rows(content)
    if len(rows) != page.count or rows[0].number != page.first or rows[-1].number != page.last:
        raise FrameBroken(f"{len(rows)} messages, other than those of the page")
    entries = []
    for row in rows:
        at = None if row.expires_in is None else page.written_at + row.expires_in
        entry = read_entry(row.number, at, row.item)
        if entry is None:
            raise FrameBroken(f"message {row.number} is not understood")
        entry.lsn = page.lsn
        entries.append(entry)
    return entries, [row.account for row in rows]


class BacklogFlows:
    """The flows of one link with events in the BACKLOG."""

    __slots__ = ("counts", "paged")

    def __init__(self) -> None:
        self.counts: dict[FlowKey, int] = {}
        """Flow -> its events of the BACKLOG in memory: waiting, partly sent, or not acknowledged."""
        self.paged: dict[int, int] = {}
        """Two bytes that stand for flows -> pages with one of them."""

    def is_paged(self, event: Forward) -> bool:
        """Return whether earlier events of the flow of *event* may be in pages."""
        return _flow_slot(flow_key(event)) in self.paged

    def add(self, entry: QueuedMessage) -> None:
        """Count *entry*, which enters the BACKLOG."""
        event = entry.message.first if isinstance(entry.message, EventSeries) else event_of(entry.message)
        if event is not None:
            entry.flow = flow = flow_key(event)
            self.counts[flow] = self.counts.get(flow, 0) + 1

    def leave(self, entry: QueuedMessage) -> None:
        """Stop counting *entry*, of any class, which is acknowledged or paged, or sent or dropped if it has no
        number.
        """
        flow = entry.flow
        if flow is not None:
            entry.flow = None
            self.counts[flow] -= 1
            if not self.counts[flow]:
                del self.counts[flow]

    def add_page(self, page: LinkPage) -> None:
        """Count the flows of *page*, whose messages are on the disk alone."""
        for (slot,) in _SLOT.iter_unpack(page.flows):
            self.paged[slot] = self.paged.get(slot, 0) + 1

    def remove_page(self, page: LinkPage) -> None:
        """Stop counting them."""
        for (slot,) in _SLOT.iter_unpack(page.flows):
            self.paged[slot] -= 1
            if not self.paged[slot]:
                del self.paged[slot]

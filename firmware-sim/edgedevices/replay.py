"""A recorded CSV file as a device: every row is one message, at the pace of its time column."""

from __future__ import annotations

import csv
import heapq
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import IO

from edgebroker.instants import SECOND, Duration
from edgedevices import InputInvalid
from edgedevices.message import Body, DeviceMessage, Json, PayloadForm, level

LOOKAHEAD_ROWS = 1_000  # rows are sorted by time within this distance
DELIMITERS = ",;\t|"
SAMPLE_ROWS = 20
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
INTEGER = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)  # "007" is a name; 19 digits fit into the 64 bits of CBOR
DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?", re.ASCII)
WORDS: dict[str, Json] = {"": None, "null": None, "nan": None, "true": True, "false": False}
# Unix times after 1973 as seconds, milliseconds, microseconds, nanoseconds do not overlap below these bounds.
UNIX_UNITS_US = ((1e11, SECOND), (1e14, 1_000), (1e17, 1), (1e20, 1e-3))


class CsvRowInvalid(Exception):
    """A row cannot be published; the text says why."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row. time_us: microseconds since 1970, UTC."""

    line: int
    time_us: int
    fields: dict[str, str]


class CsvFile:
    """Reads rows one after the other and counts invalid ones; never holds the whole file."""

    def __init__(self, path: Path, time_column: str) -> None:
        self._file = _open(path)
        try:
            self._reader = csv.reader(self._file, delimiter=_delimiter(self._file), strict=True)
            self.columns: list[str] = [name.strip() for name in next(self._reader, [])]
        except csv.Error as error:
            raise InputInvalid(f"{path}: its first line is no CSV header: {error}") from error
        if not self.columns:
            raise InputInvalid(f"{path} is empty; its first line must name the columns")
        doubled = [name for name, number in Counter(self.columns).items() if number > 1]
        if doubled:
            raise InputInvalid(f"{path}: column {doubled[0]!r} occurs more than once")
        self.check_column(time_column, "--time-column")
        self._time_column = time_column
        self.rows_read = 0
        self.bad_rows: list[tuple[int, str]] = []
        """(line number, reason), the first hundred."""
        self.bad_count = 0

    def check_column(self, name: str, where: str) -> None:
        """Raises InputInvalid, with the most similar column, if there is no column *name*."""
        if name not in self.columns:
            near = get_close_matches(name, self.columns, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self.columns)}"
            raise InputInvalid(f"{where}: no column {name!r}; {hint}")

    def rows(self) -> Iterator[CsvRow]:
        """Yields the valid rows, in the order of the file."""
        while True:
            try:
                cells = next(self._reader)
            except StopIteration:
                self._file.close()
                return
            except csv.Error as error:
                self.rows_read += 1
                self.reject(self._reader.line_num, str(error))
                continue
            if not cells:
                continue  # an empty line
            self.rows_read += 1
            try:
                yield self._row(cells)
            except CsvRowInvalid as error:
                self.reject(self._reader.line_num, str(error))

    def reject(self, line: int, reason: str) -> None:
        """Counts the row that ends in *line* as invalid."""
        self.bad_count += 1
        if len(self.bad_rows) < 100:
            self.bad_rows.append((line, reason))

    def _row(self, cells: list[str]) -> CsvRow:
        if len(cells) != len(self.columns):
            raise CsvRowInvalid(f"{len(cells)} fields where the header has {len(self.columns)}")
        if any("\ufffd" in cell for cell in cells):
            raise CsvRowInvalid("not UTF-8")
        fields = dict(zip(self.columns, cells, strict=True))
        return CsvRow(self._reader.line_num, time_us_of(fields[self._time_column]), fields)


class CsvReplay:
    """A source of one message per row. speed: recorded seconds per second; None is as fast as the broker
    acknowledges.
    """

    patient = True

    def __init__(
        self,
        file: CsvFile,
        device: str,
        topic: str,
        columns: Sequence[str] = (),
        speed: float | None = 1.0,
        limit: int | None = None,
        qos: int = 1,
        form: PayloadForm = PayloadForm.JSON,
        retain: bool = False,
    ) -> None:
        self.name = device
        self._file = file
        self._topic = topic
        self._placeholders = PLACEHOLDER.findall(topic)
        for name in self._placeholders:
            file.check_column(name, "--topic")
        literal = PLACEHOLDER.sub("", topic)
        if not topic or set(literal) & set("+#\0{}"):
            raise InputInvalid(f"--topic: {topic!r} is no topic to publish to (no '+', '#' or single brace)")
        for name in columns:
            file.check_column(name, "--columns")
        self._columns = tuple(columns) or tuple(file.columns)
        self._speed = speed
        self._limit = limit
        self._qos, self._form, self._retain = qos, form, retain
        self._seq = 0
        self.late_rows = 0
        """Rows further out of order than the look-ahead; they are published at once, after later ones."""
        self._rows = file.rows()
        self._ahead: list[tuple[int, int, str, CsvRow]] = []  # (time, line, topic, row): a heap
        self._start_us: int | None = None
        self._now_us = 0
        for _ in range(LOOKAHEAD_ROWS):
            self._read()

    @property
    def due_us(self) -> Duration | None:
        """See `MessageSource`. The first row is due at once."""
        if not self._ahead or (self._limit is not None and self._seq >= self._limit):
            return None
        if self._speed is None:
            return 0
        time_us = max(self._ahead[0][0], self._now_us)
        start_us = time_us if self._start_us is None else self._start_us
        return round((time_us - start_us) / self._speed)

    def emit(self) -> DeviceMessage:
        """Returns the next row as a message."""
        time_us, _, topic, row = heapq.heappop(self._ahead)
        self._read()
        if self._start_us is None:
            self._start_us = time_us
        self.late_rows += time_us < self._now_us
        self._now_us = max(self._now_us, time_us)
        self._seq += 1
        # A column named "device" or "seq" keeps its recorded value: a replay does not invent readings.
        body: Body = {"device": self.name, "seq": self._seq}
        body.update((name, typed(row.fields[name])) for name in self._columns)
        return DeviceMessage(self.name, self._seq, topic, body, self._form, self._qos, self._retain)

    def _read(self) -> None:
        for row in self._rows:
            try:
                topic = self._topic_of(row)
            except CsvRowInvalid as error:
                self._file.reject(row.line, str(error))
                continue
            heapq.heappush(self._ahead, (row.time_us, row.line, topic, row))
            return

    def _topic_of(self, row: CsvRow) -> str:
        values = {name: level(row.fields[name]) for name in self._placeholders}
        for name, value in values.items():
            if not value:
                raise CsvRowInvalid(f"{{{name}}} of the topic is empty")
        return PLACEHOLDER.sub(lambda match: values[match[1]], self._topic)


def time_us_of(text: str) -> int:
    """Returns an ISO 8601 time (UTC by default) or a Unix time in s, ms, us or ns as microseconds since 1970.

    Raises CsvRowInvalid.
    """
    text = text.strip()
    if DECIMAL.fullmatch(text):
        number = float(text)  # 53 bits; present times in microseconds need 51
        for bound, unit_us in UNIX_UNITS_US:
            if abs(number) < bound:
                return round(number * unit_us)
        raise CsvRowInvalid(f"time {text!r} is out of range")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CsvRowInvalid(f"time {text[:40]!r} is neither ISO 8601 nor Unix time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds


def typed(text: str) -> Json:
    """Returns the value of a cell: null (empty, `null`, `nan`), boolean, integer, decimal number, otherwise text."""
    word = text.strip()
    if word.lower() in WORDS:
        return WORDS[word.lower()]
    if INTEGER.fullmatch(word):
        return int(word)
    if DECIMAL.fullmatch(word) and not re.match(r"[+-]?0\d", word):
        number = float(word)
        return number if abs(number) < float("inf") else text
    return text


def _open(path: Path) -> IO[str]:
    try:
        # utf-8-sig: Excel writes a byte order mark. Undecodable bytes become U+FFFD and make their row a bad one.
        return path.open(encoding="utf-8-sig", errors="replace", newline="")
    except OSError as error:
        raise InputInvalid(f"cannot read {path}: {error.strerror}") from error


def _delimiter(file: IO[str]) -> str:
    """Returns the delimiter that divides most of the first rows into the same number of fields, at least two; by
    default a comma.
    """
    sample = [line for _, line in zip(range(SAMPLE_ROWS), file, strict=False)]
    file.seek(0)

    def score(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(cells) for cells in csv.reader(sample, delimiter=delimiter) if len(cells) > 1)
        width, rows = widths.most_common(1)[0] if widths else (0, 0)
        return rows, width

    return max(DELIMITERS, key=score)

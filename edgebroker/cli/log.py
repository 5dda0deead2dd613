"""`edgebroker log`: look into delivery logs, sum them up, and hand them to other programs."""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import click

from edgebroker.cli import Refused
from edgebroker.cli.display import plain
from edgebroker.cli.parameters import ExistingPath, WordChoice
from edgebroker.errors import LogDamaged
from edgebroker.log_schema import DELIVERY, TABLES, TRAFFIC, Cause, Fate
from edgebroker.runtime.delivery_log import segment_files
from edgebroker.storage.deliverylog.columns import default
from edgebroker.storage.deliverylog.format import LOG_TABLES, RECORDING_TABLES, LogHeader
from edgebroker.storage.deliverylog.reader import Block, LogCorruption, is_final, iter_blocks, read_header

TABLE_NAMES = [table.name for table in TABLES]
FILE_BYTES_MAX = 256 * 1024 * 1024  # a segment has 4 MiB; a larger file would be read into memory whole
SQL_TYPES = {"int": int, "text": str}
TRACE_ID = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-.*)?")

paths_argument = click.argument("paths", nargs=-1, required=True, type=ExistingPath())
table_option = click.option(
    "--table", type=WordChoice(TABLE_NAMES), default="delivery", show_default=True, help="Which records."
)
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: JSON.")


@click.group("log", help="Look into delivery logs (.edl). PATH is a file or a directory of them.")
def command() -> None:
    """The group; see its commands."""


@dataclass
class LogReader:
    """Files being read: their blocks one at a time, and what was found wrong on the way."""

    paths: tuple[Path, ...]
    is_quiet: bool = False
    """Trouble is counted, and not told: somebody has told it before."""
    damage: int = 0
    unreadable: int = 0
    files: int = 0
    bytes: int = 0
    headers: list[LogHeader] = field(default_factory=list)
    boots_ended: set[str] = field(default_factory=set)
    """The runs whose final segment was among the files."""
    blocks_twice: int = 0
    """Blocks that were passed over, because another file had them."""
    _seen: defaultdict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """(node, boot) -> the blocks that were read. A copy of a file would count everything in it once more."""

    def blocks(self, tables: Iterable[str]) -> Iterator[tuple[LogHeader, Block]]:
        """Every intact block of every file, with the columns of *tables*. Trouble goes to stderr as it is met."""
        wanted = set(tables)
        files = [file for path in self.paths for file in segment_files(path, self._unlisted)]
        if not files:
            raise click.UsageError(f"no .edl file in {', '.join(map(str, self.paths))}")
        with FileProgress(len(files)) as progress:
            for file in files:
                try:
                    yield from self._blocks_of(file, wanted)
                except LogUnreadable as error:
                    self.unreadable += 1
                    self._tell(f"{file}: {error}")
                progress.step(file.name)

    def _blocks_of(self, file: Path, wanted: set[str]) -> Iterator[tuple[LogHeader, Block]]:
        data, header, damage = opened(file)
        self.files += 1
        self.bytes += len(data)
        self.headers.append(header)
        growing = file.name.endswith(".part")
        if is_final(data, growing=growing):
            self.boots_ended.add(header.boot)
        for found in damage:
            self._report(file, found)
        seen, twice = self._seen[header.node, header.boot], 0
        for item in iter_blocks(data, tables=wanted, growing=growing, known=LOG_TABLES | RECORDING_TABLES):
            if isinstance(item, LogCorruption):
                self._report(file, item)
            elif header.boot and item.head.sequence in seen:
                twice += 1
            else:
                seen.add(item.head.sequence)
                yield header, item
        if twice:
            self.blocks_twice += twice
            blocks = "1 block was" if twice == 1 else f"{twice} blocks were"
            self._tell(f"{file}: {blocks} in another file already, and passed over: is this a copy?")

    def _unlisted(self, error: OSError) -> None:
        self.unreadable += 1
        self._tell(f"{error.filename}: {error.strerror}")

    def _report(self, file: Path, found: LogCorruption) -> None:
        self.damage += 1
        self._tell(f"{file}: {found}")

    def _tell(self, line: str) -> None:
        if not self.is_quiet:
            click.echo(line, err=True)

    def exit(self) -> None:
        """End the program: 0 all well, 1 damage, 2 a file could not be read at all."""
        sys.exit(2 if self.unreadable else 1 if self.damage else 0)


class LogUnreadable(Exception):
    """A file cannot be read, or is no delivery log; the text says why."""


def opened(file: Path) -> tuple[bytes, LogHeader, list[LogCorruption]]:
    """What is in *file*, its header, and what is wrong with that. Raises Unreadable."""
    try:
        size = file.stat().st_size
        if size > FILE_BYTES_MAX:
            raise LogUnreadable(f"{size} bytes are too many for a delivery log; the limit is {FILE_BYTES_MAX}")
        data = file.read_bytes()
        return data, *read_header(data)
    except OSError as error:
        raise LogUnreadable(error.strerror or str(error)) from error
    except LogDamaged as error:
        raise LogUnreadable(str(error)) from error


class FileProgress:
    """One line on stderr that counts files, if a person is watching and there is something to wait for."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.shown = total > 1 and sys.stderr.isatty()

    def step(self, name: str) -> None:
        """One file is done."""
        self.done += 1
        if self.shown:
            click.echo(f"\r\x1b[K{self.done} of {self.total} files ({name})", err=True, nl=False)

    def __enter__(self) -> FileProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def named(name: str, value: Any) -> Any:
    """Fates and causes in words, everything else as it is; also a number that is none yet."""
    try:
        if name == "fate":
            return Fate(value).name.lower()
        if name == "cause":
            return Cause(value).name.lower()
    except ValueError:
        pass
    return value


def worded(name: str, value: Any) -> str:
    """A value behind `name=`. What clients chose may hold spaces and line breaks; what `legible` made has none."""
    value = named(name, value)
    return plain(value) if isinstance(value, str) and name not in ("payload", "properties") else str(value)


def legible(value: Any) -> Any:
    """Bytes as text, or in hexadecimal digits if they are none; everything else as it is."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def is_said(name: str, value: Any) -> bool:
    """Whether a record has anything under *name*: not if it is empty, or no event of a federation."""
    return bool(value != "" and (value or name not in ("event_publisher", "event_sequence")))


def rows_of(header: LogHeader, block: Block) -> Iterator[dict[str, Any]]:
    """The records of *block* as dicts, with where they come from."""
    names = list(block.columns)
    columns = list(block.columns.values())
    if block.table == TRAFFIC.name:
        columns = [list(map(legible, column)) for column in columns]
    for values in zip(*columns, strict=True):
        yield {"node": header.node, "boot": header.boot, **dict(zip(names, values, strict=True))}


def trace_id_of(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """The trace id that *text* gives, alone or in a whole `traceparent`."""
    if text is None:
        return None
    found = TRACE_ID.fullmatch(text.lower())
    if found is None:
        raise click.BadParameter(f"{text!r} is neither a trace id, 32 hexadecimal digits, nor a traceparent")
    return found[1]


@command.command(short_help="Print records, one per line.")
@paths_argument
@click.option(
    "--table",
    type=WordChoice([*TABLE_NAMES, TRAFFIC.name]),
    default=DELIVERY.name,
    show_default=True,
    help="Which records; a recording has traffic.",
)
@click.option("--trace-id", callback=trace_id_of, help="Only delivery records of this trace; a traceparent will do.")
@json_flag
def cat(paths: tuple[Path, ...], table: str, trace_id: str | None, as_json: bool) -> None:
    """Print records, one per line: name=value, or JSON objects with --json."""
    if trace_id is not None and table != DELIVERY.name:
        raise click.UsageError(f"--trace-id is for --table {DELIVERY.name}: records of {table} have no trace")
    reading = LogReader(paths)
    for header, block in reading.blocks([table]):
        for row in rows_of(header, block):
            if trace_id is not None and row["trace_id"] != trace_id:
                continue
            if as_json:
                line = json.dumps(row, ensure_ascii=False)
            else:
                line = " ".join(f"{name}={worded(name, value)}" for name, value in row.items() if is_said(name, value))
            sys.stdout.write(line + "\n")
    reading.exit()


@command.command(short_help="Sum up what the logs say.")
@paths_argument
@json_flag
def stat(paths: tuple[Path, ...], as_json: bool) -> None:
    """Sum up: records per table, messages per fate and cause, bytes per record, time span, damage, runs that ended."""
    reading = LogReader(paths)
    records: Counter[str] = Counter()
    fates: Counter[str] = Counter()
    sequences: dict[str, set[int]] = {}
    first, last = None, None
    for header, block in reading.blocks(["digest"]):
        sequences.setdefault(header.boot, set()).add(block.head.sequence)
        records[block.table or f"table {block.head.table}"] += block.head.rows
        if block.table == "delivery":
            first = block.head.t_first_us if first is None else min(first, block.head.t_first_us)
            last = block.head.t_last_us if last is None else max(last, block.head.t_last_us)
        if block.table == "digest":
            for fate, cause, count in zip(*(block.columns[name] for name in ("fate", "cause", "count")), strict=True):
                fates[str(named("fate", fate)) + (f" ({named('cause', cause)})" if cause else "")] += count
    total = records.total()
    boots = {header.boot for header in reading.headers}
    boots_open = sorted(boots - reading.boots_ended)
    summary: dict[str, Any] = {
        "files": reading.files,
        "nodes": sorted({header.node for header in reading.headers}),
        "boots": sorted(boots),
        "boots_open": boots_open,
        "ended": None if not boots else "not yet or by a crash" if boots_open else "cleanly",
        "bytes": reading.bytes,
        "bytes_per_record": round(reading.bytes / total, 2) if total else None,
        "records": {name: records[name] for name in [*TABLE_NAMES, *sorted(set(records) - set(TABLE_NAMES))]},
        "fates": dict(sorted(fates.items())),
        "t_first_us": first,
        "t_last_us": last,
        # Between the first and the last block of a boot: lost with a full disk, damaged, or in a file that is not here.
        "blocks_missing": sum(max(seen) - min(seen) + 1 - len(seen) for seen in sequences.values()),
        "blocks_twice": reading.blocks_twice,
        "damage": reading.damage,
        "unreadable": reading.unreadable,
    }
    if as_json:
        click.echo(json.dumps(summary, ensure_ascii=False))
    else:
        for name, value in summary.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {count}" for key, count in value.items()) or "none"
            elif isinstance(value, list):
                value = ", ".join(map(plain, value)) or "none"
            click.echo(f"{name:<17} {'-' if value is None else value}")
    reading.exit()


@command.command(short_help="Hand records to other programs.")
@paths_argument
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False), help="Write CSV of one table; - is stdout.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False), help="Write JSON lines of one table; - is stdout."
)
@click.option(
    "--sqlite",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add every table to an SQLite database, but for what it has already.",
)
@table_option
def export(
    paths: tuple[Path, ...], csv_file: str | None, json_file: str | None, sqlite: Path | None, table: str
) -> None:
    """Hand records to other programs as CSV, JSON lines or an SQLite database."""
    if sum(target is not None for target in (csv_file, json_file, sqlite)) != 1:
        raise click.UsageError("give one of --csv FILE, --json FILE, --sqlite FILE")
    reading = LogReader(paths)
    if sqlite is not None:
        import sqlite3

        try:
            export_sqlite(reading, sqlite)
        except sqlite3.Error as error:
            raise Refused(f"{sqlite}: {error}; blocks that were added whole are in it") from error
        reading.exit()
    rows = (row for header, block in reading.blocks([table]) for row in rows_of(header, block))
    first = next(rows, None)  # before anything is written over: there may be no log at all
    with written_to(csv_file or json_file or "-") as file:
        found = rows if first is None else itertools.chain((first,), rows)
        if csv_file is not None:
            columns = next(known for known in TABLES if known.name == table).columns
            writer = csv.DictWriter(file, ["node", "boot", *(column.name for column in columns)])
            writer.writeheader()
            writer.writerows(found)
        else:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    reading.exit()


@contextmanager
def written_to(name: str) -> Iterator[TextIO]:
    """The file of that name, `-` is stdout. Raises Refused if the disk does not take it; a reader may go any time."""
    if name == "-":
        yield sys.stdout
        return
    try:
        # newline: as it is written. A text that holds a carriage return keeps it.
        with open(name, "w", encoding="utf-8", newline="") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"cannot write {name}: {error.strerror}") from error


def export_sqlite(reading: LogReader, path: Path) -> None:
    """Every table into a database table of its name. Fails with a line that says what to install.

    Blocks that an export put into it before are left out, so that the same log may be added again and again.
    """
    try:
        import sqlite_utils  # 1 s and up to 97 MiB: only here, never in the broker's process
    except ImportError:
        click.echo("sqlite-utils is not installed; install it with: pip install sqlite-utils", err=True)
        sys.exit(2)
    database = sqlite_utils.Database(path)
    for table in TABLES:
        kinds = {column.name: SQL_TYPES[column.type.value] for column in table.columns}
        stored = database.table(table.name)
        stored.create({"node": str, "boot": str, **kinds}, if_not_exists=True)
        for column in table.columns:  # one that an older program made has not those that came since
            if column.name not in stored.columns_dict:
                stored.add_column(column.name, kinds[column.name], not_null_default=default(column))
    key = {"node": str, "boot": str, "sequence": int}
    database.table("exported_block").create(key, pk=tuple(key), if_not_exists=True)
    connection = database.conn
    for header, block in reading.blocks(TABLE_NAMES):
        if not block.columns:
            continue
        with connection:  # all of a block, or nothing
            if header.boot:
                this = header.node, header.boot, block.head.sequence
                if not connection.execute("INSERT OR IGNORE INTO exported_block VALUES (?, ?, ?)", this).rowcount:
                    continue
            rows = [tuple(row.values()) for row in rows_of(header, block)]
            names = ", ".join(f'"{name}"' for name in ("node", "boot", *block.columns))
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f'INSERT INTO "{block.table}" ({names}) VALUES ({marks})', rows)  # names are ours
    database.close()

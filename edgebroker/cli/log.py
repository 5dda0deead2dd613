"""`edgebroker log`: prints, sums up and exports delivery logs."""

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
from edgebroker.cli.parameters import ExistingPath, WordChoice, examples
from edgebroker.errors import LogDamaged
from edgebroker.log_schema import DELIVERY, TABLES, TRAFFIC, Cause, Fate, MessageOrigin
from edgebroker.runtime.delivery_log import segment_files
from edgebroker.storage.deliverylog.columns import default
from edgebroker.storage.deliverylog.format import LOG_TABLES, RECORDING_TABLES, LogHeader
from edgebroker.storage.deliverylog.reader import Block, LogCorruption, is_final, iter_blocks, read_header

TABLE_NAMES = [table.name for table in TABLES]
FILE_BYTES_MAX = 256 * 1024 * 1024  # a segment has 4 MiB; a larger file would be read into memory as a whole
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "'")  # the first six: OWASP, "CSV Injection"
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
    """Reads files, block by block, and counts what is damaged."""

    paths: tuple[Path, ...]
    is_quiet: bool = False
    """Whether damage is only counted, because an earlier reader has reported it."""
    damage: int = 0
    unreadable: int = 0
    files: int = 0
    bytes: int = 0
    headers: list[LogHeader] = field(default_factory=list)
    boots_ended: set[str] = field(default_factory=set)
    """The runs whose final segment was among the files."""
    has_provisional: bool = True
    """Whether provisional blocks are read, which full ones will replace."""
    blocks_twice: int = 0
    """Blocks that were skipped because another file had them."""
    _blocks_read: defaultdict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """(node, boot) -> numbers of the blocks that were read. A copy of a file would count everything twice."""

    def blocks(self, tables: Iterable[str]) -> Iterator[tuple[LogHeader, Block]]:
        """Yields every intact block of every file, with the columns of *tables*. Damage is reported on stderr."""
        wanted = set(tables)
        files = [file for path in self.paths for file in segment_files(path, self._on_list_error)]
        # A growing file's last blocks are provisional: full ones of their numbers count, if another file has them.
        files.sort(key=lambda file: file.name.endswith(".part"))
        if not files:
            raise click.UsageError(f"no .edl file in {', '.join(map(str, self.paths))}")
        with FileProgress(len(files)) as progress:
            for file in files:
                try:
                    yield from self._blocks_of(file, wanted)
                except LogUnreadable as error:
                    self.unreadable += 1
                    self._warn(f"{file}: {error}")
                progress.step(file.name)

    def _blocks_of(self, file: Path, wanted: set[str]) -> Iterator[tuple[LogHeader, Block]]:
        data, header, damage = read_segment(file)
        self.files += 1
        self.bytes += len(data)
        self.headers.append(header)
        growing = file.name.endswith(".part")
        if is_final(data, growing=growing):
            self.boots_ended.add(header.boot)
        for corruption in damage:
            self._report_damage(file, corruption)
        seen, repeated = self._blocks_read[header.node, header.boot], 0
        for item in iter_blocks(data, tables=wanted, growing=growing, known=LOG_TABLES | RECORDING_TABLES):
            if isinstance(item, LogCorruption):
                self._report_damage(file, item)
            elif item.head.is_provisional and not self.has_provisional:
                continue
            elif header.boot and item.head.sequence in seen:
                repeated += 1
            else:
                seen.add(item.head.sequence)
                yield header, item
        if repeated:
            self.blocks_twice += repeated
            blocks = "1 block was" if repeated == 1 else f"{repeated} blocks were"
            self._warn(f"{file}: {blocks} in another file already, and passed over: is this a copy?")

    def _on_list_error(self, error: OSError) -> None:
        self.unreadable += 1
        self._warn(f"{error.filename}: {error.strerror}")

    def _report_damage(self, file: Path, corruption: LogCorruption) -> None:
        self.damage += 1
        self._warn(f"{file}: {corruption}")

    def _warn(self, line: str) -> None:
        if not self.is_quiet:
            click.echo(line, err=True)

    def exit(self) -> None:
        """Exits with code 0 without errors, 1 after damage, 2 if a file could not be read at all."""
        sys.exit(2 if self.unreadable else 1 if self.damage else 0)


class LogUnreadable(Exception):
    """A file cannot be read, or is not a delivery log; the text says why."""


def read_segment(file: Path) -> tuple[bytes, LogHeader, list[LogCorruption]]:
    """Returns the bytes of *file*, its header, and the damage of the header. Raises LogUnreadable."""
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
    """A line on stderr that counts files, on a terminal and if there are several."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.is_shown = total > 1 and sys.stderr.isatty()

    def step(self, name: str) -> None:
        """Counts the file *name*."""
        self.done += 1
        if self.is_shown:
            click.echo(f"\r\x1b[K{self.done} of {self.total} files ({name})", err=True, nl=False)

    def __enter__(self) -> FileProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def name_of(name: str, value: Any) -> Any:
    """Returns the name of a fate, cause or origin; other values, and unknown numbers, as they are."""
    try:
        if name == "fate":
            return Fate(value).name.lower()
        if name == "cause":
            return Cause(value).name.lower()
        if name == "origin":
            return MessageOrigin(value).name.lower()
    except ValueError:
        pass
    return value


def value_text(name: str, value: Any) -> str:
    """Returns a value behind `name=`. Values from clients may have spaces and line breaks; those of `as_text` have
    none.
    """
    value = name_of(name, value)
    return plain(value) if isinstance(value, str) and name not in ("payload", "properties") else str(value)


def as_text(value: Any) -> Any:
    """Returns bytes as text, or in hexadecimal digits if they are not printable; other values as they are."""
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    return text if text.isprintable() else f"0x{value.hex()}"


def is_present(name: str, value: Any) -> bool:
    """Whether a record has a value *name*: not if it is empty, or a message is not an event of a federation."""
    return bool(value != "" and (value or name not in ("event_publisher", "event_sequence")))


def rows_of(header: LogHeader, block: Block) -> Iterator[dict[str, Any]]:
    """Yields the records of *block* as dicts, with their node and boot."""
    names = list(block.columns)
    columns = list(block.columns.values())
    if block.table == TRAFFIC.name:
        columns = [list(map(as_text, column)) for column in columns]
    for values in zip(*columns, strict=True):
        yield {"node": header.node, "boot": header.boot, **dict(zip(names, values, strict=True))}


def trace_id_of(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
    """Returns the trace id in *text*, alone or in a whole `traceparent`. Raises click.BadParameter."""
    if text is None:
        return None
    match = TRACE_ID.fullmatch(text.lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is neither a trace id, 32 hexadecimal digits, nor a traceparent")
    return match[1]


@command.command(
    short_help="Print records, one per line.",
    epilog=examples(
        "edgebroker log cat delivery-log", "edgebroker log cat delivery-log --trace-id 4bf92f3577b34da6a3ce929d0e0e4736"
    ),
)
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
    log_reader = LogReader(paths)
    for header, block in log_reader.blocks([table]):
        for row in rows_of(header, block):
            if trace_id is not None and row["trace_id"] != trace_id:
                continue
            if as_json:
                line = json.dumps(row, ensure_ascii=False)
            else:
                line = " ".join(
                    f"{name}={value_text(name, value)}" for name, value in row.items() if is_present(name, value)
                )
            sys.stdout.write(line + "\n")
    log_reader.exit()


@command.command(short_help="Sum up what the logs say.", epilog=examples("edgebroker log stat delivery-log"))
@paths_argument
@json_flag
def stat(paths: tuple[Path, ...], as_json: bool) -> None:
    """Sum up: records per table, messages per fate and cause, bytes per record, time span, damage, runs that ended."""
    log_reader = LogReader(paths)
    records: Counter[str] = Counter()
    fates: Counter[str] = Counter()
    sequences: dict[str, set[int]] = {}
    first, last = None, None
    for header, block in log_reader.blocks(["digest"]):
        sequences.setdefault(header.boot, set()).add(block.head.sequence)
        records[block.table or f"table {block.head.table}"] += block.head.rows
        if block.table == "delivery":
            first = block.head.t_first_us if first is None else min(first, block.head.t_first_us)
            last = block.head.t_last_us if last is None else max(last, block.head.t_last_us)
        if block.table == "digest":
            for fate, cause, count in zip(*(block.columns[name] for name in ("fate", "cause", "count")), strict=True):
                fates[str(name_of("fate", fate)) + (f" ({name_of('cause', cause)})" if cause else "")] += count
    total = records.total()
    boots = {header.boot for header in log_reader.headers}
    boots_open = sorted(boots - log_reader.boots_ended)
    summary: dict[str, Any] = {
        "files": log_reader.files,
        "nodes": sorted({header.node for header in log_reader.headers}),
        "boots": sorted(boots),
        "boots_open": boots_open,
        "ended": None if not boots else "not yet or by a crash" if boots_open else "cleanly",
        "bytes": log_reader.bytes,
        "bytes_per_record": round(log_reader.bytes / total, 2) if total else None,
        "records": {name: records[name] for name in [*TABLE_NAMES, *sorted(set(records) - set(TABLE_NAMES))]},
        "fates": dict(sorted(fates.items())),
        "t_first_us": first,
        "t_last_us": last,
        # Between the first and the last block of a boot: lost with a full disk, damaged, or in a file that is not
        # given.
        "blocks_missing": sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in sequences.values()),
        "blocks_twice": log_reader.blocks_twice,
        "damage": log_reader.damage,
        "unreadable": log_reader.unreadable,
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
    log_reader.exit()


@command.command(
    short_help="Hand records to other programs.",
    epilog=examples(
        "edgebroker log export delivery-log --csv deliveries.csv", "edgebroker log export delivery-log --sqlite log.db"
    ),
)
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
    log_reader = LogReader(paths)
    if sqlite is not None:
        import sqlite3

        try:
            export_sqlite(log_reader, sqlite)
        except sqlite3.Error as error:
            raise Refused(f"{sqlite}: {error}; blocks that were added whole are in it") from error
        log_reader.exit()
    rows = (row for header, block in log_reader.blocks([table]) for row in rows_of(header, block))
    first = next(rows, None)  # before a file is overwritten: there may be no log at all
    with written_to(csv_file or json_file or "-") as file:
        records = rows if first is None else itertools.chain((first,), rows)
        if csv_file is not None:
            columns = next(schema for schema in TABLES if schema.name == table).columns
            writer = csv.DictWriter(file, ["node", "boot", *(column.name for column in columns)])
            writer.writeheader()
            writer.writerows({name: as_csv(value) for name, value in row.items()} for row in records)
        else:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in records)
    log_reader.exit()


def as_csv(value: object) -> object:
    """Returns the content of a cell of CSV. A text that a spreadsheet would take for a formula gets an apostrophe in
    front, and so does one that begins with an apostrophe: readers take away the first of each, and have the text.

    Clients choose their topics and identifiers: `=HYPERLINK(...)` would act in the spreadsheet of who looks at them.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_SIGNS) else value


@contextmanager
def written_to(name: str) -> Iterator[TextIO]:
    """Opens the file *name* for writing; `-` is stdout. Raises Refused if the disk refuses the data; a closed pipe is
    no error.
    """
    if name == "-":
        yield sys.stdout
        return
    try:
        # newline: a carriage return in a text is kept.
        with open(name, "w", encoding="utf-8", newline="") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Refused(f"cannot write {name}: {error.strerror}") from error


def export_sqlite(log_reader: LogReader, path: Path) -> None:
    """Writes every table into a database table of its name. Exits with a hint if sqlite-utils is not installed.

    Blocks that an earlier export has written are left out, so that the same log may be exported again.
    """
    try:
        import sqlite_utils  # 1 s and up to 97 MiB: only here, never in the broker's process
    except ImportError:
        click.echo("sqlite-utils is not installed; install it with: pip install sqlite-utils", err=True)
        sys.exit(2)
    log_reader.has_provisional = False  # the full blocks of the next export have their rows
    database = sqlite_utils.Database(path)
    for table in TABLES:
        kinds = {column.name: SQL_TYPES[column.type.value] for column in table.columns}
        target = database.table(table.name)
        target.create({"node": str, "boot": str, **kinds}, if_not_exists=True)
        for column in table.columns:  # an older program's table has fewer columns
            if column.name not in target.columns_dict:
                target.add_column(column.name, kinds[column.name], not_null_default=default(column))
    key = {"node": str, "boot": str, "sequence": int}
    database.table("exported_block").create(key, pk=tuple(key), if_not_exists=True)
    connection = database.conn
    for header, block in log_reader.blocks(TABLE_NAMES):
        if not block.columns:
            continue
        with connection:  # all of a block, or nothing
            if header.boot:
                block_key = header.node, header.boot, block.head.sequence
                if not connection.execute("INSERT OR IGNORE INTO exported_block VALUES (?, ?, ?)", block_key).rowcount:
                    continue
            rows = [tuple(row.values()) for row in rows_of(header, block)]
            names = ", ".join(f'"{name}"' for name in ("node", "boot", *block.columns))
            marks = ", ".join("?" * len(rows[0]))
            # the names are not from outside
            connection.executemany(f'INSERT INTO "{block.table}" ({names}) VALUES ({marks})', rows)
    database.close()

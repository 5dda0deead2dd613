"""`edgebroker journal`: checks a gateway's journal, prints its records, and acknowledges its damage."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import click

from edgebroker.cli.parameters import examples
from edgebroker.errors import JournalDamaged
from edgebroker.runtime.journal.damage_notice import DamageNotice
from edgebroker.runtime.journal.files import JournalFiles
from edgebroker.runtime.journal.wear import Card, WearTotals, read_wear
from edgebroker.runtime.private_files import FileUnusable
from edgebroker.storage.journal.page_files import PAGE_MISSING, decode_page, page_damage, page_name
from edgebroker.storage.journal.recovery import Apply, recover
from edgebroker.storage.journal.recovery_report import CorruptRange, RecoveryReport

JOURNAL = "journal"
ATTEMPTS = 3  # while a gateway writes, a segment may be recycled between two attempts

folder_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: JSON.")


@click.group(
    "journal",
    help="Check and read what a gateway keeps, and acknowledge damage. DIR is its data folder, or the journal in it.",
)
def command() -> None:
    """The group; see its commands."""


class StopRecovery(Exception):
    """Ends a recovery early."""


def journal_files(folder: Path) -> JournalFiles:
    """Returns the journal in *folder*, which may be a data folder. Exits with code 2 if there is no such folder."""
    if not folder.is_dir():
        is_file = folder.exists()
        refuse(f"{folder}: {'is a file; name the folder that it lies in' if is_file else 'there is no such folder'}")
    files = JournalFiles(folder)
    try:
        if not files.names() and (folder / JOURNAL).is_dir():
            files = JournalFiles(folder / JOURNAL)
    except OSError as error:
        refuse(f"{error.filename or folder}: {error.strerror}")
    return files


def recover_unlocked(folder: Path, make_apply: Callable[[], Apply]) -> tuple[JournalFiles, RecoveryReport]:
    """Recovers from *folder* without changing it. Exits with code 2 if there is no journal.

    While a gateway writes to it, damage is reported only if another attempt finds it, too; *make_apply* is called for
    each attempt.
    """
    files = journal_files(folder)
    try:
        for attempts_left in range(ATTEMPTS, 0, -1):
            try:
                report = recover(files, make_apply())
            except FileNotFoundError:
                if attempts_left == 1:
                    raise
                continue
            if report is None:
                refuse(f"{folder}: there is no journal (no file *.ebj that is a segment)")
            elif not report.damage or files.owner() is None or attempts_left == 1:
                return files, report
    except OSError as error:
        refuse(f"{error.filename or folder}: {error.strerror}")
    except JournalDamaged as error:
        refuse(f"{folder}: {error}")
    raise AssertionError("a look ends")


def refuse(reason: str) -> NoReturn:
    """Prints one line, and exits with code 2."""
    click.echo(reason, err=True)
    sys.exit(2)


# -- check --------------------------------------------------------------------------------------------------------


@command.command(epilog=examples("edgebroker journal check data"))
@folder_argument
@click.option("--card-gb", type=click.FloatRange(0.001), help="The card's size, if it is not data.card_gb.")
@click.option("--card-cycles", type=click.IntRange(1), help="How many times over it may be written.")
@json_flag
def check(folder: Path, card_gb: float | None, card_cycles: int | None, as_json: bool) -> None:
    """Read everything, and say whether it is whole. Exit code 0: it is, 1: there is damage, or a gateway found some at
    a start and nobody has acknowledged it, 2: there is no journal.
    """
    files, recovered, pages = recover_with_pages(folder)
    written = read_wear(files.path)
    card = Card(card_gb or written.card.gb, card_cycles or written.card.cycles)
    report = summary(files, recovered, replace(written, card=card)) | pages
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        for line in lines(report):
            click.echo(line)
    sys.exit(1 if recovered.damage or report["damaged_pages"] or report["unacknowledged"] else 0)


def recover_with_pages(folder: Path) -> tuple[JournalFiles, RecoveryReport, dict[str, Any]]:
    """As `recover_unlocked`, and reads all page files that the journal names.

    Returns as third the number of these pages, their messages and bytes, and what is wrong with them, as JSON values.
    """
    from edgebridge.session.journal.state import JournalState  # only the command line may import both packages

    for attempts_left in range(ATTEMPTS, 0, -1):
        states: list[JournalState] = []

        def make_apply(states: list[JournalState] = states) -> Apply:
            states.append(JournalState())
            return lambda lsn, record: states[-1].apply_row(lsn, [record])

        files, report = recover_unlocked(folder, make_apply)
        states[-1].finish()
        counts = {page.number: page.count for one in states[-1].sessions.values() for page in one.pages.values()}
        file_bytes = sum([page.file_bytes for one in states[-1].sessions.values() for page in one.pages.values()])
        for link in states[-1].links.links.values():
            counts |= {page.number: page.count for page in link.pages.values()}
            file_bytes += sum([page.file_bytes for page in link.pages.values()])
        damaged = [text for page in counts if (text := page_failure(files, report.store, page, counts[page]))]
        if not damaged or files.owner() is None or attempts_left == 1:
            break
    totals = {
        "pages": len(counts),
        "paged_messages": sum(counts.values()),
        "paged_bytes": file_bytes,
        "damaged_pages": damaged,
    }
    return files, report, totals


def page_failure(files: JournalFiles, store: bytes, number: int, count: int) -> str:
    """Returns what is wrong with a page file of *count* messages, in words; "" if it is whole."""
    try:
        decode_page(store, number, files.read(page_name(number)))
    except FileNotFoundError:
        return page_damage(number, PAGE_MISSING, count)
    except OSError as error:
        return page_damage(number, error.strerror or type(error).__name__, count)
    except JournalDamaged as error:
        return page_damage(number, str(error), count)
    return ""


def summary(files: JournalFiles, report: RecoveryReport, written: WearTotals) -> dict[str, Any]:
    """Returns what `check` reports, as JSON values."""
    following_lsns = [segment.first_lsn for segment in report.segments[1:]]
    segments = [
        {
            "file": segment.name,
            "sequence": segment.sequence,
            "bytes": segment.bytes,
            "first": segment.first_lsn,
            "last": next_lsn - 1 if next_lsn is not None else report.lsn,
            "needed": next_lsn is None or next_lsn > report.replay_from,
            "damaged": segment.is_damaged,
        }
        for segment, next_lsn in zip_longest(report.segments, following_lsns)
    ]
    torn = report.torn
    return {
        "folder": str(files.path),
        "store": report.store.hex(),
        "ended": "cleanly" if report.is_clean else "not yet" if files.owner() else "by a crash",
        "owner": files.owner(),
        "last": report.lsn,
        "replay_from": report.replay_from,
        "records": report.records,
        "bytes": report.used_bytes,
        "snapshot_bytes": report.snapshot_bytes,
        "segments": segments,
        "torn": torn and {"file": torn.name, "offset": torn.offset, "first": torn.first_lsn, "last": torn.last_lsn},
        "damage": [
            {
                "file": damage.name,
                "offset": damage.offset,
                "first": damage.first_lsn,
                "last": damage.last_lsn,
                "what": damage.what,
                "open_ended": damage.is_open_ended,
            }
            for damage in report.damage
        ],
        "unacknowledged": DamageNotice(files.path).read(),
        "quarantine": files.quarantined(),
        **written.described(),
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Returns the lines of *report*, for people."""
    live = [segment for segment in report["segments"] if segment["needed"]]
    owner = f", {report['owner']} works with it" if report["owner"] else ""
    text = [
        f"journal     {report['folder']}{owner}",
        f"ended       {report['ended']}",
        f"records     {report['records']:,}, from {report['replay_from']} to {report['last']}, "
        f"{report['bytes']:,} bytes with all around them",
        f"snapshot    {'from ' + str(report['replay_from']) if report['replay_from'] > 1 else 'none yet'}",
        f"segments    {len(live)} needed, {len(report['segments']) - len(live)} superseded by the snapshot",
    ]
    if report["pages"]:
        text.append(
            f"pages       {report['pages']:,} parts of queues, with {report['paged_messages']:,} messages in "
            f"{report['paged_bytes']:,} bytes"
        )
    if report["torn"] is not None:
        first = report["torn"]["first"]
        text.append(f"torn        the last commit is not whole{f', from record {first} on' if first else ''}")
    if report["quarantine"]:
        text.append(f"quarantine  {len(report['quarantine'])} files that were damaged")
    if report["bytes_per_day"] is not None:
        text.append(f"card        {report['bytes_per_day']:,} bytes a day; it lasts {report['card_years']:,} years")
    else:
        text.append("card        nothing is known yet: the gateway has not run for an hour")
    places = [
        CorruptRange(one["file"], one["offset"], one["first"], one["last"], one["what"], one["open_ended"])
        for one in report["damage"]
    ]
    text += [f"DAMAGE      {place}" for place in [*places, *report["damaged_pages"]]]
    known = [*map(str, places), *report["damaged_pages"]]
    earlier = [line for line in report["unacknowledged"] if line not in known]
    text += [f"earlier     {line}" for line in earlier]
    if known:
        text.append(f"{len(known)} places are damaged")
    elif earlier:
        text.append(
            f"everything is whole that is left; {len(earlier)} places were damaged: `edgebroker journal acknowledge`"
        )
    else:
        text.append("everything is whole")
    return text


# -- acknowledge --------------------------------------------------------------------------------------------------


@command.command(short_help="End the warnings of damage.", epilog=examples("edgebroker journal acknowledge data"))
@folder_argument
@json_flag
def acknowledge(folder: Path, as_json: bool) -> None:
    """Print the damage that nobody has acknowledged, and end the warnings of it: those of `check`, and of /health of
    the gateway, which may run or not. What is lost stays lost. Exit code 1: there was nothing to acknowledge.
    """
    files = journal_files(folder)
    notice, found = DamageNotice(files.path), list[str]()
    # Where no gateway runs, none may have started since the damage. Where one runs, it has noted what it found.
    if files.owner() is None and (files.names() or not notice.read()):
        _, report, pages = recover_with_pages(folder)
        found = [*map(str, report.damage), *pages["damaged_pages"]]
    try:
        places = notice.acknowledge(found)
    except FileUnusable as error:
        refuse(str(error))
    if as_json:
        click.echo(json.dumps({"folder": str(files.path), "acknowledged": places}, ensure_ascii=False))
    else:
        click.echo("\n".join([*places, f"{len(places)} places of damage are acknowledged"]))
    sys.exit(0 if places else 1)


# -- show ---------------------------------------------------------------------------------------------------------


@command.command(
    short_help="Print the records that recovery would read.", epilog=examples("edgebroker journal show data --limit 20")
)
@folder_argument
@click.option("--from", "first", type=click.IntRange(1), default=1, metavar="LSN", help="Begin with this record.")
@click.option("--kind", metavar="NAME|NUMBER", help="Only records of this kind.")
@click.option("--limit", type=click.IntRange(1), help="End after so many records.")
@json_flag
def show(folder: Path, first: int, kind: str | None, limit: int | None, as_json: bool) -> None:
    """Print the records that recovery would read, one per line: number, kind, and what it says."""
    record_text = RecordText()
    wanted = None if kind is None else record_text.kind_number(kind)
    printed = 0

    def print_record(lsn: int, record: bytes) -> None:
        nonlocal printed
        if lsn < first or (wanted is not None and record[0] != wanted):
            return
        if printed == limit:
            raise StopRecovery
        printed += 1
        fields = record_text.of(lsn, record)
        if as_json:
            click.echo(json.dumps({"lsn": lsn, **fields}, ensure_ascii=False))
        else:
            name = fields.pop("kind")
            click.echo(f"{lsn} {name} " + " ".join(f"{key}={value}" for key, value in fields.items()))

    def apply_once() -> Apply:
        nonlocal printed
        if printed:  # a second attempt would print everything twice
            raise StopRecovery
        return print_record

    try:
        _, report = recover_unlocked(folder, apply_once)
    except StopRecovery:
        return
    for damage in report.damage:
        click.echo(str(damage), err=True)
    sys.exit(1 if report.damage else 0)


class RecordText:
    """Describes records of sessions and of pages of links by name; others by their number and bytes."""

    def __init__(self) -> None:
        from edgebridge.session.journal.dump import LINK_PAGE_KINDS, describe
        from edgebridge.session.journal.session_records import (
            SessionRecordKind,
        )  # only the command line may import both packages

        self._describe = describe
        self._numbers = {kind.name.lower(): int(kind) for kind in SessionRecordKind}
        self._numbers |= {f"link_{kind.name.lower()}": int(kind) for kind in LINK_PAGE_KINDS}

    def of(self, lsn: int, record: bytes) -> dict[str, Any]:
        """Returns the fields of the record *lsn*."""
        fields = self._describe(record, lsn)
        if fields["kind"] == "unknown":
            return {"kind": record[0], "hex": record.hex() if len(record) <= 64 else record[:64].hex() + "..."}
        return fields

    def kind_number(self, text: str) -> int:
        """Returns the number of a kind of record. Raises click.UsageError."""
        if text.isdecimal() and int(text) < 256:
            return int(text)
        if text.lower() not in self._numbers:
            nearest = difflib.get_close_matches(text.lower(), self._numbers, n=1)
            hint = f"Did you mean '{nearest[0]}'?" if nearest else f"There are: {', '.join(self._numbers)}."
            raise click.UsageError(f"No such kind '{text}'. {hint}")
        return self._numbers[text.lower()]

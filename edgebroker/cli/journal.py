"""`edgebroker journal`: whether what a gateway keeps is whole, and what is in it. Nothing is changed."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from edgebroker.errors import JournalDamaged
from edgebroker.runtime.journal.files import JournalFiles
from edgebroker.runtime.journal.wear import Card, WearTotals, read_wear
from edgebroker.storage.journal.recovery import Apply, recover
from edgebroker.storage.journal.recovery_report import RecoveryReport

JOURNAL = "journal"
TRIES = 3  # while a gateway writes, a file may be used again between two looks at it

folder_argument = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
json_flag = click.option("--json", "as_json", is_flag=True, help="For programs: JSON.")


@click.group("journal", help="Check and read what a gateway keeps. DIR is its data folder, or the journal in it.")
def command() -> None:
    """The group; see its commands."""


class StopRecovery(Exception):
    """Ends a recovery early."""


def look(folder: Path, make_apply: Callable[[], Apply]) -> tuple[JournalFiles, RecoveryReport]:
    """Recover from *folder* without touching it. Ends the program with 2 if there is no journal.

    Damage that is seen while a gateway writes there is believed only if it is still there when looked at again;
    *make_apply* is called for each look.
    """
    if not folder.is_dir():
        is_file = folder.exists()
        refuse(f"{folder}: {'is a file; name the folder that it lies in' if is_file else 'there is no such folder'}")
    files = JournalFiles(folder)
    if not files.names() and (folder / JOURNAL).is_dir():
        files = JournalFiles(folder / JOURNAL)
    try:
        for rest in range(TRIES, 0, -1):
            try:
                found = recover(files, make_apply())
            except FileNotFoundError:
                if rest == 1:
                    raise
                continue
            if found is None:
                refuse(f"{folder}: there is no journal (no file *.ebj that is a segment)")
            elif not found.damage or files.owner() is None or rest == 1:
                return files, found
    except OSError as error:
        refuse(f"{error.filename or folder}: {error.strerror}")
    except JournalDamaged as error:
        refuse(f"{folder}: {error}")
    raise AssertionError("a look ends")


def refuse(reason: str) -> None:
    """One line, and exit code 2."""
    click.echo(reason, err=True)
    sys.exit(2)


# -- check --------------------------------------------------------------------------------------------------------


@command.command()
@folder_argument
@click.option("--card-gb", type=click.FloatRange(0.001), help="The card's size, if it is not data.card_gb.")
@click.option("--card-cycles", type=click.IntRange(1), help="How many times over it may be written.")
@json_flag
def check(folder: Path, card_gb: float | None, card_cycles: int | None, as_json: bool) -> None:
    """Read everything, and say whether it is whole. Exit code 0: it is, 1: there is damage, 2: there is no journal."""
    files, found = look(folder, lambda: lambda lsn, record: None)
    written = read_wear(files.path)
    card = Card(card_gb or written.card.gb, card_cycles or written.card.cycles)
    report = summary(files, found, replace(written, card=card))
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        for line in lines(report):
            click.echo(line)
    sys.exit(1 if found.damage else 0)


def summary(files: JournalFiles, found: RecoveryReport, written: WearTotals) -> dict[str, Any]:
    """What `check` says."""
    behind = [segment.first_lsn for segment in found.segments[1:]]
    segments = [
        {
            "file": segment.name,
            "sequence": segment.sequence,
            "bytes": segment.bytes,
            "first": segment.first_lsn,
            "last": following - 1 if following is not None else found.lsn,
            "needed": following is None or following > found.replay_from,
            "damaged": segment.is_damaged,
        }
        for segment, following in zip_longest(found.segments, behind)
    ]
    torn = found.torn
    return {
        "folder": str(files.path),
        "store": found.store.hex(),
        "ended": "cleanly" if found.is_clean else "not yet" if files.owner() else "by a crash",
        "owner": files.owner(),
        "last": found.lsn,
        "replay_from": found.replay_from,
        "records": found.records,
        "bytes": found.used_bytes,
        "snapshot_bytes": found.snapshot_bytes,
        "segments": segments,
        "torn": torn and {"file": torn.name, "offset": torn.offset, "first": torn.first_lsn, "last": torn.last_lsn},
        "damage": [
            {"file": one.name, "offset": one.offset, "first": one.first_lsn, "last": one.last_lsn, "what": one.what}
            for one in found.damage
        ],
        "quarantine": files.quarantined(),
        **written.described(),
    }


def lines(report: dict[str, Any]) -> list[str]:
    """The same for people."""
    live = [segment for segment in report["segments"] if segment["needed"]]
    owner = f", {report['owner']} works with it" if report["owner"] else ""
    told = [
        f"journal     {report['folder']}{owner}",
        f"ended       {report['ended']}",
        f"records     {report['records']:,}, from {report['replay_from']} to {report['last']}, "
        f"{report['bytes']:,} bytes with all around them",
        f"snapshot    {'from ' + str(report['replay_from']) if report['replay_from'] > 1 else 'none yet'}",
        f"segments    {len(live)} needed, {len(report['segments']) - len(live)} superseded by the snapshot",
    ]
    if report["torn"] is not None:
        first = report["torn"]["first"]
        told.append(f"torn        the last commit is not whole{f', from record {first} on' if first else ''}")
    if report["quarantine"]:
        told.append(f"quarantine  {len(report['quarantine'])} files that were damaged")
    if report["bytes_per_day"] is not None:
        told.append(f"card        {report['bytes_per_day']:,} bytes a day; it lasts {report['card_years']:,} years")
    else:
        told.append("card        nothing is known yet: the gateway has not run for an hour")
    for one in report["damage"]:
        lost = f"; lost are the records {one['first']} to {one['last']}" if one["first"] else ""
        told.append(f"DAMAGE      {one['file'] or 'no file'} at {one['offset']}: {one['what']}{lost}")
    told.append("everything is whole" if not report["damage"] else f"{len(report['damage'])} places are damaged")
    return told


# -- show ---------------------------------------------------------------------------------------------------------


@command.command(short_help="Print the records that recovery would read.")
@folder_argument
@click.option("--from", "first", type=click.IntRange(1), default=1, metavar="LSN", help="Begin with this record.")
@click.option("--kind", metavar="NAME|NUMBER", help="Only records of this kind.")
@click.option("--limit", type=click.IntRange(1), help="End after so many records.")
@json_flag
def show(folder: Path, first: int, kind: str | None, limit: int | None, as_json: bool) -> None:
    """Print the records that recovery would read, one per line: number, kind, and what it says."""
    words = RecordText()
    wanted = None if kind is None else words.kind_number(kind)
    shown = 0

    def show_one(lsn: int, record: bytes) -> None:
        nonlocal shown
        if lsn < first or (wanted is not None and record[0] != wanted):
            return
        if shown == limit:
            raise StopRecovery
        shown += 1
        said = words.of(lsn, record)
        if as_json:
            click.echo(json.dumps({"lsn": lsn, **said}, ensure_ascii=False))
        else:
            name = said.pop("kind")
            click.echo(f"{lsn} {name} " + " ".join(f"{key}={value}" for key, value in said.items()))

    def once() -> Apply:
        nonlocal shown
        if shown:  # a second look would print everything twice
            raise StopRecovery
        return show_one

    try:
        _, found = look(folder, once)
    except StopRecovery:
        return
    for damage in found.damage:
        click.echo(str(damage), err=True)
    sys.exit(1 if found.damage else 0)


class RecordText:
    """What records mean, as their owner says it; their number and bytes where it does not."""

    def __init__(self) -> None:
        from edgebridge.session.journal.dump import describe
        from edgebridge.session.journal.session_records import (
            SessionRecordKind,
        )  # the command line alone brings the two together

        self._describe = describe
        self._numbers = {kind.name.lower(): int(kind) for kind in SessionRecordKind}

    def of(self, lsn: int, record: bytes) -> dict[str, Any]:
        """The record *lsn* in words."""
        said = self._describe(record, lsn)
        if said["kind"] == "unknown":
            return {"kind": record[0], "hex": record.hex() if len(record) <= 64 else record[:64].hex() + "..."}
        return said

    def kind_number(self, text: str) -> int:
        """The number of a kind. Ends the program with 2 for what is none."""
        if text.isdecimal() and int(text) < 256:
            return int(text)
        if text.lower() not in self._numbers:
            nearest = difflib.get_close_matches(text.lower(), self._numbers, n=1)
            hint = f"Did you mean '{nearest[0]}'?" if nearest else f"There are: {', '.join(self._numbers)}."
            raise click.UsageError(f"No such kind '{text}'. {hint}")
        return self._numbers[text.lower()]

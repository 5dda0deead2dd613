"""The devices' journals: one JSON line per message once its fate is known (docs/devices.md, "The summary")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2

from edgebroker.cli.demo.audit import Publication
from edgebroker.errors import EdgebrokerError


class JournalInvalid(EdgebrokerError):
    """A journal cannot be read; the message names file and line."""


def read_journal(path: Path) -> list[Publication]:
    """The messages in *path*, in the order in which their fates were decided. Raises JournalInvalid."""
    try:
        with path.open(encoding="utf-8") as file:
            return list(_publications(path, file))
    except (OSError, UnicodeDecodeError) as error:
        raise JournalInvalid(f"{path} cannot be read: {error}") from error


def _publications(path: Path, lines: Iterator[str]) -> Iterator[Publication]:
    for number, line in enumerate(lines, 1):
        try:
            yield _publication(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise JournalInvalid(f"{path}, line {number}: not a journal's line ({error!r})") from error


def _publication(record: dict[str, Any]) -> Publication:
    return Publication(
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
    """*body* as the bytes that the device sent: compact UTF-8 JSON, or CBOR as cbor2 writes it."""
    if form == "cbor":
        return cbor2.dumps(body)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class Growth:
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

"""The inventory of a log directory: which blocks each file has, and from which file each block is read.

A block is identified by its run (node and boot) and its number, so a block that is in two files, because a file was
copied, uploaded twice or cut short and sent again, is read once. Only block heads and checksums are looked at here,
which takes about a second per GB.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from edgebroker.errors import EdgebrokerError, LogDamaged
from edgebroker.storage.deliverylog.format import BlockHead
from edgebroker.storage.deliverylog.reader import Block, iter_blocks, read_header

SUFFIXES = (".edl", ".edl.part")
"""The names of log files: closed ones, and those that a broker is still writing or left behind."""

FILE_BYTES_MAX = 256 * 2**20  # a segment has a few MiB; a worker holds a whole file in memory
LISTINGS_MAX = 3  # a running broker renames a file each hour at most
PROGRESS_EVERY_S = 5.0

Run = tuple[str, str]
"""node, boot"""


class NothingToRead(EdgebrokerError):
    """There is no delivery log in the folder, or part of the folder cannot be read."""


@dataclass(frozen=True, slots=True)
class FileBlocks:
    """A file, and the numbers of the blocks that are to be read from it."""

    path: str
    file: str
    """The path below the log directory."""
    boot: str
    blocks: str
    """Ranges, such as "0-7,9-9"; "all" if the run is not known, because the header is damaged."""


@dataclass(slots=True)
class Inventory:
    """The files of a log directory."""

    wanted: list[FileBlocks]
    bytes: int = 0
    rows: int = 0
    """Rows of the blocks that are to be read."""
    copied_blocks: int = 0
    """Blocks that are in more files than one; each is counted once more for every further file."""


@dataclass(slots=True)
class LogContent:
    """The intact blocks of one file."""

    path: Path
    file: str
    bytes: int = 0
    run: Run = ("", "")
    damages: int = 0
    blocks: dict[int, BlockHead] = field(default_factory=dict)

    @property
    def is_growing(self) -> bool:
        """Whether a broker writes the file, or died without a successor."""
        return self.file.endswith(".part")


def paths(folder: Path) -> list[Path]:
    """Return the log files below *folder*, sorted: closed ones, and those that a broker is still writing or left
    behind.

    Raises NothingToRead if there are none, or if a subfolder cannot be listed for lack of rights.
    """
    if not folder.is_dir():
        raise NothingToRead(f"{folder} is no directory; give the directory that `edgebroker run --log-dir` writes to")
    try:
        found = sorted(path for path in files(folder) if path.name.endswith(SUFFIXES) and path.is_file())
    except OSError as reason:
        raise NothingToRead(f"{reason.filename or folder} cannot be read: {reason.strerror}") from reason
    if not found:
        raise NothingToRead(f"{folder} has no delivery log (*.edl); a broker run with `--log-dir` writes them")
    return found


def files(folder: Path) -> Iterator[Path]:
    """Yield every file below *folder*, also in linked directories, each once.

    Raises OSError for a folder that cannot be listed: if it were skipped, its losses would not be reported.
    """

    def failed(error: OSError) -> None:
        if Path(error.filename or "").name != "lost+found":  # it belongs to root and exists on every ext4 card
            raise error

    seen = set()
    for inside, below, names in os.walk(folder, onerror=failed, followlinks=True):
        real = os.path.realpath(inside)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        yield from (Path(inside, name) for name in names)


def take_inventory(folder: Path, progress: Callable[[str], None] = lambda line: None) -> Inventory:
    """Look at every log file below *folder*; *progress* is called with a line every few seconds.

    A `.part` that its broker finishes and renames meanwhile is found under its new name. Raises NothingToRead.
    """
    root = folder.resolve()
    contents: dict[Path, LogContent] = {}
    next_line = time.monotonic() + PROGRESS_EVERY_S
    for _ in range(LISTINGS_MAX):
        is_renamed = False
        listed = paths(root)
        for path in listed:
            if path in contents:
                continue
            content = look_at(path, path.relative_to(root).as_posix())
            if content is None:
                is_renamed = True
                continue
            contents[path] = content
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + PROGRESS_EVERY_S
                progress(f"{len(contents):,} of {len(listed):,} files found intact or damaged")
        if not is_renamed:
            break
    return chosen(contents.values())


def look_at(path: Path, file: str) -> LogContent | None:
    """Return the intact blocks of the file *path*; None if it is a `.part` that no longer exists."""
    content = LogContent(path, file)
    try:
        content.bytes = path.stat().st_size
        data = path.read_bytes() if content.bytes <= FILE_BYTES_MAX else b""
    except FileNotFoundError:
        if content.is_growing:
            return None
        data = b""
    except OSError:
        data = b""  # the reason becomes a row of `damage` when the file is read
    try:
        header, damage = read_header(data)
    except LogDamaged:
        content.damages = 1
        return content
    content.run, content.damages = (header.node, header.boot), len(damage)
    for item in iter_blocks(data, tables=(), growing=content.is_growing):
        if isinstance(item, Block):
            content.blocks[item.head.sequence] = item.head
        else:
            content.damages += 1
    return content


def chosen(contents: Iterable[LogContent]) -> Inventory:
    """Return which blocks to read from which file: each block of a run from one file.

    Of several, a closed file is preferred to a growing one and an intact one to a damaged one. A provisional block is
    read only if its run has no block that was finished later, and from the file that has most of them.
    """
    runs: defaultdict[Run, list[LogContent]] = defaultdict(list)
    inventory = Inventory([])
    for content in contents:
        runs[content.run].append(content)
        inventory.bytes += content.bytes
    for run, found in runs.items():
        found.sort(key=lambda content: (content.is_growing, content.damages, content.file))
        if run == ("", ""):
            for content in found:
                inventory.wanted.append(FileBlocks(content.path.as_posix(), content.file, "", "all"))
                inventory.rows += sum(head.rows for head in content.blocks.values())
            continue
        taken: set[int] = set()
        final_last = max(
            (number for content in found for number, head in content.blocks.items() if not head.is_provisional),
            default=-1,
        )
        newest = max(found, key=lambda content: newest_provisional(content, final_last), default=None)
        for content in found:
            mine = []
            for number, head in content.blocks.items():
                if head.is_provisional and (content is not newest or number <= final_last):
                    continue
                if number in taken:
                    inventory.copied_blocks += 1
                    continue
                taken.add(number)
                mine.append(number)
                inventory.rows += head.rows
            inventory.wanted.append(FileBlocks(content.path.as_posix(), content.file, run[1], as_ranges(mine)))
    return inventory


def newest_provisional(content: LogContent, final_last: int) -> tuple[int, int]:
    """Return the time and the number of the last provisional block of *content* behind block *final_last*."""
    heads = [head for head in content.blocks.values() if head.is_provisional and head.sequence > final_last]
    return max(((head.t_last_us, head.sequence) for head in heads), default=(-(2**63), -1))


def as_ranges(numbers: Iterable[int]) -> str:
    """Return *numbers* as text: "0-7,9-9" for 0 to 7 and 9."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" for first, last in ranges)


def from_ranges(text: str) -> set[int] | None:
    """Return the numbers in the *text* of `as_ranges`; None for "all"."""
    if text == "all":
        return None
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, last = part.split("-")
        numbers.update(range(int(first), int(last) + 1))
    return numbers

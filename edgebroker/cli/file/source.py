"""A local file, cut into chunks and described by a manifest; and the keys that sign manifests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edgebroker.digests import sha256
from edgebroker.ed25519 import KEY_BYTES, key_in, public_key
from edgebroker.errors import EdgebrokerError
from edgebroker.files.chunking import chunks_of
from edgebroker.files.manifest import Attribute, ChunkEntry, FileManifest, cut_table
from edgebroker.limits import MANIFEST_CHUNKS_MAX, MIB
from edgebroker.runtime.private_files import read_private, replace_private

SECRET: Final = "edgebroker file key, secret: "
PUBLIC: Final = "edgebroker file key, public: "
PIECE_BYTES: Final = 1 * MIB


class SourceUnusable(EdgebrokerError):
    """A file or a key cannot be used; the text names it and says why."""


class Piece(NamedTuple):
    """Where the bytes of a chunk are: in the file, or here if it is a table of chunks."""

    offset: int
    size: int
    table: bytes = b""


class FileSource:
    """The file at *path*. Reads it once; *progress* is told how many bytes were read. Raises SourceUnusable."""

    def __init__(self, path: Path, progress: Callable[[int], None] = lambda done: None) -> None:
        self.path = path
        whole = sha256()
        entries: list[ChunkEntry] = []
        self.pieces: dict[bytes, Piece] = {}
        """Each chunk once, by its SHA-256, in the order of the file; then tables of chunks, if there are any."""
        self.size = 0
        for chunk in chunks_of(_read(path)):
            whole.update(chunk)
            name = sha256(chunk).digest()
            entries.append(ChunkEntry(name, len(chunk)))
            self.pieces.setdefault(name, Piece(self.size, len(chunk)))
            self.size += len(chunk)
            progress(self.size)
        self.sha256 = whole.digest()
        self.depth = int(len(entries) > MANIFEST_CHUNKS_MAX)
        if self.depth:
            tables = cut_table(entries)
            entries = [ChunkEntry(sha256(table).digest(), len(table)) for table in tables]
            for entry, table in zip(entries, tables, strict=True):
                self.pieces.setdefault(entry.sha256, Piece(0, entry.size, table))
        self.entries = tuple(entries)

    def manifest(
        self, name: str, version: int, attributes: Mapping[str, Attribute], not_after_s: int | None
    ) -> FileManifest:
        """The manifest of the file, without a signature. Raises ManifestInvalid."""
        return FileManifest(name, version, self.size, self.sha256, self.entries, self.depth, attributes, not_after_s)

    def read(self, name: bytes) -> bytes:
        """The chunk with the SHA-256 *name*. Raises SourceUnusable if the file has changed since it was cut."""
        piece = self.pieces[name]
        if piece.table:
            return piece.table
        try:
            with self.path.open("rb") as file:
                file.seek(piece.offset)
                data = file.read(piece.size)
        except OSError as error:
            raise SourceUnusable(f"{self.path}: cannot be read: {error.strerror}") from error
        if sha256(data).digest() != name:
            raise SourceUnusable(f"{self.path} has changed while it was published: publish it again")
        return data


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except OSError as error:
        raise SourceUnusable(f"{path}: cannot be read: {error.strerror}") from error


def file_hash(path: Path) -> tuple[int, bytes]:
    """Bytes and SHA-256 of a file. Raises SourceUnusable."""
    whole, size = sha256(), 0
    for piece in _read(path):
        whole.update(piece)
        size += len(piece)
    return size, whole.digest()


def make_keys(secret_file: Path, public_file: Path) -> None:
    """Write a new key and its public part. Raises SourceUnusable if one of the files is there, FileUnusable."""
    for path in (secret_file, public_file):
        if path.exists():
            raise SourceUnusable(f"{path} is there already: name another file, or take it away")
    secret = os.urandom(KEY_BYTES)
    replace_private(secret_file, f"{SECRET}{secret.hex()}\n")
    replace_private(public_file, f"{PUBLIC}{public_key(secret).hex()}\n")


def load_key(path: Path, prefix: str) -> bytes:
    """The key in a file of `make_keys` that begins with *prefix*. Raises SourceUnusable, FileUnreadable."""
    key = key_in(read_private(path), prefix)
    if key is None:
        kind = "secret" if prefix == SECRET else "public"
        raise SourceUnusable(f"{path} is no {kind} key of `edgebroker file keygen`")
    return key

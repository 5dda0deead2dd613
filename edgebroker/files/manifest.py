"""The manifest of a file: its name, version and attributes, and the SHA-256 and length of each of its chunks.

A manifest is a CBOR map (RFC 8949) and the payload of a retained message, so that devices choose files with a content
filter: `hw = 'v3' AND version > 12`. The keys are sorted but for the signature, which is last: it is the last 64 bytes,
and signs all bytes before it (Ed25519). docs/files.md specifies the format for other programs.

A file of more than MANIFEST_CHUNKS_MAX chunks has `depth` 1: `chunks` then names chunks that are tables of chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias

from edgebroker.cbor import CborReader, CborRules, encode_cbor
from edgebroker.dataclasses import dataclass
from edgebroker.ed25519 import SIGNATURE_BYTES, sign, verify
from edgebroker.errors import EdgebrokerError
from edgebroker.limits import (
    CHUNK_BYTES_MAX,
    MANIFEST_ATTRIBUTES_MAX,
    MANIFEST_BYTES_MAX,
    MANIFEST_CHUNKS_MAX,
    MANIFEST_TEXT_BYTES_MAX,
)

HASH_BYTES: Final = 32
LENGTH_BYTES: Final = 4
ENTRY_BYTES: Final = HASH_BYTES + LENGTH_BYTES
WHOLE_MAX: Final = 1 << 53
"""Versions, sizes and times are smaller, so that every language reads them exactly."""
RESERVED: Final = frozenset(("chunks", "depth", "file", "not_after", "sha256", "signature", "size", "version"))
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a file: receivers use it as the name of a file, so it leads into no other folder."""
ATTRIBUTE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Of an attribute: what a filter can ask for without quotation marks."""
Attribute: TypeAlias = str | int | float | bool


class ManifestInvalid(EdgebrokerError):
    """A manifest, or a table of chunks, is not as docs/files.md says; the text says why."""


_RULES: Final = CborRules(
    depth_max=1,
    values_max=2 * (MANIFEST_ATTRIBUTES_MAX + len(RESERVED)),
    is_unique=True,
    map_max=MANIFEST_ATTRIBUTES_MAX + len(RESERVED),
    has_indefinite=False,
    text_bytes_max=MANIFEST_TEXT_BYTES_MAX,
    error=ManifestInvalid,
)


class ChunkEntry(NamedTuple):
    """A chunk as a table names it."""

    sha256: bytes
    size: int


@dataclass(frozen=True, slots=True)
class FileManifest:
    """A manifest. Raises ManifestInvalid when it is constructed with values that no manifest may have."""

    name: str
    version: int
    size: int
    sha256: bytes
    chunks: tuple[ChunkEntry, ...]
    """In the order of the file; with `depth` 1 each is a table of chunks (`read_table`)."""
    depth: int = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    not_after_s: int | None = None
    """Seconds since 1970 after which nobody should begin to install the file; None: it has no end."""
    signature: bytes = b""

    def __post_init__(self) -> None:
        for problem in (*_field_problems(self), *_attribute_problems(self.attributes), *_chunk_problems(self)):
            raise ManifestInvalid(problem)

    def encode(self) -> bytes:
        """The manifest as CBOR. Raises ManifestInvalid if it has more than MANIFEST_BYTES_MAX bytes."""
        values: dict[str, Any] = {
            **self.attributes,
            "chunks": encode_table(self.chunks),
            "file": self.name,
            "sha256": self.sha256,
            "size": self.size,
            "version": self.version,
        }
        if self.depth:
            values["depth"] = self.depth
        if self.not_after_s is not None:
            values["not_after"] = self.not_after_s
        ordered = {key: values[key] for key in sorted(values)}
        if self.signature:
            ordered["signature"] = self.signature
        data = encode_cbor(ordered)
        if len(data) > MANIFEST_BYTES_MAX:
            raise ManifestInvalid(f"a manifest of {len(data):,} bytes: the attributes are too long")
        return data

    @classmethod
    def decode(cls, data: bytes) -> FileManifest:
        """The manifest in *data*. Raises ManifestInvalid, also if it is written in another way than `encode` does."""
        if len(data) > MANIFEST_BYTES_MAX:
            raise ManifestInvalid(f"a manifest has at most {MANIFEST_BYTES_MAX:,} bytes, not {len(data):,}")
        try:
            values = CborReader(data, _RULES).whole()
        except UnicodeDecodeError:
            raise ManifestInvalid("a text is no UTF-8") from None
        if type(values) is not dict:
            raise ManifestInvalid("a manifest is a map of CBOR")
        if missing := [key for key in ("chunks", "file", "sha256", "size", "version") if key not in values]:
            raise ManifestInvalid(f"{missing[0]} is missing")
        table = values["chunks"]
        if type(table) is not bytes:
            raise ManifestInvalid("chunks is no byte string")
        manifest = cls(
            values["file"],
            values["version"],
            values["size"],
            values["sha256"],
            read_table(table),
            values.get("depth", 0),
            {key: value for key, value in values.items() if key not in RESERVED},
            values.get("not_after"),
            values.get("signature", b""),
        )
        if manifest.encode() != data:
            raise ManifestInvalid("its fields are in another order, or written in more bytes than they take")
        return manifest

    def signed(self, secret: bytes) -> FileManifest:
        """The manifest with a signature by the key *secret*, which takes the place of the one that it has."""
        placed = replace(self, signature=bytes(SIGNATURE_BYTES))  # the map counts its fields: one more
        return replace(self, signature=sign(secret, placed.encode()[:-SIGNATURE_BYTES]))

    def is_signed_by(self, public: bytes) -> bool:
        """Whether it has a signature by the secret key of *public*."""
        return bool(self.signature) and verify(public, self.encode()[:-SIGNATURE_BYTES], self.signature)


def encode_table(entries: Iterable[ChunkEntry]) -> bytes:
    """A table of chunks: of each 32 bytes SHA-256 and 4 bytes length, the most significant first."""
    return b"".join([entry.sha256 + entry.size.to_bytes(LENGTH_BYTES) for entry in entries])


def read_table(data: bytes) -> tuple[ChunkEntry, ...]:
    """The entries of a table of chunks. Raises ManifestInvalid."""
    if len(data) % ENTRY_BYTES or len(data) > MANIFEST_CHUNKS_MAX * ENTRY_BYTES:
        raise ManifestInvalid(f"a table has {ENTRY_BYTES} bytes for each of at most {MANIFEST_CHUNKS_MAX:,} chunks")
    entries = tuple(
        [
            ChunkEntry(data[at : at + HASH_BYTES], int.from_bytes(data[at + HASH_BYTES : at + ENTRY_BYTES]))
            for at in range(0, len(data), ENTRY_BYTES)
        ]
    )
    for number, entry in enumerate(entries, 1):
        if not 1 <= entry.size <= CHUNK_BYTES_MAX:
            raise ManifestInvalid(f"chunk {number} has {entry.size:,} bytes, not 1 to {CHUNK_BYTES_MAX:,}")
    return entries


def cut_table(entries: list[ChunkEntry]) -> list[bytes]:
    """The tables, chunks themselves, of a file that has more chunks than its manifest has room for.

    Raises ManifestInvalid if there are more than a manifest of depth 1 can name.
    """
    if len(entries) > MANIFEST_CHUNKS_MAX**2:
        raise ManifestInvalid(f"a file has at most {MANIFEST_CHUNKS_MAX**2:,} chunks, not {len(entries):,}")
    return [encode_table(entries[at : at + MANIFEST_CHUNKS_MAX]) for at in range(0, len(entries), MANIFEST_CHUNKS_MAX)]


def _field_problems(manifest: FileManifest) -> Iterable[str]:
    if type(manifest.name) is not str or not NAME.fullmatch(manifest.name):
        yield f"file is {manifest.name!r}: 1 to 64 letters, digits, '.', '_' or '-', the first a letter or a digit"
    for name, value in (("version", manifest.version), ("size", manifest.size), ("not_after", manifest.not_after_s)):
        if (value is not None or name != "not_after") and not _is_whole(value):
            yield f"{name} is {value!r}: a whole number from 0 to 2**53 - 1"
    if not _is_bytes(manifest.sha256, HASH_BYTES):
        yield f"sha256 has {HASH_BYTES} bytes"
    if manifest.signature and not _is_bytes(manifest.signature, SIGNATURE_BYTES):
        yield f"signature has {SIGNATURE_BYTES} bytes"
    if type(manifest.depth) is not int or manifest.depth not in (0, 1):
        yield f"depth is {manifest.depth!r}: 0 or 1"


def _attribute_problems(attributes: Mapping[str, Attribute]) -> Iterable[str]:
    if len(attributes) > MANIFEST_ATTRIBUTES_MAX:
        yield f"{len(attributes)} attributes, at most {MANIFEST_ATTRIBUTES_MAX} are allowed"
    for name, value in attributes.items():
        if name in RESERVED or not ATTRIBUTE.fullmatch(name):
            yield f"the attribute {name!r}: letters, digits and '_', and none of {', '.join(sorted(RESERVED))}"
        if type(value) not in (str, int, float, bool):
            yield f"the attribute {name} is no text, number or truth value"
        if type(value) is float and not isfinite(value):
            yield f"the attribute {name} is no number"
        if type(value) is int and not -WHOLE_MAX < value < WHOLE_MAX:
            yield f"the attribute {name} is not between -2**53 and 2**53"
        if type(value) is str and len(value.encode()) > MANIFEST_TEXT_BYTES_MAX:
            yield f"the attribute {name} has more than {MANIFEST_TEXT_BYTES_MAX} bytes"


def _chunk_problems(manifest: FileManifest) -> Iterable[str]:
    chunks = manifest.chunks
    if len(chunks) > MANIFEST_CHUNKS_MAX:
        yield f"{len(chunks):,} chunks, at most {MANIFEST_CHUNKS_MAX:,} are allowed"
    total = sum([entry.size for entry in chunks])
    if not manifest.depth and total != manifest.size:
        yield f"the chunks have {total:,} bytes together, and the file {manifest.size:,}"
    if manifest.depth and any(entry.size % ENTRY_BYTES for entry in chunks):
        yield f"a table of chunks has {ENTRY_BYTES} bytes for each chunk"


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < WHOLE_MAX


def _is_bytes(value: object, size: int) -> bool:
    return type(value) is bytes and len(value) == size

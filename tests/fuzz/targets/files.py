"""Manifests of files, as a gateway's clients and a publisher's commands read them, and messages about chunks."""

from __future__ import annotations

from contextlib import suppress

from edgebroker.federation.chunk_exchange import ChunkExchange, SitePaths, TakeChunk
from edgebroker.files.manifest import ENTRY_BYTES, ChunkEntry, FileManifest, ManifestInvalid, read_table
from tests.fuzz.frame.target import Target, filled

CHUNKS = (ChunkEntry(b"a" * 32, 65_536), ChunkEntry(b"b" * 32, 7))
MANIFEST = FileManifest("fw.bin", 13, 65_543, b"s" * 32, CHUNKS, 0, {"hw": "v3", "n": 1.5, "beta": True}, 1_900_000_000)
TREE = FileManifest("big", 1, 1 << 40, b"s" * 32, (ChunkEntry(b"t" * 32, 36 * 5),), 1)


def read_manifest(data: bytes) -> None:
    """What is read is written again as the same bytes, so there is one form of every manifest."""
    manifest = FileManifest.decode(data)
    assert manifest.encode() == data
    assert all(entry.size > 0 for entry in manifest.chunks)
    if not manifest.depth:
        assert sum(entry.size for entry in manifest.chunks) == manifest.size


def read_chunk_table(data: bytes) -> None:
    """A table has an entry for each 36 bytes."""
    assert len(read_table(data)) * ENTRY_BYTES == len(data)


def read_chunk_message(data: bytes) -> None:
    """A message of a peer is handled, or counted: it raises nothing, and hands on no chunk that is too large."""
    exchange = ChunkExchange(SitePaths(1, lambda gateway: gateway < 3, lambda gateway: True), 5, lambda name: True)
    exchange.want(b"a" * 32, 0)
    for sender in (2, 65):
        for effect in exchange.received(sender, data, 1):
            assert not isinstance(effect, TakeChunk) or 1 <= len(effect.data) <= 262_144
    exchange.fire(1 << 40)
    assert len(exchange.wanted) <= 1


def read_files(data: bytes) -> None:
    """One target for all three: none has anything behind a door that only a long run finds."""
    read_chunk_message(data)
    with suppress(ManifestInvalid):
        read_chunk_table(data)
    read_manifest(data)


TARGETS = (
    Target(
        "files",
        read_files,
        (
            MANIFEST.encode(),
            MANIFEST.signed(bytes(32)).encode(),
            TREE.encode(),
            b"a" * 32 + (5).to_bytes(4),
            b"\x01\x01",
            *(bytes((kind,)) + b"a" * 32 for kind in (2, 3, 5, 6)),
            b"\x04" + bytes(8) + b"a" * 32,
            b"\x05" + b"a" * 32 + b"data",
        ),
        refusals=(ManifestInvalid,),
        words=(b"fchunks", b"edepth", b"dfile", b"fsha256", b"dsize", b"gversion", b"inot_after", b"isignature"),
        bombs={
            "members": lambda: filled(b"\x61a\x01", b"\xba\x00\x00\x55\x00"),
            "arrays": lambda: filled(b"\x81"),
            "bytes": lambda: b"\x5a\x00\x00\xff\xfb" + bytes(65_531),
            "entries": lambda: filled(b"a" * 32 + (5).to_bytes(4), size=1_680 * 36),
            "chunk": lambda: filled(b"x", b"\x05" + b"a" * 32),
        },
    ),
)

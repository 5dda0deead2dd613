"""Manifests: what is encoded is decoded again, nothing else is, and the signature covers every byte before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as some

from edgebridge.session.subscription_text import parse_subscription
from edgebroker.ed25519 import public_key
from edgebroker.files.manifest import (
    ChunkEntry,
    FileManifest,
    ManifestInvalid,
    cut_table,
    encode_table,
    read_table,
)
from edgebroker.filters import Extractor
from edgebroker.limits import MANIFEST_CHUNKS_MAX

SECRET = bytes(range(32))
CHUNKS = (ChunkEntry(b"a" * 32, 65_000), ChunkEntry(b"b" * 32, 1_000))
MANIFEST = FileManifest("fw.bin", 13, 66_000, b"s" * 32, CHUNKS, 0, {"hw": "v3", "beta": False}, 1_900_000_000)


def test_a_manifest_is_the_map_that_the_page_shows() -> None:
    values = cbor2.loads(MANIFEST.signed(SECRET).encode())
    assert list(values) == ["beta", "chunks", "file", "hw", "not_after", "sha256", "size", "version", "signature"]
    assert values["chunks"] == b"a" * 32 + (65_000).to_bytes(4) + b"b" * 32 + (1_000).to_bytes(4)
    assert (values["file"], values["version"], values["size"], values["hw"]) == ("fw.bin", 13, 66_000, "v3")


NAMES = some.sampled_from(["hw", "_", "ring1", "Z" * 64])
VALUES = some.one_of(some.text(max_size=20), some.integers(-1000, 1 << 40), some.booleans(), some.floats(-10, 10))
SIZES = some.lists(some.integers(1, 262_144), max_size=5)


@given(SIZES, some.dictionaries(NAMES, VALUES, max_size=4), some.none() | some.integers(0, 1 << 40), some.booleans())
def test_what_is_encoded_is_decoded_again(
    sizes: list[int], attributes: dict[str, Any], not_after: int | None, is_signed: bool
) -> None:
    chunks = tuple(ChunkEntry(bytes((number,)) * 32, size) for number, size in enumerate(sizes))
    manifest = FileManifest("a", 1, sum(sizes), bytes(32), chunks, 0, attributes, not_after)
    manifest = replace(manifest, signature=b"x" * 64) if is_signed else manifest
    assert FileManifest.decode(manifest.encode()) == manifest


def test_the_signature_is_the_last_64_bytes_and_signs_all_before_them() -> None:
    signed = MANIFEST.signed(SECRET)
    public = public_key(SECRET)
    assert signed.is_signed_by(public)
    assert signed.encode()[-64:] == signed.signature
    assert not signed.is_signed_by(public_key(bytes(32)))
    assert not MANIFEST.is_signed_by(public)
    assert not replace(signed, version=14).is_signed_by(public)
    assert signed.signed(SECRET) == signed
    assert FileManifest.decode(signed.encode()).is_signed_by(public)


@pytest.mark.parametrize("last", [0, 9, 10, 13, 32, 0xEF, 0xBB])
def test_filters_read_the_attributes_whatever_the_signature_ends_with(last: int) -> None:
    wanted = parse_subscription("files/#", "hw = 'v3' AND version > 12").filter
    assert wanted is not None
    payload = replace(MANIFEST, signature=b"\0" * 63 + bytes((last,))).encode()
    attributes = Extractor(wanted.attributes).extract(payload, topic="files/fw.bin", qos=1, retain=True, client="p")
    assert wanted.accepts(attributes)


def changed(**values: Any) -> bytes:
    """The manifest with other values, in the order of the keys."""
    found = {**cbor2.loads(MANIFEST.encode()), **values}
    return cbor2.dumps({key: found[key] for key in sorted(found) if found[key] is not KeyError})


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "missing"),
        (b"\xff", "break"),
        (cbor2.dumps([1]), "map"),
        (cbor2.dumps({}), "chunks is missing"),
        (MANIFEST.encode() + b"\0", "byte"),
        (MANIFEST.encode()[:-1], "missing"),
        (changed(version=KeyError), "version is missing"),
        (changed(version="13"), "version"),
        (changed(version=-1), "version"),
        (changed(version=True), "version"),
        (changed(version=1 << 53), "version"),
        (changed(size=66_001), "66,001"),
        (changed(chunks=b"x" * 35), "36 bytes"),
        (changed(chunks=[1]), "deep"),
        (changed(chunks=1), "chunks"),
        (changed(chunks=b"x" * 32 + bytes(4), size=0), "chunk 1 has 0 bytes"),
        (changed(chunks=b"x" * 32 + (262_145).to_bytes(4), size=262_145), "262,145"),
        (changed(file="../etc/passwd"), "file"),
        (changed(file=".."), "file"),
        (changed(file=5), "file"),
        (changed(sha256=b"short"), "sha256"),
        (changed(signature=b"short"), "signature"),
        (changed(depth=2), "depth"),
        (changed(depth=0), "order"),
        (changed(hw=None), "hw"),
        (changed(hw={"a": 1}), "deep"),
        (changed(hw="x" * 257), "long"),
        (changed(hw=float("nan")), "number"),
        (changed(**{"bad name": 1}), "bad name"),
        (changed(**{f"a{number}": 1 for number in range(33)}), "keys"),
        (cbor2.dumps(dict(reversed(cbor2.loads(MANIFEST.encode()).items()))), "order"),
        (bytes(65_537), "65,536"),
    ],
)
def test_what_is_no_manifest_is_refused_and_the_text_says_why(payload: bytes, why: str) -> None:
    with pytest.raises(ManifestInvalid, match=why):
        FileManifest.decode(payload)


def test_every_prefix_of_a_manifest_is_refused() -> None:
    payload = MANIFEST.signed(SECRET).encode()
    for size in range(len(payload)):
        with pytest.raises(ManifestInvalid):
            FileManifest.decode(payload[:size])


def test_a_file_of_many_chunks_has_its_table_in_chunks_of_their_own() -> None:
    entries = [ChunkEntry(number.to_bytes(32), 65_536) for number in range(MANIFEST_CHUNKS_MAX + 1)]
    size = 65_536 * len(entries)
    with pytest.raises(ManifestInvalid, match="at most 1,680"):
        FileManifest("big", 1, size, bytes(32), tuple(entries))
    tables = cut_table(entries)
    assert [entry for table in tables for entry in read_table(table)] == entries
    roots = tuple(ChunkEntry(bytes(32), len(table)) for table in tables)
    manifest = FileManifest("big", 1, size, bytes(32), roots, 1)
    assert FileManifest.decode(manifest.encode()) == manifest


def test_a_table_that_is_cut_off_is_refused() -> None:
    table = encode_table(CHUNKS)
    for wrong in (table[:-1], table * MANIFEST_CHUNKS_MAX):
        with pytest.raises(ManifestInvalid):
            read_table(wrong)


def test_a_table_of_a_tree_has_whole_entries() -> None:
    with pytest.raises(ManifestInvalid, match="36 bytes for each"):
        FileManifest("big", 1, 5, bytes(32), (ChunkEntry(bytes(32), 35),), 1)

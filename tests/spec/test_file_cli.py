"""`edgebroker file`: what needs no gateway. What does is in tests/live/test_live_files.py."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebridge.wire.dialect import V5
from edgebroker.cli import main
from edgebroker.cli.client_options import ClientOptions
from edgebroker.cli.file import progress_text
from edgebroker.cli.file.source import FileSource, SourceUnusable
from edgebroker.cli.file.transfer import FilesNotTaken, Upload
from edgebroker.cli.transport import BrokerTransport
from edgebroker.ed25519 import public_key
from edgebroker.files import manifest as manifests
from edgebroker.files.chunking import chunks_of
from edgebroker.files.manifest import FileManifest, read_table
from edgebroker.limits import KIB, MIB
from edgebroker.runtime.gateway import Gateway

from ..support.gateway_in_process import with_gateway

CONTENT = random.Random(4).randbytes(150 * KIB)
SECRET = bytes(32)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["file", *map(str, arguments)])


def test_a_new_key_signs_and_is_never_written_over(tmp_path: Path) -> None:
    key = tmp_path / "release.key"
    assert invoke("keygen", key).exit_code == 0
    assert key.stat().st_mode & 0o077 == 0
    secret, public = (bytes.fromhex(path.read_text().split()[-1]) for path in (key, tmp_path / "release.key.pub"))
    assert public_key(secret) == public
    again = invoke("keygen", key)
    assert (again.exit_code, "is there already" in again.output) == (2, True)


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A folder with a file, its manifest, and the keys."""
    (tmp_path / "fw.bin").write_bytes(CONTENT)
    source = FileSource(tmp_path / "fw.bin")
    (tmp_path / "m").write_bytes(source.manifest("fw.bin", 13, {"hw": "v3"}, None).signed(SECRET).encode())
    (tmp_path / "old").write_bytes(source.manifest("fw.bin", 13, {}, 1).encode())
    (tmp_path / "pub").write_text(f"edgebroker file key, public: {public_key(SECRET).hex()}\n")
    (tmp_path / "other").write_text(f"edgebroker file key, public: {public_key(bytes(31) + b'x').hex()}\n")
    return tmp_path


def test_a_file_is_verified_against_its_manifest(signed: Path) -> None:
    good = invoke("verify", signed / "fw.bin", "--manifest", signed / "m", "--signed-by", signed / "pub")
    assert (good.exit_code, good.output) == (0, f"{signed}/fw.bin: fw.bin version 13, 150 KiB, signed with the key\n")
    shown = invoke("verify", signed / "fw.bin", "--manifest", signed / "m", "--json")
    assert json.loads(shown.output)["ok"] is True
    assert json.loads(shown.output)["attributes"] == {"hw": "v3"}


@pytest.mark.parametrize(
    ("file", "options", "why"),
    [
        ("m", ["--manifest", "m"], "its bytes are not those"),
        ("fw.bin", ["--manifest", "m", "--signed-by", "other"], "not signed with the key"),
        ("fw.bin", ["--manifest", "old", "--signed-by", "pub"], "not signed with the key"),
        ("fw.bin", ["--manifest", "old"], "should not be installed any more"),
    ],
)
def test_what_is_not_right_is_exit_code_1(signed: Path, file: str, options: list[str], why: str) -> None:
    found = invoke("verify", signed / file, *(one if one[:2] == "--" else signed / one for one in options))
    assert (found.exit_code, why in found.output) == (1, True), found.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["verify", "fw.bin", "--manifest", "pub"], "bytes after the end"),
        (["verify", "fw.bin", "--manifest", "m", "--signed-by", "m"], "is not UTF-8"),
        (["verify", "fw.bin", "--manifest", "m", "--signed-by", "fw.txt"], "no public key"),
        (["publish", "fw.bin", "--version", "1", "-a", "hw"], "NAME=VALUE"),
        (["publish", "fw.bin", "--version", "1", "-a", "size=3"], "the attribute 'size'"),
        (["publish", "fw.bin", "--version", "1", "--name", "a/b"], "letters, digits"),
        (["publish", "fw.bin", "--version", "1", "-t", "a/#"], "-t 'a/#'"),
        (["publish", "fw.bin"], "--version"),
        (["remove"], "give NAME or -t TOPIC"),
    ],
)
def test_what_is_wrong_before_a_gateway_is_asked_is_exit_code_2(signed: Path, arguments: list[str], why: str) -> None:
    (signed / "fw.txt").write_text("x")
    found = invoke(*(signed / one if (signed / one).is_file() else one for one in arguments))
    assert (found.exit_code, why in found.output) == (2, True), found.output


def test_no_gateway_is_exit_code_2_at_once(signed: Path, free_port: int) -> None:
    found = invoke("publish", signed / "fw.bin", "--version", 1, "-p", free_port)
    assert (found.exit_code, "Connection refused" in found.output) == (2, True)


def test_a_gateway_without_files_says_so(signed: Path) -> None:
    async def story(gateway: Gateway, port: int) -> None:
        peer = ClientOptions(BrokerTransport(port=port), V5, "", None, None)
        with pytest.raises(FilesNotTaken, match="takes no files"):
            await Upload(FileSource(signed / "m"), lambda done, total: None).run(peer, 1, print)

    with_gateway(story, durability="memory")


def test_a_source_gives_each_chunk_and_notices_that_its_file_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "fw.bin"
    path.write_bytes(CONTENT)
    source = FileSource(path)
    assert [source.read(entry.sha256) for entry in source.entries] == list(chunks_of([CONTENT]))
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(SourceUnusable, match="has changed"):
        source.read(source.entries[-1].sha256)
    path.unlink()
    with pytest.raises(SourceUnusable, match="cannot be read"):
        FileSource(path)


def test_a_file_of_many_chunks_has_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_chunks_max(monkeypatch, 1)
    (tmp_path / "a").write_bytes(CONTENT[: 20 * KIB])
    assert FileSource(tmp_path / "a").depth == 0
    set_chunks_max(monkeypatch, 2)
    (tmp_path / "a").write_bytes(CONTENT * 2)
    source = FileSource(tmp_path / "a")
    manifest = FileManifest.decode(source.manifest("a", 1, {}, None).encode())
    assert manifest.depth == 1
    entries = [entry for table in manifest.chunks for entry in read_table(source.read(table.sha256))]
    assert b"".join(source.read(entry.sha256) for entry in entries) == CONTENT * 2


def set_chunks_max(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for module in ("edgebroker.cli.file.source", manifests.__name__):
        monkeypatch.setattr(f"{module}.MANIFEST_CHUNKS_MAX", most)


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ((16 * MIB, 32 * MIB, 8 * MIB, 4.0), "sending: 50 % of 32 MiB, 2.0 MiB/s, 8 s left"),
        ((0, 32 * MIB, 0, 0.0), "sending: 0 % of 32 MiB, 0 B/s"),
        ((0, 0, 0, 1.0), "sending: ? of 0 B, 0 B/s"),
    ],
)
def test_progress_tells_share_rate_and_time_left(figures: Any, text: str) -> None:
    assert progress_text("sending", *figures) == text

"""Files through a real gateway: publisher and device go on where a kill interrupted them, and changes alone are sent.

The device is the program of docs/files.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgebridge.wire.dialect import V5, V311
from edgebroker.cli import main
from edgebroker.cli.client_options import ClientOptions
from edgebroker.cli.file.source import FileSource
from edgebroker.cli.file.transfer import UNDER_WAY, Upload, file_client
from edgebroker.cli.transport import BrokerTransport
from edgebroker.limits import KIB

from ..support.recipes import recipe
from .conftest import PATIENCE_S, Gateway

pytestmark = pytest.mark.live

CONTENT = random.Random(5).randbytes(900 * KIB)
SETTINGS = "[listener]\nport = {}\n[data]\ndir = 'data'\n[files]\nbytes_max = 4_000_000\n"


class FileGateway:
    """A gateway that takes files, and can be killed."""

    def __init__(self, folder: Path, port: int) -> None:
        (folder / "gateway.toml").write_text(SETTINGS.format(port))
        self.config = str(folder / "gateway.toml")
        self.port = port
        self.process = Gateway("--config", self.config)
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1
        self.process.kill()
        self.process = Gateway("--config", self.config)

    def peer(self, dialect: Any = V5) -> ClientOptions:
        return ClientOptions(BrokerTransport(port=self.port), dialect, "", None, None)

    def invoke(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["file", *arguments, "-p", str(self.port)])


@pytest.fixture
def file_gateway(tmp_path: Path, free_port: int) -> Iterator[FileGateway]:
    made = FileGateway(tmp_path, free_port)
    yield made
    made.process.kill()


def test_publisher_and_device_go_on_where_a_kill_interrupted_them_and_commands_tell_what_there_is(
    file_gateway: FileGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = file_gateway
    for module in ("edgebroker.cli.file.source", "edgebroker.files.manifest"):
        monkeypatch.setattr(f"{module}.MANIFEST_CHUNKS_MAX", 8)  # so that there are tables of chunks
    path = tmp_path / "fw.bin"
    path.write_bytes(CONTENT)
    source = FileSource(path)
    assert source.depth == 1

    def progress(done: int, total: int) -> None:
        if done > total // 2 and not gateway.kills:
            gateway.kill()

    upload = Upload(source, progress)
    asyncio.run(publish(gateway, source, upload))
    assert gateway.kills == 1
    assert len(source.pieces) <= upload.sent_chunks <= len(source.pieces) + UNDER_WAY

    receiver = receiver_for(gateway, tmp_path / "device")
    work(receiver, lambda: 0 < len(receiver.sizes) <= 8 and not receiver.depth)
    gateway.kill()
    work(receiver, lambda: len(receiver.sizes) <= 4)
    left = len(receiver.sizes)
    receiver.client.disconnect()
    receiver = receiver_for(gateway, tmp_path / "device")  # after a power cut
    work(receiver, lambda: receiver.sizes and not receiver.depth)
    assert len(receiver.sizes) <= left
    work(receiver, lambda: receiver.is_complete)
    assert (tmp_path / "device/fw.bin").read_bytes() == CONTENT
    monkeypatch.undo()
    commands_tell_programs_and_people_what_there_is(gateway, path)


async def publish(gateway: FileGateway, source: FileSource, upload: Upload) -> None:
    await upload.run(gateway.peer(), PATIENCE_S, lambda line: None)
    async with file_client(gateway.peer(V311)) as files:
        assert await files.missing(list(source.pieces)) == []
        await files.publish("files/fw.bin", source.manifest("fw.bin", 13, {"hw": "v3"}, None).encode())


def receiver_for(gateway: FileGateway, folder: Path) -> Any:
    receiver = recipe("receive.py", "files.md")["Receiver"]("hw = 'v3' AND version > 12", folder)
    receiver.client.connect("127.0.0.1", gateway.port)
    return receiver


def work(receiver: Any, is_done: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_done() and not receiver.is_complete:
        assert time.monotonic() < deadline
        receiver.work()


def commands_tell_programs_and_people_what_there_is(gateway: FileGateway, path: Path) -> None:
    """The chunks of *path* are there already: a second gateway to publish them to would take a second to start."""
    arguments = ["publish", str(path), "--version", "13", "-a", "hw=v3", "-a", "ring=2", "--json"]
    again = json.loads(gateway.invoke(*arguments).stdout)
    assert (again["bytes"], again["sent_bytes"], again["sent_chunks"]) == (len(CONTENT), 0, 0)
    path.write_bytes(CONTENT[:400_000] + b"x" + CONTENT[400_000:])
    second = json.loads(gateway.invoke(*arguments[:-1], "--not-after", "1d", "--json", "--version", "14").stdout)
    assert 0 < second["sent_bytes"] < 0.35 * len(CONTENT)
    [listed] = json.loads(gateway.invoke("list", "--json").stdout)
    assert (listed["version"], listed["attributes"]) == (14, {"hw": "v3", "ring": 2})
    assert 0 < listed["not_after"] - time.time() <= 86_400
    assert json.loads(gateway.invoke("list", "-t", "$filter/ring%3E2/files/#", "--json").stdout) == []
    status = json.loads(gateway.invoke("status", "fw.bin", "--json").stdout)
    assert (status["chunks_missing"], status["bytes_here"]) == (0, len(CONTENT) + 1)
    assert gateway.invoke("status").stdout.endswith("of 3.8 MiB\n")
    assert gateway.invoke("remove", "fw.bin").exit_code == 0
    assert gateway.invoke("status", "fw.bin").exit_code == 1
    large = path.with_name("large.bin")
    large.write_bytes(random.Random(6).randbytes(4_100_000))
    refused = gateway.invoke("publish", str(large), "--version", "1")
    assert (refused.exit_code, "room for 4,000,000" in refused.output) == (1, True)

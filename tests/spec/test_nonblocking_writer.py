"""The nonblocking writer to standard error never waits for its reader."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from edgebroker.runtime.nonblocking_writer import HELD_BYTES_MAX, NonblockingWriter, is_journal


@pytest.fixture
def pipe() -> Any:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue


def drain(descriptor: int) -> bytes:
    os.set_blocking(descriptor, False)
    heard = b""
    while True:
        try:
            data = os.read(descriptor, 65_536)
        except BlockingIOError:
            return heard
        if not data:
            return heard
        heard += data


@pytest.mark.parametrize("is_polled", [False, True])
def test_a_full_pipe_holds_nobody_up(pipe: tuple[int, int], is_polled: bool) -> None:
    reading, writing = pipe
    writer = NonblockingWriter(writing)
    writer._must_poll = is_polled
    if is_polled:
        writer._descriptor = writing
    lines = [b"%05d " % number + b"x" * 93 + b"\n" for number in range(4_000)]
    for line in lines:
        writer.write(line)
    assert os.get_blocking(writing), "who shares the pipe with us finds it as it was"
    assert writer.held_bytes <= HELD_BYTES_MAX
    assert writer.lost > 0
    heard = b""
    while data := drain(reading):
        heard += data
        writer.flush()
    assert heard == b"".join(lines[: len(lines) - writer.lost]), "in order, and not a byte of a line is missing"


def test_a_reader_that_has_gone_is_no_reason_to_stop(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    writer = NonblockingWriter(writing)
    os.close(reading)
    writer.write(b"a\n")
    assert (writer.lost, writer.held_bytes) == (1, 0)


def test_a_socket_is_never_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer = NonblockingWriter(ours.fileno())
        for _ in range(20_000):
            writer.write(b"x" * 99 + b"\n")
        assert writer.lost > 0
        assert ours.gettimeout() is None
        heard = drain(theirs.fileno())
        writer.flush()
        heard += drain(theirs.fileno())
        assert heard[:200] == (b"x" * 99 + b"\n") * 2


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    with path.open("ab", buffering=0) as file:
        writer = NonblockingWriter(file.fileno())
        writer.write(b"one\n")
        file.write(b"between\n")
        writer.write(b"two\n")
    assert path.read_bytes() == b"before\none\nbetween\ntwo\n"


def test_a_closed_descriptor_is_silence() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    writer = NonblockingWriter(writing)
    writer.write(b"a\n")
    assert writer.held_bytes == 0


def test_journald_is_known_by_what_systemd_says_of_it(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, writing = pipe
    found = os.fstat(writing)
    assert not is_journal(writing)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    assert is_journal(writing)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + 1}")
    assert not is_journal(writing), "standard error was sent elsewhere since"


def test_each_line_that_is_lost_is_handed_back_with_the_reason(pipe: tuple[int, int]) -> None:
    """A full disk is worth a word elsewhere; that nobody reads is not."""
    lost: list[tuple[bytes, str | None]] = []

    def on_loss(line: bytes, error: OSError | None) -> None:
        lost.append((line, error and error.strerror))

    with open("/dev/full", "wb", buffering=0) as full:
        writer = NonblockingWriter(full.fileno(), on_loss)
        writer.write(b"a\n")
        writer.write(b"b\n")
    reading, writing = pipe
    writer = NonblockingWriter(writing, on_loss)
    writer.write(bytes(HELD_BYTES_MAX))
    writer.write(bytes(8_192) + b"c\n")
    writer.write(b"d\n")
    os.close(reading)
    writer.flush()
    full_disk = "No space left on device"
    assert [lost[0], lost[1], *((line[-2:], why) for line, why in lost[2:])] == [
        (b"a\n", full_disk),
        (b"b\n", full_disk),
        (b"c\n", None),
        (b"\0\0", None),
        (b"d\n", None),
    ]
    assert writer.held_bytes == 0

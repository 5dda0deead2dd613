"""The kernel interface of the demo in namespaces: commands, entering a namespace, counters.

Linux alone. All commands have a time limit, and affect only the namespaces named in them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from edgebroker.cli import Refused
from edgebroker.errors import EdgebrokerError
from edgelab.demo.federation.namespaces import Command, removing

FOLDER: Final = Path("/run/netns")
"""The folder in which iproute2 stores the names of namespaces."""
PROGRAMS: Final = ("ip", "tc")
COMMAND_S_MAX: Final = 10.0  # a command takes 3 ms
COUNTERS_BYTES_MAX: Final = 65_536  # a line of 120 bytes for each device of a gateway: at most nine
CLONE_NEWNET: Final = 0x40000000
WITHOUT: Final = "or leave out --netns: relays then stand in for the kernel"


class CommandFailed(EdgebrokerError):
    """`ip` or `tc` failed; the message contains the command and its output."""


class DeviceCounters(NamedTuple):
    """Frames that a device has received and sent so far, and their bytes with all headers."""

    received_bytes: int
    received_frames: int
    sent_bytes: int


def execute(commands: Iterable[Command]) -> None:
    """Run *commands*, one after the other. Raises CommandFailed at the first that fails."""
    for command in commands:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandFailed(f"{' '.join(command)}: {error}") from error
        if done.returncode:
            output = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
            raise CommandFailed(f"{' '.join(command)}: {output}")


def require() -> None:
    """Check that everything that --netns needs is available. Raises Refused, with the remedy."""
    if sys.platform != "linux":
        raise Refused(f"--netns needs the network namespaces of Linux, and this is {sys.platform}; {WITHOUT}")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = "install iproute2 (on Debian: apt install iproute2), see that /usr/sbin is in PATH,"
        raise Refused(f"--netns needs {' and '.join(missing)}: {packages} {WITHOUT}")
    if os.geteuid():
        raise Refused(f"--netns makes network namespaces, which only root may: run it with sudo, {WITHOUT}")


def has_netem(scratch: str) -> bool:
    """Return whether this kernel can delay packets. Tries all that is needed in the namespace *scratch*, and removes
    it.

    Raises Refused if namespaces, virtual devices or `tbf` are missing.
    """
    inside = ("ip", "-n", scratch)
    shape = ("tc", "-n", scratch, "qdisc", "add", "dev", "try")
    rate = ("tbf", "rate", "1mbit", "burst", "1600", "limit", "1600")
    needed: Iterable[Command] = (
        ("ip", "netns", "add", scratch),
        (*inside, "link", "add", "bridge", "type", "bridge"),
        (*inside, "link", "add", "try", "type", "veth", "peer", "name", "other"),
        (*shape, "root", *rate),
        ("tc", "-n", scratch, "qdisc", "delete", "dev", "try", "root"),
    )
    try:
        execute(needed)
        try:
            execute([(*shape, "root", "handle", "1:", "netem", "delay", "1ms"), (*shape, "parent", "1:1", *rate)])
        except CommandFailed:
            return False
        return True
    except CommandFailed as failure:
        raise Refused(f"--netns does not work on this machine: {failure}; mend that, {WITHOUT}") from None
    finally:
        if scratch in names():
            execute(removing([scratch]))


def names() -> list[str]:
    """Return the names of all namespaces."""
    try:
        return os.listdir(FOLDER)
    except OSError:  # no namespace was ever created
        return []


def is_demo(number: int) -> bool:
    """Return whether the process with this *number*, if there is one, is a demo in namespaces."""
    try:
        return b"--netns" in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@contextmanager
def entered(namespace: str) -> Iterator[None]:
    """Enter *namespace* with this thread alone: sockets, threads and processes created meanwhile belong to it.

    Raises CommandFailed.
    """
    back = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            _enter(FOLDER / namespace)
        except OSError as error:
            raise CommandFailed(f"cannot enter the network namespace {namespace}: {error.strerror}") from error
        try:
            yield
        finally:
            _set(back)
    finally:
        os.close(back)


def open_counters() -> int:
    """Return the counters of the current namespace, as a file that remains in it. The caller closes it."""
    return os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)


def read_counters(file: int) -> dict[str, DeviceCounters]:
    """Return the counters by device; *file* is from `open_counters`."""
    return counters(os.pread(file, COUNTERS_BYTES_MAX, 0).decode("ascii"))


def counters(text: str) -> dict[str, DeviceCounters]:
    """Parse /proc/net/dev: two lines of headings, then for each device eight figures received and eight sent."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, figures = line.partition(":")
        values = [int(value) for value in figures.split()]
        found[name.strip()] = DeviceCounters(values[0], values[1], values[8])
    return found


def _enter(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(file)
    finally:
        os.close(file)


def _set(file: int) -> None:
    if sys.version_info >= (3, 12):
        os.setns(file, CLONE_NEWNET)
        return
    from ctypes import CDLL, get_errno  # setns(2), which Python provides since 3.12

    if CDLL(None, use_errno=True).setns(file, CLONE_NEWNET):
        raise OSError(get_errno(), os.strerror(get_errno()))

"""The file of a Unix socket: made with its mode, never stolen from a broker that lives, removed at the end."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path

from edgebroker.errors import CannotListen


def bound(path: Path, mode: int, backlog: int) -> socket.socket:
    """A listening socket at *path*. A file that a broker left behind is replaced. Raises CannotListen.

    It gets its mode under another name: at *path* nobody can find it sooner.
    """
    _must_be_free(path)
    new = path.with_name(f"{path.name}.new")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            new.unlink()
        listening.bind(str(new))
        new.chmod(mode)
        listening.listen(backlog)
        listening.setblocking(False)
        new.rename(path)
    except OSError as error:
        listening.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error
    return listening


def remove(path: Path, inode: int) -> None:
    """Take away the file, unless it is another's by now."""
    with suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


def peer_of(connected: socket.socket) -> str:
    """Who is at the other end, as far as the system says."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "unix socket"
    pid, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return f"unix:uid={user},pid={pid}"


def _must_be_free(path: Path) -> None:
    """Nothing is there, or a socket where nobody answers. Raises CannotListen."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from error
    if not is_socket:
        raise CannotListen(f"cannot listen on {path}: there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    if code not in (errno.ECONNREFUSED, errno.ENOENT):
        why = "the socket is in use; another broker?" if code in (0, errno.EAGAIN) else os.strerror(code)
        raise CannotListen(f"cannot listen on {path}: {why}")

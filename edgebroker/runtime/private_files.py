"""Reads files of the operator, and replaces private files atomically.

An own file that cannot be parsed is renamed, with the suffix `.damaged`, and a new one takes its place.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from edgebroker.errors import SettingsInvalid
from edgebroker.limits import OPERATOR_FILE_BYTES_MAX
from edgebroker.runtime.settings.problems import Problem, SettingsRefused

PRIVATE: Final = 0o600
OWN_FILE_BYTES_MAX: Final = 64 << 20  # of a file that the gateway itself writes; usual ones have some KiB


class FileUnusable(SettingsInvalid):
    """A file cannot be read or written; the message names it."""


class FileUnreadable(FileUnusable):
    """A file cannot be read; `problem` says why, and suggests a remedy."""

    def __init__(self, path: Path, line: int, reason: str, remedy: str) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.problem = Problem(str(path), line, "", reason, remedy)


def read_bytes(path: Path, may_wait: bool = False, bytes_max: int = OPERATOR_FILE_BYTES_MAX) -> bytes:
    """Returns the content of a file. Raises FileUnreadable if it is missing, has more than *bytes_max* bytes, or is a
    pipe; with *may_wait* it may be one, and the call blocks until somebody has written to it.
    """
    try:
        with open(path, "rb", opener=None if may_wait else _open_nonblocking) as file:
            if not may_wait and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise FileUnreadable(path, 0, "is a pipe", "name a file: it is read again at every reload")
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise FileUnreadable(path, 0, f"cannot be read: {error.strerror}", remedy_for(error)) from error
    if len(data) > bytes_max:
        raise FileUnreadable(path, 0, f"has more than {bytes_max:,} bytes", "it is perhaps another file")
    return data


def read_private(path: Path, may_wait: bool = False) -> str:
    """Returns the text of *path*. Raises FileUnreadable as `read_bytes`, and if it is not UTF-8."""
    data = read_bytes(path, may_wait)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileUnreadable(path, line, "is not UTF-8", "save it as UTF-8 text") from error


def read_own_json(path: Path) -> Any:
    """Returns the value in a JSON file that the gateway itself wrote. Raises FileUnreadable, ValueError."""
    return json.loads(read_bytes(path, bytes_max=OWN_FILE_BYTES_MAX))


def _open_nonblocking(path: str, flags: int) -> int:
    """Opens a file without waiting for the writer of a pipe, which would stop the gateway."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_setting_file(path: Path, key: str, remedy: str = "", may_wait: bool = False) -> str:
    """Returns the text of a file that the settings name as *key*. Raises SettingsRefused."""
    try:
        return read_private(path, may_wait)
    except FileUnreadable as error:
        problem = error.problem
        raise SettingsRefused([replace(problem, key=key, mend=remedy or problem.mend)]) from error


def remedy_for(error: OSError) -> str:
    """Returns what to do about a file that cannot be opened."""
    if isinstance(error, PermissionError):
        return "let the user read it as whom the gateway runs"
    return "name a file that is there"


def is_open_to_others(path: Path) -> bool:
    """Whether users other than the owner and the group may read *path*."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def replace_private(path: Path, text: str) -> None:
    """Replaces *path* by a file with *text*, on disk before it is visible, readable only by its owner. Raises
    FileUnusable.

    A symbolic link stays one. The owner of the old file stays the owner, as far as the system permits. Its group keeps
    the right to read if only owner and group had it: a service may have no other access.
    """
    import tempfile  # 0.5 MiB, and most gateways never write

    path = path.resolve()
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
        with os.fdopen(descriptor, "wb") as file:
            mode = PRIVATE
            with suppress(OSError):
                before = path.stat()
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
                if not before.st_mode & stat.S_IRWXO:
                    mode |= before.st_mode & stat.S_IRGRP
            os.fchmod(file.fileno(), mode)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        raise FileUnusable(f"{path}: cannot be written: {error.strerror}") from error


DAMAGED: Final = ".damaged"


def set_aside(file: Path) -> str:
    """Renames the damaged *file*, over an earlier one. Returns what was done, as text."""
    target = file.with_name(file.name + DAMAGED)
    try:
        file.replace(target)
    except OSError as error:
        return f"it cannot be set aside, and will be written over: {error.strerror}"
    return f"it is set aside as {target.name}"

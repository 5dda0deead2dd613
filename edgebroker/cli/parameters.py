"""Types of parameters on the command line: one of a few words, a duration, a file that exists, and `[HOST:]PORT`, the
address at which a gateway answers HTTP requests.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from edgebroker.names import hostport, most_alike

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # which cannot be subscripted before click 8.2


class WordChoice(_Choice):
    """A choice that suggests the most similar word after a wrong one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if (nearest := most_alike(str(value), self.choices)) is None:
                raise
            self.fail(f"{error.message} Did you mean '{nearest}'?", param, ctx)


def examples(*lines: str) -> str:
    """Returns the end of a command's help: *lines* as they are typed."""
    return "\n  ".join(("\b\nExamples:" if len(lines) > 1 else "\b\nExample:", *lines))


UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
DIGITS_MAX: Final = 9


class DurationType(click.ParamType[int]):
    """Reads a number with its unit; the value is in seconds, at least 1."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = str(value)[:-1], str(value)[-1:]
        is_number = number.isascii() and number.isdigit() and len(number) <= DIGITS_MAX
        if unit not in UNITS or not is_number or not int(number):
            self.fail("a time is written 90s, 15m, 12h or 30d", param, ctx)
        return int(number) * UNITS[unit]


class ExistingPath(click.Path):
    """A path that exists. Where click says that an inaccessible path does not exist, OSError is raised, which
    says why.
    """

    def __init__(self, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(exists=True, file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(value)
        return super().convert(value, param, ctx)


LOCAL = "127.0.0.1"


class HttpAddress(NamedTuple):
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return hostport(self.host, self.port)


class HttpAddressType(click.ParamType[HttpAddress]):
    """Reads `9883`, `gateway-3:9883`, `[::1]:9883`, and `http://gateway-3:9883/`."""

    name = "[HOST:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> HttpAddress:
        if isinstance(value, HttpAddress):
            return value
        text = str(value).removeprefix("http://").rstrip("/")
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]:|([^\s/:\[\]]+):)?([0-9]{1,5})", text)
        if match is None or int(match[3]) > 65_535:
            self.fail(f"{value!r} is no address; write PORT, HOST:PORT or [IPv6]:PORT", param, ctx)
        return HttpAddress(match[1] or match[2] or LOCAL, int(match[3]))

"""The kinds of value that only a topology file has. One may stand alone where several may."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.overlay.address import Address
from edgebroker.overlay.factor import POSITION
from edgebroker.world.valuekinds import Several, Text, Unusable, toml_name

_ANOTHER: Final = f"(-{POSITION}){{0,{limits.POSITIONS_MAX - 1}}}"
_PATH: Final = Text(POSITION + _ANOTHER, 'positions with "-" between, like "a-b-c"')


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of a tree, at most `most`."""

    most: int

    def read(self, value: object, folder: Path) -> tuple[object, ...]:
        return Several(_PATH, self.most).read([value] if isinstance(value, str) else value, folder)

    def __str__(self) -> str:
        return f"{_PATH}, or a list of such paths"


@dataclass(frozen=True, slots=True)
class _OneAddress:
    """An address."""

    def read(self, value: object, folder: Path) -> Address:
        if not isinstance(value, str):
            raise Unusable(f"is {toml_name(value)}", f"write {self}, in quotes")
        try:
            return Address.parse(value)
        except ValueError as error:
            raise Unusable(f"is {value!r}", f"write {self}") from error

    def __str__(self) -> str:
        return 'host:port, like "gw.example.org:8884" or "[2001:db8::1]:8884"'


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where something is reached, the best first; at most `most`."""

    most: int

    def read(self, value: object, folder: Path) -> tuple[object, ...]:
        return Several(_OneAddress(), self.most).read([value] if isinstance(value, str) else value, folder)

    def __str__(self) -> str:
        return f"{_OneAddress()}, or a list of such addresses"

"""What every fault is: something that strikes at an instant, somewhere, and is over at another."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random
from typing import ClassVar, NamedTuple, Self

from edgebroker.instants import MILLISECOND, SECOND, Duration, Instant

from .world import World


class Places(NamedTuple):
    """Where a fault may strike."""

    gateways: tuple[str, ...]
    roads: tuple[str, ...]
    """`a0~a1` is what lies between a0 and a1."""
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `at`: since the storm began."""

    KIND: ClassVar[str] = ""
    PLACES: ClassVar[str] = "roads"
    """The field of `Places` from which it takes one."""
    LONGEST: ClassVar[Duration] = 3 * SECOND

    at: Instant
    where: str
    lasts: Duration

    @classmethod
    def draw(cls, places: Places, length: Duration, chance: Random) -> Self:
        """One of this kind, within *length*."""
        where = chance.choice(getattr(places, cls.PLACES))
        return cls(chance.randrange(length), where, chance.randint(20 * MILLISECOND, cls.LONGEST), *cls._more(chance))

    @classmethod
    def _more(cls, chance: Random) -> tuple[object, ...]:
        """The values of the fields that only this kind has."""
        return ()

    def __str__(self) -> str:
        more = "".join(f" {one.name}={getattr(self, one.name)}" for one in fields(self)[3:])
        return f"{self.at / SECOND:.3f} s {self.KIND} {self.where} for {self.lasts / SECOND:.3f} s{more}"

    def strike(self, world: World) -> None:
        """Happen, and see to it that it is over in time."""
        raise NotImplementedError

"""What an attack is: something to prepare, a blow that is repeated, and an end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from .crowd import Crowd


class Attack(ABC):
    """One way to abuse a broker. A small one (`scale` below 1) does the same with fewer."""

    name: ClassVar[str]
    about: ClassVar[str]
    unit: ClassVar[str]
    """What `strike` counts."""

    def __init__(self, port: int, scale: float) -> None:
        self.crowd = Crowd(port)
        self.scale = scale

    def prepare(self) -> None:  # noqa: B027  (most need nothing)
        """Before anything is measured."""

    @abstractmethod
    def strike(self) -> int:
        """One blow, of a few milliseconds; how many units were done."""

    def retreat(self) -> None:
        """The blows are over for a while: nobody stays connected."""
        self.crowd.scatter()

    def scaled(self, count: int) -> int:
        """*count* at full scale, at least one."""
        return max(1, int(count * self.scale))

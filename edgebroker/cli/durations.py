"""Lengths of time on the command line: 90s, 15m, 12h, 30d."""

from __future__ import annotations

from typing import Any, Final

import click

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

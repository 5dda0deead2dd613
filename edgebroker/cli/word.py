"""One of a few words on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgebroker.likeness import most_alike

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # which cannot be subscripted before click 8.2


class Word(_Choice):
    """A choice that, of another word, says which one may be meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if (nearest := most_alike(str(value), self.choices)) is None:
                raise
            self.fail(f"{error.message} Did you mean '{nearest}'?", param, ctx)

"""How a filter is written for a subscription: both carriers, as lines for a shell."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from edgebridge.session.carriers import WHERE_PROPERTY, filter_topic

_SPECIAL: Final = re.compile(r"[\"\\$`]")
"""What keeps its meaning inside double quotes and is escaped there."""


@dataclass(frozen=True, slots=True)
class Ways:
    """*expression* for *topic*, in every form a subscriber may use."""

    expression: str
    topic: str

    @property
    def subscription(self) -> str:
        """The subscription text that carries the filter: for every version of MQTT and every client.

        Single quotes are encoded too: MQTT does not ask for it, shells do.
        """
        return filter_topic(self.expression, self.topic).replace("'", "%27")

    @property
    def commands(self) -> tuple[tuple[str, str], ...]:
        """(What it needs, the line to type)."""
        topic, expression = quoted(self.topic), quoted(self.expression)
        return (
            ("any MQTT", f"mosquitto_sub -t {quoted(self.subscription)} -v"),
            ("MQTT 5", f"mosquitto_sub -V 5 -t {topic} -D subscribe user-property '{WHERE_PROPERTY}' {expression} -v"),
            ("our client", f"edgebroker sub -t {topic} --where {expression} -v"),
        )


def quoted(text: str) -> str:
    """*text* as one word of a POSIX shell, in single quotes, or in double quotes where that is easier to read."""
    if "'" not in text:
        return f"'{text}'"
    if "!" in text:  # inside double quotes bash would look it up in the history, and keep the backslash of an escape
        return shlex.quote(text)
    return '"' + _SPECIAL.sub(r"\\\g<0>", text) + '"'

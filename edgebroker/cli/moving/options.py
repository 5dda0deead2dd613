"""Every option that Mosquitto 2.0 and 2.1 document, and what is done about it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from edgebroker.likeness import most_alike

from .bridgeoptions import OPTIONS as BRIDGES
from .limitoptions import OPTIONS as LIMITS
from .listeneroptions import OPTIONS as LISTENERS
from .rules import Rule, missing
from .securityoptions import OPTIONS as SECURITY
from .storeoptions import OPTIONS as STORE

OPTIONS: Final[dict[str, Rule]] = LIMITS | STORE | LISTENERS | SECURITY | BRIDGES
"""By name; `include_dir` is followed where it stands."""

INCLUDE: Final = "include_dir"
NAME_MAX: Final = 40
"""Characters; the longest option has 33. To look for what is near a name of 64 KiB takes seconds."""
FREE: Final = ("auth_opt_", "plugin_opt_")
"""What follows is the plug-in's own name."""

_OF_PLUGIN: Final = missing("plug-ins are not loaded")


def rule_of(name: str) -> Rule | None:
    """The rule for an option; None if Mosquitto has none of that name."""
    return _OF_PLUGIN if name.startswith(FREE) else OPTIONS.get(name)


HINTS_MAX: Final = 20  # a file in which more is unknown is none of Mosquitto, and each takes 1 ms


@lru_cache(1_000)
def nearest(name: str) -> str:
    """The option that may have been meant; empty if none is near."""
    if len(name) > NAME_MAX:
        return ""
    return most_alike(name, [*OPTIONS, INCLUDE]) or ""

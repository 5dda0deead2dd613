"""Open files: every connection is one, and systems let a process have few unless it asks."""

from __future__ import annotations

import resource
from typing import Final

from edgedevices.errors import InputInvalid

OWN: Final = 32
"""What a process has open besides connections: terminal, journal, selector, libraries."""


def allow(connections: int) -> None:
    """Let this process have that many connections: raise its soft limit as far as the hard one.

    Raises InputInvalid, with the ways out, if that is not enough.
    """
    needed = connections + OWN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputInvalid(
            f"{connections:,} connections need {needed:,} open files, and this process may have {hard:,}: "
            f"raise the hard limit (`ulimit -Hn {needed}` as root, LimitNOFILE= of a systemd unit, "
            f"--ulimit nofile={needed} of a container), or take --devices {max(0, hard - OWN - 1)}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

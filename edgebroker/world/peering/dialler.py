"""Opens connections to peers: their addresses one after the other, each for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from edgebroker.overlay.address import Address

if TYPE_CHECKING:
    import ssl

DIAL_S: Final = 10.0
"""For one address, with TLS: a satellite takes 2 s, and three lost SYNs are repeated within 7 s (RFC 6298)."""


class NoAnswer(Exception):
    """Nobody could be reached; the text says why at each address."""


async def dial(
    addresses: Iterable[Address],
    line: Callable[[], asyncio.Protocol],
    context: ssl.SSLContext | None,
    patience_s: float = DIAL_S,
    server_name: str = "",
) -> None:
    """Connect *line* to the first of *addresses* that answers. Raises NoAnswer.

    With TLS its certificate must be for *server_name*. Empty: for anybody, who is looked at later: a gateway has one
    name, wherever it is reached, and the link holds it to that.
    """
    loop = asyncio.get_running_loop()
    reasons: list[str] = []
    for address in addresses:
        try:
            name = None if context is None else server_name
            dialling = loop.create_connection(line, address.host, address.port, ssl=context, server_hostname=name)
            await asyncio.wait_for(dialling, patience_s)
        except TimeoutError:
            reasons.append(f"{address}: no answer within {patience_s:g} s")
        except (OSError, UnicodeError) as error:
            unverified = getattr(error, "verify_message", "")  # of ssl's errors, which are not imported without TLS
            reason = f"its certificate is not accepted: {unverified}" if unverified else reason_of(error)
            reasons.append(f"{address}: {reason}")
        else:
            return
    raise NoAnswer("; ".join(reasons) or "the topology has no address for it")


def reason_of(error: Exception) -> str:
    """Why a connection came to nothing, or ended, in words."""
    if type(error).__module__ == "ssl":
        return f"TLS: {(getattr(error, 'reason', None) or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

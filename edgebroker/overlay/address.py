"""Where a gateway can be reached."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from edgebroker.hostport import hostport

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([^\s\[\]/:,]{1,253})):([0-9]{1,5})")


class Address(NamedTuple):
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`host:port`, `10.0.0.1:port` or `[2001:db8::1]:port`. Raises ValueError."""
        found = _ADDRESS.fullmatch(text)
        if not found or not 1 <= int(found[3]) <= 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(found[1] or found[2], int(found[3]))

    def __str__(self) -> str:
        return hostport(self.host, self.port)

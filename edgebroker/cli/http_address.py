"""The parameter `[HOST:]PORT` of the command line: the address at which a gateway answers HTTP requests."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import click

from edgebroker.names import hostport

LOCAL = "127.0.0.1"


class HttpAddress(NamedTuple):
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return hostport(self.host, self.port)


class HttpAddressType(click.ParamType[HttpAddress]):
    """Reads `9883`, `gateway-3:9883`, `[::1]:9883`, and `http://gateway-3:9883/`."""

    name = "[HOST:]PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> HttpAddress:
        if isinstance(value, HttpAddress):
            return value
        text = str(value).removeprefix("http://").rstrip("/")
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]:|([^\s/:\[\]]+):)?([0-9]{1,5})", text)
        if match is None or int(match[3]) > 65_535:
            self.fail(f"{value!r} is no address; write PORT, HOST:PORT or [IPv6]:PORT", param, ctx)
        return HttpAddress(match[1] or match[2] or LOCAL, int(match[3]))

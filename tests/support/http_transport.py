"""A transport in memory for connections of the HTTP server."""

from __future__ import annotations

import asyncio
from typing import Any


class RecordingTransport(asyncio.Transport):
    """A transport that keeps all output in memory and can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.is_over = False

    def write(self, data: Any) -> None:
        assert not self.is_over, "nothing is written after the end"
        self.said += data

    def write_eof(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

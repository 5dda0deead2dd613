"""Telling systemd how we are, if it started us and listens: sd_notify(3), without its library.

A unit of `Type=notify-reload` counts as started when we say READY, and `systemctl reload` waits until we say it again.
With `WatchdogSec=` we say WATCHDOG in time, from the loop that serves the clients: if that loop hangs, systemd ends us
and starts us anew.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

STATUS_CHARS_MAX: Final = 200


class Systemd:
    """The other end of NOTIFY_SOCKET; silent where there is none. It never waits and never fails."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._socket: socket.socket | None = None
        self._address: str | bytes = ""
        self._alive_every_s = _watchdog_s(environment) / 2
        """At half of the time systemd waits, as sd_watchdog_enabled(3) recommends; 0: it does not."""
        self._alive_at = 0.0
        address = environment.get("NOTIFY_SOCKET", "")
        if address.startswith("@"):  # a name in the abstract namespace
            self._address = b"\0" + os.fsencode(address[1:])
        elif address.startswith("/"):
            self._address = address
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def is_there(self) -> bool:
        """Whether somebody listens."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """We serve clients, or do so again after `reloading`; *status* is what `systemctl status` shows."""
        self._say(f"READY=1\nSTATUS={_one_line(status)}")
        self.alive()

    def reloading(self) -> None:
        """SIGHUP was heard; `ready` follows."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={int(self._clock() * 1_000_000)}\nSTATUS=reads its settings again")

    def stopping(self) -> None:
        """We say good-bye to clients."""
        self._say("STOPPING=1\nSTATUS=says good-bye to clients")

    def alive(self) -> None:
        """The loop turns. To be called often; it is passed on as often as systemd wants to hear it."""
        if self._alive_every_s and self._clock() >= self._alive_at:
            self._alive_at = self._clock() + self._alive_every_s
            self._say("WATCHDOG=1")

    def _say(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError:  # its queue is full or it is gone: nothing that clients should notice
            return


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """How long systemd waits for a sign of life; 0 if it does not, or from another process."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18 or (pid and pid != str(os.getpid())):
        return 0.0
    return int(text) / 1_000_000


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:STATUS_CHARS_MAX]

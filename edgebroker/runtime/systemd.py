"""Notifies systemd of the gateway's state, by the protocol of sd_notify(3) without its library.

A unit of `Type=notify-reload` counts as started when we send READY, and `systemctl reload` waits until we send it
again. With `WatchdogSec=` we send WATCHDOG in time, from the loop that serves the clients: if that loop hangs, systemd
kills the process and starts it anew.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

STATUS_CHARS_MAX: Final = 200


class Systemd:
    """The client of NOTIFY_SOCKET; does nothing where there is none. It never blocks and never fails."""

    def __init__(
        self, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._socket: socket.socket | None = None
        self._address: str | bytes = ""
        self._watchdog_interval_s = _watchdog_s(environment) / 2
        """Half of WATCHDOG_USEC, as sd_watchdog_enabled(3) recommends; 0: no watchdog."""
        self._watchdog_due = 0.0
        address = environment.get("NOTIFY_SOCKET", "")
        if address.startswith("@"):  # in the abstract namespace
            self._address = b"\0" + os.fsencode(address[1:])
        elif address.startswith("/"):
            self._address = address
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def is_there(self) -> bool:
        """Whether systemd waits for notifications."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """Notifies that clients are served, at the start or after `reloading`. *status*: shown by `systemctl
        status`.
        """
        self._notify(f"READY=1\nSTATUS={_one_line(status)}")
        self.alive()

    def reloading(self) -> None:
        """Notifies that a reload has begun; `ready` follows."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={int(self._clock() * 1_000_000)}\nSTATUS=reads its settings again")

    def stopping(self) -> None:
        """Notifies that the gateway disconnects its clients."""
        self._notify("STOPPING=1\nSTATUS=says good-bye to clients")

    def alive(self) -> None:
        """Shows that the loop runs. To be called often; sends only as often as the watchdog requires."""
        if self._watchdog_interval_s and self._clock() >= self._watchdog_due:
            self._watchdog_due = self._clock() + self._watchdog_interval_s
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode(), self._address)
        except OSError:  # its queue is full, or it has exited: clients must not notice
            return


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """Returns the interval in which systemd requires a notification from this process; 0: none."""
    text, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not text.isascii() or not text.isdigit() or len(text) > 18 or (pid and pid != str(os.getpid())):
        return 0.0
    return int(text) / 1_000_000


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:STATUS_CHARS_MAX]

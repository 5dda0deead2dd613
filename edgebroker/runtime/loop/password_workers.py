"""Verifies passwords in worker threads: one hash takes 41 ms, in which a gateway forwards ten thousand messages."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from edgebridge.frontend.handlers.authentication import Verification
from edgebridge.session.credentials import AuthenticationResult
from edgebridge.wire.reasons import ReasonCode

THREADS_MAX: Final = 2
"""Each hash takes 16 MiB of memory. The core limits how many wait (`limits.VERIFICATIONS_MAX`)."""
M_MMAP_THRESHOLD: Final = -3  # of glibc's mallopt(3)
LARGE_BLOCK_BYTES: Final = 4 << 20
FAILED: Final = AuthenticationResult(ReasonCode.SERVER_UNAVAILABLE, "who you are cannot be found out now")


def return_large_blocks() -> None:
    """Has the C library give each freed block of LARGE_BLOCK_BYTES or more back to the system.

    glibc keeps freed blocks of up to 32 MiB for the next use once there has been one: a gateway kept 33 MiB, more than
    it takes idle, for ever after the first two passwords. Other C libraries give them back anyway.
    """
    import ctypes  # 0.3 MiB, only where passwords are hashed

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


class PasswordWorkers:
    """Runs verifications, quick ones at once and slow ones in threads.

    The loop calls *done* with each result, and *on_free* when a thread is free again: what waits is the core's affair,
    which knows whose turn it is.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Verification, AuthenticationResult], None],
        on_free: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._done = done
        self._on_free = on_free
        self.free = min(THREADS_MAX, os.cpu_count() or 1)
        """Threads that have nothing to do."""
        self._threads: ThreadPoolExecutor | None = None

    def submit(self, verification: Verification) -> None:
        """Run *verification*: before this returns if it is quick, else in a thread."""
        if not verification.is_slow:
            self._done(verification, self._result_of(verification))
            return
        if self._threads is None:
            return_large_blocks()
            self._threads = ThreadPoolExecutor(self.free, "passwords")
        self.free -= 1
        self._threads.submit(self._run_in_thread, verification)

    def stop(self) -> None:
        """Cancel all verifications that have not started."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_in_thread(self, verification: Verification) -> None:
        result = self._result_of(verification) if verification.is_awaited else None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish, verification, result)

    def _finish(self, verification: Verification, result: AuthenticationResult | None) -> None:
        self.free += 1
        if result is not None:
            self._done(verification, result)
        self._on_free()

    def _result_of(self, verification: Verification) -> AuthenticationResult:
        try:
            return verification.run(int(time.time()))
        except Exception as error:  # a library refuses a parameter, or memory is short: the client is refused
            self._loop.call_soon_threadsafe(
                self._loop.call_exception_handler,
                {"message": f"edgebroker: {verification.connection.peer} cannot be verified", "exception": error},
            )
            return FAILED

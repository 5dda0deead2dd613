"""Passwords are checked on worker threads: clients that have left delay nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from edgebridge.frontend.connection import Connection
from edgebridge.frontend.handlers.authentication import Verification
from edgebridge.session.credentials import ANONYMOUS, AuthenticationResult
from edgebridge.session.lifecycle import ConnectionState
from edgebroker.runtime.loop.password_workers import PasswordWorkers


@dataclass
class Slow:
    """A question that waits until it may be answered."""

    may_answer: threading.Event
    answered: list[int] = field(default_factory=list)
    is_slow: bool = True

    def check(self, unix_s: int) -> AuthenticationResult:
        assert self.may_answer.wait(10)
        self.answered.append(unix_s)
        return ANONYMOUS


def asked(number: int, question: Slow) -> Verification:
    connection = Connection(number, "192.0.2.1:1", [], 1_000, 0)
    connection.state = ConnectionState.AUTHENTICATING
    return Verification(connection, cast(Any, question))


def test_who_left_before_it_was_its_turn_is_not_hashed_for() -> None:
    async def story() -> None:
        done: list[int] = []
        last = asyncio.Event()

        def told(verification: Verification, verdict: AuthenticationResult) -> None:
            done.append(verification.connection.number)
            if verification.connection.number == 1_000:
                last.set()

        verifying = PasswordWorkers(asyncio.get_running_loop(), told, lambda: None)
        may_answer = threading.Event()
        question = Slow(may_answer)
        stormed = [asked(number, question) for number in range(100)]
        for verification in stormed:
            verifying.submit(verification)
        for verification in stormed:  # all of them hang up at once
            verification.connection.state = ConnectionState.CLOSED
        verifying.submit(asked(1_000, question))
        may_answer.set()
        await asyncio.wait_for(last.wait(), 10)
        verifying.stop()
        # Two threads had begun with one each; the last is the one that waits.
        assert len(question.answered) <= 3
        assert len(done) == len(question.answered)

    asyncio.run(story())


HASHING = """
import asyncio, hashlib, resource
from types import SimpleNamespace
from edgebroker.runtime.loop.password_workers import PasswordWorkers
from edgebridge.session.passwordhash import Scrypt

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

async def main():
    hash_, left, over = Scrypt.make(b"x", b"y" * 16), [20], asyncio.Event()

    def done(*_):
        left[0] -= 1
        if not left[0]:
            over.set()

    workers = PasswordWorkers(asyncio.get_running_loop(), done, lambda: None)
    verification = SimpleNamespace(is_slow=True, is_awaited=True, run=lambda unix_s: hash_.accepts(b"x"))
    before = resident()
    for _ in range(left[0]):
        workers.submit(verification)
    await over.wait()
    print((resident() - before) >> 20)
    workers.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc")
def test_the_memory_of_hashes_is_given_back() -> None:
    """16 MiB for each of two threads; the first hash, in `make`, is what let glibc keep such blocks."""
    done = subprocess.run([sys.executable, "-c", HASHING], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 16, "MiB more than before"

"""Passwords are checked on worker threads: clients that have left delay nobody."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any, cast

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

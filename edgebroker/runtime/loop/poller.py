"""Waits for all sockets of a gateway, and serves those of clients itself.

For asyncio this is a selector like others. But what is ready for a `Stream` is not reported to the event loop, which
would make a callback of it and run that: it is read, fed and answered here, and then here the next wait begins. So a
message costs one wait, one read and one write, and nothing of the event loop's bookkeeping. Clients come and go without
it too, in steps of one wait each. The loop gets its turn when something else is ready, when a timer of its own is due,
and when it was asked for anything meanwhile (`recall`).
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgebroker.runtime.loop.input_coalescing import InputCoalescer
from edgebroker.runtime.loop.stream import SocketStream

EVENTS_MAX: Final = 256
"""Sockets that are served before what they caused is sent: a few milliseconds' worth."""
READS: Final = select.EPOLLIN
WRITES: Final = select.EPOLLOUT


class Poller:
    """Needs epoll, which Linux has."""

    def __init__(self) -> None:
        self._streams: dict[int, SocketStream] = {}
        self._accepts: dict[int, Callable[[], SocketStream | None]] = {}
        self._came: list[SocketStream] = []
        self._ended: list[SocketStream] = []
        self._is_tending = False  # something is left to be sent
        self._others = selectors.EpollSelector()
        self._others_descriptor = self._others.fileno()
        self._epoll = select.epoll()
        self._epoll.register(self._others_descriptor, READS)
        self._poll = self._epoll.poll
        self._is_recalled = False
        self._now = 0.0  # when the last wait was over
        self.coalescer = InputCoalescer(0)
        """How long it sleeps before it asks, whatever comes: whoever counts packets says that there."""
        self.on_batch_served: Callable[[], None] = lambda: None
        """Called when all has been served that was ready at one time, and when the loop asks for the next wait."""

    def return_to_loop(self) -> None:
        """Return to the event loop before the next wait: it has something to do, or another timer."""
        self._is_recalled = True

    def watch(self, descriptor: int, stream: SocketStream, reading: bool, writing: bool) -> None:
        """Serve *stream* when it can be read or written. Neither: it is forgotten."""
        events = (READS if reading else 0) | (WRITES if writing else 0)
        if not events:  # epoll would go on telling that the peer is gone
            if self._streams.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)
        elif descriptor in self._streams:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
            self._streams[descriptor] = stream

    def listen(self, descriptor: int, accept: Callable[[], SocketStream | None] | None) -> None:
        """Call *accept*, which raises nothing, when somebody dials this listening socket, and open what it returns, if
        anything. None: not any more.
        """
        if accept is not None:
            self._epoll.register(descriptor, READS)
            self._accepts[descriptor] = accept
        elif self._accepts.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            while self._came:  # who closes it may close everything, and has to know of them
                self._came.pop(0).open()

    def end(self, stream: SocketStream) -> None:
        """Call `gone` of *stream* before it is waited for anything, but not now."""
        self._ended.append(stream)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve clients until something else is ready, *timeout* has passed, or `recall` was called."""
        self._is_recalled = False
        left = -1.0 if timeout is None else max(timeout, 0.0)
        until = 0.0 if timeout is None else time.monotonic() + left
        self.on_batch_served()
        if self._is_recalled:
            left = 0.0
        while True:
            is_idle = not (self._is_tending or self._came or self._ended)
            ready = self._wait(left if is_idle else 0.0)
            if self._serve(ready):
                return self._others.select(0)
            if self._is_recalled or (is_idle and not ready):
                return []
            if timeout is not None:
                left = until - time.monotonic()
                if left <= 0.0:
                    return []

    def _wait(self, left: float) -> list[tuple[int, int]]:
        """What is ready within *left* seconds, negative: ever."""
        if self.coalescer.nap_us and left != 0.0:
            began = time.monotonic()
            nap = self.coalescer.nap_us / 1e6
            time.sleep(nap if left < 0.0 else min(nap, left))
            ready = self._poll(0.0, EVENTS_MAX)
            self._now = time.monotonic()
            if ready:
                return ready
            if left > 0.0:
                left = max(left - (self._now - began), 0.0)
        ready = self._poll(left, EVENTS_MAX)
        self._now = time.monotonic()
        return ready

    def _serve(self, ready: list[tuple[int, int]]) -> bool:
        """Whether something is ready that is no client's."""
        is_for_others = False
        newcomers: list[tuple[int, int]] = []
        streams = self._streams
        for descriptor, events in ready:
            stream = streams.get(descriptor)
            if stream is None:
                if descriptor == self._others_descriptor:
                    is_for_others = True
                else:
                    newcomers.append((descriptor, events))
                continue
            if stream.newcomer_turns:
                newcomers.append((descriptor, events))
                continue
            if events & ~READS:
                stream.writable()
            if events & ~WRITES:
                stream.readable()
        self.on_batch_served()
        self._is_tending = False
        if newcomers or self._came or self._ended:
            self._tend(newcomers)
        return is_for_others

    def _tend(self, newcomers: list[tuple[int, int]]) -> None:
        """Let go who is gone, hear the first words of who is new, and let in who dials.

        Each of these takes as long as ten messages or more, which would wait for it. So it is done in steps, one at
        least, and for no longer than the others took; then it is seen what else came.
        """
        self._is_tending = True
        until = 2.0 * time.monotonic() - self._now
        while self._ended:
            self._ended.pop(0).gone()
            if time.monotonic() >= until:
                return
        while self._came:
            self._came.pop(0).open()
            if time.monotonic() >= until:
                return
        for descriptor, events in newcomers:
            stream = self._streams.get(descriptor)
            if stream is not None:
                stream.newcomer_turns -= 1
                if events & ~READS:
                    stream.writable()
                if events & ~WRITES:
                    stream.readable()
                if time.monotonic() >= until:
                    return
        knocking = {descriptor for descriptor, _ in newcomers}
        doors = [descriptor for descriptor in self._accepts if descriptor in knocking]
        while doors:
            descriptor = doors.pop(0)
            accept = self._accepts.pop(descriptor, None)
            if accept is None:
                continue
            self._accepts[descriptor] = accept  # to the end: a storm at one door leaves the others their turn
            stream = accept()
            if stream is not None:
                self._came.append(stream)
                doors.append(descriptor)
            if time.monotonic() >= until:
                return

    # -- a selector ---------------------------------------------------------------------------------------------

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._others.get_map()

    def close(self) -> None:
        self._epoll.close()
        self._others.close()

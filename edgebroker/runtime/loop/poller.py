"""Polls all sockets of a gateway with epoll, and reads and writes those of clients itself.

To asyncio this is a selector like any other. asyncio would make a callback for every ready socket and run it later; a
`SocketStream` that is ready is read, processed and answered inside `select`, which then polls again. So a message that
arrives alone costs three system calls (epoll_wait, recv, send) and no callback of the event loop. Clients are accepted
and disconnected in `select` too. `select` returns to asyncio when a socket of asyncio's own is ready, when a timer is
due, and after `return_to_loop`.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable, Mapping
from time import monotonic, sleep
from typing import Any, Final

from edgebroker.runtime.loop.input_coalescing import InputCoalescer
from edgebroker.runtime.loop.stream import SocketStream

EVENTS_MAX: Final = 85
"""Ready sockets that are served before their output is sent: a millisecond of work. Python allocates the array of
events for each poll: one of 85 takes 1,020 bytes, which glibc caches; one of 256 takes 350 instructions more."""
READS: Final = select.EPOLLIN
WRITES: Final = select.EPOLLOUT


class Poller:
    """A selector for asyncio that serves `SocketStream`s by itself. It needs epoll, which only Linux has."""

    def __init__(self) -> None:
        self._streams: dict[int, SocketStream] = {}
        self._accepts: dict[int, Callable[[], SocketStream | None]] = {}
        self._accepted: list[SocketStream] = []  # not opened yet
        self._closed: list[SocketStream] = []  # their protocols have not been notified yet
        self._has_backlog = False  # connection changes may be left over from the last poll
        self._selector = selectors.EpollSelector()  # asyncio's own sockets
        self._selector_descriptor = self._selector.fileno()
        self._epoll = select.epoll()
        self._epoll.register(self._selector_descriptor, READS)
        self._poll = self._epoll.poll
        self._must_return = False
        self._polled_at = 0.0  # the end of the last poll, in seconds on the monotonic clock
        self.coalescer = InputCoalescer(0)
        """Decides how long to sleep before a poll. Its user reports the packets of each turn to it."""
        self.on_batch_served: Callable[[], None] = lambda: None
        """Called when all sockets of one poll have been served, and when asyncio calls `select`."""

    def return_to_loop(self) -> None:
        """Make `select` return before its next poll: asyncio has a callback to run, or a new timer."""
        self._must_return = True

    def watch(self, descriptor: int, stream: SocketStream, reading: bool, writing: bool) -> None:
        """Call `readable` and `writable` of *stream* when its socket is ready. With neither flag it is forgotten."""
        events = (READS if reading else 0) | (WRITES if writing else 0)
        if not events:  # epoll would go on to report that the peer has closed
            if self._streams.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)
        elif descriptor in self._streams:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
            self._streams[descriptor] = stream

    def listen(self, descriptor: int, accept: Callable[[], SocketStream | None] | None) -> None:
        """Call *accept*, which raises nothing, when a client connects to this listening socket, and open the stream
        that it returns, if any. None: stop listening.
        """
        if accept is not None:
            self._epoll.register(descriptor, READS)
            self._accepts[descriptor] = accept
        elif self._accepts.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)
            while self._accepted:  # the caller may be about to close every connection that it knows of
                self._accepted.pop(0).open()

    def schedule_close(self, stream: SocketStream) -> None:
        """Call `finish_close` of *stream* before the next sleep, but not now."""
        self._closed.append(stream)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve clients until a socket of asyncio's is ready, *timeout* seconds are over, or after `return_to_loop`."""
        self._must_return = False
        left = -1.0 if timeout is None else max(timeout, 0.0)
        until = 0.0 if timeout is None else monotonic() + left
        self.on_batch_served()
        if self._must_return:
            left = 0.0
        while True:
            is_idle = not (self._has_backlog or self._accepted or self._closed)
            ready = self._wait(left if is_idle else 0.0)
            if self._serve(ready):
                return self._selector.select(0)
            if self._must_return or (is_idle and not ready):
                return []
            if timeout is not None:
                left = until - monotonic()
                if left <= 0.0:
                    return []

    def _wait(self, left: float) -> list[tuple[int, int]]:
        """(descriptor, events) of every socket that is ready within *left* seconds; negative: without a limit."""
        if self.coalescer.delay_us and left != 0.0:
            began = monotonic()
            delay = self.coalescer.delay_us / 1e6
            sleep(delay if left < 0.0 else min(delay, left))
            ready = self._poll(0.0, EVENTS_MAX)
            self._polled_at = monotonic()
            if ready:
                return ready
            if left > 0.0:
                left = max(left - (self._polled_at - began), 0.0)
        ready = self._poll(left, EVENTS_MAX)
        self._polled_at = monotonic()
        return ready

    def _serve(self, ready: list[tuple[int, int]]) -> bool:
        """Serve clients that are connected, then connection changes. Returns whether a socket of asyncio's is ready."""
        is_for_asyncio = False
        deferred: list[tuple[int, int]] = []
        streams = self._streams
        for descriptor, events in ready:
            stream = streams.get(descriptor)
            if stream is None:
                if descriptor == self._selector_descriptor:
                    is_for_asyncio = True
                else:
                    deferred.append((descriptor, events))
                continue
            if stream.handshake_turns:
                deferred.append((descriptor, events))
                continue
            if events & ~READS:
                stream.writable()
            if events & ~WRITES:
                stream.readable()
        self.on_batch_served()
        self._has_backlog = False
        if deferred or self._accepted or self._closed:
            self._serve_connection_changes(deferred)
        return is_for_asyncio

    def _serve_connection_changes(self, deferred: list[tuple[int, int]]) -> None:
        """Finish closed connections, open accepted ones, read handshakes, and accept new connections.

        Each of these takes as long as ten messages or more, which would have to wait. So at least one is done, and no
        more than fit into the time that the other clients took; then the sockets are polled again.
        """
        self._has_backlog = True
        until = 2.0 * monotonic() - self._polled_at
        while self._closed:
            self._closed.pop(0).finish_close()
            if monotonic() >= until:
                return
        while self._accepted:
            self._accepted.pop(0).open()
            if monotonic() >= until:
                return
        for descriptor, events in deferred:
            stream = self._streams.get(descriptor)
            if stream is not None:
                stream.handshake_turns -= 1
                if events & ~READS:
                    stream.writable()
                if events & ~WRITES:
                    stream.readable()
                if monotonic() >= until:
                    return
        pending = {descriptor for descriptor, _ in deferred}
        listening = [descriptor for descriptor in self._accepts if descriptor in pending]
        while listening:
            descriptor = listening.pop(0)
            accept = self._accepts.pop(descriptor, None)
            if accept is None:
                continue
            self._accepts[descriptor] = accept  # to the end: many connections to one socket do not starve the others
            stream = accept()
            if stream is not None:
                self._accepted.append(stream)
                listening.append(descriptor)
            if monotonic() >= until:
                return

    # -- the interface of `selectors.BaseSelector`, for asyncio's own sockets -----------------------------------------

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._selector.get_map()

    def close(self) -> None:
        self._epoll.close()
        self._selector.close()

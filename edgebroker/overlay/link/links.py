"""All links of a gateway, and the door for connections that come in: nobody knows whose they are before the hello."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from edgebroker.instants import Instant

from .hello import Hello, HelloRefused
from .identity import Identity
from .link import Link
from .stream import Stream


class Links:
    """The links of the gateway *identity*: one to each of its peers, else ValueError."""

    def __init__(self, identity: Identity, links: Iterable[Link]) -> None:
        self.identity = identity
        self.strangers = 0
        """Connections refused of whom there is no link to."""
        self._links = {link.peer: link for link in links}
        if self._links.keys() != identity.peers.keys():
            raise ValueError(f"links to {sorted(self._links)}, peers {sorted(identity.peers)}")

    def __getitem__(self, peer: str) -> Link:
        return self._links[peer]

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def is_tight(self, size: int) -> bool:
        """Whether some outbox has no room for a local client's event of *size* bytes."""
        for link in self._links.values():  # noqa: SIM110 a generator takes longer, and every event is asked about
            if not link.outbox.has_room(size):
                return True
        return False

    def accepted(self, now: Instant, certified: str | None = None) -> Stream:
        """A connection came in; *certified* is the name in the peer's certificate, if it showed one."""
        return Stream(partial(self._greet, certified), None, now)

    def _greet(self, certified: str | None, stream: Stream, hello: Hello, now: Instant) -> Link:
        link = self._links.get(hello.name)
        if link is None:
            self.strangers += 1
            self.identity.judge(hello, certified)
            raise AssertionError("the identity names a peer without a link")
        stream.certified = certified
        try:
            self.identity.judge(hello, certified)
            link.offered(stream, hello, now)
        except HelloRefused as refused:
            link.refused(refused)
            raise
        return link

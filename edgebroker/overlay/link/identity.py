"""Who a gateway is for its peers, and whether a peer that says hello is the one that was meant."""

from __future__ import annotations

from collections.abc import Mapping

from edgebroker.dataclasses import dataclass

from .hello import Hello, HelloRefused, Refusal


@dataclass(frozen=True, slots=True)
class Identity:
    """What one gateway knows of itself and of its peers, as `Hello` says it."""

    federation: str
    name: str
    number: int
    topology: Mapping[str, bytes]
    peers: Mapping[str, int]
    """Name -> number of every gateway there is a link to."""
    run: bytes
    store: bytes

    def judge(self, hello: Hello, certified: str | None = None) -> None:
        """Whether *hello* may be taken; *certified* is the name in the peer's certificate, if it showed one.

        Raises HelloRefused, which names the difference.
        """
        if hello.federation != self.federation:
            raise HelloRefused(
                Refusal.FEDERATION, f"{hello.name} belongs to federation {hello.federation!r}, not {self.federation!r}"
            )
        if hello.to != self.name:
            raise HelloRefused(Refusal.MISDIRECTED, f"{hello.name} wants {hello.to!r}, and this is {self.name!r}")
        if hello.name not in self.peers:
            raise HelloRefused(Refusal.UNKNOWN, f"{self.name} has no link to a gateway {hello.name!r}")
        if hello.number != self.peers[hello.name]:
            raise HelloRefused(
                Refusal.UNKNOWN,
                f"{hello.name} has number {hello.number}, and {self.peers[hello.name]} in the topology of {self.name}",
            )
        if certified is not None and certified != hello.name:
            raise HelloRefused(Refusal.UNPROVEN, f"the certificate of {certified!r} does not prove {hello.name!r}")
        sections = sorted({*self.topology, *hello.topology})
        differing = [name for name in sections if self.topology.get(name) != hello.topology.get(name)]
        if differing:
            raise HelloRefused(
                Refusal.TOPOLOGY, f"the topologies of {self.name} and {hello.name} differ in {', '.join(differing)}"
            )

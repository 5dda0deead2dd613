"""Writes a draft of a topology as a TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from edgebroker.names import Address, ClientAddress
from edgebroker.overlay.topology.draft import DraftGateway, DraftLink, Site, TopologyDraft
from edgebroker.overlay.topology.topology import Topology


def toml_text(draft: TopologyDraft) -> str:
    """Returns the whole file, with instructions in comments."""
    return "\n".join(_lines(draft)) + "\n"


def _lines(draft: TopologyDraft) -> Iterator[str]:
    topology = Topology(draft)
    i_links = max(len(gateway.positions) * (len(topology.sites) - 1) for gateway in topology.gateways)
    peers = max(len(gateway.peers()) for gateway in topology.gateways)
    yield "# The same file lies on every gateway of the federation; docs/topology.md explains every key."
    longest = topology.scot.diameter
    yield f"# No way is longer than {longest} links; no gateway has more than {peers} connections and {i_links} iLinks."
    yield "# Write the addresses at which gateways reach each other, where names are not enough, and then run:"
    yield "#     edgebroker topology check FILE"
    yield from _table("[federation]", {"name": draft.federation})
    yield from _table("[factor]", {"tree": draft.tree})
    for site in draft.sites:
        yield from _table("[[site]]", _site(site))
    for gateway in draft.gateways:
        yield from _table("[[gateway]]", _gateway(gateway))
    for link in draft.links:
        yield from _table("[[link]]", _link(link))


def _site(site: Site) -> dict[str, object]:
    return {"name": site.name, "index": site.index, "uplink": site.uplink.kind}


def _gateway(gateway: DraftGateway) -> dict[str, object]:
    return {
        "name": gateway.name,
        "number": gateway.number,
        "site": gateway.site,
        "positions": gateway.positions,
        **_addresses(gateway.address),
        **_addresses(gateway.clients, "clients"),
    }


def _link(link: DraftLink) -> dict[str, object]:
    return {"between": link.between, "dials": link.dials, **_addresses(link.address)}


def _addresses(addresses: Sequence[Address | ClientAddress], key: str = "address") -> dict[str, object]:
    """Returns one address as it is, several as a list."""
    texts = [str(address) for address in addresses]
    return {key: texts[0] if len(texts) == 1 else texts} if texts else {}


def _table(header: str, values: dict[str, object]) -> Iterable[str]:
    """Yields a table; strings, numbers and lists of strings have the same form in JSON and TOML."""
    yield ""
    yield header
    for key, value in values.items():
        yield f"{key} = {json.dumps(value, ensure_ascii=False)}"

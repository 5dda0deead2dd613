"""`edgebroker experiment lbdd`: sends a file to eleven subscribers, one by one and with their help.

Source: [LBDD], a test bed of twelve PCs, and simulations of groups with 100 to 500 members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Final

import click

from edgebroker.cli.parameters import examples
from edgebroker.dataclasses import dataclass
from edgebroker.dissemination.group_view import GROUP_MEMBERS_MIN, LEAF_CAPACITY, group_view, view_member
from edgebroker.dissemination.messages import SLICE_BYTES, StreamSlice, encode_message
from edgebroker.dissemination.slice_hashes import HASH_BYTES
from edgebroker.dissemination.stream_source import content_of
from edgebroker.dissemination.tree import DisseminationTree
from edgebroker.instants import SECOND
from edgelab.experiment.lbdd_netns import StarNetwork
from edgelab.experiment.lbdd_world import GroupNetwork, LinkModel
from edgelab.experiment.report import ChartLine, ExperimentFigure, StatusLine, line_chart, report, write_chart

RATE: Final = 97e6
"""Bits per second that a link of 100 Mbit/s carries net. The published test bed is called Gigabit; its times are those
of Fast Ethernet."""
FILE_BYTES: Final = 8 << 30
FILE_SLICES: Final = FILE_BYTES // SLICE_BYTES
PROOF: Final = bytes(HASH_BYTES * (FILE_SLICES - 1).bit_length())
SLICE_ON_WIRE: Final = len(encode_message(StreamSlice(1 << 63, FILE_SLICES, 1 << 63, PROOF, bytes(SLICE_BYTES))))
"""Bytes of a SLICE of this file: 65,536 and 567 of its header and proof."""
STAND_IN: Final = 16
"""Bytes that stand in for a slice, so that a run hashes little. The time on the links is that of SLICE_ON_WIRE."""

PREFIX: Final = "10.3.17."
PUBLISHER: Final = f"{PREFIX}74"
SUBSCRIBERS: Final = tuple(f"{PREFIX}{last}" for last in (68, 234, 90, 98, 64, 184, 61, 72, 44, 88, 97))
"""In the order in which they are added. Within a bucket the order does not matter."""
PUBLISHED_TREE: Final[Mapping[int, tuple[int, ...]]] = {
    74: (98, 64), 98: (184,), 64: (61,), 184: (68, 234, 90), 61: (72, 44, 88, 97)
}  # fmt: skip
PUBLISHED_LOADS: Final = (100, 100, 100, 33, 100, 67, 100, 100, 67, 67, 50)
"""Percent of the publisher's uplink with 1 to 11 subscribers: its children / the most children of a node."""
GROUP_SIZES: Final = (100, 200, 300, 400, 500)
USUAL_DEPTHS: Final = range(5, 12)
GROUPS: Final = 200
SLICES: Final = 600


@dataclass(frozen=True, slots=True)
class TransferScheme:
    """How a file is sent."""

    fan_out: int = 0
    """The cap F of the tree; 0: none, as published."""
    is_tree: bool = True
    """Otherwise the publisher serves all subscribers itself."""
    paced: float = 1.0
    """The part of its uplink that the publisher uses."""


SCHEMES: Final[Mapping[str, TransferScheme]] = {
    "point-to-point": TransferScheme(is_tree=False),
    "LBDD": TransferScheme(),
    "F = 3": TransferScheme(3),
    "F = 2": TransferScheme(2),
    "F = 2, paced": TransferScheme(2, paced=0.7),
}
CHARTED: Final = ("point-to-point", "LBDD", "F = 2")
"""Schemes that are run with 1 to 11 subscribers, the others with 11."""


@dataclass(frozen=True, slots=True)
class TransferOutcome:
    """A file has been sent."""

    seconds: float
    """Until the last subscriber has all of it; the whole file, extrapolated."""
    copies: float
    """Copies of each slice, sent by anybody."""
    published: float
    """Copies of each slice that the publisher sent."""
    load: float
    """The part of the time in which the publisher's uplink was busy."""
    off: float
    """How far a third run is from the line through two, as a part of its time."""


def run_transfer(scheme: TransferScheme, subscribers: Sequence[str], slices: int) -> tuple[GroupNetwork, float]:
    """Send *slices* slices to *subscribers*. Returns the network, and the seconds until all have them."""
    network = network_of(subscribers, scheme)
    capacity = 1 if scheme.is_tree else LEAF_CAPACITY
    view = group_view("g", 1, [view_member(node, capacity=capacity) for node in subscribers], scheme.fan_out)
    network.set_view(view)
    network.publish(PUBLISHER, 1, view, content_of(bytes(slices * STAND_IN), STAND_IN))
    done = network.run_until(lambda: len(network.finished) > len(subscribers), 1e12)
    assert done, "the transfer does not end"
    return network, max(network.finished[node, 1] for node in subscribers) / SECOND


def network_of(subscribers: Sequence[str], scheme: TransferScheme) -> GroupNetwork:
    """Return the publisher and *subscribers*, each with a link of its own."""
    network = GroupNetwork([PUBLISHER, *subscribers], LinkModel(RATE, lambda message: SLICE_ON_WIRE))
    network.links.rates[PUBLISHER] = RATE * scheme.paced
    return network


def transfer(scheme: TransferScheme, subscribers: Sequence[str], slices: int) -> TransferOutcome:
    """Send the first *slices* slices of the file, and half as many, and extrapolate to all of it."""
    network, seconds = run_transfer(scheme, subscribers, slices)
    whole, off = seconds, 0.0
    if slices < FILE_SLICES:
        half, quarter = max(1, slices // 2), max(1, slices // 4)
        slope = (seconds - run_transfer(scheme, subscribers, half)[1]) / (slices - half)
        off = abs(seconds - (slices - quarter) * slope - run_transfer(scheme, subscribers, quarter)[1]) / seconds
        whole = seconds + (FILE_SLICES - slices) * slope
    copies = sum(network.copies.values()) / slices
    published = network.copies[PUBLISHER] / slices
    load = published * FILE_SLICES * SLICE_ON_WIRE * 8 / RATE / whole
    return TransferOutcome(whole, copies, published, load, off)


def recovery(slices: int) -> tuple[float, int]:
    """End an inner node in the middle of a transfer, with heartbeats. Returns the longest silence at a live subscriber
    in seconds, and the slices that one of them lacks.
    """
    scheme, victim = TransferScheme(), f"{PREFIX}61"
    network = network_of(SUBSCRIBERS, scheme)
    network.found_group("g", SUBSCRIBERS, scheme.fan_out)
    network.run(5 * SECOND)
    view = network.memberships["g"].view
    network.publish(PUBLISHER, 1, view, content_of(bytes(slices * STAND_IN), STAND_IN))
    network.run(network.now + slices * SLICE_ON_WIRE * 8 / RATE * SECOND * 2)
    network.kill(victim)
    live = [node for node in SUBSCRIBERS if node != victim]
    network.run_until(lambda: all((node, 1) in network.finished for node in live), network.now + 600 * SECOND)
    lost = sum(slices - len(network.delivered.get((node, 1), ())) for node in live)
    return max(network.silences[node, 1] for node in live) / SECOND, lost


# -- large groups ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The trees of random groups of one size."""

    depth: float
    """The mean of the greatest depths."""
    shallowest: int
    deepest: int
    usual: float
    """The part of the groups whose depth is in USUAL_DEPTHS."""
    copies: float
    """The mean number of copies that the publisher sends."""
    degree: float
    """The mean of the most children of a node."""


def expected_depth(members: int) -> float:
    """Return D(N): how many of the 32 buckets are not empty, on average."""
    return sum(1 - (1 - 2.0 ** (bucket - 33)) ** members for bucket in range(1, 33))


def shape(members: int, groups: int, fan_out: int = 0) -> GroupShape:
    """Return the shape of trees over random IPv4 addresses."""
    depths, copies, degrees = [], [], []
    for group in range(groups):
        chance = Random(f"{members} {group}")
        nodes: dict[str, None] = {}
        while len(nodes) <= members:
            nodes[".".join(str(chance.randrange(256)) for _ in range(4))] = None
        source, *others = nodes
        tree = DisseminationTree(source, map(view_member, others), fan_out)
        depth = {source: 0}
        children: dict[str, int] = {}
        for parent, child in tree.edges():
            depth[child] = depth[parent] + 1
            children[parent] = children.get(parent, 0) + 1
        depths.append(max(depth.values()))
        copies.append(children[source])
        degrees.append(max(children.values()))
    usual = sum(depth in USUAL_DEPTHS for depth in depths) / groups
    return GroupShape(fmean(depths), min(depths), max(depths), usual, fmean(copies), fmean(degrees))


# -- findings ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LbddResults:
    """The outcomes of all runs."""

    transfers: Mapping[tuple[str, int], TransferOutcome]
    """Scheme and number of subscribers -> outcome."""
    shapes: Mapping[int, GroupShape]
    single: Mapping[int, float]
    """Number of subscribers -> time of a single slice to the last of them, the tree / point-to-point."""
    silence: float
    lost: int


SECONDS: Final = "{:,.0f} s"
PERCENT: Final = "{:.1%}"
WHOLE: Final = "{:.0%}"
PLAIN: Final = "{:,.2f}"
COUNT: Final = "{:,.0f}"
ALL: Final = len(SUBSCRIBERS)

Figure = ExperimentFigure


def findings(results: LbddResults) -> list[ExperimentFigure]:
    """Return what is compared with the source."""
    direct, tree = results.transfers["point-to-point", ALL], results.transfers["LBDD", ALL]
    rate = FILE_BYTES * 8 / tree.seconds / 1e6
    off = max(outcome.off for outcome in results.transfers.values())
    copies = [abs(outcome.copies - number) for (_, number), outcome in results.transfers.items()]
    found = [
        Figure("tree of the test bed, edges as published", "11", edges_as_published(), COUNT, 11, 11),
        Figure("11 subscribers, point-to-point", "7,810 s", direct.seconds, SECONDS, 7_793 * 0.98, 7_793 * 1.02),
        Figure("  LBDD", "3,020 s", tree.seconds, SECONDS, 2_834, 3_470),
        Figure("  point-to-point / LBDD", "2.59", direct.seconds / tree.seconds, PLAIN, 2.3),
        Figure("  Mbit/s per subscriber", "about 24", rate, "{:.1f}", 24.2 * 0.95, 24.2 * 1.05),
        Figure("copies of a slice, off the number of subscribers", "0", max(copies), COUNT, 0, 0),
        Figure("a shorter run is off the line by", "", off, "{:.2%}", high=0.005),
    ]
    for number, expected in enumerate(PUBLISHED_LOADS, 1):
        load = results.transfers["LBDD", number].load
        low, high = expected / 100 - 0.02, expected / 100 + 0.02
        found.append(Figure(f"publisher's load, {number} subscribers", "< 70 %", load, WHOLE, low, high))
    for members, each in results.shapes.items():
        expected_mean = expected_depth(members)
        low, high = expected_mean - 0.35, expected_mean + 0.35
        found.append(Figure(f"depth, {members} subscribers, mean", "5 to 9", each.depth, PLAIN, low, high))
        found.append(Figure("  the publisher's copies, mean", "", each.copies, PLAIN, 1.2, 1.7))
        found.append(Figure("  its contribution", "falls", each.copies / members, "{:.2%}", high=0.02))
    shallowest = min(each.shallowest for each in results.shapes.values())
    deepest = max(each.deepest for each in results.shapes.values())
    usual = fmean(each.usual for each in results.shapes.values())
    found += [
        Figure("single groups with a depth of 5 to 11", "mostly", usual, PERCENT, 0.9),
        Figure("  the least depth", "5", shallowest, COUNT),
        Figure("  the greatest", "9", deepest, COUNT),
    ]
    return found


def edges_as_published() -> int:
    """Return how many of the published edges the tree of the test bed has, less those that were not published."""
    expected = {(f"{PREFIX}{a}", f"{PREFIX}{b}") for a, each in PUBLISHED_TREE.items() for b in each}
    found = {*DisseminationTree(PUBLISHER, map(view_member, SUBSCRIBERS), 0).edges()}
    return len(expected & found) - len(found - expected)


def beyond(results: LbddResults) -> list[ExperimentFigure]:
    """Return what a product should reach on top."""
    transfers = results.transfers
    most = max(transfers["F = 2", number].published for number in range(1, ALL + 1))
    paced = transfers["F = 2, paced", ALL].seconds
    small = [ratio for number, ratio in results.single.items() if number <= GROUP_MEMBERS_MIN]
    return [
        Figure("F = 2", "3,020 s", transfers["F = 2", ALL].seconds, SECONDS, high=1_600),
        Figure("  publisher's copies, at most, 1 to 11 subscribers", "", most, COUNT, high=2),
        Figure("  with 70 % of the publisher's uplink", "3,020 s", paced, SECONDS, high=2_200),
        Figure("F = 3", "3,020 s", transfers["F = 3", ALL].seconds, SECONDS, high=2_300),
        Figure("silence after an inner node died, s", "", results.silence, PLAIN, high=3.1),
        Figure("  slices lost", "", results.lost, COUNT, 0, 0),
        Figure("one slice, up to 6: tree / point-to-point, worst", "about 1", max(small), PLAIN),
        Figure("  with 11", "", results.single[ALL], PLAIN),
    ]  # fmt: skip


def measured(slices: int, groups: int) -> LbddResults:
    """Run everything."""
    with StatusLine() as progress:
        transfers = {}
        for name, number in runs():
            progress.show(f"{name}, {number} subscribers")
            length = slices if number == ALL else min(slices, SLICES)
            transfers[name, number] = transfer(SCHEMES[name], SUBSCRIBERS[:number], length)
        single = {}
        for number in range(1, ALL + 1):
            tree, direct = (run_transfer(SCHEMES[name], SUBSCRIBERS[:number], 1)[1] for name in ("LBDD", CHARTED[0]))
            single[number] = tree / direct
        progress.show("an inner node dies")
        silence, lost = recovery(min(slices, SLICES))
        shapes = {}
        for members in GROUP_SIZES:
            progress.show(f"{groups} groups of {members}")
            shapes[members] = shape(members, groups)
    return LbddResults(transfers, shapes, single, silence, lost)


def runs() -> Iterator[tuple[str, int]]:
    """Yield schemes and numbers of subscribers."""
    for name in SCHEMES:
        for number in range(1, ALL + 1) if name in CHARTED else (ALL,):
            yield name, number


# -- real links --------------------------------------------------------------------------------------------------------


def on_real_links(megabits: float, mebibytes: int) -> dict[str, tuple[float, float]]:
    """Send a file between processes in network namespaces. Returns for each scheme of CHARTED the seconds, and the
    bytes that the publisher sent, with all headers, as copies of the file.
    """
    size = mebibytes << 20
    found = {}
    with StatusLine() as progress, StarNetwork([PUBLISHER, *SUBSCRIBERS], megabits) as network:
        for name in CHARTED:
            progress.show(f"{mebibytes} MiB over links of {megabits:g} Mbit/s: {name}")
            scheme, before = SCHEMES[name], network.sent(PUBLISHER)
            capacity = 1 if scheme.is_tree else LEAF_CAPACITY
            seconds = network.transfer(PUBLISHER, SUBSCRIBERS, scheme.fan_out, capacity, size)
            found[name] = seconds, (network.sent(PUBLISHER) - before) / size
    return found


def real_findings(found: Mapping[str, tuple[float, float]]) -> list[ExperimentFigure]:
    """Return what real links have to show."""
    direct = found["point-to-point"][0]
    figures = [Figure("point-to-point", "", direct, "{:,.1f} s")]
    for name, least in (("LBDD", 2.3), ("F = 2", 4.0)):
        seconds, copies = found[name]
        figures += [
            Figure(name, "", seconds, "{:,.1f} s"),
            Figure("  point-to-point / that", "2.59", direct / seconds, PLAIN, least),
            Figure("  the publisher's copies", "", copies, PLAIN, high=2.2),
        ]
    return figures


# -- the command -------------------------------------------------------------------------------------------------------

COLOURS: Final = {"point-to-point": "#555555", "LBDD": "#28549a", "F = 2": "#c2410c"}


@click.command(
    name="lbdd",
    short_help="A file for many, sent with the receivers' help.",
    epilog=examples("edgebroker experiment lbdd --svg times.svg --depth-svg depths.svg"),
)
@click.option(
    "--slices",
    type=click.IntRange(8, FILE_SLICES),
    default=SLICES,
    show_default=True,
    help=f"Slices of the {FILE_SLICES:,} that are sent; times of the whole file are extrapolated.",
)
@click.option(
    "--groups", type=click.IntRange(1, 10_000), default=GROUPS, show_default=True, help="Random groups of each size."
)
@click.option("--netns", is_flag=True, help="Send a file between processes in network namespaces instead; needs root.")
@click.option(
    "--mbit",
    type=click.FloatRange(1, 1_000),
    default=100,
    show_default=True,
    help="With --netns: the rate of the links.",
)
@click.option(
    "--mib", type=click.IntRange(1, 1_024), default=32, show_default=True, help="With --netns: the size of the file."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the times into this file.")
@click.option("--depth-svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw the depths into this file.")
def command(
    slices: int,
    groups: int,
    netns: bool,
    mbit: float,
    mib: int,
    as_json: bool,
    svg: Path | None,
    depth_svg: Path | None,
) -> None:
    """Send 8 GiB to 11 subscribers, point-to-point and with their help, and compare with what was published.

    The nodes are those of the product, on virtual time. Ends with exit code 1 if the outcome is not the published one.
    """
    if netns:
        head = f"a file of {mib} MiB for 11 subscribers, processes with links of {mbit:g} Mbit/s"
        report(head, {"mbit": mbit, "mib": mib}, real_findings(on_real_links(mbit, mib)), [], as_json)
        return
    results = measured(slices, groups)
    write_chart(svg, drawn_times(results))
    write_chart(depth_svg, drawn_depths(results))
    scale = "all slices" if slices == FILE_SLICES else f"{slices:,} of {FILE_SLICES:,} slices, extrapolated"
    head = f"a file of 8 GiB for 11 subscribers: {scale}; {groups} random groups of each size"
    about = {"slices": slices, "groups": groups, "transfers": transfers_of(results)}
    report(head, about, findings(results), beyond(results), as_json)


def transfers_of(results: LbddResults) -> list[dict[str, object]]:
    """Return all transfers as JSON objects."""
    return [
        {
            "scheme": name,
            "subscribers": number,
            "seconds": round(outcome.seconds, 1),
            "copies": outcome.copies,
            "publisher_copies": outcome.published,
            "publisher_load": round(outcome.load, 4),
        }
        for (name, number), outcome in results.transfers.items()
    ]


def drawn_times(results: LbddResults) -> str:
    """Return a chart of the times over the number of subscribers; rings are the published ones."""
    rings = {"point-to-point": {11.0: 7_810.0}, "LBDD": {11.0: 3_020.0}}
    lines = [
        ChartLine(
            name,
            {number: results.transfers[name, number].seconds for number in range(1, ALL + 1)},
            COLOURS[name],
            rings.get(name, {}),
        )
        for name in CHARTED
    ]
    return line_chart("Until all subscribers have the file", "8 GiB, 97 Mbit/s", "subscribers", "seconds", lines)


def drawn_depths(results: LbddResults) -> str:
    """Return a chart of the depths over the size of the group; rings are the expected ones."""
    rings = {float(members): expected_depth(members) for members in results.shapes}
    lines = [
        ChartLine("depth", {members: each.depth for members, each in results.shapes.items()}, "#28549a", rings),
        ChartLine("children", {members: each.degree for members, each in results.shapes.items()}, "#15803d"),
    ]
    return line_chart("Depth, and most children of a node", "means; rings: D(N)", "members", "links, children", lines)

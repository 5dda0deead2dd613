"""`edgebroker demo`: runs one gateway or a federation of them on this machine, with devices, subscribers and audits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from edgebroker.cli import Refused
from edgebroker.cli.client_options import run
from edgebroker.errors import EdgebrokerError
from edgelab.demo.federation.board import Board, board
from edgelab.demo.federation.gateway_process import clear as clear_sites
from edgelab.demo.federation.kernel import has_netem, is_demo, names, require
from edgelab.demo.federation.layout import SITES, Layout
from edgelab.demo.federation.namespaces import left_over, namespace
from edgelab.demo.federation.network import FederationNetwork
from edgelab.demo.federation.play import FederationPlan as SitesPlan
from edgelab.demo.federation.play import FederationPlay as SitesPlay
from edgelab.demo.federation.relays import RelayNetwork
from edgelab.demo.play import DemoPlan, DemoPlay, clear
from edgelab.demo.subscriber_specs import SUBSCRIBER_SPECS
from edgelab.demo.view import DemoView, view_for

__all__ = ["command"]

EXIT_FAILED: Final = 1
NEEDED: Final = {"paho": "sim", "psutil": "sim", "pyspark": "analytics", "pyarrow": "analytics"}
NEEDED_BY_SITES: Final = {"paho": "sim"}
"""Package -> the extra that installs it."""
SECONDS: Final = 20.0
SITES_SECONDS: Final = 30.0
NETNS_SECONDS: Final = 40.0


@click.command("demo", short_help="Gateways, devices, subscribers and audits, in one go.")
@click.option("--sites", type=click.IntRange(1, len(SITES)), default=1, show_default=True, help="How many sites.")
@click.option(
    "--gateways", type=click.IntRange(1, 5), default=1, show_default=True, help="How many gateways each site has."
)
@click.option(
    "--netns",
    is_flag=True,
    help="Join sites by the kernel's own network, each gateway in a namespace: Linux, as root.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 3_600),
    help="How long to publish.  [default: 20; with several sites 30, with --netns 40]",
)
@click.option("--devices", type=click.IntRange(1, 1_000), default=40, show_default=True, help="Simulated devices.")
@click.option(
    "--rate", type=click.FloatRange(0.1, 100), default=5.0, show_default=True, help="Messages per second and device."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Same seed, same messages of the devices.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Where logs and the report go; an earlier demo's files in it are replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON object at the end.")
def command(
    sites: int,
    gateways: int,
    netns: bool,
    seconds: float | None,
    devices: int,
    rate: float,
    seed: int,
    folder: Path,
    as_json: bool,
) -> None:
    """Run gateways with devices and subscribers, stop them, and account for every message.

    With one gateway two audits must agree: one compares what the devices noted with what the subscribers received and
    asks the broker nothing; the other is the Spark report on the broker's delivery log.

    \b
    edgebroker demo --sites 3 --gateways 3

    joins nine gateways over uplinks of 10 ms. While devices publish, an uplink is squeezed and a gateway is killed with
    SIGKILL and started again. The audit holds what devices and subscribers say, and all delivery logs, against each
    other, and compares what crossed the uplinks with what bridges by topic would have sent.

    With --netns each gateway stands in a network namespace of its own, uplinks are made, delayed and squeezed by the
    kernel (ip, tc), one of them is cut as well, and the kernel's counters are held against what gateways say. All of it
    is removed at the end; nothing else of the machine's network is touched.

    Exit code: 0 if there is no loss, duplicate or wrong delivery; 1 otherwise; 2 if the demo cannot run here.
    """  # noqa: D301 - click reads \b, the character: keep the lines below it as they are
    if sites == 1 and gateways > 1:
        raise click.UsageError("--gateways is for each of several sites: give --sites 2 or more too")
    if sites == 1 and netns:
        raise click.UsageError("--netns joins several sites: give --sites 2 or more too")
    needed = NEEDED if sites == 1 else NEEDED_BY_SITES
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        extras = ",".join(sorted({needed[package] for package in missing}))
        raise Refused(f"the demo needs {', '.join(missing)}: pip install 'edgebroker[{extras}]'")
    if netns:
        require()
    try:
        (clear if sites == 1 else clear_sites)(folder)
    except OSError as error:
        raise Refused(f"--dir: cannot write in {folder}: {error.strerror}") from None
    if sites == 1:
        view = view_for(SUBSCRIBER_SPECS)
        run(_play(DemoPlay(DemoPlan(seconds or SECONDS, devices, rate, seed, folder), view), view, as_json))
    else:
        plan = SitesPlan(seconds or (NETNS_SECONDS if netns else SITES_SECONDS), devices, rate, seed, folder)
        run(_play_sites(plan, Layout(sites, gateways), netns, as_json))


async def _play_sites(plan: SitesPlan, layout: Layout, netns: bool, as_json: bool) -> int:
    table = board()
    network = _separated(layout, table) if netns else RelayNetwork(layout)
    return await _play(SitesPlay(plan, network, table), table, as_json)


def _separated(layout: Layout, table: Board) -> FederationNetwork:
    """Return a network of namespaces for this run, and name those that killed runs left behind. Raises Refused."""
    from edgelab.demo.federation.namespace_network import NamespaceNetwork

    left = left_over(names(), is_demo)
    if left:
        table.say(f"an earlier run that was killed left {', '.join(left)}")
        remove = "do ip netns pids $name | xargs -r kill; ip netns delete $name; done"
        table.say(f"    to end what runs there, and remove them: for name in {' '.join(left)}; {remove}")
    run_number = os.getpid()
    return NamespaceNetwork(run_number, layout, table.say, has_netem=has_netem(namespace(run_number, "try")))


async def _play(play: DemoPlay | SitesPlay, view: DemoView | Board, as_json: bool) -> int:
    # A closed terminal ends the demo as SIGTERM does; its processes have left the terminal and would run for ever.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, os.kill, os.getpid(), signal.SIGTERM)
    try:
        outcome = await play.run()
    except EdgebrokerError as error:
        view.close()
        if as_json:
            click.echo(json.dumps({"ok": False, "problems": [str(error)]}, ensure_ascii=False))
        click.echo(f"edgebroker: the demo failed: {error}", err=True)
        return EXIT_FAILED
    finally:
        view.close()
    if as_json:
        click.echo(json.dumps(outcome.as_object(), ensure_ascii=False))
    else:
        click.echo("\n".join(outcome.lines()))
    return EXIT_FAILED if outcome.problems() else 0

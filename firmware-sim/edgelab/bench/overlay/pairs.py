"""Two brokers of a kind, joined: what is published at the sending one is for readers of the receiving one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgelab.bench import subjects
from edgelab.bench.client import HOST
from edgelab.bench.subjects import Subject, SubjectNotFound
from edgelab.bench.trial import free_port

TOPOLOGY = """\
[federation]
name = "bench"

[factor]
tree = ["a"]

[[site]]
name = "here"
uplink = "lan"

[[site]]
name = "there"
uplink = "lan"

[[gateway]]
name = "sending"
site = "here"
address = "{host}:{sending}"

[[gateway]]
name = "receiving"
site = "there"
address = "{host}:{receiving}"
"""
"""Over a network of one's own, as the bridge: nothing waits for others to share a packet with."""

MOSQUITTO = """\
listener {port} {host}
allow_anonymous true
log_dest none
connection_messages false
set_tcp_nodelay true
"""
UNLIMITED = """\
max_inflight_messages 0
max_queued_messages 0
max_queued_bytes 0
"""
"""Where rates are measured nothing may be dropped, so there is no bound. Where the receiving broker is killed the
sending one has its default, for that is what its bridge may hold.
"""
PERSISTENT = """\
persistence true
persistence_location {folder}/
"""
BRIDGE = """\
connection bench
address {host}:{peer}
topic # out 1
cleansession false
bridge_attempt_unsubscribe false
notifications false
restart_timeout 1
"""
"""`restart_timeout`: it dials again after a second, not after 5 to 30."""
OURS = """\
[limits]
queue_messages_max = 100_000
"""
"""For a reader, as many as for a link: what waited for the link comes at once, quicker than the reader may take it."""


@dataclass(frozen=True, slots=True)
class PairPorts:
    """Where a pair listens."""

    sending: int
    receiving: int
    links: tuple[int, int]
    """For the link between them, if it has ports of its own."""

    @classmethod
    def free(cls) -> PairPorts:
        """Ports that nobody listens on."""
        return cls(free_port(), free_port(), (free_port(), free_port()))


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """What a pair is to do with messages that wait."""

    on_disk: bool
    """Whether what is acknowledged shall be kept over restarts."""
    is_bounded: bool
    """Whether what waits for the other broker has the bounds of the defaults."""


@dataclass(frozen=True, slots=True)
class BrokerPair:
    """A kind of broker. *commands*: those of the sending and the receiving one, with a folder for each."""

    subject: Subject
    commands: Callable[[PairPorts, Path, StoragePolicy], tuple[list[str], list[str]]]


def edgebroker(logging: bool = False) -> BrokerPair:
    """Two gateways of two sites. On disk: an acknowledgement says that a message is synced, at both ends.

    logging: both write a delivery log.
    """
    subject = subjects.with_settings(subjects.edgebroker(), OURS)
    if logging:
        subject = subjects.with_log(subject)

    def commands(ports: PairPorts, folder: Path, keeping: StoragePolicy) -> tuple[list[str], list[str]]:
        topology = folder / "topology.toml"
        topology.write_text(TOPOLOGY.format(host=HOST, sending=ports.links[0], receiving=ports.links[1]))

        def of(name: str, port: int) -> list[str]:
            (folder / name).mkdir(exist_ok=True)
            command = [*subject.command(port, folder / name), "--topology", str(topology), "--name", name]
            return command if keeping.on_disk else [*command, "--memory"]

        return of("sending", ports.sending), of("receiving", ports.receiving)

    return BrokerPair(subject, commands)


def mosquitto() -> BrokerPair:
    """Two of Debian's Mosquitto, the sending one with a bridge. Raises SubjectMissing.

    On disk: persistence as its manual describes it. It acknowledges at once, and writes every 30 minutes and when it
    ends.
    """
    subject = subjects.mosquitto()
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise SubjectNotFound("mosquitto is not installed")

    def commands(ports: PairPorts, folder: Path, keeping: StoragePolicy) -> tuple[list[str], list[str]]:
        def of(name: str, port: int, bridge: str) -> list[str]:
            home = folder / name
            home.mkdir(exist_ok=True)
            home.chmod(0o777)  # it may give up root
            settings = home / "mosquitto.conf"
            parts = [MOSQUITTO.format(port=port, host=HOST)]
            parts += [] if keeping.is_bounded and bridge else [UNLIMITED]
            parts += [PERSISTENT.format(folder=home)] if keeping.on_disk else []
            settings.write_text("".join((*parts, bridge)))
            return [program, "-c", str(settings)]

        bridge = BRIDGE.format(host=HOST, peer=ports.receiving)
        return of("sending", ports.sending, bridge), of("receiving", ports.receiving, "")

    return BrokerPair(subject, commands)


PAIRS: dict[str, Callable[[], BrokerPair]] = {"edgebroker": edgebroker, "mosquitto": mosquitto}

"""Who carries messages to a Mosquitto: a gateway with a bridge, or Mosquitto's own bridge."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgelab.bench import subjects
from edgelab.bench.client import HOST
from edgelab.bench.subjects import Subject, SubjectNotFound
from edgelab.bench.trial import free_port

PLAIN: Final = """\
listener {port} {host}
allow_anonymous true
log_dest none
connection_messages false
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
max_queued_bytes 0
persistence true
persistence_location {folder}/
"""
"""Nothing is dropped, and all is kept: that is what a bridge of ours does."""
THEIR_BRIDGE: Final = """\
connection bench
address {host}:{there}
topic # out 2
cleansession false
bridge_attempt_unsubscribe false
notifications false
restart_timeout 1
"""
OUT: Final = """\
[[bridge]]
name = "out"
addresses = ["{host}:{there}"]
topic = ["# out 2"]
retry_s_max = 1
queue_messages_max = 1_000_000
queue_bytes_max = 1_073_741_824
"""
IN: Final = """
[[bridge]]
name = "in"
addresses = ["{host}:{here}"]
topic = ["# in 2"]
retry_s_max = 1
"""


@dataclass(frozen=True, slots=True)
class BridgePorts:
    """Where publishers connect, where readers do, and the port of a gateway between the two brokers."""

    here: int
    there: int
    between: int

    @classmethod
    def free(cls) -> BridgePorts:
        """Ports that nobody listens on."""
        return cls(free_port(), free_port(), free_port())


@dataclass(frozen=True, slots=True)
class BrokerProcess:
    """A broker to start: its name, its port, and its command."""

    name: str
    port: int
    command: list[str]


Lineup = Callable[[BridgePorts, Path, bool], list[BrokerProcess]]
"""(ports, folder, whether the bridge stands beside both brokers) -> the processes, in the order in which they start.

The first is the receiving broker, the last the one that dials it."""


@dataclass(frozen=True, slots=True)
class BridgeSide:
    """One of the two that are compared."""

    subject: Subject
    lineup: Lineup


def mosquitto_at(program: str, name: str, port: int, folder: Path, bridge: str = "") -> BrokerProcess:
    """A Mosquitto that keeps everything."""
    home = folder / name
    home.mkdir(exist_ok=True)
    home.chmod(0o777)  # it may give up root
    settings = home / "mosquitto.conf"
    settings.write_text(PLAIN.format(port=port, host=HOST, folder=home) + bridge)
    return BrokerProcess(name, port, [program, "-c", str(settings)])


def program_of_mosquitto() -> str:
    """Raises SubjectMissing."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SubjectNotFound("mosquitto is not installed; install the package mosquitto")
    return found


def ours() -> BridgeSide:
    """A gateway with a bridge. Raises SubjectMissing: both its neighbours are Mosquitto too."""
    program, subject = program_of_mosquitto(), subjects.edgebroker()

    def lineup(ports: BridgePorts, folder: Path, is_beside: bool) -> list[BrokerProcess]:
        there = mosquitto_at(program, "there", ports.there, folder)
        text = OUT.format(host=HOST, there=ports.there)
        if is_beside:
            text += IN.format(host=HOST, here=ports.here)
        home = folder / "gateway"
        home.mkdir(exist_ok=True)
        port = ports.between if is_beside else ports.here
        command = subjects.with_settings(subject, text).command(port, home)
        gateway = BrokerProcess("gateway", port, command)
        return [there, mosquitto_at(program, "here", ports.here, folder), gateway] if is_beside else [there, gateway]

    return BridgeSide(subject, lineup)


def theirs() -> BridgeSide:
    """Mosquitto's own bridge. Raises SubjectMissing."""
    program, subject = program_of_mosquitto(), subjects.mosquitto()

    def lineup(ports: BridgePorts, folder: Path, is_beside: bool) -> list[BrokerProcess]:
        bridge = THEIR_BRIDGE.format(host=HOST, there=ports.there)
        there = mosquitto_at(program, "there", ports.there, folder)
        return [there, mosquitto_at(program, "here", ports.here, folder, bridge)]

    return BridgeSide(subject, lineup)

"""RabbitMQ with its MQTT plug-in, of Debian 12, as a process of a test: a broker that knows 3.1.1 and QoS 1."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgelab.processes import free_ports

PROGRAMS = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-3.10.*/sbin/rabbitmq-server"))
NEEDS_RABBITMQ = pytest.mark.skipif(
    not PROGRAMS or shutil.which("epmd") is None,
    reason="RabbitMQ 3.10 is not installed (Debian 12: rabbitmq-server); 3.13 knows version 5",
)
START_S = 120.0  # it takes 10 s on an idle machine


@contextlib.contextmanager
def rabbitmq(folder: Path) -> Iterator[int]:
    """RabbitMQ with all its files in *folder*; its MQTT port."""
    plain, distribution, epmd, mqtt = free_ports(4)
    (folder / "plugins").write_text("[rabbitmq_mqtt].")
    (folder / "rabbitmq.conf").write_text(
        f"mqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}\nmqtt.allow_anonymous = true\n"
        "mqtt.default_user = guest\nmqtt.default_pass = guest\n"
    )
    variables = {
        "HOME": folder,
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": epmd,
        "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "RABBITMQ_GENERATED_CONFIG_DIR": folder / "generated",
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_LOG_BASE": folder / "log",
        "RABBITMQ_MNESIA_BASE": folder / "mnesia",
        "RABBITMQ_NODENAME": f"test{mqtt}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": plain,
        "RABBITMQ_DIST_PORT": distribution,
        "RABBITMQ_PID_FILE": folder / "pid",
    }
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    log = folder / "rabbitmq.log"
    with log.open("w") as output:
        process = subprocess.Popen([str(PROGRAMS[-1])], stdout=output, stderr=output, env=environment)
    try:
        deadline = time.monotonic() + START_S
        while "Server startup complete" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield mqtt
    finally:
        process.terminate()
        process.wait(START_S)
        subprocess.run(["epmd", "-port", str(epmd), "-kill"], env=environment, check=False, capture_output=True)

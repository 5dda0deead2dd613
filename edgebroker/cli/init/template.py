"""The settings file and the systemd unit that `edgebroker init` writes, to be read and changed by people."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+")

SETTINGS = """\
# Settings of this gateway. Every key is optional; docs/settings.md explains them all.
# `edgebroker check gateway.toml` says whether the file is in order and what then holds.
# SIGHUP lets a running gateway read it again. Paths are relative to this file.

[node]
name = "{node}"                  # in the delivery log, and for other gateways

# Programs on this machine: no TLS, and no user is asked for.
[[listener]]
name = "local"
host = "127.0.0.1"
port = 1883

# Devices: TLS, and either a password from `users` or a certificate that `ca.crt` signed.
[[listener]]
name = "devices"
host = "0.0.0.0"                 # every network interface
port = 8883
tls_certificate = "server.crt"   # for {hosts}
tls_key = "server.key"
tls_client = "optional"          # "required" turns away who shows no certificate
tls_client_ca = "ca.crt"

# Browsers: MQTT over secure WebSocket, at wss://HOST:8884/mqtt. Pages of other hosts need websocket_origins.
# [[listener]]
# name = "browsers"
# host = "0.0.0.0"
# port = 8884
# protocol = "websocket"
# tls_certificate = "server.crt"
# tls_key = "server.key"

# A Unix socket, for programs of the same user or group.
# [[listener]]
# name = "socket"
# path = "edgebroker.sock"
# path_mode = "0660"

[access]
password_file = "users"            # `edgebroker passwd users NAME` adds one
certificate_user = "common name"   # a client with a certificate is the user that it names

[data]
dir = "data"                       # sessions, queues and retained messages: what was acknowledged

[log]
dir = "delivery-log"               # what became of every message; `edgebroker log cat delivery-log`
bytes_max = 1073741824             # more than 1 GiB of it is not kept: the oldest files are deleted
sample_qos0 = 100                  # of QoS 0, one message in 100 has rows; the digests count all

[http]
port = 9883                        # status, top, check, /metrics and /health, for this machine alone
"""

UNIT = """\
# To start with the machine:
#   sudo cp {folder}/edgebroker.service /etc/systemd/system/
#   sudo systemctl enable --now edgebroker
[Unit]
Description=edgebroker, an MQTT gateway
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={program} run --config {settings}
ExecReload=/bin/kill -HUP $MAINPID
{user}
Restart=on-failure
RestartSec=2
TimeoutStartSec=900
WatchdogSec=30
TimeoutStopSec=20
LimitNOFILE=10240
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={writable}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def settings_file(node: str, hosts: list[str]) -> str:
    """The text of `gateway.toml`."""
    return SETTINGS.format(node=node, hosts=", ".join(hosts))


def unit_file(program: str, folder: str, user: str) -> str:
    """The text of `edgebroker.service`. root is no user for a gateway."""
    line = (
        f"User={user}"
        if user != "root"
        else f"# User=edgebroker   # make one: useradd -r edgebroker; chown -R edgebroker {folder}"
    )
    settings, writable = _word(f"{folder}/gateway.toml").replace("$", "$$"), _word(folder)
    return UNIT.format(program=program, folder=folder, settings=settings, writable=writable, user=line)


def _word(path: str) -> str:
    """One word of a unit, whatever the user calls his folders (systemd.syntax(7), "Quoting")."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if _PLAIN.fullmatch(path) else f'"{escaped}"'

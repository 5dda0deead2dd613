"""The settings file and the systemd unit that `edgebroker init` writes, for people to read and change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from edgebroker.limits import MIB

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

# Browsers: MQTT over secure WebSocket, at wss://HOST:8084/mqtt. Pages of other hosts need websocket_origins.
# [[listener]]
# name = "browsers"
# host = "0.0.0.0"
# port = 8084
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

[quota]
memory_bytes_max = {memory:<11}     # what clients may hold; edgebroker.service: MemoryMax is 32 MiB + 1.5 x this

[http]
port = 9883                        # status, top, check, /metrics and /health, for this machine alone
token_file = "http-token"          # who asks anything but /health shows the token in it; `--config` finds it
"""

UNIT = """\
{steps}
[Unit]
Description=edgebroker, an MQTT gateway
After=network.target time-sync.target
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} run --config {settings}
ExecReload=/bin/kill -HUP $MAINPID
ExecReload={program} check --quiet {settings}
User={user}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=78
TimeoutStartSec=900
WatchdogSec=30
TimeoutStopSec=20
# 32 MiB, and one and a half times quota.memory_bytes_max of gateway.toml: whoever changes one changes both.
MemoryMax={memory_mib}M
MemorySwapMax=0
LimitNOFILE=10240
UMask=0077
# A folder that gateway.toml names as data.dir or log.dir in the place of these has to stand here too.
ReadWritePaths={writable}
# A Unix socket may lie in /run/edgebroker; a unit of another name has a folder of that name.
RuntimeDirectory=%N

# It needs the network, its folders and nothing else.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
PrivateDevices=yes
PrivateTmp=yes
PrivateUsers=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

STEPS = """\
# To start with the machine:
#   sudo cp {file} /etc/systemd/system/
#   sudo systemctl enable --now edgebroker"""

STEPS_OF_ROOT = """\
# To start with the machine, as a user of its own, who reads no key but the gateway's:
#   useradd --system edgebroker
#   cd {folder}
#   chgrp edgebroker server.key users http-token && chmod 640 server.key users http-token
#   chown edgebroker {folders}
#   cp edgebroker.service /etc/systemd/system/
#   systemctl enable --now edgebroker"""

MEMORY_BYTES_MAX: Final = 128 * MIB
"""What clients of a gateway with `SETTINGS` may hold: a board with 512 MiB has room for that and its system."""
UNIT_BASE_BYTES: Final = 32 * MIB
"""What a gateway takes that nobody uses, 20 to 25 MiB, with some room."""
FOLDERS: Final = ("data", "delivery-log")
"""Folders that a gateway with `SETTINGS` writes to."""


def settings_file(node: str, hosts: list[str]) -> str:
    """Returns the text of `gateway.toml`."""
    return SETTINGS.format(node=node, hosts=", ".join(hosts), memory=MEMORY_BYTES_MAX)


def memory_max_mib(memory_bytes_max: int) -> int:
    """Returns `MemoryMax` of a unit, in MiB, for a gateway with this `quota.memory_bytes_max`: Python's objects and the
    gaps between them take up to half as much again as what is counted.
    """
    return (UNIT_BASE_BYTES + memory_bytes_max * 3 // 2) // MIB


def unit_file(program: Sequence[str], folder: str, user: str) -> str:
    """Returns the text of `edgebroker.service`; *program*: the command that runs us. The gateway never runs as root."""
    file = shlex.quote(f"{folder}/edgebroker.service")
    steps = STEPS.format(file=file)
    if user == "root":
        steps, user = STEPS_OF_ROOT.format(folder=shlex.quote(folder), folders=" ".join(FOLDERS)), "edgebroker"
    return UNIT.format(
        steps=steps,
        program=" ".join(map(_argument, program)),
        settings=_argument(f"{folder}/gateway.toml"),
        user=user,
        memory_mib=memory_max_mib(MEMORY_BYTES_MAX),
        writable=" ".join(_word(f"{folder}/{name}") for name in FOLDERS),
    )


def _argument(text: str) -> str:
    """Returns one argument of a command line in a unit (systemd.service(5), "Command lines")."""
    return _word(text).replace("$", "$$")


def _word(path: str) -> str:
    """Returns one word of a unit, quoted if necessary (systemd.syntax(7), "Quoting")."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if _PLAIN.fullmatch(path) else f'"{escaped}"'

"""The same benchmark over TLS: brokers with a P-256 certificate. OpenSSL agrees with itself on TLS 1.3."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgebroker.cli.init.authority import Authority

from .client import HOST
from .subjects import Subject

SETTINGS = """\
[listener]
host = "{host}"
port = {port}
tls_certificate = "server.crt"
tls_key = "server.key"
"""
MOSQUITTO_SETTINGS = """\
certfile {folder}/server.crt
keyfile {folder}/server.key
"""


def over_tls(subject: Subject) -> Subject:
    """The same broker behind TLS. Raises KeyError for one that has none."""
    return replace(subject, command=_COMMANDS[subject.name.partition("-")[0]](subject), is_tls=True)


def _edgebroker(subject: Subject) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        Authority.make(folder, "bench").server(folder, ["localhost"])
        (folder / "gateway.toml").write_text(SETTINGS.format(host=HOST, port=port))
        plain = subject.command(port, folder)
        return [*plain[: plain.index("run") + 1], "--config", str(folder / "gateway.toml")]

    return command


def _mosquitto(subject: Subject) -> Callable[[int, Path], list[str]]:
    def command(port: int, folder: Path) -> list[str]:
        Authority.make(folder, "bench").server(folder, ["localhost"])
        plain = subject.command(port, folder)
        settings = Path(plain[-1])
        if os.geteuid() == 0:  # else it becomes another user, who may not read the key
            settings.write_text(f"user root\n{settings.read_text()}")
        settings.write_text(settings.read_text() + MOSQUITTO_SETTINGS.format(folder=folder))
        return plain

    return command


_COMMANDS = {"edgebroker": _edgebroker, "mosquitto": _mosquitto}

"""Files of an operator: settings, topologies, and Mosquitto's configuration, which is translated into settings."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, cast

from edgebroker.cli.mosquitto_import.conf_file import ConfUnreadable
from edgebroker.cli.mosquitto_import.translation import translate
from edgebroker.runtime.settings import Settings, SettingsRefused
from edgebroker.runtime.settings.settings import KEYS
from edgebroker.runtime.topology_file import SECTIONS, load_topology
from tests.fuzz.frame.target import Target

FOLDER = Path("/nowhere")


class Held:
    """A file that is held in memory: of a path, what readers of files use."""

    parent = FOLDER

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, mode: str) -> BytesIO:
        assert mode == "rb"
        return BytesIO(self._data)

    def __str__(self) -> str:
        return str(FOLDER / "file")


def held(data: bytes) -> Path:
    """*data* as a file."""
    return cast(Any, Held(data))


SETTINGS = """\
[node]
name = "gateway"   # a comment
[[listener]]
port = 1884
host = "::1"
[[listener]]
port = 8080
protocol = "websocket"
websocket_path = "/mqtt"
websocket_origins = ["https://example.org"]
[data]
dir = "state"
[limits]
queue_messages_max = 1_000
[http]
port = 9100
"""
BRIDGE = """\
[[bridge]]
name = "cloud"
addresses = ["h:1"]
topic = ["a/# out 1 select=b,c.d where (e = 1 OR f LIKE '%x%') AND NOT g", "b in 1 retain=false"]
"""
TOPOLOGY = """\
[federation]
name = "plant"
[factor]
tree = ["a-b-c", "b-d"]
[[site]]
name = "north"
uplink = "metered"
batch_ms = 500
[[site]]
name = "south"
index = 1
[[gateway]]
name = "n1"
number = 7
site = "north"
positions = ["b", "a"]
address = ["n1:1", "[::1]:2"]
lan = "10.0.0.1:3"
[[gateway]]
name = "n2"
site = "north"
positions = ["c"]
dials = "always"
[[gateway]]
name = "n3"
site = "north"
positions = ["d"]
[[gateway]]
name = "s1"
site = "south"
address = "s1:1"
[[link]]
between = ["n1", "s1"]
dials = "s1"
"""
CONF = """\
# a comment
per_listener_settings false
listener 1884 127.0.0.1
allow_anonymous true
max_connections 10
listener 8080
protocol websockets
persistence true
persistence_location /var/lib/mosquitto/
autosave_interval 30
max_queued_messages 500
message_size_limit 1000
password_file /etc/passwords
connection up
address example.org:8883
topic sensors/# out 1 a/ b/
remote_password secret
log_dest syslog
"""


def check_told(refused: SettingsRefused, lines: int) -> None:
    """Every problem has its line, and words."""
    assert refused.problems
    for problem in refused.problems:
        assert 0 <= problem.line <= lines
        assert str(problem)


def read_settings(data: bytes) -> None:
    """Settings, or problems that say where and why."""
    try:
        settings = Settings.load(held(data))
    except SettingsRefused as refused:
        check_told(refused, len(data.decode("utf-8", "replace").splitlines()) + 1)
        raise
    assert Settings.load(held(data)) == settings
    settings.values()


def read_topology(data: bytes) -> None:
    """A topology in which everybody is joined, or problems that say where and why."""
    try:
        topology = load_topology(held(data))
    except SettingsRefused as refused:
        check_told(refused, len(data.decode("utf-8", "replace").splitlines()) + 1)
        raise
    for gateway in topology.gateways:
        for peer in gateway.peers():
            assert gateway.name in topology.gateway(peer).peers()
            assert topology.connection(gateway.name, peer).dial.addresses


def read_conf(data: bytes) -> None:
    """What is written for any configuration can be read, and every line has a verdict."""
    translation = translate(held(data))
    for finding in translation.findings:
        assert finding.line.number >= 1
    for problem in translation.problems:
        assert "not TOML" not in str(problem), (problem, translation.text)


SETTINGS_WORDS = (
    *(name.encode() for keys in KEYS.values() for name in keys),
    *(b"[%s]" % name.encode() for name in KEYS),
    b"[[listener]]\n",
    b'"""',
    b"'''",
    b'"\\u0000"',
    b" = ",
    b"true",
    b"1979-05-27T07:32:00Z",
    b"inf",
    b"nan",
    b"0x",
    b"{a = 1}",
    b"[1, [2]]",
    b"a.b.c",
    b'""',
    b"\n",
)
TOPOLOGY_WORDS = (
    *(name.encode() for section in SECTIONS.values() for name in section.keys),
    *(b"[[%s]]\n" % name.encode() for name in SECTIONS),
    b'"a-b"',
    b'["a", "b", "c", "d"]',
    b'"north"',
    b'"n1"',
    b'"never"',
    b"1023",
    b"\n",
)
CONF_WORDS = (
    b"\nlistener ",
    b"\nbind_address ",
    b"\nprotocol mqtt",
    b"\nconnection x\naddress [::1]:1",
    b'\ntopic a/# both 2 "" b/',
    b"\ntopic pattern",
    b"\nallow_anonymous ",
    b"\ncafile ",
    b"\ncertfile ",
    b"\nkeyfile ",
    b"\nrequire_certificate true",
    b"\nuse_identity_as_username true",
    b"\nmax_keepalive ",
    b"\nplugin x",
    b"\npersistent_client_expiration 2w",
    b"\nhttp_dir ",
    b"\nsocket_domain ipv6",
    b"true",
    b"false",
    b"\t",
    b"65536",
)


TARGETS = (
    Target(
        "settings",
        read_settings,
        (SETTINGS.encode(), b"", b"[node]\nnam = 1\n", b"[listener]\nport = 1\ntls_cert = 'a'\n", BRIDGE.encode()),
        (SettingsRefused,),
        SETTINGS_WORDS,
    ),
    Target(
        "topology",
        read_topology,
        (TOPOLOGY.encode(), b"", TOPOLOGY.replace('"d"', '"c"').encode()),
        (SettingsRefused,),
        TOPOLOGY_WORDS,
    ),
    Target(
        "mosquitto-conf",
        read_conf,
        (CONF.encode(), b"", b"port 1883\n"),
        (ConfUnreadable,),
        CONF_WORDS,
    ),
)

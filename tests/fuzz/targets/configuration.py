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
from tests.fuzz.frame.target import Target, filled

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


def ruled(words: str, count: int, per: int = 250) -> bytes:
    """Bridges with *count* rules of *words*, which have one number in them."""
    head = "[[bridge]]\nname='x%d'\naddresses=['h:1']\ntopic=["
    return "".join(
        head % at + ",".join(f'"{words % n}"' for n in range(at, min(at + per, count))) + "]\n"
        for at in range(0, count, per)
    ).encode()


ORS = " AND ".join(f"(a{n}=1 OR b{n}=2)" for n in range(6))
LIKES = " AND ".join(f"(a LIKE '%%{n}%%_a%%' OR b LIKE '%%{n}_%%')" for n in range(5))
RULED = {
    "rules that are all different": lambda: ruled("a where temp > %d AND site = 'north'", 125),
    "more of them, and unknown keys": lambda: ruled("a where temp > %d AND site = 'north'", 122) + alike(5, 760)[11:],
    "64 bridges with different rules": lambda: ruled("a where temp > %d AND site = 'north'", 122, 2),
    "rules with one OR": lambda: ruled("a where (a=%d OR b=2)", 86),
    "rules with a NOT": lambda: ruled("a where NOT (a=%d OR b=2 AND c LIKE 'x%%')", 51),
    "rules to multiply out": lambda: ruled("a where c=%d AND " + ORS, 250),
    "equal rules to multiply out": lambda: ruled("a/%d where " + ORS, 256),
    "patterns to multiply out": lambda: ruled("a where c=%d AND " + LIKES, 230),
    "rules that are too complex": lambda: ruled("a where c=%d AND " + ORS + " AND (a=1 OR b=2)", 20, 1),
    "short rules": lambda: ruled("a%d", 390),
    "short conditions": lambda: ruled("a where b=%d", 215),
    "rules that select": lambda: ruled("a%d select=" + ",".join(f"f{n}" for n in range(25)), 250),
    "options of rules": lambda: ruled("a%d retain=false convert=cbor batch_messages=5 batch_s=1", 450),
    "one long rule": lambda: filled(b"a", b"[[bridge]]\ntopic=['", b"']"),
    "options of one rule": lambda: filled(b"a= ", b"[[bridge]]\ntopic=['a ", b"']"),
}


def alike(size: int, count: int) -> bytes:
    """Twenty keys that are like one of the section that has most of them, and *count* of *size* characters more."""
    names = (
        *(f"retry_s_max{number}" for number in range(20)),
        *(f"k{number}".ljust(size, "k") for number in range(count)),
    )
    return b"[[bridge]]\n" + "".join(f"{name}=1\n" for name in names).encode()


HEAD = b'[federation]\nname = "f"\n[factor]\n'
PLAIN = HEAD + b'tree = "a-b"\n[[site]]\nname = "s"\n[[gateway]]\nname = "g"\nsite = "s"\n'

TARGETS = (
    Target(
        "settings",
        read_settings,
        (SETTINGS.encode(), b"", b"[node]\nnam = 1\n", b"[listener]\nport = 1\ntls_cert = 'a'\n"),
        (SettingsRefused,),
        SETTINGS_WORDS,
        bombs={
            "a deep dotted key": lambda: filled(b".a", b"a", b" = 1"),
            "dotted keys": lambda: b"\n".join(b"a.b.c.d.e%d = 1" % n for n in range(4_000)),
            "deep dotted keys, many": lambda: b"\n".join(b"a" + b".a" * 98 + b".b%d = 1" % n for n in range(310)),
            "a deep table": lambda: filled(b".a", b"[a", b"]"),
            "many tables": lambda: b"\n".join(b"[a%d]" % n for n in range(8_500)),
            "many listeners": lambda: filled(b"[[listener]]\n"),
            "tables in tables": lambda: b"\n".join(b"[a.b%d.c]" % n for n in range(5_000)),
            "brackets": lambda: filled(b"[", b"a = "),
            "braces": lambda: filled(b"{a=", b"a = "),
            "lists that are nearly too deep": lambda: filled(b"[" * 99 + b"]", b"a = "),
            "digits": lambda: filled(b"9", b"a = "),
            "underlined digits": lambda: filled(b"9_", b"a = ", b"9"),
            "digits of a fraction": lambda: filled(b"9", b"a = 1."),
            "hexadecimal digits": lambda: filled(b"f", b"a = 0x"),
            "quotes": lambda: filled(b'"', b"a = "),
            "escapes": lambda: filled(b"\\u0041", b'a = "', b'"'),
            "as many escapes as there may be": lambda: b'a = "' + b"\\u0041" * 2_140 + b'"',
            "quotes in quotes": lambda: filled(b'""x', b'a = """', b'"""', 56_000),
            "a long string of one character": lambda: filled(b"x", b'a = """', b'"""', 56_000),
            "a long string": lambda: filled(b"x", b'a = """', b'"""'),
            "a list of as many as there may be": lambda: filled(b"0,", b"a = [", b"0]", 5_070),
            "as many exponents as there may be": lambda: filled(b"1e3,", b"a = [", b"0]", 9_290),
            "as many times as there may be": lambda: filled(b"1979-05-27T07:32:00Z,", b"a = [", b"0]", 28_500),
            "as many tables as there may be": lambda: b"".join(b"[a%d]\n" % number for number in range(1_185)),
            "as many tables in tables": lambda: b"".join(b"[a.b%d.c]\n" % number for number in range(615)),
            "a list": lambda: filled(b"0,", b"a = [", b"]"),
            "unknown keys of one section": lambda: alike(5, 1_138),
            "long unknown keys of one section": lambda: alike(40, 653),
            "unknown keys in 40 KiB": lambda: alike(80, 439),
            "unknown keys and a long text": lambda: alike(5, 1_132) + b'z = "' + b"x" * 50_000 + b'"',
            "a long text and exponents": lambda: filled(b"1e3,", b'a = "' + b"x" * 50_000 + b'"\nb = [', b"0]", 59_200),
            "empty texts that no sign divides": lambda: alike(5, 1_138) + b'"" ' * 15_000,
            "texts that no sign divides": lambda: alike(5, 1_000) + b"z = 1" + b' ""' * 1_900,
            "escapes behind what looks like a comment": lambda: filled(b"\\t", b'a = """\n#', b'"""'),
            "unknown sections": lambda: b"\n".join(b"[limit%d]\nport=1" % n for n in range(3_600)),
            "a long unknown key": lambda: filled(b"queue_messages_max", b"[limits]\n", b" = 1"),
            "keys that look alike on one line": lambda: filled(b"a ", b"a"),
            "quoted names without an end": lambda: filled(b"'a'.", b""),
            "comments": lambda: filled(b"#\n"),
            "line ends": lambda: filled(b"\r\n"),
        }
        | RULED,
        plain=lambda data: Settings.load(held(data)),
    ),
    Target(
        "topology",
        read_topology,
        (TOPOLOGY.encode(), b"", TOPOLOGY.replace('"d"', '"c"').encode()),
        (SettingsRefused,),
        TOPOLOGY_WORDS,
        bombs={
            "a long path": lambda: HEAD + filled(b"-a", b'tree = "a', b'"'),
            "positions": lambda: HEAD + b'tree = "' + b"-".join(b"p%d" % n for n in range(9_000)) + b'"',
            "paths": lambda: HEAD + b"tree = [" + b",".join(b'"a-b%d"' % n for n in range(6_000)) + b"]",
            "sites": lambda: PLAIN + b"".join(b'[[site]]\nname="s%d"\n' % n for n in range(64)),
            "gateways of one site": lambda: (
                PLAIN + b"".join(b'[[gateway]]\nname="g%d"\nsite="s"\n' % n for n in range(1_024))
            ),
            "gateways of no site": lambda: (
                PLAIN + b"".join(b'[[gateway]]\nname="g%d"\nsite="x%d"\n' % (n, n) for n in range(1_024))
            ),
            "links": lambda: PLAIN + b"".join(b'[[link]]\nbetween=["g","h%d"]\ndials="g"\n' % n for n in range(1_024)),
            "links of no gateways": lambda: (
                PLAIN
                + b"".join(b'[[gateway]]\nname="g%d"\nsite="s"\npositions=["a"]\n' % n for n in range(700))
                + b"".join(b'[[link]]\nbetween=["h%d","g"]\ndials="g"\n' % n for n in range(700))
            ),
            "addresses": lambda: PLAIN + filled(b'"a:1",', b"address = [", b"]"),
        },
        bound_ms=50,  # the operator's own file, read at the start and when it has changed
        bound_mib=10,
    ),
    Target(
        "mosquitto-conf",
        read_conf,
        (CONF.encode(), b"", b"port 1883\n"),
        (ConfUnreadable,),
        CONF_WORDS,
        bombs={
            "listeners": lambda: b"\n".join(b"listener %d" % n for n in range(1, 4_700)),
            "one listener again and again": lambda: filled(b"listener 1\n"),
            "unknown options": lambda: b"\n".join(b"persistense%d 1" % (n % 900) for n in range(4_000)),
            "short unknown options": lambda: filled(b"x\n"),
            "one option again and again": lambda: filled(b"port 1\n"),
            "bridges": lambda: b"\n".join(b"connection c%d" % n for n in range(4_000)),
            "topics of a bridge": lambda: filled(b"topic # both 1\n", b"connection c\n"),
            "one long line": lambda: filled(b"a ", b"listener "),
            "a long unknown option": lambda: filled(b"persistence_"),
            "options of listeners": lambda: b"\n".join(
                b"listener %d\nprotocol websockets" % n for n in range(1, 1_900)
            ),
        },
        bound_ms=200,  # a command of the operator, and the words for each line
        bound_mib=12,
    ),
)

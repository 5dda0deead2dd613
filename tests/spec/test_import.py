"""`edgebroker import`: every option of Mosquitto has an answer, and what is written says where it comes from."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from edgebroker.cli import main
from edgebroker.cli.mosquitto_import.options import OPTIONS, rule_of
from edgebroker.cli.mosquitto_import.translation import translate
from edgebroker.runtime.settings import Settings

from ..support.mosquitto_import import Importer, note, settings, verdicts

MANUAL = Path("/usr/share/man/man5/mosquitto.conf.5.gz")
EXAMPLE = Path("/usr/share/doc/mosquitto/examples/mosquitto.conf")

# mosquitto.conf(5) of 2.0.11, and what 2.0.12 to 2.1 added.
GIVEN_UP = "ffdc_output max_log_entries retry_interval store_clean_interval trace_level trace_output".split()
OF_2_0 = """
    acl_file address addresses allow_anonymous allow_duplicate_messages allow_zero_length_clientid auth_opt_x
    auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval autosave_on_changes bind_address
    bind_interface bridge_alpn bridge_attempt_unsubscribe bridge_bind_address bridge_cafile bridge_capath
    bridge_certfile bridge_identity bridge_insecure bridge_keyfile bridge_max_packet_size bridge_outgoing_retain
    bridge_protocol_version bridge_psk bridge_require_ocsp bridge_tls_version cafile capath certfile
    check_retain_source ciphers ciphers_tls1.3 cleansession clientid clientid_prefixes connection connection_messages
    crlfile dhparamfile http_dir idle_timeout include_dir keepalive_interval keyfile listener local_cleansession
    local_clientid local_password local_username log_dest log_facility log_timestamp log_timestamp_format log_type
    max_connections max_inflight_bytes max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes
    max_queued_messages max_topic_alias memory_limit message_size_limit mount_point notification_topic notifications
    notifications_local_only password password_file per_listener_settings persistence persistence_file
    persistence_location persistent_client_expiration pid_file plugin plugin_opt_x port protocol psk_file psk_hint
    queue_qos0_messages remote_clientid remote_password remote_username require_certificate restart_timeout
    retain_available retained_persistence round_robin set_tcp_nodelay socket_domain start_type sys_interval threshold
    tls_engine tls_engine_kpass_sha1 tls_keyform tls_version topic try_private upgrade_outgoing_qos
    use_identity_as_username use_subject_as_username use_username_as_clientid user username websockets_headers_size
    websockets_log_level
""".split()
ADDED = """
    accept_protocol_versions bridge_ciphers bridge_ciphers_tls1.3 bridge_max_topic_alias bridge_receive_maximum
    bridge_reload_type bridge_session_expiry_interval bridge_tcp_keepalive bridge_tcp_user_timeout
    bridge_tls_use_os_certs disable_client_cert_date_checks enable_control_api enable_proxy_protocol global_max_clients
    global_max_connections global_plugin listener_allow_anonymous listener_auto_id_prefix max_topic_alias_broker
    maximum_qos packet_buffer_size plugin_load plugin_use proxy_protocol_v2_require_tls retain_expiry_interval
    websockets_origin
""".split()


# -- every option ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*GIVEN_UP, *OF_2_0, *ADDED])
def test_every_documented_option_has_a_rule(name: str) -> None:
    assert name == "include_dir" or rule_of(name) is not None


def test_there_is_no_rule_for_what_nobody_documents() -> None:
    assert set(OPTIONS) <= {*GIVEN_UP, *OF_2_0, *ADDED}


@pytest.mark.skipif(not MANUAL.exists(), reason="the manual of mosquitto.conf is not installed (Debian: mosquitto)")
def test_the_manual_knows_no_other() -> None:
    """In the manual's source every option begins a paragraph, in bold."""
    text = gzip.decompress(MANUAL.read_bytes()).decode().replace("\\&", "").replace("\\-", "-")
    options = set(re.findall(r"^\.PP\n\\fB([a-z_.0-9*]+)\\fR", text, re.M))
    assert len(options) > 100
    unknown = {name for name in options if rule_of(name.replace("*", "x")) is None}
    assert unknown <= {"include_dir", "mosquitto.conf", "mosquitto"}


@pytest.mark.skipif(not EXAMPLE.exists(), reason="Mosquitto's example is not installed (Debian: mosquitto)")
def test_the_packaged_example_is_understood(importing: Importer) -> None:
    """As it comes, and with every default that it shows in a comment."""
    text = EXAMPLE.read_text()
    shown = re.findall(r"^#([a-z_.0-9]+ [^ \n]+)$", text, re.M)
    assert len(shown) > 30
    for written in (text, "\n".join(shown)):
        assert "UNKNOWN" not in verdicts(importing(written)).values()


# -- where it listens ------------------------------------------------------------------------------------------


def test_without_a_listener_it_serves_this_machine(importing: Importer) -> None:
    assert settings(importing(""))["listener"][0] | {"anonymous": True} == {
        "host": "127.0.0.1",
        "port": 1883,
        "anonymous": True,
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("listener 1884", [("0.0.0.0", 1884)]),
        ("listener 1884 192.0.2.1", [("192.0.2.1", 1884)]),
        ("listener 1884\nsocket_domain ipv6", [("::", 1884)]),
        ("port 1885\nbind_address 192.0.2.1", [("192.0.2.1", 1885)]),
        ("port 1885\nlistener 1886 ::1", [("0.0.0.0", 1885), ("::1", 1886)]),
        ("listener 1886 ::1\nbind_address 192.0.2.1\nport 1885", [("192.0.2.1", 1885), ("::1", 1886)]),
        ("max_connections 5\nlistener 1886 ::1", [("0.0.0.0", 1883), ("::1", 1886)]),
        ("max_connections -1\nprotocol mqtt\ntls_version tlsv1.2\nlistener 1883 ::1", [("::1", 1883)]),
        ("max_connections 0\nlistener 1886 ::1", [("0.0.0.0", 1883), ("::1", 1886)]),
        ("require_certificate false", [("127.0.0.1", 1883)]),
        ("listener 1884\n  # indented\n\tmax_connections 5", [("0.0.0.0", 1884)]),
    ],
)
def test_listeners(importing: Importer, text: str, places: list[tuple[str, int]]) -> None:
    written = settings(importing(text + "\nallow_anonymous true"))["listener"]
    assert [(one["host"], one["port"]) for one in written] == places


def test_an_included_file_begins_with_the_default_listener(importing: Importer, tmp_path: Path) -> None:
    """As in Mosquitto; and files come in its order."""
    (tmp_path / "conf.d").mkdir()
    for name, text in (("b.conf", "max_queued_messages 2"), ("B.conf", "max_queued_messages 1"), ("c.txt", "nonsense")):
        (tmp_path / "conf.d" / name).write_text(text)
    (tmp_path / "conf.d" / "z.conf").write_text("max_connections 5\ninclude_dir .")
    translation = importing("allow_anonymous true\nlistener 1884 127.0.0.1\ninclude_dir conf.d\n")
    assert settings(translation)["limits"]["queue_messages_max"] == 2
    assert [one["port"] for one in settings(translation)["listener"]] == [1883, 1884]
    files = [Path(finding.line.file).name for finding in translation.findings]
    assert files == ["mosquitto.conf"] * 3 + ["B.conf", "b.conf", "z.conf", "z.conf"]
    assert translation.findings[-1].verdict.name == "UNKNOWN", "only the main file may include"


# -- what it takes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "value", "verdict"),
    [
        ("max_queued_messages 50", "queue_messages_max", 50, "TRANSLATED"),
        ("max_queued_messages 0", "queue_messages_max", 1_000_000, "DIFFERS"),
        ("max_queued_bytes 2000000", "queue_bytes_max", 2_000_000, "TRANSLATED"),
        ("max_queued_bytes 5", "queue_bytes_max", 1_024, "DIFFERS"),
        ("max_inflight_messages 1", "inflight_max", 1, "TRANSLATED"),
        ("max_inflight_messages 0", "inflight_max", 65_535, "DIFFERS"),
        ("max_packet_size 4096", "packet_bytes_max", 4_096, "TRANSLATED"),
        ("max_packet_size 20", "packet_bytes_max", 128, "DIFFERS"),
        ("message_size_limit 100", "packet_bytes_max", 100 + 65_535 + 16, "DIFFERS"),
        ("persistent_client_expiration 2w", "session_expiry_s_max", 14 * 86_400, "TRANSLATED"),
        ("persistent_client_expiration 999y", "session_expiry_s_max", 0xFFFF_FFFE, "DIFFERS"),
        ("retain_available false", "retained_messages_max", 0, "DIFFERS"),
        ("global_max_connections 7", "connections_max", 7, "TRANSLATED"),
        ("global_max_connections 0", "connections_max", 1_000_000, "DIFFERS"),
        ("global_max_connections -1", "connections_max", 1_000_000, "DIFFERS"),
    ],
)
def test_limits(importing: Importer, line: str, key: str, value: int, verdict: str) -> None:
    translation = importing(line)
    assert settings(translation)["limits"] == {key: value}
    assert verdicts(translation) == {line.split()[0]: verdict}
    assert f"{key} = {value}" in translation.text
    assert f"mosquitto.conf:1: {line}" in translation.text, "and says where it comes from"


@pytest.mark.parametrize("order", [1, -1])
def test_the_smaller_of_two_sizes_holds(importing: Importer, order: int) -> None:
    lines = ["max_packet_size 1000", "message_size_limit 500000"][::order]
    assert settings(importing("\n".join(lines)))["limits"]["packet_bytes_max"] == 1_000


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("persistence true", "edgebroker-data"),
        ("persistence true\npersistence_location /var/lib/mosquitto/", "/var/lib/mosquitto/edgebroker-data"),
        ("persistence_location /x\nretained_persistence true", "/x/edgebroker-data"),
        ("persistence_location /x", None),
        ("persistence true\npersistence false", None),
    ],
)
def test_persistence(importing: Importer, text: str, folder: str | None) -> None:
    assert settings(importing(text)).get("data", {}).get("dir") == folder


def test_what_is_not_said_and_differs_is_told(importing: Importer) -> None:
    assert "max_queued_bytes" in importing("").unsaid
    assert "max_queued_bytes" not in importing("max_queued_bytes 7000").unsaid


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_inflight_mesages 20", "did you mean max_inflight_messages?"),
        ("zzzzzz", "Mosquitto has no such option"),
        ("max_queued_messages many", "max_queued_messages takes a number"),
        ("allow_anonymous perhaps", "allow_anonymous takes true or false"),
        ("listener", "listener takes a value"),
        ("listener 99999999", "listener takes a port, and an address or the path of a Unix socket"),
        ("listener \u00b3", "listener takes a port, and an address or the path of a Unix socket"),
        (f"listener {'1' * 5_000}", "listener takes a port, and an address or the path of a Unix socket"),
        (f"persistence_location x\nmax_queued_messages {'1' * 5_000}", "max_queued_messages takes a number"),
        ("connection a\naddress h\nrestart_timeout 5 \u00b3", "restart_timeout takes a number of seconds, or two"),
        (f"connection a\naddress h\nrestart_timeout {'1' * 5_000}", "restart_timeout takes a number of seconds"),
        ("connection a\naddress h:\u00b3", "is no HOST or HOST:PORT, with a port from 1 to 65,535"),
        ("persistent_client_expiration 5x", "takes a number and one of s, h, d, w, m, y"),
        ("topic a/#", "topic stands before any connection"),
        ("connection a\ntopic a sideways", "the direction of a topic is in, out or both"),
        ("include_dir /nowhere", "cannot be read"),
        ("log_dest paper", "destinations are stderr, stdout"),
        ("max_connections some", "max_connections takes a number"),
        ("cafile", "cafile takes a path"),
    ],
)
def test_what_is_not_understood_is_said(importing: Importer, line: str, said: str) -> None:
    translation = importing(line)
    assert "UNKNOWN" in verdicts(translation).values()
    assert any(said in finding.note for finding in translation.findings)
    assert not translation.is_complete


@pytest.mark.parametrize(
    ("text", "section", "expected"),
    [
        ("max_keepalive 300", "mqtt", {"keep_alive_s_max": 300}),
        ("max_keepalive 65535", "mqtt", None),
        ("memory_limit 50000000", "quota", {"memory_bytes_max": 50_000_000}),
        ("sys_interval 0", "mqtt", {"sys_interval_s": 0}),
        ("log_type error", "notices", {"level": "error"}),
        ("log_type error\nlog_type notice\nlog_type warning", "notices", {"level": "info"}),
        ("log_type all", "notices", {"level": "debug"}),
    ],
)
def test_other_sections(importing: Importer, text: str, section: str, expected: dict[str, Any] | None) -> None:
    assert settings(importing(text)).get(section) == expected


# -- passwords -------------------------------------------------------------------------------------------------

SECRET = """
connection uplink
address cloud.example
remote_username anna
remote_password very secret
topic sensors/# out 1
"""


def test_passwords_are_not_shown(importing: Importer, tmp_path: Path) -> None:
    importing(SECRET)
    for options in ([], ["--json"], ["--check"], ["-o", str(tmp_path / "out.toml")]):
        shown = run(tmp_path, *options)
        assert "very secret" not in shown.output + shown.stderr
    assert "very secret" not in (tmp_path / "out.toml").read_text()


# -- the command -----------------------------------------------------------------------------------------------


def run(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["import", str(folder / "mosquitto.conf"), *options])


def test_settings_to_standard_output_and_the_report_beside_them(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("listener 1884 127.0.0.1\nallow_anonymous true\nmax_qos 1\n")
    ended = run(tmp_path)
    assert ended.exit_code == 0
    assert Settings.parse(ended.stdout, "x", tmp_path).listeners[0].port == 1884
    assert "no equivalent here (1)" in ended.stderr
    assert "mosquitto.conf:3: max_qos 1  ->  every QoS is taken on every listener" in ended.stderr


def test_a_file_is_written_and_never_overwritten_unasked(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("max_queued_messages 7\n")
    target = tmp_path / "gateway.toml"
    ended = run(tmp_path, "-o", str(target))
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert f"written: {target}" in ended.stdout
    assert Settings.load(target).limits.queue_messages_max == 7
    target.write_text("mine")
    ended = run(tmp_path, "-o", str(target))
    assert (ended.exit_code, target.read_text()) == (2, "mine")
    assert "--force overwrites it" in ended.stderr
    assert run(tmp_path, "-o", str(target), "--force").exit_code == 0
    ended = run(tmp_path, "-o", str(tmp_path / "mosquitto.conf"), "--force")
    assert (ended.exit_code, (tmp_path / "mosquitto.conf").read_text()) == (2, "max_queued_messages 7\n")
    assert Settings.load(target).limits.queue_messages_max == 7


@pytest.mark.parametrize(("line", "code"), [("max_queued_messages 7", 0), ("max_qos 1", 1), ("nonsense 1", 1)])
def test_check(tmp_path: Path, line: str, code: int) -> None:
    (tmp_path / "mosquitto.conf").write_text(line)
    ended = run(tmp_path, "--check")
    assert ended.exit_code == code
    assert "[[listener]]" not in ended.stdout
    assert run(tmp_path, "--check", "-o", "x").exit_code == 2


def test_json(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("max_queued_messages 7\nmax_qos 1\n")
    told = json.loads(run(tmp_path, "--json").stdout)
    assert told["ok"] is False
    assert tomllib.loads(told["settings"])["limits"] == {"queue_messages_max": 7}
    assert [(one["line"], one["verdict"], one["keys"]) for one in told["findings"]] == [
        (1, "translated", ["limits.queue_messages_max"]),
        (2, "missing", []),
    ]


def test_settings_that_a_gateway_would_refuse_are_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text(f"listener 1884 {'h' * 300}\nallow_anonymous true\n")
    ended = run(tmp_path, "--check")
    assert ended.exit_code == 1
    assert "a gateway would refuse" in ended.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), (b"# \xff\n", ":1: is not UTF-8"), (b"#" * (2 << 20), "has more than 1,048,576 bytes")],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "mosquitto.conf").write_bytes(content)
    ended = run(tmp_path)
    assert ended.exit_code == 2
    assert said in ended.stderr


LINES = st.tuples(st.sampled_from([*OF_2_0, *ADDED]), st.text(st.characters(codec="utf-8"), max_size=20) | st.just("1"))


@given(st.lists(LINES, max_size=12))
def test_whatever_stands_there_is_answered(tmp_path_factory: pytest.TempPathFactory, lines: list[Any]) -> None:
    """Any value of any option: an answer for every line, and TOML."""
    path = tmp_path_factory.mktemp("any") / "mosquitto.conf"
    path.write_text("\n".join(f"{name} {value}" for name, value in lines), encoding="utf-8", newline="")
    translation = translate(path)
    assert {name for name, _ in lines} <= {finding.line.name for finding in translation.findings}
    tomllib.loads(translation.text)


@pytest.mark.parametrize("location", ["", " \0"])
def test_a_folder_that_is_none_is_told(importing: Importer, location: str) -> None:
    translation = importing(f"persistence true\npersistence_location{location}")
    assert note(translation, "persistence_location") == "persistence_location takes a path"


VALUES = ("0", "1", "x", "/x", "a /x.so", "engine", "tlsv1.1", "mqttv31", "lazy", "none", "websockets")
BEFORE = ("", "listener 1\ncertfile /c\nkeyfile /k\n", "connection a\naddress h\ntopic a out\n")


def is_different(name: str, folder: Path) -> bool:
    """Whether an option has a value for which a gateway does something else, or does not know it."""
    for before, value in product(BEFORE, VALUES):
        (folder / "mosquitto.conf").write_text(f"{before}{name} {value}\n")
        found = translate(folder / "mosquitto.conf").findings[-1]
        if found.line.name == name and found.verdict.name in ("DIFFERS", "MISSING"):
            return True
    return False


def test_the_page_of_differences_names_every_option_that_is_not_the_same_here(tmp_path: Path) -> None:
    """And no other, but for those whose only difference is a default."""
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text("utf-8")
    section = page.partition("## Options without equal")[2].partition("\n## ")[0]
    rows = [row.split("|")[2] for row in section.splitlines() if row[:1] == "|"]
    named = set(re.findall(r"`([\w.]+)`", "".join(rows)))
    different = {name for name in OPTIONS if is_different(name, tmp_path)}
    by_default = {"check_retain_source", "persistent_client_expiration", "websockets_origin"}
    assert (sorted(different - named), sorted(named - different - by_default)) == ([], [])

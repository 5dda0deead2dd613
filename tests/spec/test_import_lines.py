"""`edgebroker import`: every value names its own line, and of an option that stands twice the last one holds."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.http_client import USUAL_PORT
from edgebroker.cli.mosquitto_import.translation import ImportTranslation
from edgebroker.runtime.settings import Settings

from ..support.mosquitto_import import Importer, note, settings, verdicts


def sources(translation: ImportTranslation, *keys: str) -> list[str]:
    """What stands behind the first value of each key."""
    lines = [line for line in translation.text.splitlines() if not line.startswith("#")]
    shown = [next(line for line in lines if line.startswith(f"{key} = ")).partition("#")[2].strip() for key in keys]
    return [re.sub(r"\S*/mosquitto.conf:", "", one) for one in shown]


def said(translation: ImportTranslation) -> list[tuple[str, str]]:
    """Of each line, its verdict and what was noted, without the folder."""
    found = [(finding.verdict.name, finding.note) for finding in translation.findings]
    return [(verdict, re.sub(r"\S*/mosquitto.conf:", "", note)) for verdict, note in found]


# -- where a value comes from ----------------------------------------------------------------------------------

NOBODY = "Mosquitto's default listener"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("port 1885\nport 1886", "every interface: 2: port 1886 names no address", "2: port 1886"),
        ("port 1885\nbind_address ::1\nport 1886", "2: bind_address ::1", "3: port 1886"),
        ("bind_address ::1", "1: bind_address ::1", NOBODY),
        ("max_connections 5", NOBODY, NOBODY),
        ("", NOBODY, NOBODY),
        ("port 1885\nsocket_domain ipv4\nsocket_domain ipv6", "3: socket_domain ipv6", "1: port 1885"),
        ("listener 1884", "every interface: 1: listener 1884 names no address", "1: listener 1884"),
        ("listener 1884 ::1", "1: listener 1884 ::1", "1: listener 1884 ::1"),
    ],
)
def test_host_and_port_name_their_own_lines(importing: Importer, text: str, host: str, port: str) -> None:
    assert sources(importing(text), "host", "port") == [host, port]


def test_lines_of_the_default_listener_say_what_each_has_set(importing: Importer) -> None:
    translation = importing("port 1885\nbind_address 192.0.2.1")
    assert [finding.keys for finding in translation.findings] == [("listener.port",), ("listener.host",)]
    (alone,) = importing("port 1885").findings
    assert (alone.verdict.name, alone.keys) == ("DIFFERS", ("listener.host", "listener.port"))
    assert "every interface, by IPv4" in alone.note


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_that_is_none_is_said_at_its_line(importing: Importer, port: str) -> None:
    assert verdicts(importing(f"port {port}")) == {"port": "UNKNOWN"}


# -- what stands twice -----------------------------------------------------------------------------------------

OF_A = "connection a\naddress cloud.example\ntopic # out 1\n"


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("max_queued_messages 10", "max_queued_messages 2000"),
        ("max_packet_size 1000", "max_packet_size 4000"),
        ("port 1885", "port 1886"),
        ("allow_anonymous true", "allow_anonymous false"),
        ("persistence true", "retained_persistence false"),
        ("mount_point a/", "mount_point b/"),
        ("queue_qos0_messages true", "queue_qos0_messages false"),
        ("socket_domain ipv6", "socket_domain ipv4"),
        (f"{OF_A}keepalive_interval 7", "keepalive_interval 8"),
        (f"{OF_A}clientid a", "remote_clientid b"),
        (f"{OF_A}remote_password very secret", "password also secret"),
    ],
)
def test_an_overridden_line_is_told_by_which(importing: Importer, first: str, last: str) -> None:
    translation = importing(f"{first}\n{last}")
    shown = re.sub(r"^(password) .*", r"\1 (not shown)", last)
    assert said(translation)[-2] == ("NEEDLESS", f"overridden by {len(translation.findings)}: {shown}")
    assert not said(translation)[-1][1].startswith("overridden")
    without = importing(first.rpartition("\n")[0] + "\n" + last)
    assert settings(translation) == settings(without), "Mosquitto takes the last one"


def test_of_three_the_last_one_is_named(importing: Importer) -> None:
    found = said(importing("port 1885\nport 1886\nport 1887"))
    assert [note for _, note in found[:2]] == ["overridden by 3: port 1887"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "listener 1884\nmax_connections 5\nlistener 1885\nmax_connections 6",
        "per_listener_settings true\nlistener 1884\nallow_anonymous true\nlistener 1885\nallow_anonymous true",
        "per_listener_settings true\nlistener 1884\npassword_file x\nlistener 1885\npassword_file x",
        "listener 1884\nuse_username_as_clientid true\nlistener 1885\nuse_username_as_clientid false",
        f"{OF_A}keepalive_interval 7\n{OF_A.replace('n a', 'n b')}keepalive_interval 8",
        f"{OF_A}topic a/# in\ntopic a/# in 1",
        "log_type error\nlog_type notice\nlog_dest stdout\nlog_dest stderr",
        "plugin /a.so\nplugin /b.so\nplugin_opt_x 1\nplugin_opt_x 2",
        "max_queued_messages 10\nmax_queued_messages many",
        "password_file a\npassword_file b",
    ],
)
def test_what_stands_in_two_places_or_counts_each_time_is_not_overridden(importing: Importer, text: str) -> None:
    assert not [note for _, note in said(importing(text)) if note.startswith("overridden")]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("retain_available false", "retain_available true"),
        ("max_keepalive 300", "max_keepalive 0"),
        ("max_packet_size 1000", "max_packet_size 0"),
        ("use_username_as_clientid true", "use_username_as_clientid false"),
        (f"{OF_A}start_type manual", "start_type automatic"),
        (f"{OF_A}bridge_psk 12", "bridge_psk false"),
        (f"{OF_A}bridge_outgoing_retain false", "bridge_outgoing_retain true"),
    ],
)
def test_what_an_overridden_line_did_is_taken_back(importing: Importer, first: str, last: str) -> None:
    before, _, _ = first.rpartition("\n")
    assert settings(importing(f"{first}\n{last}")) == settings(importing(f"{before}\n{last}"))


def test_a_bridge_is_paused_because_of_the_line_that_holds(importing: Importer) -> None:
    translation = importing(f"{OF_A}username anna\nremote_password x\nremote_password y")
    assert sources(translation, "password_file", "paused") == [
        "6: remote_password (not shown)",
        "because of 6: remote_password (not shown)",
    ]


def test_a_line_for_all_of_which_every_listener_has_its_own(importing: Importer) -> None:
    translation = importing("allow_anonymous true\nlistener 1884 ::1\nlistener_allow_anonymous false")
    assert note(translation, "allow_anonymous") == "every listener has a line of its own"


# -- where a gateway is asked ----------------------------------------------------------------------------------


def opened(text: str) -> dict[str, Any]:
    """The settings, when the `#` before [http] and what follows is taken away."""
    before, http, after = text.partition("# [http]")
    return tomllib.loads(before + (http + after).replace("\n# ", "\n").removeprefix("# "))


def test_the_http_listener_is_left_to_open(importing: Importer, tmp_path: Path) -> None:
    """A port that somebody has keeps a gateway from starting: it is not opened unasked."""
    translation = importing("listener 1884 127.0.0.1\nallow_anonymous true")
    assert Settings.parse(translation.text, "x", tmp_path).http.port is None
    assert "edgebroker status, reload" in translation.unsaid["[http]"]
    assert opened(translation.text)["http"] == {"port": USUAL_PORT}


def test_where_there_are_users_the_http_listener_wants_a_token(importing: Importer) -> None:
    for line in ("password_file users", "acl_file rules"):
        assert opened(importing(line).text)["http"] == {"port": USUAL_PORT, "token_file": "http-token"}

"""What `edgebroker import` makes of the bridges of a Mosquitto."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebroker.cli.bridge import command
from edgebroker.cli.mosquitto_import.translation import ImportTranslation, translate
from edgebroker.runtime.settings import Settings
from edgebroker.runtime.settings.bridge_section import BridgeSettings

from ..support.mosquitto_import import Importer, note, verdicts

BRIDGE = """
connection uplink
addresses cloud.example:8883 192.0.2.7
bridge_protocol_version mqttv50
remote_clientid site-7
remote_username anna
remote_password very secret
topic sensors/# out 1
topic $filter/temp%3E30/alarms/# in 2
topic "" both 0 a b
bridge_cafile /etc/ca.pem
try_private false
restart_timeout 5 30
"""


def bridges(translation: ImportTranslation) -> tuple[BridgeSettings, ...]:
    return Settings.parse(translation.text, "the settings written", Path()).bridges


def test_a_bridge_becomes_a_bridge(importing: Importer) -> None:
    translation = importing(BRIDGE)
    assert translation.problems == []
    (bridge,) = bridges(translation)
    assert (bridge.name, bridge.addresses) == ("uplink", ("cloud.example:8883", "192.0.2.7:1883"))
    assert (bridge.version, bridge.client_id, bridge.username, bridge.retry_s_max) == ("5", "site-7", "anna", 30)
    assert [str(rule) for rule in bridge.topic] == [
        "sensors/# out 1",
        "alarms/# in 2 where temp>30",
        '"" both 0 a b',
    ]
    assert {rule.retain for rule in bridge.topic} == {True}
    found = verdicts(translation)
    assert {found[name] for name in ("connection", "addresses", "topic", "bridge_protocol_version")} == {"TRANSLATED"}


def test_a_bridge_that_would_be_less_safe_is_paused(importing: Importer) -> None:
    plain = "connection a\naddress cloud.example\ntopic # out 1\n"
    for line in (
        "remote_password very secret",
        "bridge_psk 1234",
        "bridge_require_ocsp true",
        "bridge_capath /etc/certs",
    ):
        translation = importing(plain + line)
        name = line.split()[0]
        assert verdicts(translation)[name] == "MISSING"
        assert "paused" in note(translation, name)
        (bridge,) = bridges(translation)
        assert bridge.paused
        assert translation.problems == []
    (bridge,) = bridges(importing(plain))
    assert not bridge.paused


@pytest.mark.parametrize(
    ("lines", "key", "value"),
    [
        ("", "version", "3.1.1"),
        ("try_private false", "try_private", False),
        ("bridge_protocol_version mqttv31", "version", "3.1.1"),
        ("bridge_protocol_version mqttv50\ntry_private false", "try_private", True),
        ("keepalive_interval 7", "keep_alive_s", 7),
        ("restart_timeout 20", "retry_s_max", 20),
        ("restart_timeout 5 999999", "retry_s_max", 3_600),
        ("notification_topic up/state", "notification_topic", "up/state"),
        ("local_username anna", "local_user", "anna"),
        ("bridge_cafile certs/ca.pem", "is_tls", True),
        ("bridge_tls_use_os_certs true", "is_tls", True),
        ("bridge_tls_use_os_certs false", "is_tls", False),
        ("start_type manual", "paused", True),
        ("start_type lazy", "paused", False),
    ],
)
def test_lines_of_a_bridge(importing: Importer, lines: str, key: str, value: object) -> None:
    translation = importing(f"connection a\naddress cloud.example\ntopic # out 1\n{lines}")
    assert translation.problems == []
    (bridge,) = bridges(translation)
    assert getattr(bridge, key) == value


def test_files_of_tls_are_found_from_anywhere(importing: Importer, tmp_path: Path) -> None:
    lines = "bridge_cafile ca.pem\nbridge_certfile me.pem\nbridge_keyfile /etc/me.key"
    translation = importing(f"connection a\naddress cloud.example:8883\ntopic # out 1\n{lines}")
    assert translation.problems == []
    (bridge,) = bridges(translation)
    assert (bridge.tls_ca, bridge.tls_certificate) == (tmp_path / "ca.pem", tmp_path / "me.pem")
    assert bridge.tls_key == Path("/etc/me.key")
    assert bridge.is_tls
    assert not bridge.paused


def test_what_goes_out_is_not_retained_if_it_was_not(importing: Importer) -> None:
    lines = "connection a\naddress cloud.example\nbridge_outgoing_retain false\ntopic a/# out 1\ntopic b/# in 1"
    (bridge,) = bridges(importing(lines))
    assert [(rule.pattern, rule.retain) for rule in bridge.topic] == [("a/#", False), ("b/#", True)]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ('$filter/temp%3E30/a/# in 1 "" site/', "write the rule with `where`"),
        ("$filter/temp%3E30/a/# out 1", "write the rule with `where`"),
        ("$share/group/a/# in 1", "a bridge wants every message"),
        ("a/# out 1 b+/ c/", "put wildcards into the pattern"),
    ],
)
def test_a_topic_that_cannot_be_carried_is_left_out_and_the_others_stay(
    importing: Importer, topic: str, said: str
) -> None:
    translation = importing(f"connection a\naddress cloud.example\ntopic {topic}\ntopic kept/# out 1")
    assert translation.problems == []
    (bridge,) = bridges(translation)
    assert [rule.pattern for rule in bridge.topic] == ["kept/#"]
    (found,) = [one for one in translation.findings if one.line.value == topic]
    assert found.verdict.name == "MISSING"
    assert said in found.note


def test_a_bridge_with_nothing_to_carry_is_left_out(importing: Importer) -> None:
    translation = importing("connection a\naddress cloud.example\ntopic $share/g/a in 1")
    assert translation.problems == []
    assert bridges(translation) == ()
    assert "a bridge without a topic that can be carried is left out" in translation.text


def test_a_name_that_is_none_here_is_changed(importing: Importer) -> None:
    translation = importing("connection up+link/ö # to the cloud\naddress cloud.example\ntopic # out 1")
    (bridge,) = bridges(translation)
    assert bridge.name == "up-link--"
    assert note(translation, "connection") == "is called up-link-- here"


def test_two_names_that_would_be_one_here_stay_two(importing: Importer) -> None:
    each = "connection up{}link\naddress cloud.example\ntopic # out 1\n"
    translation = importing(each.format("+") + each.format("/") + each.format("-"))
    assert [bridge.name for bridge in bridges(translation)] == ["up-link", "up-link-2", "up-link-3"]
    assert [finding.note for finding in translation.findings if finding.line.name == "connection"] == [
        "is called up-link here",
        "is called up-link-2 here",
        "is called up-link-3 here",
    ]


def test_a_second_bridge_of_one_name_is_said_at_its_line(tmp_path: Path) -> None:
    """Mosquitto refuses it too."""
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        "connection a\naddress cloud.example\ntopic # out 1\nconnection a\naddress other.example\ntopic # in 1"
    )
    translation = translate(config)
    (found,) = [finding for finding in translation.findings if finding.verdict.name == "UNKNOWN"]
    assert found.line.number == 4
    assert found.note == f"{config}:1 has a bridge a already: give each a name of its own"
    assert "cloud.example:1883" in translation.text, "what follows changes nothing of the first"


@pytest.mark.parametrize("word", ["h:99999", "h:0", "h:x", "a,b", "good h:99999"])
def test_an_address_that_is_none_is_said_at_its_line(tmp_path: Path, word: str) -> None:
    (tmp_path / "mosquitto.conf").write_text(f"connection a\naddress {word}\ntopic # out 1")
    translation = translate(tmp_path / "mosquitto.conf")
    assert verdicts(translation)["address"] == "UNKNOWN"
    bad = word.split()[-1]
    assert note(translation, "address") == f"{bad} is no HOST or HOST:PORT, with a port from 1 to 65,535"
    assert not translation.is_complete


def test_the_note_about_notifications_names_a_command_that_shows_all_bridges(importing: Importer) -> None:
    translation = importing("connection a\naddress cloud.example\ntopic # out 1\nnotifications true")
    (name,) = re.findall(r"`edgebroker bridge ([^`]*)`", note(translation, "notifications"))
    assert [one.name for one in command.commands[name].params if one.required] == [], "it is complete as it stands"


def test_as_many_rules_as_a_bridge_may_have_are_written_so_that_they_are_read(importing: Importer) -> None:
    topics = [f'topic sensors/{number}/# out 1 "" site/' for number in range(255)]
    translation = importing("\n".join(["connection a", "address cloud.example", *topics, "topic where in 1"]))
    assert translation.problems == []
    (bridge,) = bridges(translation)
    assert [str(rule) for rule in bridge.topic] == [
        *(topic.removeprefix("topic ") for topic in topics),
        '"where" in 1',
    ]
    assert "    'sensors/7/# out 1 \"\" site/'," in translation.text


def test_each_rule_has_its_line_behind_it(importing: Importer) -> None:
    translation = importing("connection a\naddress cloud.example\ntopic # both 2 here/ there/")
    (line,) = [line for line in translation.text.splitlines() if "here/ there/" in line]
    assert line.startswith('    "# both 2 here/ there/",')
    assert line.endswith("mosquitto.conf:3: topic # both 2 here/ there/")

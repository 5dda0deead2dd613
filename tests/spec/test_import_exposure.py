"""`edgebroker import`: a line that may keep somebody out, and is not carried over as it was, shuts its listener."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgebroker.cli.mosquitto_import.translation import ImportTranslation, translate

from ..support.mosquitto_import import Importer, note, settings, verdicts

OPEN = "listener 1884\nallow_anonymous true\n"
TLS = "listener 8883\nallow_anonymous true\ncertfile /c.pem\nkeyfile /k.pem\n"
SHUT = "127.0.0.1"


def hosts(translation: ImportTranslation) -> list[str]:
    """The hosts of the listeners, in their order."""
    return [one["host"] for one in settings(translation)["listener"]]


# -- a line as Mosquitto reads it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "cafile /ca.pem\nrequire_certificate true   # devices",
            {"tls_client": "required", "tls_client_ca": "/ca.pem"},
        ),
        ("cafile /ca.pem\nrequire_certificate 1 devices", {"tls_client": "required", "tls_client_ca": "/ca.pem"}),
        ("tls_version tlsv1.3 # new ones", {"tls_minimum": "1.3"}),
        ("max_connections 5 # enough", {"connections_max": 5}),
        ("protocol websockets # browsers", {"protocol": "websocket", "websocket_path": "*"}),
    ],
)
def test_a_remark_behind_a_value_is_none_of_it(importing: Importer, line: str, expected: dict[str, Any]) -> None:
    translation = importing(TLS + line)
    (listener,) = settings(translation)["listener"]
    assert listener | expected == listener
    assert listener["host"] == "0.0.0.0"
    assert "UNKNOWN" not in verdicts(translation).values()


def test_a_remark_behind_an_address_or_a_topic_is_none_of_it(importing: Importer) -> None:
    lines = [
        "connection a # up",
        "address h:1 # there",
        "topic # out 1 # all",
        'topic "b c/#" IN 2',
        "start_type once # x",
    ]
    translation = importing("listener 1884 ::1 # here\n" + "\n".join(lines))
    (bridge,) = settings(translation)["bridge"]
    assert (bridge["name"], bridge["addresses"], bridge["topic"]) == ("a", ["h:1"], ["# out 1", '"b c/#" in 2'])
    assert hosts(translation) == ["::1"]


def test_a_remark_behind_a_path_is_part_of_the_name(importing: Importer, tmp_path: Path) -> None:
    """Mosquitto does not start then, unless there is such a file."""
    translation = importing(TLS + "cafile /ca.pem # ours\nrequire_certificate true")
    assert "with the remark" in note(translation, "cafile")
    assert hosts(translation) == [SHUT]
    (tmp_path / "ca # ours").touch()
    listener = settings(importing(TLS + "cafile ca # ours\nrequire_certificate true"))["listener"][0]
    assert listener["tls_client_ca"] == str(tmp_path / "ca # ours")


# -- what is not carried over --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "requre_certificate true",  # no such option
        "require_certificate yes",
        "max_connections some",
        "allow_zero_length_clientid false",
        "accept_protocol_versions 5",
        "accept_protocol_versions",
        "plugin /usr/lib/mosquitto_own.so",
        "plugin_opt_own yes",
        "password_file",
        "acl_file",
        "include_dir /nowhere",
        "per_listener_settings perhaps",
        "enable_proxy_protocol 3",
        "use_username_as_clientid maybe",
        "protocol websockets\nwebsockets_origin *",  # no wildcard in Mosquitto: nobody comes from there
        "listener 99999999",
    ],
)
def test_whatever_the_reason_the_listener_is_shut_and_said_to_be(importing: Importer, line: str) -> None:
    translation = importing(OPEN + line)
    assert hosts(translation) == [SHUT]
    name = line.rpartition("\n")[2].split()[0]
    assert translation.findings[-1].note.endswith("port 1884: kept to this machine")
    assert f"mosquitto.conf:{3 + line.count(chr(10))}: {name}" in translation.text
    assert not translation.is_complete


@pytest.mark.parametrize(
    "line",
    [
        "max_queued_messages many",
        "log_dest paper",
        "max_qos 1",
        "maximum_qos 1 # since 2.1",
        "queue_qos0_messages true",
        "connection a\naddress h\ntopic a sideways\ntopic b\nnotifications perhaps",
        "retain_expiry_interval 5",
        "accept_protocol_versions 3, 4,5",
        "use_identity_as_username true",  # without TLS it does nothing
        "plugin /usr/lib/mosquitto_sparkplug_aware.so",
    ],
)
def test_what_keeps_nobody_out_shuts_nothing(importing: Importer, line: str) -> None:
    assert hosts(importing(OPEN + line)) == ["0.0.0.0"]


def test_only_its_own_listener_is_shut(importing: Importer) -> None:
    translation = importing(OPEN + "listener 1885\nmount_point a/\nlistener 1886 192.0.2.1\n")
    assert hosts(translation) == ["0.0.0.0", SHUT, "192.0.2.1"]
    assert hosts(importing(OPEN + "clientid_prefixes a\nlistener 1885")) == [SHUT, SHUT], "of the whole broker"
    apart = "per_listener_settings true\n" + OPEN + "psk_file /keys\nlistener 1885\nallow_anonymous true"
    assert hosts(importing(apart)) == [SHUT, "0.0.0.0"]


def test_what_is_shut_already_is_not_said_to_be(importing: Importer) -> None:
    translation = importing("listener 1884 localhost\nallow_anonymous true\nmount_point a/")
    assert hosts(translation) == ["localhost"]
    assert "kept to this machine" not in note(translation, "mount_point")


def test_a_bridge_whose_protection_is_not_understood_is_paused(importing: Importer) -> None:
    plain = "connection a\naddress cloud.example\ntopic # out 1\n"
    for line in ("bridge_require_ocsp perhaps", "bridge_tls_use_os_certs", "bridge_cafile ", "local_username"):
        assert settings(importing(plain + line))["bridge"][0]["paused"] is True
    assert "paused" not in settings(importing(plain + "bridge_require_ocsp false # no"))["bridge"][0]


# -- who comes in by another listener --------------------------------------------------------------------------------


def test_per_listener_settings_stay_and_take_nothing_from_lines_for_all(importing: Importer) -> None:
    """Neither a later line takes them back, nor does a line before them hold for listeners."""
    for text in (
        "per_listener_settings true\nper_listener_settings false\nlistener 1\nallow_anonymous true\nlistener 2",
        "allow_anonymous true\nper_listener_settings true\nlistener 1\nallow_anonymous true\nlistener 2",
    ):
        assert [one["anonymous"] for one in settings(importing(text))["listener"]] == [True, False]


def test_users_of_one_listener_do_not_come_in_by_another(importing: Importer) -> None:
    """Without a password file and without anonymous clients Mosquitto lets nobody in (tried with 2.0.11)."""
    text = "per_listener_settings true\nlistener 1\npassword_file /p\nlistener 2\nlistener 3\nallow_anonymous true"
    translation = importing(text)
    assert hosts(translation) == ["0.0.0.0", SHUT, "0.0.0.0"]
    assert "its users come in everywhere" in note(translation, "password_file")


def test_a_certificate_names_its_user_where_it_did(importing: Importer) -> None:
    asked = "{}certfile /c.pem\nkeyfile /k.pem\ncafile /ca.pem\nrequire_certificate true\n"
    text = asked.format("listener 1\n") + "use_identity_as_username true\n" + asked.format("listener 2\n")
    translation = importing(text + "password_file /p")
    assert hosts(translation) == ["0.0.0.0", SHUT], "there a password was asked for too"
    alone = importing("listener 1\ncertfile /c.pem\nkeyfile /k.pem\ncafile /ca.pem\nuse_identity_as_username true")
    assert hosts(alone) == [SHUT]
    assert "Mosquitto lets nobody in" in note(alone, "use_identity_as_username")


@pytest.mark.parametrize(
    ("rules", "host"),
    [
        ("topic #\nuser anna\ntopic deny secret\n", SHUT),
        ("pattern readwrite own/%u/#\n", SHUT),
        ("topic readwrite #\npattern read own/%c/#\n", "0.0.0.0"),
    ],
)
def test_rules_for_users_whose_names_nobody_proves(importing: Importer, tmp_path: Path, rules: str, host: str) -> None:
    """Mosquitto goes by the name in CONNECT, though it asks for no password; here that counts for nothing."""
    (tmp_path / "rules").write_text(rules)
    translation = importing(OPEN + "acl_file rules")
    assert hosts(translation) == [host]
    assert ("no user name is proved" in note(translation, "acl_file")) is (host == SHUT)
    assert hosts(importing(OPEN + "acl_file rules\npassword_file /p")) == ["0.0.0.0"]


# -- 2.1 ------------------------------------------------------------------------------------------------------------

LIBRARY = "/usr/lib/mosquitto_{}.so"
PASSWORDS, RULES, SQLITE = map(LIBRARY.format, ("password_file", "acl_file", "persist_sqlite"))


@pytest.mark.parametrize("option", ["plugin", "global_plugin"])
def test_the_plugins_that_read_files_are_those_files(importing: Importer, tmp_path: Path, option: str) -> None:
    (tmp_path / "rules").write_text("user anna\ntopic #\n")
    lines = f"{option} {PASSWORDS}\nplugin_opt_password_file /p\n{option} {RULES}\nplugin_opt_acl_file rules\n"
    translation = importing("listener 1884\n" + lines)
    assert settings(translation)["access"] == {"password_file": "/p", "acl_file": str(tmp_path / "rules")}
    assert hosts(translation) == ["0.0.0.0"]
    assert verdicts(translation)[option] == "NEEDLESS"


def test_a_plugin_that_one_listener_uses(importing: Importer) -> None:
    lines = f"plugin_load users {PASSWORDS}\nplugin_opt_password_file /p\nlistener 1\nplugin_use users\nlistener 2\n"
    translation = importing(lines)
    assert settings(translation)["access"] == {"password_file": "/p"}
    assert hosts(translation) == ["0.0.0.0", SHUT]
    assert "access" not in settings(importing(lines.replace("plugin_use users\n", "")))


def test_a_second_file_shuts_every_listener_that_uses_it(importing: Importer) -> None:
    first, second = (f"plugin_load {name} {PASSWORDS}\nplugin_opt_password_file /{name}\n" for name in "ab")
    uses = "listener 1\nplugin_use a\nlistener 2\nplugin_use b\nlistener 3\nplugin_use b\n"
    assert hosts(importing(first + second + uses))[1:] == [SHUT, SHUT]


@pytest.mark.parametrize(
    "line", [f"plugin {PASSWORDS}", "plugin_use users", f"plugin {LIBRARY.format('dynamic_security')}"]
)
def test_a_plugin_that_is_not_carried_over_shuts(importing: Importer, line: str) -> None:
    assert hosts(importing(OPEN + line)) == [SHUT]


def test_sqlite_persistence_is_a_data_folder(importing: Importer) -> None:
    translation = importing(f"persistence_location /x\nglobal_plugin {SQLITE}\nplugin_opt_db_file /x/m.sqlite3")
    assert settings(translation)["data"] == {"dir": "/x/edgebroker-data"}
    assert translation.is_complete


def test_argon2id_is_named(importing: Importer, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna:$argon2id$v=19$m=47104,t=1,p=1$c2FsdHNhbHQ$a2V5a2V5a2V5\n")
    (tmp_path / "users").chmod(0o600)
    said = note(importing("listener 1884\npassword_file users"), "password_file")
    assert "$argon2id$, which Mosquitto 2.1 writes, cannot be checked here" in said
    assert "edgebroker passwd" in said


# -- the rest -------------------------------------------------------------------------------------------------------


def test_every_origin_of_a_websocket_is_kept(importing: Importer) -> None:
    text = OPEN + "protocol websockets\nwebsockets_origin https://a.example\nwebsockets_origin http://b.example:8080"
    translation = importing(text)
    (listener,) = settings(translation)["listener"]
    assert listener["websocket_origins"] == ["https://a.example", "http://b.example:8080"]
    assert [one.verdict.name for one in translation.findings][-2:] == ["TRANSLATED"] * 2


@pytest.mark.parametrize("line", ["notifications false", "notifications_local_only true"])
def test_who_was_told_nothing_is_told_nothing(importing: Importer, line: str) -> None:
    plain = "connection a\naddress h\ntopic # out\n"
    for lines in (f"notification_topic up\n{line}", f"{line}\nnotification_topic up"):
        translation = importing(plain + lines)
        assert "notification_topic" not in settings(translation)["bridge"][0]
        assert verdicts(translation)["notification_topic"] == "NEEDLESS"
    opposite = line.replace("true", "1").replace("false", "0").translate(str.maketrans("01", "10"))
    assert settings(importing(f"{plain}{opposite}\nnotification_topic up"))["bridge"][0]["notification_topic"] == "up"


def test_seconds_are_a_unit_since_2_1(importing: Importer) -> None:
    assert settings(importing("persistent_client_expiration 900s # a quarter"))["limits"] == {
        "session_expiry_s_max": 900
    }


def test_without_persistence_nothing_is_kept(importing: Importer) -> None:
    assert settings(importing("persistence false"))["data"] == {"durability": "memory"}
    assert "persistence" in importing("").unsaid


def test_retained_messages_of_whom_it_does_not_matter(importing: Importer) -> None:
    assert settings(importing("check_retain_source false"))["access"] == {"check_retain_source": False}
    assert verdicts(importing("check_retain_source true")) == {"check_retain_source": "NEEDLESS"}


def test_an_option_before_the_first_listener_that_a_later_line_takes_back_opens_nothing(tmp_path: Path) -> None:
    config = tmp_path / "mosquitto.conf"
    for lines in ("max_connections 5\nmax_connections -1", "use_username_as_clientid 1\nuse_username_as_clientid 0"):
        config.write_text(f"{lines}\nlistener 1884 127.0.0.1\n")
        assert [one["port"] for one in settings(translate(config))["listener"]] == [1884]
    config.write_text("per_listener_settings true\npassword_file /p\nlistener 1884 127.0.0.1\n")
    assert [one["port"] for one in settings(translate(config))["listener"]] == [1883, 1884], "tried with 2.0.11"

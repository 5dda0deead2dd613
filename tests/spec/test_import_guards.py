"""`edgebroker import`: who was kept out stays out, by certificates, passwords and rules, or by the loopback address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..support.mosquitto_import import Importer, note, settings, verdicts

# -- certificates ----------------------------------------------------------------------------------------------

TLS = "listener 8883\nallow_anonymous true\ncertfile c.pem\nkeyfile /k.pem\n"


@pytest.mark.parametrize("number", [0, -1])
def test_a_listener_without_a_limit_has_that_of_all(importing: Importer, number: int) -> None:
    """Mosquitto lets everybody in with either."""
    translation = importing(f"listener 1884\nmax_connections {number}\n")
    assert "connections_max" not in settings(translation)["listener"][0]
    assert verdicts(translation)["max_connections"] == "DIFFERS"
    assert note(translation, "max_connections").startswith("nothing is without limit here: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("tls_version tlsv1.3", {"tls_minimum": "1.3"}),
        ("tls_version tlsv1.1", {"tls_minimum": "1.2"}),
        ("cafile /ca.pem", {"tls_chain": "/ca.pem"}),  # nobody is asked, and OpenSSL completes the chain with it
        ("cafile /ca.pem\nrequire_certificate true", {"tls_client": "required", "tls_client_ca": "/ca.pem"}),
        (
            "crlfile /r.pem\ncafile /ca.pem\nrequire_certificate true",
            {"tls_client": "required", "tls_client_ca": "/ca.pem", "tls_client_crl": "/r.pem"},
        ),
        ("crlfile /r.pem", {}),
        ("protocol websockets", {"protocol": "websocket", "websocket_path": "*"}),
        ("max_connections 50", {"connections_max": 50}),
        ("enable_proxy_protocol 2", {"proxy_protocol": True}),
    ],
)
def test_tls(importing: Importer, tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    (listener,) = settings(importing(TLS + text))["listener"]
    assert listener == expected | {
        "host": "0.0.0.0",
        "port": 8883,
        "anonymous": True,
        "tls_certificate": str(tmp_path / "c.pem"),  # from the root: our settings may lie elsewhere
        "tls_key": "/k.pem",
    }


def test_a_certificate_may_name_its_user(importing: Importer) -> None:
    asked = TLS + "cafile /ca.pem\nrequire_certificate true\n"
    written = settings(importing(asked + "use_identity_as_username true"))
    assert (written["access"], written["listener"][0]["host"]) == ({"certificate_user": "common name"}, "0.0.0.0")
    written = settings(importing(asked + "use_subject_as_username true"))
    assert written["listener"][0]["host"] == "127.0.0.1", "not who it was: this machine alone"


@pytest.mark.parametrize("line", ["certfile /c.pem", "keyfile /k.pem", "require_certificate true"])
def test_half_of_tls_keeps_a_listener_on_this_machine(importing: Importer, line: str) -> None:
    (listener,) = settings(importing(f"listener 8883\nallow_anonymous true\n{line}"))["listener"]
    assert listener == {"host": "127.0.0.1", "port": 8883, "anonymous": True}


def test_a_unix_socket(importing: Importer) -> None:
    assert settings(importing("listener 0 /run/m.sock\nallow_anonymous true"))["listener"] == [
        {"path": "/run/m.sock", "anonymous": True}
    ]


# -- users and rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "anonymous"),
    [
        ("listener 1 127.0.0.1\nlistener 2 127.0.0.1", [False, False]),
        ("listener 1 127.0.0.1\nallow_anonymous true\nlistener 2 127.0.0.1", [True, True]),
        ("per_listener_settings true\nlistener 1 127.0.0.1\nallow_anonymous true\nlistener 2 127.0.0.1", [True, False]),
        ("listener 1 127.0.0.1\nlistener_allow_anonymous true\nlistener 2 127.0.0.1", [True, False]),
    ],
)
def test_anonymous_clients(importing: Importer, text: str, anonymous: list[bool]) -> None:
    assert [one["anonymous"] for one in settings(importing(text))["listener"]] == anonymous


USER = "anna:$7$101$" + "A" * 16 + "$" + "A" * 86 + "==\n"


@pytest.mark.parametrize(
    ("option", "key", "content", "verdict", "said"),
    [
        ("password_file", "password_file", USER, "TRANSLATED", "kept as it is"),
        ("password_file", "password_file", "anna:$9$x\n", "DIFFERS", "line 1"),
        ("password_file", "password_file", None, "DIFFERS", "not checked"),
        ("acl_file", "acl_file", "user anna\ntopic read a/#\n", "TRANSLATED", "kept as it is"),
        ("acl_file", "acl_file", "topic raed a/#\nfoo\n", "MISSING", "line 2"),
    ],
)
def test_files_stay_and_are_checked(
    importing: Importer, tmp_path: Path, option: str, key: str, content: str | None, verdict: str, said: str
) -> None:
    if content is not None:
        (tmp_path / "file").write_text(content)
        (tmp_path / "file").chmod(0o600)
    translation = importing(f"{option} file")
    assert settings(translation)["access"] == {key: str(tmp_path / "file")}
    assert verdicts(translation) == {option: verdict}
    assert said in note(translation, option)


def test_one_file_serves_all_listeners(importing: Importer) -> None:
    each = "per_listener_settings true\nallow_anonymous true\nlistener {}\npassword_file {}\n"
    both = importing(each.format(1884, "/a") + each.format(1885, "/a"))
    assert settings(both)["access"] == {"password_file": "/a"}
    apart = importing(each.format(1884, "/a") + each.format(1885, "/b"))
    assert settings(apart)["access"] == {"password_file": "/a"}
    hosts = [one["host"] for one in settings(apart)["listener"]]
    assert hosts == ["0.0.0.0", "127.0.0.1"], "its own users do not come in there, and others would"


def test_that_a_file_of_one_listener_holds_for_all_is_said(importing: Importer, tmp_path: Path) -> None:
    """Rules for devices outside would silence programs of this machine that had none."""
    (tmp_path / "rules").write_text("topic read #\n")
    doors = "listener 1883 127.0.0.1\nallow_anonymous true\nlistener 8883\nacl_file rules\n"
    translation = importing("per_listener_settings true\n" + doors)
    assert verdicts(translation)["acl_file"] == "DIFFERS"
    assert note(translation, "acl_file") == "kept as it is; holds for listener 1883 127.0.0.1 too"
    assert verdicts(importing(doors))["acl_file"] == "TRANSLATED", "it does so in Mosquitto too"


# -- never more open than it was -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "psk_file /etc/keys",
        "psk_hint hint",
        "plugin /usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so",
        "auth_plugin /usr/lib/own.so",
        "clientid_prefixes secure-",
        "use_username_as_clientid true",
        "bind_interface lo",
        "mount_point site/",
        "protocol http_api",
        "protocol mqttsn",
        "protocol gopher",
        "enable_proxy_protocol 1",
        "proxy_protocol_v2_require_tls true",
    ],
)
def test_what_kept_somebody_out_and_is_not_here_keeps_it_on_this_machine(importing: Importer, line: str) -> None:
    translation = importing(f"listener 1884\nallow_anonymous true\n{line}\n")
    assert verdicts(translation)[line.split()[0]] == "MISSING"
    assert settings(translation)["listener"][0]["host"] == "127.0.0.1"
    assert "this machine alone" in translation.text


@pytest.mark.parametrize("line", ["clientid_prefixes secure-", "use_username_as_clientid true"])
def test_what_bound_client_identifiers_names_the_nearest_setting(importing: Importer, line: str) -> None:
    assert 'access.client_ids = "user-prefix"' in note(importing(f"{line}\n"), line.split()[0])


def test_a_listener_that_lets_everybody_in_stays_open(importing: Importer) -> None:
    translation = importing("listener 1884\nallow_anonymous true\n")
    assert settings(translation)["listener"][0]["host"] == "0.0.0.0"
    assert "this machine alone" not in translation.text

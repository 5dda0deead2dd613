"""The keys of a listener: what goes together, what does not, and what holds if nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebridge.session.durability import batched
from edgebroker.cli.check import effective
from edgebroker.runtime.settings import Settings, SettingsRefused


def parse(text: str) -> Settings:
    return Settings.parse(text, "f.toml", Path("/etc/edge"))


def refusal(text: str) -> list[str]:
    with pytest.raises(SettingsRefused) as refused:
        parse(text)
    return str(refused.value).splitlines()


TLS = 'tls_certificate = "c"\ntls_key = "k"\n'
CLASHES = {
    'path = "s"\nport = 1883': "3: listener.port: stands beside path; a listener has either host and port or a path",
    f'path = "{"s" * 100}"': "2: listener.path: is longer than 103 bytes; the system allows no more for a socket",
    'path_mode = "0600"': "2: listener.path_mode: does nothing without path; set path, or leave the line out",
    'path = "s"\npath_mode = "660"': "3: listener.path_mode: is '660'; write a file mode like 0660",
    'websocket_path = "/x"': (
        '2: listener.websocket_path: does nothing without protocol = "websocket"; '
        'set protocol = "websocket", or leave the line out'
    ),
    'protocol = "websockets"': "2: listener.protocol: is 'websockets'; did you mean \"websocket\"?",
    'tls_key = "k"': (
        "2: listener.tls_key: does nothing without tls_certificate; set tls_certificate, or leave the line out"
    ),
    'tls_certificate = "c"': (
        "2: listener.tls_certificate: stands without tls_key; name the file with its private key"
    ),
    f'{TLS}tls_client = "required"': (
        "4: listener.tls_client: needs tls_client_ca; name the certificates that sign those of clients"
    ),
    f'{TLS}tls_client_ca = "a"': (
        '4: listener.tls_client_ca: is not asked of anybody; set tls_client to "optional" or "required"'
    ),
    f'{TLS}tls_client = "optional"\ntls_client_ca = "a"\ntls_chain = "b"': (
        "6: listener.tls_chain: would let in clients with certificates that its own have signed; "
        "put its certificates behind the one in tls_certificate"
    ),
    'proxy_sources = ["::1"]': (
        "2: listener.proxy_sources: does nothing without proxy_protocol = true and a port; "
        "set proxy_protocol = true and a port, or leave the line out"
    ),
    'proxy_protocol = true\nproxy_sources = ["10.0.0.1/8"]': (
        "3: listener.proxy_sources: is '10.0.0.1/8'; write an address or a network like 10.0.0.0/8"
    ),
    'durability = "batched"': (
        '2: listener.durability: is \'batched\'; write "sync", "batched:MS" or "memory", with 1 to 60,000 milliseconds'
    ),
}


@pytest.mark.parametrize(("text", "line"), CLASHES.items())
def test_what_does_not_go_together_is_refused_at_its_line(text: str, line: str) -> None:
    assert refusal(f"[listener]\n{text}\n") == [f"f.toml:{line}"]


def test_two_listeners_need_two_names_and_two_addresses() -> None:
    one = '[[listener]]\nname = "a"\nport = 7\n'
    assert refusal(f"{one}\n{one}") == [
        "f.toml:6: listener.name: is 'a' a second time; give every listener a name of its own",
        "f.toml:7: listener.port: 127.0.0.1:7 is taken by a listener above; choose another",
    ]
    assert len(parse("[[listener]]\nport = 0\n[[listener]]\nport = 0\n").listeners) == 2, "the system finds two ports"


@pytest.mark.parametrize(
    ("host", "other", "is_refused"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("::", "fe80::1", True),
        ("localhost", "127.0.0.1", True),
        ("Pump-3.example", "pump-3.example", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::", "0.0.0.0", False),
        ("pump-3.example", "127.0.0.1", False),
    ],
)
def test_two_cannot_have_one_port(host: str, other: str, is_refused: bool) -> None:
    listener, there = f'[[listener]]\nhost = "{host}"\nport = 7\n', f"[{other}]" if ":" in other else other
    also = f"is 7, and so is listener.port at {f'[{host}]' if ':' in host else host}:7; choose another"
    cases = {
        f'[[listener]]\nhost = "{other}"\nport = 7\n': (
            f"f.toml:6: listener.port: {there}:7 is taken by a listener above; choose another"
        ),
        f'[overlay]\ntopology = "t"\nport = 7\nhost = "{other}"\n': f"f.toml:6: overlay.port: {also}",
        f'[http]\nhost = "{other}"\nport = 7\n': f"f.toml:6: http.port: {also}",
    }
    for text, line in cases.items():
        if is_refused:
            assert refusal(listener + text) == [line]
        else:
            parse(listener + text)
        parse(listener + text.replace("port = 7", "port = 8"))


def test_questions_need_a_port_of_their_own() -> None:
    taken = "http.port: is 1883, and so is listener.port at 127.0.0.1:1883; choose another"
    assert refusal("[http]\nport = 1883\n") == [f"f.toml:2: {taken}"], "where no listener is named, too"
    overlay = '[overlay]\ntopology = "t"\nhost = "0.0.0.0"\nport = 8\n[http]\nport = 8\n'
    assert refusal(overlay) == ["f.toml:6: http.port: is 8, and so is overlay.port at 0.0.0.0:8; choose another"]
    parse("[listener]\nport = 0\n[http]\nport = 0\n")
    parse('[listener]\npath = "s"\n[http]\nport = 1883\n')
    with pytest.raises(SettingsRefused) as refused:
        Settings().overridden(http=("localhost", 1883))
    assert str(refused.value) == f"command line: {taken}"


def test_a_port_on_the_command_line_does_not_go_with_a_unix_socket() -> None:
    with pytest.raises(SettingsRefused) as refused:
        parse('[listener]\npath = "s"\n').overridden(port=1883)
    assert str(refused.value) == (
        "command line: listener.port: stands beside path; a listener has either host and port or a path"
    )


@pytest.mark.parametrize(
    "text",
    [
        'path = "s"\npath_mode = "0600"\nname = "local"',
        f'protocol = "websocket"\nwebsocket_path = "/a"\nwebsocket_origins = ["https://a.example", "*"]\n{TLS}',
        f'{TLS}tls_client = "optional"\ntls_client_ca = "ca"\ntls_minimum = "1.3"\nanonymous = true',
        'proxy_protocol = true\nproxy_sources = ["10.0.0.0/8"]\nconnections_max = 7\ndurability = "batched:20"',
    ],
)
def test_check_takes_what_check_prints(text: str) -> None:
    settings = parse(f"[[listener]]\n{text}\n[[listener]]\nport = 9\n")
    assert parse(effective(settings)) == settings


def test_values_are_what_they_mean() -> None:
    [listener] = parse(
        '[listener]\nhost = "::"\ndurability = "batched:20"\ntls_certificate = "c"\ntls_key = "k"'
    ).listeners
    assert (listener.label, listener.durability) == ("[::]:1883", batched(20))
    assert listener.tls_certificate == Path("/etc/edge/c")

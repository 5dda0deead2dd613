"""Settings: what is taken, what is refused and how it is said, and that docs/settings.md tells the same."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker import limits
from edgebroker.cli.check import command as check
from edgebroker.cli.check import effective
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.settings import KEYS, SECTIONS, Settings, SettingsRefused, default_of
from edgebroker.runtime.settings.kinds import FILE, Boolean, Choice, Integer, InvalidValue, ListOf, ValueKind
from edgebroker.runtime.settings.toml import KeyLines


def parse(text: str) -> Settings:
    return Settings.parse(text, "f.toml", Path("/etc/edge"))


def refusal(text: str) -> list[str]:
    with pytest.raises(SettingsRefused) as refused:
        parse(text)
    return str(refused.value).splitlines()


def test_an_empty_file_gives_the_defaults() -> None:
    assert parse("") == Settings.defaults() == Settings()


def test_defaults_are_those_of_the_core() -> None:
    for key, value in Settings.defaults().values()["limits"].items():
        assert value == getattr(limits, key.upper())


def test_values_are_read() -> None:
    settings = parse('[listener]\nhost = "::"\nport = 0\n[log]\ndir = "log"\n[data]\ndir = "/var/lib/edge"\n')
    assert (settings.listeners[0].host, settings.listeners[0].port) == ("::", 0)
    assert settings.log.dir == Path("/etc/edge/log"), "folders are relative to the file's own"
    assert settings.data.dir == Path("/var/lib/edge")


def test_dotted_keys_and_inline_tables_are_the_same_file() -> None:
    assert parse("listener.port = 7") == parse("listener = { port = 7 }") == parse("[listener]\nport = 7")


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().listeners[0].port = 1  # type: ignore[misc]


def test_a_listener_may_stand_several_times() -> None:
    settings = parse('[[listener]]\nport = 7\n[[listener]]\nhost = "::"\n')
    assert [(one.host, one.port) for one in settings.listeners] == [("127.0.0.1", 7), ("::", 1883)]
    assert parse("listener = [{port = 7}, {host = '::'}]") == settings
    assert parse(effective(settings)) == settings
    first = settings.overridden(port=8).listeners
    assert [(one.host, one.port) for one in first] == [("127.0.0.1", 8), ("::", 1883)], "the first alone"


REFUSALS = {
    "[listener]\nprot = 1": "f.toml:2: listener.prot: unknown key; did you mean port?",
    "[listener]\nqqq = 1": "f.toml:2: listener.qqq: unknown key; [listener] has " + ", ".join(KEYS["listener"]),
    "[listener]\nsample_qos0 = 1": "f.toml:2: listener.sample_qos0: unknown key; it belongs in [log]",
    "[node]\ndir = 1": "f.toml:2: node.dir: unknown key; it belongs in [log] or [data] or [files]",
    "port = 1": "f.toml:1: port: stands outside any section; put it under [listener] or [overlay] or [http]",
    "[limit]": "f.toml:1: limit: unknown section; did you mean [limits]?",
    "[zzz]": f"f.toml:1: zzz: unknown section; there are {', '.join(SECTIONS)}",
    "log = true": "f.toml:1: log: is a section; write [log] on a line",
    "[[log]]": "f.toml:1: log: is a section; write [log] on a line",
    "listener = 1": "f.toml:1: listener: is a section; write [[listener]] on a line",
    "listener = [1]": "f.toml:1: listener: is a section; write [[listener]] on a line",
    "\nlistener = []": "f.toml:2: listener: has 0 entries; write 1 to 64",
    "[[listener]]\n" * 65: "f.toml:1: listener: has 65 entries; write 1 to 64",
    "[listener]\nport = 7\n[listener]\n": (
        "f.toml:3: not TOML: Cannot declare ('listener',) twice; write [[listener]] each time"
    ),
    "[[listener]]\n[[listener]]\n[listener]\n": (
        "f.toml:3: not TOML: Cannot declare ('listener',) twice; write [[listener]] each time"
    ),
    "[[listener]]\nport = 7\n[[listener]]\n\nport = 0\nprot = 1\n": (
        "f.toml:6: listener.prot: unknown key; did you mean port?"
    ),
    '[listener]\nport = "1"': "f.toml:2: listener.port: is text; write a number, 0 to 65,535, without quotes",
    "[listener]\nport = true": (
        "f.toml:2: listener.port: is true or false; write a number, 0 to 65,535, without quotes"
    ),
    "[listener]\nport = 1.0": "f.toml:2: listener.port: is a fraction; write a number, 0 to 65,535, without quotes",
    "[listener]\nport = -1": "f.toml:2: listener.port: is -1; write a number, 0 to 65,535",
    "[listener]\nport = 65536": "f.toml:2: listener.port: is 65,536; write a number, 0 to 65,535",
    "[listener]\nhost = 1": (
        "f.toml:2: listener.host: is a whole number; write a host name or an IP address, in quotes"
    ),
    '[listener]\nhost = "a b"': "f.toml:2: listener.host: is 'a b'; write a host name or an IP address",
    '[log]\ndir = ""': "f.toml:2: log.dir: is ''; write the path of a folder, or leave the line out",
    "[log]\ndir = 2024-01-01": "f.toml:2: log.dir: is a date or time; write the path of a folder, in quotes",
    "# a\n\nlisten": "f.toml:3: not TOML: Expected '=' after a key in a key/value pair",
    "[log]\nsample_qos0 = 1\nsample_qos0 = 2": (
        "f.toml:3: not TOML: Cannot overwrite a value; a key or section may stand only once"
    ),
}


@pytest.mark.parametrize(("text", "line"), REFUSALS.items())
def test_a_refusal_names_file_line_key_and_mend(text: str, line: str) -> None:
    assert refusal(text) == [line]


def test_keys_of_earlier_versions_are_ignored_with_a_warning(tmp_path: Path) -> None:
    text = '[node]\nspin_us = "any"\nname = "n-1"\nawake_percent = 10\n'
    settings = parse(text)
    assert settings.node == parse('[node]\nname = "n-1"\n').node
    assert [str(one) for one in settings.warnings] == [
        f"f.toml:{line}: node.{key}: has no effect: a gateway does not wait awake any more; leave it out"
        for line, key in ((2, "spin_us"), (4, "awake_percent"))
    ]
    (file := tmp_path / "s.toml").write_text(text)
    checked = CliRunner().invoke(check, [str(file), "--quiet"])
    assert (checked.exit_code, checked.stdout) == (0, "")
    assert [line.split(": ")[0] for line in checked.stderr.splitlines()] == [f"{file}:2", f"{file}:4"]


def test_a_section_twice_is_refused() -> None:
    [line] = refusal("[log]\n[data]\n[log]")
    assert line.startswith("f.toml:3: not TOML: ")
    assert line.endswith("; a key or section may stand only once")


def test_all_problems_are_reported_at_once_in_the_order_of_the_file() -> None:
    found = refusal("[limits]\ninflight_max = 0\nx = 1\n[listener]\nport = 70000\nhost = ''\n[nod]\n")
    assert [line.split(": ")[:2] for line in found] == [
        ["f.toml:2", "limits.inflight_max"],
        ["f.toml:3", "limits.x"],
        ["f.toml:5", "listener.port"],
        ["f.toml:6", "listener.host"],
        ["f.toml:7", "nod"],
    ]


def test_lines_are_found_past_long_strings_and_quoted_names() -> None:
    text = 'a = """\nb = 1\n[c]\n"""\n["s"]\n"k" = 1\nd.e = 2\n[t]\nf = { g = 1 }\n'
    lines = KeyLines(text)
    assert [lines.line(*path) for path in (("a",), ("b",), ("c",), ("s",), ("s", "k"))] == [1, 0, 0, 5, 6]
    assert [lines.line(*path) for path in (("s", "d"), ("s", "d", "e"), ("t", "f", "g"))] == [7, 7, 9]


NEEDED = {"bridge": 'name = "a"\naddresses = ["b:1"]\ntopic = ["c"]\n', "overlay": 'topology = "a"\n'}
"""Sections whose defaults alone say nothing."""
SCALARS = [(s, k) for s, keys in KEYS.items() for k in keys if f"{k} = " not in NEEDED.get(s, "")]


@given(st.sampled_from(SCALARS), st.integers(-(2**40), 2**40))
def test_a_whole_number_is_taken_exactly_in_its_range(key: tuple[str, str], value: int) -> None:
    section, name = key
    kind = KEYS[section][name].metadata["kind"]
    text = f"[{section}]\n{NEEDED.get(section, '')}{name} = {value}"
    if isinstance(kind, Integer) and kind.least <= value <= kind.most:
        values = parse(text).values()[section]
        assert (values[0] if isinstance(values, list) else values)[name] == value
    else:
        assert len(refusal(text)) == 1


@given(st.text(max_size=200))
def test_any_text_is_taken_or_refused_cleanly(text: str) -> None:
    with contextlib.suppress(SettingsRefused):
        assert parse(text) == Settings(), "a random text that says something is not TOML"


def test_quotes_in_strings_and_comments_open_nothing() -> None:
    text = (
        'a = "\'\'\'"\nb = \'"""\'  # """\nc = """x""""\nd = "\\"\'\'\'"\ne = \'\'\'\n"""\n\'\'\'\nf = "\\\\"\ng = 1\n'
    )
    assert set(tomllib.loads(text)) == set("abcdefg")
    assert [KeyLines(text).line(key) for key in "abcdefg"] == [1, 2, 3, 4, 5, 8, 9]


def test_lines_are_found_in_arrays_of_tables() -> None:
    text = "[[a]]\nb = 1\n\n[[a]]\nb = 1\n[a.c]\nd = 1\n[[a.e]]\n[[a.e]]\nf = 1\n[g]\nb = 1\n"
    lines = KeyLines(text)
    paths = [("a",), ("a", 0), ("a", 0, "b"), ("a", 1), ("a", 1, "b"), ("a", 1, "c", "d"), ("a", 1, "e", 1, "f")]
    assert [lines.line(*path) for path in paths] == [1, 1, 2, 4, 5, 7, 10]
    assert (lines.line("g", "b"), lines.line("a", 2, "b")) == (12, 1)


KINDS = {
    Boolean(): ([True, False], [1, "true", None]),
    Choice(("red", "green")): (["red", "green"], ["", "Red", 1]),
    ListOf(Integer(1, 3), 2): ([[], [1], [1, 3]], [[4], [1, 1, 1], 1, ["1"]]),
    FILE: (["a/b", "/a"], ["", "a\0", 1, "~nobody-of-this-name/x"]),
}


@pytest.mark.parametrize(("kind", "values"), KINDS.items(), ids=lambda value: type(value).__name__)
def test_a_kind_takes_what_it_says_and_nothing_else(kind: ValueKind, values: tuple[list[object], list[object]]) -> None:
    for value in values[0]:
        taken = kind.read(value, Path("/f"))
        assert taken == (tuple(value) if isinstance(value, list) else Path("/f", value) if kind == FILE else value)
    for value in values[1]:
        with pytest.raises(InvalidValue):
            kind.read(value, Path("/f"))


@pytest.mark.parametrize(
    ("servers", "wrong"),
    [
        ("h.example:1884 10.1.2.3 [fd00::1]:1883 [fd00::1] fd00::1", ""),
        ("h h:0", "h:0"),
        ("h:65536", "h:65536"),
        ("h:", "h:"),
        (":1883", ":1883"),
        ("mqtt://h", "mqtt://h"),
        ("h [fd00::1", "[fd00::1"),
        ("[h]:1", "[h]:1"),
    ],
)
def test_nobody_is_sent_to_what_is_no_server(servers: str, wrong: str) -> None:
    """All clients of the gateway would be sent there."""
    text = f'[redirect]\nserver_moved = "{servers}"\n'
    if wrong:
        [line] = refusal(text)
        assert line.startswith(f"f.toml:2: redirect.server_moved: names {wrong!r}; write up to 8 host or host:port")
    else:
        assert parse(text).redirect.server_moved == servers


def test_the_command_line_goes_before_the_file() -> None:
    settings = parse("[listener]\nport = 7\nhost = 'h'").overridden(port=8, log_dir=Path("logs"))
    assert (settings.listeners[0].port, settings.listeners[0].host) == (8, "h")
    assert settings.log.dir == Path("logs"), "folders of the command line are relative to where it was typed"
    assert settings.overridden() == settings


def test_the_command_line_is_checked_as_strictly() -> None:
    with pytest.raises(SettingsRefused) as refused:
        Settings().overridden(port=65_536, host="")
    assert str(refused.value).splitlines() == [
        "command line: listener.host: is ''; write a host name or an IP address",
        "command line: listener.port: is 65,536; write a number, 0 to 65,535",
    ]


def test_a_file_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"[node]\nname = '\xe9'\n")
    (tmp_path / "huge.toml").write_bytes(b"#" * (limits.MIB + 1))
    for name, words in {
        "absent.toml": "absent.toml: cannot be read: No such file",
        "": ": cannot be read: Is a directory",
        "latin.toml": "latin.toml:2: is not UTF-8; save it as UTF-8 text",
        "huge.toml": "huge.toml: has more than 1,048,576 bytes",
    }.items():
        with pytest.raises(SettingsRefused, match=re.escape(words)):
            Settings.load(tmp_path / name)


def test_check_takes_what_check_prints(tmp_path: Path) -> None:
    settings = parse('[node]\nname = "n-1"\n[log]\ndir = "d"\nsample_qos0 = 9')
    assert parse(effective(settings)) == settings


def test_check_exits_with_0_or_2_and_speaks_json(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[listener]\nport = 1884\n")
    taken = CliRunner().invoke(check, [str(file), "--json"])
    assert taken.exit_code == 0
    [listener] = json.loads(taken.stdout)["settings"]["listener"]
    assert (listener["host"], listener["port"], listener["path"]) == ("127.0.0.1", 1884, None)
    assert "tls_key" not in listener, "what means nothing beside the other keys is left out"
    file.write_text("[listener]\nport = 'x'\n")
    refused = CliRunner().invoke(check, [str(file), "--json"])
    assert refused.exit_code == 2
    [problem] = json.loads(refused.stdout)["problems"]
    assert (problem["line"], problem["key"], problem["reason"]) == (2, "listener.port", "is text")
    plain = CliRunner().invoke(check, [str(file)])
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert plain.stderr.startswith(f"{file}:2: listener.port: is text")


def test_the_documentation_lists_every_key_with_its_default_and_range(root: Path) -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.+?) \| (.+?) \|", (root / "docs/settings.md").read_text(), re.MULTILINE)
    expected = []
    for section, keys in KEYS.items():
        for key in keys:
            value = default_of(section, key)
            default = "not set" if value is None else f"`{json.dumps(value)}`"
            expected.append((f"{section}.{key}", default, str(KEYS[section][key].metadata["kind"])))
    assert rows == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = " + "[" * 60_000, "lists or tables nest too deep"),
        ("a = " + "{a=" * 20_000, "lists or tables nest too deep"),
        ("a." * 1_000 + "a = 1", "lists or tables nest too deep"),
        ("a = " + "9" * 5_000, "a number has thousands of digits"),
        ("[limits]\nreceive_maximum = 0x" + "f" * 5_000, "a number has thousands of digits"),
    ],
)
def test_what_python_cannot_hold_or_show_is_refused(text: str, why: str) -> None:
    (told,) = refusal(text)
    assert why in told


def test_a_file_has_1_mib_at_most_whatever_stands_in_it(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    keys = "[mqtt]\n" + "".join(f"keep_alive_s_max.a{number} = 1\n" for number in range(20_000))
    assert "is a section" in refusal(keys)[0]
    file.write_text(f"{'# x' * (limits.OPERATOR_FILE_BYTES_MAX // 3)}\n")
    assert Settings.load(file) == Settings()
    file.write_text("#" * (limits.OPERATOR_FILE_BYTES_MAX + 1))
    with pytest.raises(SettingsRefused, match="has more than 1,048,576 bytes"):
        Settings.load(file)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"[a{number}]" for number in range(99)),
        "[node]\n" + "\n".join(f"a{number} = 1" for number in range(99)),
    ],
)
def test_no_more_problems_are_told_than_anybody_reads(text: str) -> None:
    assert len(refusal(text)) == 10


def test_what_becomes_of_messages_when_a_queue_is_full_is_what_the_file_says() -> None:
    """The front end compares members of the enumeration: a text that is equal to one would do nothing."""
    settings = Settings.parse('[mqtt]\nqueue_full = "drop-oldest"\n[listener]\nport = 0\n', "f.toml", Path())
    assert Gateway(settings, tell=lambda line: None).frontend.options.queue_full is OverflowPolicy.DROP_OLDEST

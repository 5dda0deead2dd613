"""The files that settings name: read by the gateway, and by `edgebroker check` before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from edgebridge.session.access import AccessPolicy, ClientIdRule
from edgebridge.session.passwordfile import make_user
from edgebridge.session.token import key_line
from edgebroker.cli import main
from edgebroker.runtime.access_files import load_access, what_differs
from edgebroker.runtime.settings import Settings, SettingsRefused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "users").write_text(f"{make_user('anna', 'a', bytes(16))}\n")
    (tmp_path / "keys").write_text(key_line("fleet", bytes(32)))
    (tmp_path / "rules").write_text("user anna\ntopic a\n")
    for name in ("users", "keys"):
        (tmp_path / name).chmod(0o600)
    text = '[access]\npassword_file = "users"\ntoken_keys = "keys"\nacl_file = "rules"\n'
    (tmp_path / "gateway.toml").write_text(text)
    return tmp_path


def check(folder: Path, *options: str) -> Any:
    return CliRunner().invoke(main, ["check", str(folder / "gateway.toml"), *options])


def test_files_that_are_in_order(folder: Path) -> None:
    told: list[str] = []
    access = load_access(Settings.load(folder / "gateway.toml").access, told.append)
    assert not told
    assert access.passwords is not None
    assert access.passwords.accepts("anna", b"a")
    assert access.tokens is not None
    assert list(access.tokens.keys) == ["fleet"]
    rights = access.rights("anna", "c")
    assert rights is not None
    assert rights.writes("a")
    assert check(folder).exit_code == 0
    quiet = check(folder, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


def test_the_rule_about_client_identifiers_comes_from_the_settings(folder: Path) -> None:
    file = folder / "gateway.toml"
    text = file.read_text()
    assert load_access(Settings.load(file).access, print).client_ids is ClientIdRule.OWNED
    for rule in ClientIdRule:
        file.write_text(f'{text}client_ids = "{rule.value}"\n')
        assert load_access(Settings.load(file).access, print).client_ids is rule
        assert check(folder).exit_code == 0
    file.write_text(f'{text}client_ids = "own"\n')
    refused = check(folder)
    assert (refused.exit_code, "access.client_ids: is 'own'; did you mean \"owned\"?" in refused.output) == (2, True)


def test_a_reload_tells_which_files_say_something_else(folder: Path) -> None:
    """Their names in the settings are the same, so nothing else would tell that an edited file holds."""

    def read() -> AccessPolicy:
        return load_access(Settings.load(folder / "gateway.toml").access, lambda line: None)

    before = read()
    for name in ("users", "keys", "rules"):
        file = folder / name
        file.write_text("# the same, a line further down\n" + file.read_text())
    assert list(what_differs(before, read())) == []
    (folder / "users").write_text(f"{make_user('anna', 'b', bytes(16))}\n")
    (folder / "keys").write_text(key_line("fleet", bytes(31) + b"x"))
    (folder / "rules").write_text("user anna\ntopic a\ntopic b\npattern read c\n")
    assert list(what_differs(before, read())) == [
        "access: other users or passwords, of 1 users",
        "access: other keys of tokens, 1 in all",
        "access: other rules, 3 in all",
    ]


def test_what_a_gateway_would_tell(folder: Path) -> None:
    (folder / "users").write_text("anna:plain\n")
    (folder / "users").chmod(0o644)
    answer = json.loads(check(folder, "--json").output)
    assert answer["ok"]
    assert [note.partition(": ")[2][:40] for note in answer["notes"]] == [
        "line 1: no hash, but perhaps a password ",
        "everybody on this machine may read it; c",
    ]
    assert "line 1: no hash" in check(folder).output


@pytest.mark.parametrize("name", ["users", "keys", "rules"])
def test_a_file_that_is_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    answer = check(folder)
    assert answer.exit_code == 2
    line, key = {"users": (2, "password_file"), "keys": (3, "token_keys"), "rules": (4, "acl_file")}[name]
    why = f"{folder / name}: cannot be read: No such file or directory; name a file that is there"
    assert answer.output == f"{folder / 'gateway.toml'}:{line}: access.{key}: {why}\n"


def test_rules_that_are_wrong(folder: Path) -> None:
    """All at once, each with its line; a file of another kind does not fill the screen."""
    (folder / "rules").write_text("user anna\ntopik a\ntopic a/#/b\n")
    with pytest.raises(SettingsRefused) as caught:
        load_access(Settings.load(folder / "gateway.toml").access, lambda line: None)
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (2, "access.acl_file"),
        (3, "access.acl_file"),
    ]
    answer = check(folder, "--json")
    assert answer.exit_code == 2
    problems = json.loads(answer.output)["problems"]
    assert [problem["line"] for problem in problems] == [4, 4]
    places = [f"{folder / 'rules'}:{line}: " for line in (2, 3)]
    assert [problem["reason"].startswith(place) for problem, place in zip(problems, places, strict=True)] == [True] * 2


def test_a_file_that_is_no_text(folder: Path) -> None:
    (folder / "rules").write_bytes(b"user anna\n\xff\n")
    with pytest.raises(SettingsRefused, match=r"rules:2: access\.acl_file: is not UTF-8"):
        load_access(Settings.load(folder / "gateway.toml").access, lambda line: None)


def test_lines_that_are_passed_over_are_shown_even_if_nothing_else_is(folder: Path) -> None:
    with (folder / "users").open("a") as file:
        file.write("nocolon\n")
    found = check(folder, "--quiet")
    assert found.exit_code == 0
    assert "there is no ':'" in found.stderr
    assert found.output == found.stderr, "and nothing besides"


def test_all_files_are_read_whatever_is_wrong_with_one(folder: Path) -> None:
    (folder / "users").unlink()
    (folder / "keys").write_bytes(b"\n\xff")
    (folder / "rules").write_text("topik a\n")
    with pytest.raises(SettingsRefused) as caught:
        load_access(Settings.load(folder / "gateway.toml").access, lambda line: None)
    assert [(Path(one.file).name, one.line, one.key) for one in caught.value.problems] == [
        ("users", 0, "access.password_file"),
        ("keys", 2, "access.token_keys"),
        ("rules", 1, "access.acl_file"),
    ]

"""Settings read again: what has changed, what holds, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from edgebridge.session.access import AccessPolicy
from edgebroker.cli.reload import command
from edgebroker.errors import SettingsInvalid
from edgebroker.runtime.access_files import load_access
from edgebroker.runtime.gateway import Gateway
from edgebroker.runtime.reload import PreparedChange, Reloader, ReloadOutcome, differences
from edgebroker.runtime.settings import KEYS, Settings
from edgebroker.runtime.settings.schema import Activation
from edgebroker.runtime.settings.sections import AccessSettings

BEFORE = '[limits]\ninflight_max = 7\n[[listener]]\nport = 7\n[[listener]]\nport = 8\nname = "web"\n'
AFTER = (
    '[notices]\nlevel = "error"\n[limits]\ninflight_max = 9\n'
    '[[listener]]\nport = 9\n[[listener]]\nport = 8\nname = "hall"\nanonymous = false\n'
)


def parse(text: str) -> Settings:
    return Settings.parse(text, "f.toml", Path("/etc/edge"))


def test_every_changed_key_is_named_with_how_it_is_applied() -> None:
    changes = [(one.key, one.old, one.new, one.applied) for one in differences(parse(BEFORE), parse(AFTER))]
    assert sorted(changes, key=str) == sorted(
        [
            ("limits.inflight_max", 7, 9, Activation.RESTART),
            ("notices.level", "warning", "error", Activation.LIVE),
            ("listener", None, "127.0.0.1:9", Activation.LIVE),
            ("listener hall.name", "web", "hall", Activation.LIVE),
            ("listener hall.anonymous", None, False, Activation.LIVE),
            ("listener", "127.0.0.1:7", None, Activation.LIVE),
        ],
        key=str,
    )
    assert list(differences(parse(AFTER), parse(AFTER))) == []


class Part:
    """Notes what was asked of it."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.did: list[str] = []

    async def prepare(self, settings: Settings) -> PreparedChange:
        if self.refuses:
            raise SettingsInvalid("a: wrong\nb: wrong too")

        def commit() -> Iterator[str]:
            self.did.append("commit")
            yield "a note"

        return PreparedChange(commit, lambda: self.did.append("abandon"))


def reload(reloading: Reloader, settings: Settings) -> ReloadOutcome:
    return asyncio.run(reloading.apply(settings))


def test_all_prepare_before_any_changes() -> None:
    first, last = Part(), Part(refuses=True)
    reloading = Reloader(parse(BEFORE), {"a": first.prepare, "b": last.prepare})
    outcome = reload(reloading, parse(AFTER))
    assert first.did == ["abandon"]
    assert reloading.settings == parse(BEFORE)
    assert list(outcome.lines()) == [
        "reload: rejected, the settings of before still hold",
        "  a: wrong",
        "  b: wrong too",
    ]
    assert outcome.as_json()["taken"] is False
    last.refuses = False
    outcome = reload(reloading, parse(AFTER))
    assert first.did == ["abandon", "commit"]
    lines = list(outcome.lines())
    assert lines[0] == "reload: 5 applied, 1 needs restart"
    assert "  needs restart: limits.inflight_max: 7 -> 9" in lines
    assert lines[-2:] == ["  a note", "  a note"]


def test_an_error_that_nobody_expected_leaves_nothing_half_prepared() -> None:
    async def breaks(settings: Settings) -> PreparedChange:
        raise ZeroDivisionError

    first = Part()
    reloading = Reloader(parse(BEFORE), {"a": first.prepare, "b": breaks})
    with pytest.raises(ZeroDivisionError):
        reload(reloading, parse(AFTER))
    assert first.did == ["abandon"]
    assert reloading.settings == parse(BEFORE)


def test_what_needs_a_restart_is_said_until_it_was_restarted() -> None:
    reloading = Reloader(parse(BEFORE), {})
    for _ in range(2):
        reload(reloading, parse(AFTER))
        assert reloading.settings.limits.inflight_max == 7
        assert reloading.settings.notices.level == "error"
    assert [one.key for one in reload(reloading, parse(AFTER)).changes] == ["limits.inflight_max"]
    back = list(reload(reloading, parse(BEFORE)).lines())
    assert back[0] == "reload: 5 applied", "and the limit is what it was all the time"


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_gateway_without_journal_keeps_nothing_before_a_restart(is_kept: bool) -> None:
    """So it does not say that a listener's `durability` is applied."""
    data = f'[data]\ndurability = "{"sync" if is_kept else "memory"}"\n'
    before = parse(f"{data}[[listener]]\nport = 7\n")
    after = parse(
        f'{data}[[listener]]\nport = 7\ndurability = "sync"\n[[listener]]\nport = 8\ndurability = "batched:20"\n'
    )
    reloading = Reloader(before, {})
    known, new = "listener 127.0.0.1:7.durability", "listener 127.0.0.1:8.durability"
    said = {change.key: change.applied for change in reload(reloading, after).changes}
    again = [change.key for change in reload(reloading, after).changes]
    if is_kept:
        assert (said, again) == ({known: Activation.LIVE, "listener": Activation.LIVE}, [])
    else:
        assert said == {known: Activation.RESTART, "listener": Activation.LIVE, new: Activation.RESTART}
        assert again == [known, new]
        assert [change.key for change in reload(reloading, before).changes] == ["listener"], "which is gone"


def test_every_key_that_is_applied_at_once_has_somebody_to_apply_it() -> None:
    async def sections() -> frozenset[str]:
        gateway = Gateway(parse("[listener]\nport = 0\n"), print)
        await gateway.start()
        assert gateway.reloader is not None
        prepared = gateway.reloader.sections
        await gateway.stop()
        return prepared

    live = {
        name for name, keys in KEYS.items() if any(one.metadata["applied"] is Activation.LIVE for one in keys.values())
    }
    assert live <= asyncio.run(sections())


def test_a_gateway_warns_of_keys_that_have_no_effect_any_more() -> None:
    async def story() -> None:
        told: list[str] = []
        settings = parse("[node]\nspin_us = 25\n[listener]\nport = 0\n")
        gateway = Gateway(settings, told.append)
        await gateway.start()
        outcome = await gateway.reload(settings)
        await gateway.stop()
        assert told == list(outcome.notes) == [str(one) for one in settings.warnings]
        assert told[0].startswith("f.toml:2: node.spin_us: has no effect")

    asyncio.run(story())


@pytest.mark.parametrize(("text", "code"), [("", 0), ("[listener]\nport = 0\n", 0), ("[[bridge]]\nname = 7\n", 1)])
def test_the_command_exits_as_the_gateway_reports_the_outcome(
    monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    rejected = Settings.parse(text, "f.toml", Path("/etc/edge"), apart=True).aside
    outcome = ReloadOutcome(rejected=rejected)
    reply = outcome.as_json() | {"lines": list(outcome.lines())}
    monkeypatch.setattr("edgebroker.cli.reload.post_json", lambda endpoint, path: reply)
    result = CliRunner().invoke(command, ["--http", "9883", "--json"])
    assert (result.exit_code, json.loads(result.stdout)) == (code, reply)


def test_the_loop_turns_while_the_files_of_a_reload_are_read(tmp_path: Path) -> None:
    settings = Settings.parse('[listener]\nport = 0\n[access]\nacl_file = "rules"\n', "f.toml", tmp_path)
    (tmp_path / "rules").write_text("topic a\n")
    has_turned, lines = threading.Event(), list[str]()

    def load(section: AccessSettings, tell: Callable[[str], None]) -> AccessPolicy:
        assert has_turned.wait(10)
        return load_access(section, tell)

    async def play() -> ReloadOutcome:
        gateway = Gateway(settings, lines.append)
        await gateway.start()
        lines.clear()
        with patch("edgebroker.runtime.gateway.load_access", load):
            asyncio.get_running_loop().call_later(0.05, has_turned.set)
            outcome = await gateway.reload(settings)
        await gateway.stop()
        return outcome

    (tmp_path / "rules").chmod(0o644)
    assert not asyncio.run(play()).problems
    assert [line for line in lines if "chmod o-r" in line] == lines[:1], "the loop has logged what the thread reported"

"""Any settings file is taken as a whole or refused with lines that exist, and what `check` prints says the same again.

Files are put together from sections, keys and values that are right, nearly right and wrong, then spoilt.
EDGEBROKER_FUZZ_INPUTS=200000 makes it 200,000 files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

from edgebroker.cli.check import effective
from edgebroker.runtime.settings import KEYS, SECTIONS, Problem, Settings, SettingsRefused
from edgebroker.runtime.settings.schema import plain

INPUTS = int(os.environ.get("EDGEBROKER_FUZZ_INPUTS", "1500"))
ODD = [
    "0",
    "-1",
    "1e9",
    "true",
    '""',
    '"x"',
    "[]",
    '["*"]',
    "{}",
    "2024-01-01",
    '"~nobody-of-this-name"',
    '"a\\u0000b"',
]
ODD += [
    '"batched:5"',
    '"0600"',
    '"required"',
    '"websocket"',
    '"/mqtt"',
    "1883",
    "65536",
    '["::1", "10.0.0.0/8"]',
    "nan",
]
NOISE = ["\n", "=", "[", "]", '"', "'''", "#", ".", "\\", "\r", "ü", "[[listener]]", "[listener]", "\0", "name = 1"]


def some_value(chance: Random, section: str, key: str) -> str:
    default = plain(KEYS[section][key].default)
    if default is None or chance.random() < 0.1:
        return chance.choice(ODD)
    return json.dumps(default)


def some_file(chance: Random) -> str:
    lines: list[str] = []
    for _ in range(chance.randrange(1, 6)):
        section = chance.choice([*SECTIONS, "listener", "listener"])
        is_list = SECTIONS[section].is_list and chance.random() < 0.8
        lines.append(f"[[{section}]]" if is_list else f"[{section}]")
        if section == "listener" and chance.random() < 0.8:
            lines.append(f"port = {chance.randrange(7000, 8000)}")
        for key in chance.sample(sorted(KEYS[section]), min(len(KEYS[section]), chance.randrange(3))):
            name = key if chance.random() < 0.95 else key[:-1]
            lines.append(f"{name} = {some_value(chance, section, key)}")
    text = "\n".join(lines)
    if chance.random() < 0.2:
        at = chance.randrange(len(text) + 1)
        return text[:at] + chance.choice(NOISE) + text[at + chance.randrange(3) :]
    return text


def read(text: str) -> tuple[Settings | None, list[Problem]]:
    try:
        return Settings.parse(text, "f.toml", Path("/etc/edge")), []
    except SettingsRefused as refusal:
        return None, refusal.problems


def test_a_file_is_taken_or_refused_as_a_whole(chance: Random) -> None:
    taken = refused = several = 0
    for _ in range(INPUTS):
        text = some_file(chance)
        settings, problems = read(text)
        if settings is None:
            refused += 1
            assert problems, text
            for problem in problems:
                assert 1 <= problem.line <= text.count("\n") + 1, (problem, text)
                assert problem.reason, text
        else:
            taken += 1
            several += len(settings.listeners) > 1
            assert read(effective(settings)) == (settings, []), text
    assert taken > INPUTS // 10
    assert refused > INPUTS // 5
    assert several

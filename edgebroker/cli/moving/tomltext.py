"""The settings file that is written: TOML, and behind every value the line it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edgebroker.cli.inquiry import USUAL_PORT
from edgebroker.world.tomlvalue import toml_value

from .conffile import Line
from .draft import BridgeDraft, Draft, Entry

_COLUMN: Final = 40
_DOOR: Final = f"""
# `edgebroker status`, `top`, `reload`, `client`, `bridge` and `retained` ask a gateway at this port. Mosquitto has none
# like it, and a gateway does not start where another program has it: take the # away if it is free.
# [http]
# port = {USUAL_PORT}"""
_TOKEN: Final = """\
# token_file = "http-token"               # for what changes something: openssl rand -hex 24 > http-token"""


def toml_text(draft: Draft, source: Path) -> str:
    """The whole file."""
    lines = [
        f"# Settings of a gateway, translated by `edgebroker import` from {_printable(str(source))}.",
        "# Behind every value stands the line it comes from; docs/settings.md explains the keys.",
    ]
    for one in draft.used_listeners():
        lines += ["", "[[listener]]", *_table(one.keys)]
    for section, keys in draft.sections.items():
        if keys:
            lines += ["", f"[{section}]", *_table(keys)]
    for bridge in draft.bridges:
        lines += ["", *_bridge(bridge)]
    lines += [_DOOR, *([_TOKEN] if draft.sections.get("access") else ())]
    return "\n".join(lines) + "\n"


def _table(keys: Mapping[str, Entry]) -> Iterator[str]:
    for key, entry in keys.items():
        yield _assignment(f"{key} = {toml_value(entry.value)}", entry.source)


def _bridge(bridge: BridgeDraft) -> Iterator[str]:
    if not bridge.rules:
        yield _printable(
            f"# {bridge.line.place}: {bridge.line}: a bridge without a topic that can be carried is left out"
        )
        return
    yield "[[bridge]]"
    yield from _table(bridge.keys)
    yield "topic = ["
    for draft in bridge.rules:
        yield _assignment(f"    {toml_value(str(draft.rule))},", draft.source)
    yield "]"


def _assignment(text: str, source: Line | str) -> str:
    said = f"{source.place}: {source}" if isinstance(source, Line) else source
    return f"{text:<{_COLUMN}}  # {_printable(said)}"


def _printable(text: str) -> str:
    """What a comment may hold: no control characters."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)

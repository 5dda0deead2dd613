"""Translates the options of persistence, logging and the process. mosquitto.conf(5), "General options"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgebroker.cli.mosquitto_import.conf_file import ConfLine, LineVerdict, VerdictKind
from edgebroker.cli.mosquitto_import.draft import ConfContext, ImportDraft
from edgebroker.cli.mosquitto_import.rules import Rule, bound, first_word, missing, needless, switch, truth

_LEVELS: Final = {
    "none": "error",
    "error": "error",
    "warning": "warning",
    "notice": "info",
    "information": "info",
    "internal": "debug",
    "subscribe": "debug",
    "unsubscribe": "debug",
    "websockets": "debug",
    "debug": "debug",
    "all": "debug",
}
"""log_type -> `notices.level`, from the fewest messages to the most."""
DATA_DIR: Final = "edgebroker-data"
"""The data folder beside the settings, where Mosquitto writes its file into its working directory."""


def kept(draft: ImportDraft, context: ConfContext, line: ConfLine) -> None:
    """Check a line about persistence and keep it for `persistence`."""
    truth(line) if line.name.endswith("persistence") else draft.path(line)
    draft.store[line.name.removeprefix("retained_")] = line


def persistence(draft: ImportDraft) -> Iterator[LineVerdict]:
    """Set a data folder, inside Mosquitto's if one is named: two brokers must not share files."""
    wanted, location = draft.store.get("persistence"), draft.store.get("persistence_location")
    is_wanted = wanted is not None and truth(wanted)
    if (plugin := draft.store.get("plugin")) is not None:  # Mosquitto does not start with both
        wanted, is_wanted = plugin, True
    if wanted is not None and not is_wanted:
        yield wanted.translated(draft.put("data", "durability", "memory", wanted), note="nothing is kept on disk")
    if location is not None and not is_wanted:
        yield location.needless("without persistence nothing is kept on disk")
    if wanted is None or not is_wanted:
        return
    folder = DATA_DIR if location is None else str(Path(draft.path(location)) / DATA_DIR)
    keys = (draft.put("data", "dir", folder, location or wanted),)
    note = "what is kept is written before it is acknowledged; what Mosquitto has kept so far is not taken over"
    yield wanted.differs(note, *keys)
    if location is not None:
        yield location.differs("a folder of its own inside that one", *keys)


def log_dest(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`log_dest`: a gateway writes its log to standard error, which the service manager redirects."""
    where, file = first_word(line), line.value.partition(" ")[2].strip()
    notes = {
        "stderr": (VerdictKind.NEEDLESS, "it is so already"),
        "stdout": (VerdictKind.DIFFERS, "messages go to standard error"),
        "syslog": (VerdictKind.DIFFERS, "messages go to standard error, from where systemd takes them to its journal"),
        "file": (
            VerdictKind.DIFFERS,
            f"messages go to standard error: StandardError=append:{file} in the systemd unit",
        ),
        "none": (VerdictKind.DIFFERS, "messages go to standard error; there are few: send them to /dev/null"),
        "topic": (VerdictKind.MISSING, "messages of the broker go to standard error, not to $SYS/broker/log"),
        "dlt": (VerdictKind.MISSING, "messages go to standard error"),
        "android": (VerdictKind.MISSING, "messages go to standard error"),
    }
    verdict, note = notes.get(where, (VerdictKind.UNKNOWN, f"destinations are {', '.join(notes)}"))
    return LineVerdict(line, verdict, note)


def log_type(draft: ImportDraft, context: ConfContext, line: ConfLine) -> LineVerdict:
    """`log_type`: Mosquitto has types, a gateway levels; of several types the one with the most messages decides."""
    level = _LEVELS.get(first_word(line))
    if level is None:
        return line.unknown(f"types are {', '.join(_LEVELS)}")
    order = list(dict.fromkeys(_LEVELS.values()))
    before = draft.value("notices", "level")
    if before is not None and order.index(before) >= order.index(level):
        return line.needless(f'notices.level = "{before}" tells that too')
    name = draft.put("notices", "level", level, line)
    if line.word in ("error", "warning", "information", "debug", "all"):
        return line.translated(name, note=f'"{level}", and what is worse')
    return line.differs(f'the nearest level is "{level}", and what is worse', name)


OPTIONS: Final[dict[str, Rule]] = {
    "persistence": kept,
    "retained_persistence": kept,  # its former name
    "persistence_location": kept,
    "persistence_file": needless("the journal names its own files"),
    "autosave_interval": needless("every acknowledged message is on disk"),
    "autosave_on_changes": needless("every acknowledged message is on disk"),
    "log_dest": log_dest,
    "log_type": log_type,
    "log_facility": needless("messages go to standard error"),
    "log_timestamp": needless("messages go to standard error; the journal of systemd knows the time"),
    "log_timestamp_format": needless("messages go to standard error; the journal of systemd knows the time"),
    "connection_messages": switch(
        on=needless('connections are told at notices.level = "info"'),
        off=missing('connections are told from notices.level = "info" on, with what else belongs there'),
    ),
    "sys_interval": bound("mqtt", "sys_interval_s"),
    "pid_file": needless("the gateway stays in the foreground: its service manager knows the process"),
    "user": needless("start it as that user (User= in the systemd unit); a gateway never changes its own"),
    **dict.fromkeys(
        ("ffdc_output", "max_log_entries", "retry_interval", "store_clean_interval", "trace_level", "trace_output"),
        needless("Mosquitto has given it up itself"),
    ),
    "set_tcp_nodelay": needless("it is always so"),
}

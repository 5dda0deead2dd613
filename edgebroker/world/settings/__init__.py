"""What an operator may set, in one TOML file or on the command line; docs/settings.md explains every key.

    settings = Settings.load(Path("gateway.toml")).overridden(port=1884)
    for listener in settings.listeners:
        listen(listener.host, listener.port)

One file per section; a new section is such a file and a line in `Settings`. Reading is strict: an unknown key, a wrong
type or a value out of range is refused, and all problems of a file at once. Settings are frozen; a part of the gateway
is handed its own section, never the whole.
"""

from edgebroker.world.settings.problems import Problem, SettingsRefused
from edgebroker.world.settings.settings import KEYS, SECTIONS, Settings, default_of

__all__ = ["KEYS", "SECTIONS", "Problem", "Settings", "SettingsRefused", "default_of"]

"""The settings of a gateway, from a TOML file and the command line; docs/settings.md explains every key.

    settings = Settings.load(Path("gateway.toml")).overridden(port=1884)
    for listener in settings.listeners:
        listen(listener.host, listener.port)

A new section is a class in `sections` and a field of `Settings`. Reading is strict: an unknown key, a wrong type or a
value out of range is refused, and all problems of a file are reported at once. Settings are frozen; a part of the
gateway gets its own section, never the whole.
"""

from edgebroker.runtime.settings.problems import Problem, SettingsRefused
from edgebroker.runtime.settings.settings import KEYS, SECTIONS, Settings, default_of

__all__ = ["KEYS", "SECTIONS", "Problem", "Settings", "SettingsRefused", "default_of"]

"""Section `access`."""

from __future__ import annotations

from pathlib import Path

from edgebroker.dataclasses import dataclass
from edgebroker.world.settings.section import Applied, key
from edgebroker.world.valuekinds import Choice, File


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may come in, and do what. Without `password_file` nobody is asked for a password.

    Without `acl_file` everybody may do everything.
    """

    password_file: Path | None = key(None, File(), Applied.LIVE)
    acl_file: Path | None = key(None, File(), Applied.LIVE)
    token_keys: Path | None = key(None, File(), Applied.LIVE)
    certificate_user: str = key("nobody", Choice(("nobody", "common name", "alternative name")), Applied.LIVE)

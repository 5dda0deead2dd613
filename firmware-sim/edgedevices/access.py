"""How a broker lets us in: user name and password, TLS with or without a certificate of our own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from edgedevices.errors import InputInvalid


@dataclass(frozen=True, slots=True)
class Access:
    """What every connection of a run presents. password: its text, as a file said it. tls: None is plain TCP."""

    username: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def read(
        cls,
        username: str | None = None,
        password_file: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        tls: bool = False,
    ) -> Access:
        """From files, so that no secret stands in a process list. ca: None is the system's. Raises InputInvalid."""
        password = None
        if password_file is not None:
            if username is None:
                raise InputInvalid("--password-file goes with --username NAME")
            try:
                password = password_file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise InputInvalid(f"cannot read {password_file}: {reason(error)}") from error
        if (cert is None) != (key is None):
            raise InputInvalid("--cert and --key go together")
        if not (tls or ca or cert):
            return cls(username, password)
        try:
            context = ssl.create_default_context(cafile=None if ca is None else str(ca))
            if cert is not None:
                context.load_cert_chain(cert, key)
        except OSError as error:  # ssl.SSLError is one
            named = ", ".join(str(path) for path in (ca, cert, key) if path is not None)
            raise InputInvalid(f"cannot use {named or 'the certificates of this system'}: {reason(error)}") from error
        return cls(username, password, context)


ANYONE = Access()
"""Nothing to present, over plain TCP."""


def reason(error: Exception) -> str:
    """What the system said."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

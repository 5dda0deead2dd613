"""Imports asyncio without ssl, until a connection needs TLS.

asyncio imports ssl if it can, and with it OpenSSL: 4 MiB and 10 ms of a start, which a gateway without TLS does not
need. Listeners implement TLS themselves (`listeners/tls.py`) and import ssl when a listener has a certificate.
"""

from __future__ import annotations

import importlib
import sys


def import_asyncio() -> None:
    """Import asyncio without ssl, if neither has been imported yet."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # None makes `import ssl` raise ImportError
    try:
        importlib.import_module("asyncio")
    finally:
        del sys.modules["ssl"]


def enable_asyncio_tls() -> None:
    """Import ssl into asyncio, so that its loops support TLS from now on."""
    import ssl
    from asyncio import base_events, selector_events, sslproto

    if base_events.ssl is None:  # type: ignore[attr-defined]
        importlib.reload(sslproto)
        base_events.ssl = selector_events.ssl = ssl

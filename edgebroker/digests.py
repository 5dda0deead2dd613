"""SHA-256 and BLAKE2b as Python brings them itself.

`hashlib` takes OpenSSL's if there is one, and loads OpenSSL for it: 3.7 MiB, for what is hashed once at the start. (The
standard library's `random` does as we do.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["blake2b", "sha256"]

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
    from hashlib import sha256 as sha256
else:
    try:
        from _blake2 import blake2b

        try:
            from _sha2 import sha256  # Python 3.12 and later
        except ImportError:
            from _sha256 import sha256
    except ImportError:  # built without its own
        from hashlib import blake2b, sha256

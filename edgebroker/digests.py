"""SHA-256, BLAKE2b and a comparison in constant time as Python brings them itself.

`hashlib` and `hmac` take OpenSSL's if there is one, and load OpenSSL for it: 3.7 MiB, for what is hashed once at the
start, or when somebody asks at the HTTP door. (The standard library's `random` does as we do.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["blake2b", "compare_digest", "sha256"]

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
    from hashlib import sha256 as sha256
    from hmac import compare_digest as compare_digest
else:
    try:
        from _blake2 import blake2b

        try:
            from _sha2 import sha256  # Python 3.12 and later
        except ImportError:
            from _sha256 import sha256
    except ImportError:  # built without its own
        from hashlib import blake2b, sha256

    try:
        from _operator import _compare_digest as compare_digest
    except ImportError:
        from hmac import compare_digest

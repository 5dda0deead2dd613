"""SHA-256, SHA-512, BLAKE2b, MD5 and a comparison in constant time, from the modules built into Python.

`hashlib` and `hmac` load OpenSSL if it is installed. That costs 3.7 MiB for values that are hashed once at the start or
for an HTTP request. (The `random` module of the standard library avoids `hashlib` for the same reason.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["blake2b", "compare_digest", "md5", "sha256", "sha512"]

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
    from hashlib import md5 as md5
    from hashlib import sha256 as sha256
    from hashlib import sha512 as sha512
    from hmac import compare_digest as compare_digest
else:
    try:
        from _blake2 import blake2b

        try:
            from _sha2 import sha256, sha512  # Python 3.12 and later
        except ImportError:
            from _sha256 import sha256
            from _sha512 import sha512
    except ImportError:  # this Python was built without its own hash functions
        from hashlib import blake2b, sha256, sha512

    try:
        from _operator import _compare_digest as compare_digest
    except ImportError:
        from hmac import compare_digest

    try:
        from _md5 import md5  # to distribute, not to protect
    except ImportError:
        from hashlib import md5

"""How far the remote broker of a bridge is synchronised with our session, as the journal stores it.

The state is encoded in the last values of the Session Expiry Interval (MQTT 5.0 section 3.1.2.11.2), in seconds: 136
years mean for ever, so the values just below are free.
"""

from __future__ import annotations

from typing import Final

from edgebridge.wire.fields import U32_MAX

NEVER_EXPIRES: Final = U32_MAX
"""It knows the session, and was told all that is retained. Sessions of older journals have this end."""
NOT_CONNECTED_YET: Final = NEVER_EXPIRES - 1
"""It was never there, so it has nothing that belongs to this session."""
RETAINED_PENDING: Final = NEVER_EXPIRES - 2
"""It knows the session, but not all that is retained."""
SESSION_IN_DOUBT: Final = NEVER_EXPIRES - 3
"""It was told all, and then asked for the session once more. What it has answered is not acted upon yet: it may have
lost that one, and have begun another."""

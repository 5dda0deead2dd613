"""How well the remote of a bridge knows our session, as the journal has it: by the end that the session was given.

136 years are for ever, so the last seconds of what an end may be (MQTT 5.0 section 3.1.2.11.2) are free to say more.
"""

from __future__ import annotations

from typing import Final

from edgebridge.wire.fields import U32_MAX

NEVER: Final = U32_MAX
"""It knows the session, and was told all that is retained. Sessions of older journals have this end."""
NOT_MET: Final = NEVER - 1
"""It was never there, so it has nothing that belongs to this session."""
NOT_TOLD: Final = NEVER - 2
"""It knows the session, but not all that is retained."""
DOUBTED: Final = NEVER - 3
"""It was told all, and then asked for the session once more. What it has answered is not acted upon yet: it may have
lost that one, and have begun another."""

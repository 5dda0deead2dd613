"""What speaks against a CONNECT, whoever says it."""

from __future__ import annotations

from edgebridge.frontend.entrance import RESERVED, Entrance
from edgebridge.frontend.keeping import Keeping
from edgebridge.frontend.publishing import Publishing
from edgebridge.frontend.refusal import DISALLOWED
from edgebridge.frontend.terms import Terms
from edgebridge.session.durability import Durability
from edgebridge.session.session import Session
from edgebridge.wire.packets import Connect
from edgebridge.wire.properties import has_disallowed_text
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import TopicInvalid
from edgebroker.topics import parse_topic_name


def objection(
    connect: Connect, terms: Terms, publishing: Publishing, entrance: Entrance
) -> tuple[ReasonCode, str] | None:
    """Why *connect* is refused, as CONNACK says it; None if it is not."""
    if connect.client_id.startswith(RESERVED) and entrance.verdict is None:
        return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, f"{RESERVED} begins the names of this gateway's own bridges"
    if not connect.client_id and not connect.clean_start and not connect.dialect.has_properties:
        return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "a session to keep needs a client identifier"
    if len(connect.client_id.encode()) > terms.client_id_bytes_max:
        return (
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
            f"a client identifier has at most {terms.client_id_bytes_max} bytes",
        )
    if connect.will is not None:
        try:
            parse_topic_name(connect.will.topic)
        except TopicInvalid as error:
            return ReasonCode.TOPIC_NAME_INVALID, f"will: {error}"
        if connect.will.retain and not terms.retained_messages_max and connect.dialect.has_properties:
            return ReasonCode.RETAIN_NOT_SUPPORTED, "will: no messages are retained here"  # [MQTT-3.2.2-13]
        if has_disallowed_text(connect.will.properties):
            return ReasonCode.MALFORMED_PACKET, f"will: {DISALLOWED}"
        if not publishing.has_right_format(connect.will.payload, connect.will.properties):
            return ReasonCode.PAYLOAD_FORMAT_INVALID, "will: its payload is said to be UTF-8, and is not"
    return None


def disk_objection(keeping: Keeping, known: Session | None, durability: Durability, expiry_s: int) -> str:
    """Why no session on these terms can be kept now; empty if it can be, or is not to be.

    While the journal is merely full, who is *known* there may come back: what waits for him is what fills it.
    """
    if not keeping.is_refusing or not keeping.keeps(durability, expiry_s):
        return ""
    if known is not None and known.number and keeping.journal is not None and keeping.journal.is_full:
        return ""
    return f"the disk takes nothing, so no session can be kept: {keeping.trouble}"

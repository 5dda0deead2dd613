"""Every cause for which a message is filtered or a copy dropped, in a sentence for operators (docs/fates.md)."""

from __future__ import annotations

from typing import Final

from edgebroker.records import Cause

SENTENCES: Final[dict[Cause, str]] = {
    Cause.NO_SUBSCRIBER: "no subscription has a matching topic filter",
    Cause.CONTENT: "topic filters matched, but every content filter said no or unknown",
    Cause.OUT_BUFFER_FULL: "it had QoS 0, and its reader reads too slowly: the out-buffer was full",
    Cause.QUEUE_FULL: "as many messages or bytes waited for its reader as may",
    Cause.OFFLINE: "it had QoS 0, and its reader was not connected",
    Cause.CONNECTION_LOST: "it had QoS 0, and the connection ended before it was written",
    Cause.SESSION_ENDED: "it waited, and the session of its reader ended",
    Cause.PACKET_TOO_LARGE: "it is larger than the packets that its reader takes",
    Cause.OWN_MESSAGE: 'only its own publisher asked for it, with "no local"',
    Cause.REFUSED: "its reader answered with an error",
    Cause.HANDED_OVER: "the member of the group that it waited for went away: it is another member's copy now",
    Cause.NOT_ALLOWED: "who asked for it may not read it",
    Cause.SUPERSEDED: "a later message of its topic came while it waited, and only the last one is to wait",
    Cause.MEMORY_FULL: "all clients together held too much, and this queue was the largest",
    Cause.BUDGET_SPENT: "it had QoS 0, and the bytes of the day for this link were spent",
    Cause.TOO_OLD: "it waited longer than messages for its reader may",
    Cause.THINNED: "its reader's queue was full, and of each topic every second message that waited had to go",
}


def sentence(cause: int) -> str:
    """What *cause*, a number of the log, means; also one that a newer gateway wrote."""
    try:
        return SENTENCES[Cause(cause)]
    except (ValueError, KeyError):
        return f"cause {cause}, which this program does not know"

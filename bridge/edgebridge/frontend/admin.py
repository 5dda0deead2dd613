"""Orders of an operator: end a connection or a session, move a client, clear a retained message, change the quota.

Each function takes effect at once, also for clients that are connected. Its caller, the HTTP server or a reload, checks
the rights of whoever gives the order.
"""

from __future__ import annotations

from typing import Final

from edgebridge.frontend.client_moves import MoveWay, move_text
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import ConnectionRateLimit
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import Quota, Redirect
from edgebridge.session.session import Session
from edgebridge.session.subscription_text import parse_subscription
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError
from edgebroker.instants import Instant
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.node import ALWAYS
from edgebroker.publication import Publication

CONNECTION_ENDED: Final = "an operator ended the connection"
SESSION_ENDED: Final = "an operator ended the session"


def end_connection(frontend: Frontend, session: Session) -> bool:
    """End the connection of *session*: its will goes out, its session waits or ends as if the network had failed.

    False if its client is away already.
    """
    if not session.is_connected:
        return False
    frontend.connect_handler.disconnect(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, CONNECTION_ENDED)
    return True


def move_client(frontend: Frontend, session: Session, gateway: str, redirect: Redirect, now: Instant) -> MoveWay | None:
    """Send the client of *session* to *gateway* as *redirect* says, and refuse it here for a while; its session waits.

    A client of MQTT 3.1.1, which cannot be told, is disconnected. None if the client is away already. Raises
    MoveTableFull.
    """
    connection: Connection | None = session.connection
    if connection is None or connection.closing:
        return None
    way = frontend.connect_handler.moves.begin(session.client_id, gateway, redirect, connection.is_v5, now)
    frontend.connect_handler.disconnect(connection, redirect.reason, move_text(gateway), redirect.reference)
    return way


def end_session(frontend: Frontend, session: Session, now: Instant) -> int:
    """End *session* at once, and its connection; its will goes out. Returns how many messages for it are dropped."""
    connect_handler, dropped = frontend.connect_handler, frontend.ledger.dropped
    before = dropped.get(Cause.SESSION_ENDED, 0)
    connection: Connection | None = session.connection
    session.expiry_s = 0
    if connection is not None:
        connect_handler.disconnect(connection, ReasonCode.ADMINISTRATIVE_ACTION, SESSION_ENDED)
        if not connection.paused:  # the world writes no more to who does not read
            frontend.delivery.written(connection, now)
        connect_handler.detach(connection, now)  # with an expiry of 0 the session ends with it
    else:
        connect_handler.end_session(session, now)
    return dropped.get(Cause.SESSION_ENDED, 0) - before


OPERATOR: Final = ClientId("$operator")
"""Whose message it is in the delivery log."""


class RetainedClearError(EdgebrokerError):
    """A retained message stays; the text says why."""


def clear_retained(frontend: Frontend, topic: str, now: Instant) -> None:
    """Let nothing be retained under *topic*. Raises NotCleared."""
    session_journal = frontend.journal
    if session_journal.is_refusing:  # what a restart would forget is not done
        raise RetainedClearError(f"the disk takes nothing: {session_journal.trouble}")
    refusal = frontend.publish_handler.publish(Publication(OPERATOR, topic, b"", 1, True, now), now)
    if refusal is not None:  # a reader's queue refuses, the memory of all is full, or the topic is the broker's own
        raise RetainedClearError(f"{topic} stays: {refusal}") from refusal


def change_quota(frontend: Frontend, quota: Quota, now: Instant) -> None:
    """Let *quota* hold. What was granted stays granted; how fast a client published until now is forgotten."""
    before, frontend.quota = frontend.quota, quota
    if quota == before:
        return
    turned_away = frontend.connection_rate.rejected
    frontend.connection_rate = ConnectionRateLimit(quota, now)
    frontend.connection_rate.rejected = turned_away
    frontend.input.connect_bytes_max = quota.connect_bytes_max
    frontend.subscribe_handler.filter_quota.quota = quota
    frontend.node.subscriptions_per_client_max = quota.subscriptions_max
    frontend.node.groups.per_account_max = quota.shared_groups_max
    frontend.connect_handler.session_quota.sessions_max = quota.sessions_max
    frontend.memory_limit.accounts.set_bound(quota.memory_bytes_max)
    frontend.memory_limit.check(now)
    for connection in frontend.connections.values():
        connection.meter = quota.meter(now)
    frontend.input_scheduler.end_pauses(now)  # of hours, perhaps: they were made of the rate of before


def change_federated_groups(frontend: Frontend, federated: tuple[str, ...], now: Instant) -> int:
    """Share the groups whose names *federated* has over the federation, and no others. Returns how many members are in
    another group than before.
    """
    node, listener = frontend.node, frontend.node.subscription_listener
    if federated == node.groups.federated:
        return 0
    moved = node.groups.regroup(federated)
    node.routes.forget()
    if listener is None:
        return len(moved)
    for member in moved:
        request = parse_subscription(member.label)  # the name of its group
        predicates = ALWAYS if request.filter is None else request.filter.predicates
        listener.unsubscribed(member.number, now)
        listener.subscribed(member.number, request.topic_filter, predicates, now)
    return len(moved)

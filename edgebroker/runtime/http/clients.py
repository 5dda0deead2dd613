"""The clients over HTTP: `/clients`, `/client`, `/blocked` and `/readers`, and the orders of POST /clients.

An operator may disconnect a client, end its session, move it to another gateway, block it and unblock it: POST
/clients?do=disconnect&name=pump-3.
`/readers` predicts for each matching subscription whether it would receive a message, and if not, why.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from edgebridge.frontend.admin import end_connection, end_session
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.handlers.connect import KEEP_ALIVE_GRACE, Ban
from edgebridge.frontend.options import BRIDGE_CLIENT_PREFIX, RedirectReason
from edgebridge.session.inflight import QueueEntry
from edgebridge.session.session import Session
from edgebridge.wire.packets import Will
from edgebridge.wire.properties import Property, number
from edgebridge.wire.reasons import ReasonCode
from edgebroker.dataclasses import dataclass
from edgebroker.filters.attributes import Extractor
from edgebroker.instants import SECOND, Instant
from edgebroker.log_schema import Cause
from edgebroker.names import ClientId
from edgebroker.node.shared_groups import RemoteMembers
from edgebroker.node.subscriptions import Subscription
from edgebroker.publication import Publication
from edgebroker.runtime.block_list import BLOCK_LIST_FILE, BlockListFile, expire_block
from edgebroker.runtime.http.health import GatewayView
from edgebroker.runtime.http.orders import OrderError, OrderHandler, wait_until_synced
from edgebroker.runtime.http.query import Query, QueryInvalid, read_choice, read_integer, suggestion
from edgebroker.runtime.http.retained import publication_row
from edgebroker.runtime.http.session_census import RANKS, SESSIONS_PER_TURN
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import Level

BY_NAME: Final = "client"
"""Sorts by client identifier; all other sort keys are numbers, see `RANKS`."""
STATES: Final[Mapping[str, Callable[[Session], bool]]] = {
    "connected": lambda session: session.connection is not None,
    "away": lambda session: session.connection is None,
    "slow": lambda session: session.connection is not None and session.connection.paused,
}
"""Selects clients by state."""


@dataclass(slots=True)
class ClientSelection:
    """`sessions`: how many there are; `matched`: how many are selected; `ranked`: the first of these."""

    sessions: int = 0
    matched: int = 0
    ranked: list[Session] = field(default_factory=list)


async def select_clients(
    frontend: Frontend, pattern: str | None, state: str, rank: str, count: int, after: str = ""
) -> ClientSelection:
    """Selects the sessions whose client identifier matches *pattern*, in which `*` matches any text, and that are in
    *state*.

    state: a key of `STATES`, or empty. rank: a key of `RANKS`, or `BY_NAME`, which begins behind the identifier
    *after*. At most *count* sessions are in `ranked`.
    """
    sessions = list(frontend.connect_handler.sessions.values())
    selection = ClientSelection(len(sessions))
    is_in_state = STATES.get(state, bool)
    matching: list[Session] = []
    for start in range(0, len(sessions), SESSIONS_PER_TURN):
        if start:
            await asyncio.sleep(0)
        matching += [
            session
            for session in sessions[start : start + SESSIONS_PER_TURN]
            if (pattern is None or fnmatchcase(session.client_id, pattern)) and is_in_state(session)
        ]
    selection.matched = len(matching)
    # 1 ms for 10,000 sessions.
    if rank == BY_NAME:
        following = [session for session in matching if session.client_id > after] if after else matching
        selection.ranked = heapq.nsmallest(count, following, key=lambda session: session.client_id)
    else:
        selection.ranked = heapq.nlargest(count, matching, key=RANKS[rank])
    return selection


def client_rows(view: GatewayView, sessions: list[Session]) -> list[dict[str, Any]]:
    """Returns a row for each of *sessions*."""
    view.log_pump.collect_drops()
    now, dropped = clock(), view.log_pump.dropped
    return [client_row(session, now, dropped.get(session.client_id, {})) for session in sessions]


def client_row(session: Session, now: int, dropped: Mapping[Cause, int]) -> dict[str, Any]:
    """Returns the row of one client. *dropped*: counts of its dropped copies by cause."""
    connection = session.connection
    return {
        "client": session.client_id,
        "connected": connection is not None,
        "peer": None if connection is None else connection.peer,
        "version": None if connection is None else connection.dialect.version,
        "silent_s": None if connection is None else round((now - connection.last_received_at) / SECOND, 3),
        "keep_alive_s": None if connection is None else connection.keep_alive / SECOND / KEEP_ALIVE_GRACE,
        "expiry_s": session.expiry_s,
        "durability": str(session.durability),
        "subscriptions": session.subscribed,
        "queue": len(session.outbox),
        "bytes": session.outbox.held_bytes,
        "paged": session.outbox.paged_messages,
        "paged_bytes": session.outbox.paged_bytes,
        "inflight": len(session.inflight),
        "window": session.inflight.window,
        "unsent": 0 if connection is None else connection.out_bytes,
        "paused": connection is not None and connection.paused,
        "dropped": {cause.name.lower(): count for cause, count in sorted(dropped.items())},
    }


def client_details(view: GatewayView, session: Session, limit: int) -> dict[str, Any]:
    """Returns the row of one client, and up to *limit* of its subscriptions and of its messages.

    Payloads and the user name are not included.
    """
    now, connection = clock(), session.connection
    [row] = client_rows(view, [session])
    away_s = None if connection is not None else round((now - session.disconnected_at) / SECOND, 3)
    subscriptions = view.frontend.node.subscriptions.of(session.client_id).values()
    waiting = ((entry, "waits") for entry in session.outbox)
    sent = ((entry, "released" if entry.released else "sent") for entry in session.inflight)
    first = [_message(entry, state, now) for entry, state in _first_messages(sent, waiting, limit)]
    return row | {
        "listener": None if connection is None else connection.listener_context.name,
        "away_s": away_s,
        "ends_in_s": None if away_s is None else max(0, round(session.expiry_s - away_s, 3)),
        "qos_2_unreleased": len(session.received),
        "replaying": bool(session.replays),
        "moved": _last_move(view, session, now),
        "roams": _session_moves(view, session),
        "will": None if session.will is None else _will(session.will),
        "asked": [_subscription(subscription) for subscription in islice(subscriptions, limit)],
        "messages": first,
    }


def _last_move(view: GatewayView, session: Session, now: Instant) -> dict[str, Any] | None:
    """Returns to which gateway a client was sent last, how, and what became of it; None if it was not sent."""
    moves = view.frontend.connect_handler.moves
    move = moves.last(session.client_id)
    if move is None:
        return None
    outcome = "on its way" if move.outcome is None else move.outcome.value
    refused_s = 0.0 if move.outcome is not None else max(0.0, round((move.refused_until - now) / SECOND, 3))
    return {"to": move.gateway, "way": move.way.value, "outcome": outcome, "refused_s": refused_s}


def _session_moves(view: GatewayView, session: Session) -> dict[str, Any] | None:
    """Returns from which gateways the session still comes, and to which it goes; None if it does not move."""
    federation = view.frontend.federation
    moves = None if federation is None or federation.roaming is None else federation.roaming.moves_of(session.client_id)
    return None if moves is None else {"from": [*moves.arrives_from], "to": moves.goes_to, "held": moves.held}


def _first_messages(
    sent: Iterable[tuple[QueueEntry, str]], waiting: Iterable[tuple[QueueEntry, str]], limit: int
) -> Iterable[tuple[QueueEntry, str]]:
    """Returns up to *limit* messages, those in flight first."""
    first = list(islice(sent, limit))
    return [*first, *islice(waiting, limit - len(first))]


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "filter": subscription.text,
        "label": subscription.label,
        "qos": subscription.qos,
        "no_local": subscription.no_local,
        "as_published": subscription.retain_as_published,
        "identifier": subscription.identifier,
        "group": subscription.group is not None,
    }


def _message(entry: QueueEntry, state: str, now: Instant) -> dict[str, Any]:
    copied = {"state": state, "packet_id": entry.packet_id, "qos": entry.qos, "retain": entry.retain}
    return publication_row(entry.publication, now) | copied


def _will(will: Will) -> dict[str, Any]:
    delay_s = number(will.properties, Property.WILL_DELAY_INTERVAL, 0)
    described = {"topic": will.topic, "qos": will.qos, "retain": will.retain}
    return described | {"bytes": len(will.payload), "delay_s": delay_s}


SUBSCRIPTIONS_PER_TURN: Final = 5_000
"""Subscriptions visited in one turn of the loop: about 1 ms."""


class DeliveryForecast(StrEnum):
    """Whether a subscription would receive a message."""

    YES = "yes"
    IN_TURN = "in turn"
    """It is a member of a shared group; one member receives the message."""
    CONTENT = "no: content"
    """Its content filter is false or unknown."""
    PERHAPS = "if the content is right"
    """Its content filter, or an access rule of its client, depends on the payload, which is not given."""
    AWAY = "no: away"
    """Its client is offline, and a QoS 0 copy is not queued."""
    NOT_ALLOWED = "no: not allowed"
    """Its client may not read the topic, or not this message."""


async def forecast_delivery(
    frontend: Frontend, topic: str, payload: bytes | None, qos: int, count: int
) -> dict[str, Any]:
    """Predicts for each subscription that matches *topic* whether it receives a message; lists the first *count* by
    client.

    payload: None if it is unknown.
    """
    node = frontend.node
    publication = Publication("", topic, payload or b"", qos, False, clock())
    resolution = node.routes.tree.resolve(topic)
    accepting: set[int] = set()
    if payload is not None and resolution.contents:
        extractor = Extractor(resolution.wanted)
        attributes = extractor.extract(
            payload, topic=topic, qos=qos, retain=False, client="", user=(), content_type=None
        )
        accepting = set(node.routes.tree.match(resolution, attributes))
    plain = set(resolution.plain)
    candidates = [
        subscription for number in plain if (subscription := node.subscriptions.by_number.get(number)) is not None
    ]
    if resolution.contents:  # the tree does not list the subscriptions of an end: visit all, in slices
        matched_ends, end_of = set(map(id, resolution.ends)), node.routes.tree.end_of
        numbers = iter([number for number in node.subscriptions.by_number if number not in plain])
        while batch := list(islice(numbers, SUBSCRIPTIONS_PER_TURN)):
            candidates += [
                subscription
                for number in batch
                if (subscription := node.subscriptions.by_number.get(number)) is not None
                and id(end_of(number)) in matched_ends
            ]
            await asyncio.sleep(0)
    candidates = [subscription for subscription in candidates if not subscription.subscriber.is_gone]
    candidates.sort(key=lambda subscription: (subscription.client, subscription.number))

    def forecast(subscription: Subscription) -> DeliveryForecast:
        receiver = subscription.receiver
        is_remote = isinstance(receiver, RemoteMembers)  # another gateway, which judges what its members may read
        permission = None if node.routes.ask is None or is_remote else node.routes.ask(receiver, topic)
        has_rules = permission is not None and not permission.is_always
        if permission is not None and permission.is_never:
            return DeliveryForecast.NOT_ALLOWED
        if permission is not None and has_rules and payload is not None and not permission.permits(publication):
            return DeliveryForecast.NOT_ALLOWED
        is_filtered = subscription.number not in plain
        if is_filtered and payload is not None and subscription.number not in accepting:
            return DeliveryForecast.CONTENT
        if not min(qos, subscription.qos) and not receiver.is_connected:
            return DeliveryForecast.AWAY
        if payload is None and (is_filtered or has_rules):
            return DeliveryForecast.PERHAPS
        return DeliveryForecast.YES if subscription.group is None else DeliveryForecast.IN_TURN

    forecasts = [forecast(subscription) for subscription in candidates]
    return {
        "topic": topic,
        "concerned": len(candidates),
        "answers": dict(Counter(forecasts)),
        "readers": list(_reader_rows(candidates[:count], forecasts, qos)),
    }


def _reader_rows(
    candidates: list[Subscription], forecasts: list[DeliveryForecast], qos: int
) -> Iterator[dict[str, Any]]:
    for subscription, forecast in zip(candidates, forecasts, strict=False):
        yield {
            "client": subscription.client,
            "connected": subscription.receiver.is_connected,
            "filter": subscription.text,
            "label": subscription.label,
            "qos": min(qos, subscription.qos),
            "no_local": subscription.no_local,
            "gets_it": forecast,
        }


MOVE_REASONS: Final[Mapping[str, RedirectReason]] = {
    "no": ReasonCode.USE_ANOTHER_SERVER,
    "yes": ReasonCode.SERVER_MOVED,
}
"""Reason of a move, by whether it is for good."""
BLOCKED_MAX: Final = 1_000
BLOCK_S: Final = 3_600
BLOCK_S_MAX: Final = 30 * 86_400
REASON_CHARS_MAX: Final = 200
"""Length of the operator's reason: with 1,000 blocked clients the file has 300 KiB at most."""
SUGGESTION_SESSIONS_MAX: Final = 1_000
"""With more sessions no similar name is suggested: the search would take more than 50 ms."""


def find_session(frontend: Frontend, query: Query) -> Session:
    """Returns the session of the client that `name` names. Raises QueryInvalid."""
    name, sessions = query.get("name", ""), frontend.connect_handler.sessions
    session = sessions.get(ClientId(name))
    if session is not None:
        return session
    hint = ""
    if len(sessions) <= SUGGESTION_SESSIONS_MAX:
        import difflib  # loaded only for a wrong name

        hint = "".join(f"; did you mean {match}?" for match in difflib.get_close_matches(name, sessions, n=1))
    raise QueryInvalid(f"there is no client {name!r}{hint}")


def find_client_session(view: GatewayView, query: Query) -> Session:
    """As `find_session`, but raises OrderError for the session of a bridge."""
    session = find_session(view.frontend, query)
    if session.client_id.startswith(BRIDGE_CLIENT_PREFIX):
        raise _bridge_error(session.client_id)
    return session


def _bridge_error(client: str) -> OrderError:
    name = client.removeprefix(BRIDGE_CLIENT_PREFIX)
    return OrderError(f"{client} is a bridge of this gateway; see `edgebroker bridge pause {name}`")


async def _disconnect(view: GatewayView, query: Query) -> dict[str, Any]:
    session = find_client_session(view, query)
    is_done = end_connection(view.frontend, session)
    view.reactor.schedule_flush()
    view.reactor.arm_timer()
    return {"client": session.client_id, "disconnected": is_done, "session_kept": is_done and session.expiry_s > 0}


async def _move(view: GatewayView, query: Query) -> dict[str, Any]:
    session, gateway = find_client_session(view, query), query.get("to", "")
    if not gateway:
        raise QueryInvalid("to which gateway? say to=")
    reason = MOVE_REASONS[read_choice(query, "for_good", "no", MOVE_REASONS)]
    return order_move(view, session, gateway, reason)


def order_move(view: GatewayView, session: Session, gateway: str, reason: RedirectReason) -> dict[str, Any]:
    """Sends the client of *session* to *gateway*; returns the answer to the order. Raises OrderError, ClientUnmovable,
    TopologyInvalid, MoveTableFull.
    """
    if view.peer_manager is None:
        raise OrderError("this gateway is in no federation; overlay.topology names the file that lists the others")
    return view.peer_manager.move_client(session, gateway, reason, "an operator sent a client to another gateway")


async def _end(view: GatewayView, query: Query) -> dict[str, Any]:
    session = find_client_session(view, query)
    was_connected = session.is_connected
    if session.number and view.frontend.journal.is_refusing:
        raise OrderError(f"the disk takes nothing: {view.frontend.journal.trouble}")
    dropped = end_session(view.frontend, session, clock())
    view.operator_log.log(
        Level.WARNING, "session-ended", "an operator ended a session", client=session.client_id, dropped=dropped
    )
    view.reactor.schedule_flush()
    view.reactor.arm_timer()
    await wait_until_synced(view)
    return {"client": session.client_id, "disconnected": was_connected, "dropped": dropped}


async def _block(view: GatewayView, query: Query) -> dict[str, Any]:
    name, frontend = query.get("name", ""), view.frontend
    seconds = read_integer(query, "seconds", BLOCK_S, 1, BLOCK_S_MAX)
    if not name:
        raise QueryInvalid("which client? say name=")
    if name.startswith(BRIDGE_CLIENT_PREFIX):
        raise _bridge_error(name)
    reason = query.get("why", "")
    if len(reason) > REASON_CHARS_MAX:
        raise QueryInvalid(f"why has {len(reason)} characters; say it in {REASON_CHARS_MAX}")
    blocked = frontend.connect_handler.blocked
    if name not in blocked and len(blocked) >= BLOCKED_MAX:
        raise OrderError(f"{BLOCKED_MAX:,} clients are blocked, and no more can be; unblock some")
    ban = blocked[name] = Ban(clock() + seconds * SECOND, stored_unix_s(view), seconds, reason)
    asyncio.get_running_loop().call_later(seconds, expire_block, blocked, name, ban)
    session = frontend.connect_handler.sessions.get(ClientId(name))
    is_disconnected = session is not None and end_connection(frontend, session)
    view.operator_log.log(
        Level.WARNING, "client-blocked", "an operator keeps a client out", client=name, seconds=seconds, why=reason
    )
    view.reactor.schedule_flush()
    view.reactor.arm_timer()
    return {
        "client": name,
        "seconds": seconds,
        "disconnected": is_disconnected,
        "forgotten": await _save_block_list(view),
    }


def stored_unix_s(view: GatewayView) -> int:
    """The time by the stored clock, which never goes back; without a store, by the machine's clock."""
    if view.store is None:
        return int(time.time())
    return (clock() + view.frontend.journal.clock_offset) // SECOND


async def _save_block_list(view: GatewayView) -> str:
    """Saves the block list. Returns an empty text, or why a restart will forget it."""
    if view.store is None:
        return "there is no data folder"
    if view.block_list is None:
        view.block_list = BlockListFile(view.store.folder / BLOCK_LIST_FILE, view.frontend.connect_handler.blocked)
    return await view.block_list.save()


async def _unblock(view: GatewayView, query: Query) -> dict[str, Any]:
    name, blocked = query.get("name", ""), view.frontend.connect_handler.blocked
    if name not in blocked:
        raise OrderError(f"{name!r} is not blocked; {suggestion(name, list(blocked)) if blocked else 'nobody is'}")
    del blocked[name]
    return {"client": name, "forgotten": "" if view.store is None else await _save_block_list(view)}


def blocked_clients(view: GatewayView) -> dict[str, Any]:
    """Returns the blocked clients, with the remaining time, the begin and the reason of each block."""
    now, unix_s = clock(), stored_unix_s(view)
    rows = [
        {
            "client": name,
            "ends_in_s": round((ban.until - now) / SECOND, 3),
            "since_unix_s": ban.since_unix_s,
            "since_s": max(0, unix_s - ban.since_unix_s),
            "why": ban.why,
        }
        for name, ban in sorted(view.frontend.connect_handler.blocked.items())
    ]
    return {"blocked": rows}


CLIENT_ORDERS: Final[dict[str, tuple[OrderHandler, frozenset[str]]]] = {
    "disconnect": (_disconnect, frozenset({"name"})),
    "end": (_end, frozenset({"name"})),
    "move": (_move, frozenset({"name", "to", "for_good"})),
    "block": (_block, frozenset({"name", "seconds", "why"})),
    "unblock": (_unblock, frozenset({"name"})),
}

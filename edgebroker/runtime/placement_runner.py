"""Sends publishers to better gateways, for operators and with `relocation.mode = "apply"` by itself, and finds out what
came of it.

A gateway moves its own publishers only: those that `edgebroker place plan` shows, in its order, within the bounds of
`relocation.automatic_moves`. What a publisher costs at its new gateway is asked there, until the first trace session of
it has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from edgebridge.frontend.frontend import Frontend
from edgebridge.session.session import Session
from edgebridge.wire.reasons import ReasonCode
from edgebroker.errors import EdgebrokerError
from edgebroker.federation.options import RelocationMode
from edgebroker.federation.relocation import PlacementEstimate
from edgebroker.instants import MILLISECOND, SECOND, Instant
from edgebroker.log_schema import MIGRATION
from edgebroker.names import ClientId
from edgebroker.runtime.loop.reactor import clock
from edgebroker.runtime.operator_log import Level, OperatorLog
from edgebroker.runtime.peers.peers import PeerManager
from edgebroker.runtime.peers.placement import (
    MeanCosts,
    costs_here,
    costs_there,
    proposed_moves,
    told_measurements,
    why_not_automatic,
)
from edgebroker.runtime.placement_history import AUTOMATIC, HISTORY_FILE, AppliedMove, PlacementHistory

CHECK_S: Final = 5.0
"""How often there may be something to do. With mode "apply" it is every second, as `relocation.moves_per_minute` may be
60.
"""
LOOKED_AT_MAX: Final = 1_000
"""Proposals that are looked at for the next move: 10 ms."""
IDLE: Final = 10 * SECOND
"""If none of them may be moved, they are looked at again so much later: a new session takes longer."""
ASK_S: Final = 30
"""How often other gateways are asked what moved publishers cost there, while that is not known of some."""
SETTLED_AFTER_S: Final = 1_800
"""After that nobody is asked any more: most publishers have had a trace session by then."""
SETTLED_OUTCOMES: Final = ("arrived", "returned", "moved again", "on its way", "unknown")
"""What may have become of a move when nobody is asked any more."""


class PlacementRunner:
    """The moves of one gateway's publishers. `start`, then `stop`."""

    def __init__(
        self, peer_manager: PeerManager, frontend: Frontend, operator_log: OperatorLog, folder: Path | None
    ) -> None:
        """folder: the data folder, where the history is kept."""
        self.outcomes: Counter[str] = Counter()
        """What became of moves of plans, by outcome."""
        self._peer_manager = peer_manager
        self._folder = folder
        self._frontend = frontend
        self._operator_log = operator_log
        self._history: PlacementHistory | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._look_at: Instant = 0
        self._ask_at: Instant = 0

    @property
    def history(self) -> PlacementHistory:
        """Returns the moves of plans so far; they are read from the disk when somebody first asks."""
        if self._history is None:
            self._history = PlacementHistory(None if self._folder is None else self._folder / HISTORY_FILE)
            if reason := self._history.read():
                text = "which clients were moved by plans cannot be read"
                self._operator_log.log(Level.WARNING, "placements-unreadable", text, reason=reason)
            for move in self._history.moves:
                moved_at = clock() - (self._unix_s() - move.unix_s) * SECOND
                self._peer_manager.automatic_moves.remember(move.client, moved_at)
        return self._history

    def start(self) -> None:
        """Begins to look for something to do."""
        self._check()

    def stop(self) -> None:
        """Ends that; a move that was ordered goes on."""
        for one in (self._timer, self._task):
            if one is not None:
                one.cancel()

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(1.0 if self._is_automatic else CHECK_S, self._check)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self.step(clock()))

    @property
    def _is_automatic(self) -> bool:
        return self._peer_manager.membership.options.relocation.mode is RelocationMode.APPLY

    async def step(self, now: Instant) -> None:
        """Does what there is to do at *now*: asks what became of moves, and makes the next one."""
        if any(not move.outcome for move in self.history.moves) and now >= self._ask_at:
            self._ask_at = now + ASK_S * SECOND
            await self._settle()
        if self._is_automatic and now >= self._look_at and self._peer_manager.automatic_moves.is_due(now):
            await self._move_next(now)

    # -- moves --------------------------------------------------------------------------------------------------------

    async def _move_next(self, now: Instant) -> None:
        """Moves the first publisher of the plan that may be moved."""
        statistics, ways = self._peer_manager.overlay.peers.relocation, self._peer_manager.client_ways()
        automatic = self._peer_manager.automatic_moves
        sessions = self._frontend.connect_handler.sessions
        for each, estimate in proposed_moves(statistics)[:LOOKED_AT_MAX]:
            client, gateway = each.publisher.client, estimate.target
            has_way = ways.described(client, gateway)["way"] != "none"
            if why_not_automatic(each, has_way, ways, automatic, now):
                continue
            try:
                answer = await self.execute(sessions[ClientId(client)], estimate, AUTOMATIC)
            except EdgebrokerError:  # it has left meanwhile, or too many are on their way: the next one, or later
                continue
            if answer["moved"]:
                automatic.note(client, statistics.options.moves_per_minute, now)
                return
        self._look_at = now + IDLE

    async def execute(self, session: Session, estimate: PlacementEstimate, plan: str) -> dict[str, Any]:
        """Sends the client of *session* to the target of *estimate*; returns the answer to the order. *plan*: the plan
        that the move belongs to. Raises EdgebrokerError.
        """
        client, by = session.client_id, "relocation.mode" if plan == AUTOMATIC else "an operator's plan"
        text = f"{by} sent a publisher to another gateway"
        answer = self._peer_manager.move_client(session, estimate.target, ReasonCode.USE_ANOTHER_SERVER, text)
        if not answer["moved"]:
            return answer | {"forgotten": ""}
        history = self.history
        move = AppliedMove(
            client,
            estimate.target,
            plan,
            self._unix_s(),
            answer["way"],
            costs_here(estimate),
            costs_there(estimate),
        )
        self._peer_manager.automatic_moves.remember(client, clock())
        return answer | {"forgotten": await history.add(move)}

    def _unix_s(self) -> int:
        """Returns the time by the stored clock, which never goes back; without a store, by the machine's clock."""
        return int(time.time()) if self._folder is None else (clock() + self._frontend.journal.clock_offset) // SECOND

    # -- what came of it ----------------------------------------------------------------------------------------------

    def outcome(self, move: AppliedMove, is_measured: bool) -> str:
        """Returns what became of a client: `on its way`, or a `MoveOutcome`. *is_measured*: whether the other gateway
        traces it.
        """
        connect_handler = self._frontend.connect_handler
        session = connect_handler.sessions.get(ClientId(move.client))
        if session is not None and session.is_connected:
            return "returned"
        last = connect_handler.moves.last(move.client)
        if is_measured or move.realised is not None:
            return "arrived"
        if last is None or last.gateway != move.gateway:
            return move.outcome or "unknown"
        return "on its way" if last.outcome is None else last.outcome.value

    def pause_ms(self, move: AppliedMove) -> float | None:
        """Returns how long a client had no connection; None: it was not seen to arrive."""
        last = self._frontend.connect_handler.moves.last(move.client)
        if last is None or last.gateway != move.gateway or last.pause is None:
            return move.pause_ms
        return round(last.pause / MILLISECOND, 1)

    async def _settle(self) -> None:
        """Asks the other gateways what moved publishers cost there, and notes what became of those of which that is
        known, or which have come back, or of which nothing will be known.
        """
        measured = told_measurements(await self._peer_manager.query_all())
        settled: dict[AppliedMove, AppliedMove] = {}
        unix_s, newest = self._unix_s(), {move.client: move for move in self.history.moves}
        for move in self.history.moves:
            if move.outcome:
                continue
            age_s = unix_s - move.unix_s
            found = measured.get(move.gateway, {}).get(move.client)
            realised = MeanCosts.from_row(found) if found is not None and found["age_s"] <= age_s else None
            outcome = "moved again" if newest[move.client] is not move else self.outcome(move, realised is not None)
            if realised is not None or outcome in ("returned", "moved again") or age_s > SETTLED_AFTER_S:
                settled[move] = move._replace(realised=realised, outcome=outcome, pause_ms=self.pause_ms(move))
                self.outcomes[outcome] += 1
        if settled:
            if (log := self._frontend.ledger.log) is not None:
                now = clock()
                log.placed(
                    now, MIGRATION, [_migration_row(move, unix_s - move.unix_s, now) for move in settled.values()]
                )
            await self.history.settle(settled)


def _migration_row(move: AppliedMove, age_s: int, now: Instant) -> tuple[object, ...]:
    """Returns the row of `log_schema.MIGRATION`."""
    costs = (move.before, move.predicted, move.realised)
    return (
        *(now, move.client, move.gateway, move.plan, move.way, move.outcome, max(0, age_s)),
        -1 if move.pause_ms is None else round(1_000 * move.pause_ms),
        *(-1 if one is None else round(1_000 * one[quantity]) for quantity in range(3) for one in costs),
    )

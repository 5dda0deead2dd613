"""A journal that is missing from its folder is reported, also while nothing is written."""

from __future__ import annotations

from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import FrontendOptions
from edgebroker.instants import MINUTE, SECOND
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.operator_log import Level, LogPump, OperatorLog
from edgebroker.storage.journal.format import STORE_BYTES
from edgebroker.storage.journal.journal import Journal


def test_it_is_told_once_and_again_if_it_happens_again() -> None:
    said: list[str] = []
    now, where = 0, ""
    journal = Journal(bytes(STORE_BYTES))
    log = OperatorLog(lambda line: said.append(line.decode().strip()), Level.WARNING, lambda notice, _: notice.text)
    frontend = Frontend(Node(Ledger()), FrontendOptions(), lambda: "assigned")
    log_pump = LogPump(frontend, log, lambda: now, journal, lambda: where)

    def told(after: int = MINUTE) -> list[str]:
        nonlocal now
        now += after
        log_pump.pump()
        lines = [*said]
        said.clear()
        return lines

    gone = "the next start would find nothing of what is kept"
    assert told() == []
    where = "its folder was taken away"
    assert told(30 * SECOND) == [], "once a minute is enough"
    assert told(30 * SECOND) == [gone]
    assert told() == []
    where = ""
    assert told() == []
    where = "its folder was taken away"
    assert told() == [gone]
    where, journal.is_refusing, journal.refusal_reason = "elsewhere", True, "elsewhere"
    assert told() == ["the disk takes nothing: what must be kept is refused"], "which says it all"

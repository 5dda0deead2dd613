"""The operator's log: what is told, how often, in which form, and that nobody waits for whoever reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgebridge.frontend.event_buffer import EVENTS_MAX, REFUSED
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.options import QUOTA, FrontendOptions, Quota
from edgebridge.session.access import AccessPolicy
from edgebridge.session.acl import Acl
from edgebridge.session.authorization import AclRights
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.packets import Connect, Disconnect, Publish, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MINUTE
from edgebroker.log_schema import Cause
from edgebroker.node.ledger import DROPS_MAX, Ledger
from edgebroker.node.node import Node
from edgebroker.runtime.operator_log import (
    LINES_MAX,
    REPEATS_MAX,
    SUBJECTS_MAX,
    WINDOW_S,
    Level,
    LogPump,
    Notice,
    OperatorLog,
    as_journal,
    as_json,
    as_text,
    timestamp,
)
from edgebroker.storage.journal.format import STORE_BYTES
from edgebroker.storage.journal.journal import Journal


class Desk:
    """An operator's log with a clock that is set by hand."""

    def __init__(self, level: Level = Level.INFO, form: Any = as_text) -> None:
        self.now = 0.0
        self.written: list[str] = []
        self.log = OperatorLog(self.write, level, form, lambda: 1_000_000_000.5 + self.now, lambda: self.now)

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        self.written.append(line.decode().removesuffix("\n"))

    def lines(self) -> list[str]:
        """What was written since the last call, without time."""
        written, self.written = self.written, []
        return [line.partition(" ")[2] for line in written]


# -- forms ------------------------------------------------------------------------------------------------------

NOTICE = Notice(Level.WARNING, "dropped", "messages are dropped", {"client": "a b", "count": 3, "cause": "queue_full"})


def test_text_is_for_people() -> None:
    line = '2001-09-09T01:46:40.500Z warning dropped: messages are dropped client="a b" count=3 cause=queue_full'
    assert as_text(NOTICE, 1_000_000_000.5) == line


def test_journald_has_a_clock_and_reads_the_level() -> None:
    assert as_journal(NOTICE, 0).startswith("<4>warning dropped: messages are dropped client=")
    assert as_journal(Notice(Level.ERROR, "x", "y", {}), 0) == "<3>error x: y"


def test_json_is_one_object() -> None:
    assert json.loads(as_json(NOTICE, 1_000_000_000.5)) == {
        "time": "2001-09-09T01:46:40.500Z",
        "level": "warning",
        "code": "dropped",
        "text": "messages are dropped",
        "client": "a b",
        "count": 3,
        "cause": "queue_full",
    }


def test_a_field_cannot_pose_as_what_the_log_says_itself() -> None:
    said = json.loads(as_json(Notice(Level.INFO, "c", "t", {"code": "other", "level": "error"}), 0.0))
    assert (said["code"], said["level"]) == ("c", "info")


@given(st.text(max_size=300), st.text(max_size=300))
def test_whatever_a_client_is_called_it_stays_one_line_and_does_nothing_to_a_terminal(text: str, client: str) -> None:
    notice = Notice(Level.INFO, "code", text, {"client": client})
    for form in (as_text, as_journal, as_json):
        line = form(notice, 0.0)
        assert line.isprintable()
        assert len(line) < 6_000
    assert json.loads(as_json(notice, 0.0))["client"] == client[:200]


@given(st.integers(0, 4_000_000_000_000))
def test_timestamps_are_utc(milliseconds: int) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", timestamp(milliseconds / 1_000))


# -- how much ---------------------------------------------------------------------------------------------------


def test_only_the_level_and_what_is_worse_is_told() -> None:
    desk = Desk(Level.WARNING)
    for level in Level:
        desk.log.log(level, "c", level.name)
    assert desk.lines() == ["error c: ERROR", "warning c: WARNING"]
    assert desk.log.counts == dict.fromkeys(Level, 1), "all are counted"


def test_what_repeats_is_told_a_few_times_then_counted() -> None:
    desk = Desk()
    for _ in range(REPEATS_MAX + 7):
        desk.log.log(Level.WARNING, "dropped", "again", client="slow")
    desk.log.log(Level.WARNING, "dropped", "once", client="other")
    desk.log.log(Level.WARNING, "refused", "once", client="slow")
    assert len(desk.lines()) == REPEATS_MAX + 2, "another client and another code have limits of their own"
    desk.now = WINDOW_S - 1
    desk.log.end_window()
    assert desk.lines() == []
    desk.now = WINDOW_S
    desk.log.end_window()
    assert desk.lines() == ["warning dropped: 7 more suppressed client=slow suppressed=7"]
    desk.log.log(Level.WARNING, "dropped", "again", client="slow")
    assert desk.lines() == ["warning dropped: again client=slow"], "a new window"


def test_a_summary_is_as_bad_as_the_worst_it_stands_for() -> None:
    desk = Desk()
    for level in [Level.INFO] * (REPEATS_MAX + 1) + [Level.ERROR, Level.INFO]:
        desk.log.log(level, "c", "t")
    desk.lines()
    desk.log.flush()
    assert desk.lines() == ["error c: 3 more suppressed suppressed=3"]


def test_many_clients_together_have_a_limit_too() -> None:
    desk = Desk()
    count = LINES_MAX + SUBJECTS_MAX
    for number in range(count):
        desk.log.log(Level.WARNING, "refused", "again", client=f"c{number}")
    told = len(desk.lines())
    assert told <= LINES_MAX
    desk.log.flush()
    suppressed = sum(int(line.rpartition("=")[2]) for line in desk.lines())
    assert told + suppressed == count, "every one is told or counted"


def test_a_line_of_a_part_has_its_name_as_code() -> None:
    desk = Desk()
    desk.log.log_line("delivery log: cannot write in x: no space")
    desk.log.log_line("the journal cannot be written: no space")
    for line in range(7):
        desk.log.log_line(f"my users: line {line}: no hash")
    assert desk.lines() == [
        "warning delivery-log: cannot write in x: no space",
        "warning journal: the journal cannot be written: no space",
        *(f"warning gateway: my users: line {line}: no hash" for line in range(7)),
    ]


def test_an_unexpected_error_is_told_with_its_place() -> None:
    desk = Desk()
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        desk.log.log_unexpected({"message": "edgebroker: x is cut off", "exception": error})
    desk.log.log_unexpected({})
    first, second = desk.lines()
    assert first.startswith('error unexpected: edgebroker: x is cut off error="ZeroDivisionError: a bug" at="test_op')
    assert second == "error unexpected: an error nobody expected"


# -- what the front end has to tell -----------------------------------------------------------------------------


class Office:
    """A front end, and what its scribe writes."""

    def __init__(self, quota: Quota = QUOTA, **options: int) -> None:
        self.desk = Desk()
        self.now = 0
        self.frontend = Frontend(Node(Ledger()), FrontendOptions(**options), lambda: "assigned", quota=quota)
        self.pump = LogPump(self.frontend, self.desk.log, lambda: self.now)

    def lines(self) -> list[str]:
        self.pump.pump()
        return self.desk.lines()

    def come(self, client: str, *filters: str, expiry_s: int = 0) -> Any:
        connection = self.frontend.opened("10.0.0.9:4711", 0)
        properties = {Property.SESSION_EXPIRY_INTERVAL: expiry_s} if expiry_s else {}
        self.say(connection, Connect(client, properties=properties, username="u", password=b"secret"))
        for text in filters:
            self.say(connection, Subscribe(1, [SubscriptionOption(text, 1)]))
        return connection

    def say(self, connection: Any, packet: Any) -> None:
        self.frontend.feed(connection, encode_packet(packet, V5), 0)

    def leave(self, connection: Any) -> None:
        self.frontend.closed(connection, 0)


UNREADABLE = b'{"temp":31,"x":"\\q"}'


def test_payloads_that_cannot_be_read_are_told_once_a_minute() -> None:
    """Publishers decide how many there are; a filter must have asked for them."""
    office = Office()
    office.come("reader", "$filter/temp > 30/a/#", "plain/#")
    publisher = office.come("publisher")
    office.lines()

    def unreadable(*publishes: tuple[str, bytes]) -> list[str]:
        for topic, payload in publishes:
            office.say(publisher, Publish(topic, payload))
        return [line for line in office.lines() if "unreadable" in line]

    assert unreadable(("a/1", b""), ("a/1", b" \n"), ("a/1", b"ON\0"), ("plain/1", UNREADABLE), ("b", UNREADABLE)) == []
    [line] = unreadable(("a/1", UNREADABLE), ("a/2", UNREADABLE))
    assert line.startswith("warning unreadable: ")
    assert line.endswith("messages=2 topic=a/2")
    office.now += MINUTE - 1
    assert unreadable(*[("a/3", UNREADABLE)] * 5, ("a/4", UNREADABLE)) == []
    office.now += 1
    [line] = unreadable()
    assert line.endswith("messages=6 topic=a/4")
    office.now += MINUTE
    assert unreadable() == []
    counts = office.frontend.node.routes.unreadable
    assert counts.total == 8
    assert counts.by_topic == {"a/1": 1, "a/2": 1, "a/3": 5, "a/4": 1}


def leave_politely(office: Office, one: Any) -> None:
    office.say(one, Disconnect(ReasonCode.NORMAL_DISCONNECTION))


def take_over(office: Office, one: Any) -> None:
    office.come("c")


def break_the_protocol(office: Office, one: Any) -> None:
    office.frontend.feed(one, b"\xf0\x00", 0)


GOINGS: dict[str, tuple[Callable[[Office, Any], None], str]] = {
    "lost": (lambda office, one: None, "info disconnected: the connection was lost client=c peer=10.0.0.9:4711"),
    "polite": (leave_politely, "info disconnected: the client said so client=c peer=10.0.0.9:4711"),
    "taken over": (
        take_over,
        "info disconnected: the client connected again elsewhere client=c peer=10.0.0.9:4711 reason=session_taken_over",
    ),
    "offended": (break_the_protocol, "warning disconnected: "),
}


def test_two_devices_with_one_identifier_are_told_of_once_a_minute_and_counted() -> None:
    office = Office()
    for _ in range(4):
        office.come("often")
    for _ in range(101):
        office.come("twin")
    assert not [line for line in office.lines() if "taken-over" in line]
    office.now = MINUTE
    [line] = [line for line in office.lines() if "taken-over" in line]
    assert line.startswith("warning taken-over: ")
    assert "client=twin count=100 peer=10.0.0.9:4711 other_peer=10.0.0.9:4711" in line
    assert office.frontend.connect_handler.counters.taken_over == 103
    office.now = 2 * MINUTE
    assert not office.lines(), "it has ended"


@pytest.mark.parametrize(("how", "line"), GOINGS.values(), ids=GOINGS)
def test_who_comes_and_goes_is_told_with_the_reason(how: Callable[[Office, Any], None], line: str) -> None:
    office = Office()
    one = office.come("c")
    assert office.lines() == ["info connected: connected client=c peer=10.0.0.9:4711"]
    how(office, one)
    office.leave(one)
    told = [told for told in office.lines() if "disconnected" in told]
    assert len(told) == 1, "once, however it went"
    assert told[0].startswith(line)


def test_refusals_are_warnings_and_name_who_was_refused() -> None:
    office = Office(Quota(sessions_max=1), connections_max=3)
    office.come("first")
    office.come("second")
    office.say(office.frontend.opened("10.0.0.9:1", 0), Publish("a", b"x", 0))
    office.frontend.opened("10.0.0.9:2", 0)
    assert office.lines() == [
        "info connected: connected client=first peer=10.0.0.9:4711",
        "warning refused: too many sessions client=second peer=10.0.0.9:4711 reason=quota_exceeded",
        "warning refused: the first packet is not CONNECT [3.1.1: MQTT-3.1.0-1, 5: MQTT-3.1.0-1] "
        "peer=10.0.0.9:1 reason=protocol_error",
        "warning refused: too many connections peer=10.0.0.9:2 reason=server_busy",
    ]


def test_who_ended_a_session_and_how_many_messages_were_dropped_is_a_warning() -> None:
    """A few times a minute for each client, like everything that repeats."""
    office = Office()
    connection = office.frontend.opened("10.0.0.9:1", 0)
    for _ in range(REPEATS_MAX + 2):
        office.frontend.events.add_session_end("pump-3", connection, "anna", 500, "a clean start ended a session")
    office.frontend.events.add_session_end("x" * 900, connection, "", 1, "a clean start ended a session")
    line = "warning session-ended: a clean start ended a session client={} peer=10.0.0.9:1"
    known = line.format("pump-3") + " user=anna dropped=500"
    assert office.lines() == [*[known] * REPEATS_MAX, line.format("x" * 200) + " dropped=1"]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_client_may_not_say_or_ask_is_told(qos: int) -> None:
    """3.1.1 has no words for it: for its clients this is all that anybody hears."""
    office = Office()
    rules = "topic readwrite ok/#\ntopic write small where $size < 5\n"
    office.frontend.replace_access(AccessPolicy(rules=AclRights(Acl.parse(rules))), 0)
    client = office.come("c", "ok/#", "other/#", "$filter/a%3E/ok/#")
    for number, topic in enumerate(("ok/1", "other/1", "$SYS/x", "small"), 1):
        office.say(client, Publish(topic, b"payload", qos, packet_id=number * qos))
    told = [line.removesuffix(" client=c peer=10.0.0.9:4711 reason=not_authorized") for line in office.lines()]
    assert told[1] == "warning not-subscribed: other/#: nothing of this may be read"
    assert told[2].startswith("warning not-subscribed: $filter/a%3E/ok/#: column ")
    assert told[2].endswith(" reason=topic_filter_invalid")
    assert told[3:] == [
        "warning not-published: other/1: you may not publish under this topic",
        "warning not-published: $SYS/x: $SYS, $file, $filter, $share are the broker's own trees of topics",
        "warning not-published: small: you may publish under this topic, but not this: the rule has a condition",
    ]


def test_who_says_forbidden_things_without_end_leaves_room_for_others() -> None:
    office = Office()
    client = office.come("c")
    for _ in range(2 * EVENTS_MAX):
        office.say(client, Publish("$SYS/x", b"", 0))
    office.leave(office.come("other"))
    told = office.lines()
    assert office.frontend.publish_handler.refused == 2 * EVENTS_MAX
    assert any(line.startswith("warning not-published: $SYS/x: $SYS, $file") for line in told), "without rules, too"
    assert any("client=other" in line for line in told)
    assert not any("missed" in line for line in told)


def test_who_never_says_connect_is_told() -> None:
    office = Office()
    office.frontend.opened("10.0.0.9:1", 0)
    office.frontend.fire(60_000_000)
    assert office.lines() == ["warning refused: no CONNECT came in time peer=10.0.0.9:1 reason=keep_alive_timeout"]


def test_the_first_drop_of_a_minute_is_told_at_once_and_all_at_its_end() -> None:
    office = Office(queue_messages_max=2, inflight_max=1)
    office.come("slow", "a")
    writer = office.come("writer")
    office.lines()

    def publish(count: int) -> None:
        for number in range(1, count + 1):
            office.say(writer, Publish("a", b"x", 1, packet_id=number))

    publish(3)
    assert office.lines() == [], "one on its way, two in the queue"
    publish(1)
    assert office.lines() == ["warning dropped: messages are dropped client=slow cause=queue_full count=1"]
    publish(4)
    assert office.lines() == []
    publish(2)
    office.now = MINUTE
    assert office.lines() == ["warning dropped: messages were dropped since client=slow cause=queue_full count=6"]
    office.now = 2 * MINUTE
    assert office.lines() == [], "nothing more was dropped"
    publish(1)
    assert office.lines() == ["warning dropped: messages are dropped client=slow cause=queue_full count=1"]


def test_what_goes_with_a_client_that_goes_is_no_warning() -> None:
    office = Office()
    office.leave(office.come("away", "a", expiry_s=60))
    office.say(office.come("writer"), Publish("a", b"x", 0))
    assert "info dropped: messages are dropped client=away cause=offline count=1" in office.lines()


def test_what_another_member_has_and_what_is_to_be_replaced_is_no_warning() -> None:
    office = Office()
    for cause in (Cause.HANDED_OVER, Cause.SUPERSEDED):
        office.frontend.ledger.count_dropped("member", cause, 1)
    assert [line.split()[0] for line in office.lines()] == ["info", "info"]


def test_drops_of_very_many_clients_are_summed_up() -> None:
    ledger = Ledger()
    for number in range(DROPS_MAX + 5):
        ledger.count_dropped(f"c{number}", Cause.OFFLINE, 2)
    drops = ledger.take_drops()
    assert len(drops) == DROPS_MAX + 1
    assert drops["", Cause.OFFLINE] == 10
    assert sum(drops.values()) == ledger.dropped[Cause.OFFLINE] == 2 * (DROPS_MAX + 5)
    assert ledger.take_drops() == {}


def test_more_than_can_be_noted_is_counted() -> None:
    office = Office()
    connection = office.frontend.opened("10.0.0.9:1", 0)
    for _ in range(EVENTS_MAX + 3):
        office.frontend.events.add(REFUSED, connection, 0, "x" * 70_000)
    assert office.frontend.events.missed == 3
    assert any("missed=3" in line for line in office.lines())
    assert office.frontend.events.missed == 0


def test_no_password_and_no_payload_is_ever_told() -> None:
    office = Office(queue_messages_max=1, inflight_max=1)
    office.desk.log.level = Level.DEBUG
    office.come("reader", "#")
    writer = office.come("writer")
    for number in range(1, 5):
        office.say(writer, Publish("a", b"payload", 1, packet_id=number))
    office.frontend.feed(writer, b"\x30\xff\xff\xff\xff payload", 0)
    told = "\n".join(office.lines())
    assert "dropped" in told
    assert "secret" not in told
    assert "payload" not in told


def test_a_disk_that_fails_is_told_when_it_begins_and_when_it_ends() -> None:
    office = Office()
    journal = Journal(bytes(STORE_BYTES))
    office.pump = LogPump(office.frontend, office.desk.log, lambda: office.now, journal)
    assert office.lines() == []
    journal.warning = "half of the room is taken"
    journal.failures, journal.refusal_reason = 1, "Input/output error"
    assert office.lines() == [
        'warning journal: a write or a sync failed and is tried again elsewhere trouble="Input/output error" failures=1'
    ]
    journal.warning = "nine tenths of the room are taken"
    assert office.lines() == ["warning journal: nine tenths of the room are taken"]
    journal.is_refusing, journal.failures = True, 2
    line = 'error journal: the disk takes nothing: what must be kept is refused trouble="Input/output error"'
    assert office.lines() == [line]
    assert office.lines() == [], "once"
    journal.is_refusing = False
    assert office.lines() == ["warning journal: the disk takes everything again failures=2"]

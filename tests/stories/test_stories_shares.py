"""Nobody keeps others out: what all share is shared by address before CONNECT, and by user or address after it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from edgebridge.frontend.admin import change_quota
from edgebridge.frontend.connection import Connection
from edgebridge.frontend.connection_rate import HANDSHAKE_BYTES, HANDSHAKES_SHARE, TLS_BYTES
from edgebridge.frontend.frontend import Frontend
from edgebridge.frontend.handlers.connect import DisplacementCause
from edgebridge.frontend.options import FrontendOptions, ListenerContext, Quota
from edgebridge.session.access import AccessPolicy
from edgebridge.session.credentials import WRONG_CREDENTIALS
from edgebridge.session.lifecycle import ConnectionState
from edgebridge.session.passwordfile import PasswordFile, make_user
from edgebridge.wire.decode import decode_packet
from edgebridge.wire.dialect import V5
from edgebridge.wire.encode import encode_packet
from edgebridge.wire.framing import Framer
from edgebridge.wire.packets import ConnAck, Connect, Disconnect, Packet, Publish, SubAck, Subscribe, SubscriptionOption
from edgebridge.wire.properties import Property
from edgebridge.wire.reasons import ReasonCode
from edgebroker.instants import MILLISECOND, SECOND
from edgebroker.limits import CONNECT_TIMEOUT_S, KIB, MIB, VERIFICATIONS_MAX
from edgebroker.node.ledger import Ledger
from edgebroker.node.node import Node

HASH_TIME = 41 * MILLISECOND
THREADS = 2
GREEDY, OTHER, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"


class World:
    """A front end, a clock, and clients from several addresses."""

    def __init__(self, quota: Quota, options: FrontendOptions, access: AccessPolicy | None) -> None:
        policy = {} if access is None else {"access": access, "secret": b"s" * 32}
        self.frontend = Frontend(Node(Ledger()), options, lambda: "assigned", quota=quota, **policy)
        self.now = 0
        self.frontend.start(0)
        self._ports = count(1)
        self._framers: dict[int, Framer] = {}
        self._heard: dict[int, list[Packet]] = {}

    def opens(self, address: str, listener: ListenerContext | None = None) -> Connection:
        connection = self.frontend.opened(f"{address}:{next(self._ports)}", self.now, listener or ListenerContext())
        self._framers[connection.number], self._heard[connection.number] = Framer(1 << 28), []
        self.flush()
        return connection

    def says(self, connection: Connection, *packets: Packet | bytes) -> list[Packet]:
        """What the client hears by then."""
        for packet in packets:
            data = packet if isinstance(packet, bytes) else encode_packet(packet, V5)
            self.frontend.feed(connection, data, self.now)
        self.flush()
        heard = self._heard[connection.number]
        self._heard[connection.number] = []
        return heard

    def comes(self, address: str, client: str, expiry_s: int = 0, **more: Any) -> tuple[Connection, ConnAck | None]:
        connection = self.opens(address)
        properties = {Property.SESSION_EXPIRY_INTERVAL: expiry_s}
        heard = self.says(connection, Connect(client, dialect=V5, properties=properties, **more))
        return connection, next((packet for packet in heard if isinstance(packet, ConnAck)), None)

    def leaves(self, connection: Connection) -> None:
        self.frontend.closed(connection, self.now)

    def waits(self, seconds: float) -> None:
        until = self.now + int(seconds * SECOND)
        timers = self.frontend.node.timers
        while (due := timers.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.frontend.fire(self.now)
            self.flush()
        self.now = until

    def flush(self) -> None:
        dirty = self.frontend.dirty
        while dirty:
            connection = dirty.pop()
            framer = self._framers[connection.number]
            for chunk in self.frontend.take_output(connection, self.now):
                framer.feed(chunk)
            while (frame := framer.next_frame()) is not None:
                self._heard[connection.number].append(decode_packet(*frame, V5))
            if connection.closing:
                self.frontend.closed(connection, self.now)

    def displaced(self, cause: DisplacementCause) -> int:
        return self.frontend.displaced[cause]


def world(
    quota: Quota | None = None, options: FrontendOptions | None = None, access: AccessPolicy | None = None
) -> World:
    return World(quota or Quota(connects_per_s=0, connects_per_address_per_s=0), options or FrontendOptions(), access)


def announced(size: int) -> bytes:
    """The beginning of a PUBLISH of *size* bytes: its header and topic."""
    body = size - 5
    length = bytes([body & 0x7F | 0x80, body >> 7 & 0x7F | 0x80, body >> 14 & 0x7F | 0x80, body >> 21])
    return b"\x30" + length + b"\0\1t\0"


def rest_of(size: int, chunk: int) -> list[bytes]:
    """What comes behind `announced`, in chunks."""
    left = size - len(announced(size))
    return [b"x" * min(chunk, left - at) for at in range(0, left, chunk)]


# -- unfinished packets ------------------------------------------------------------------------------------------


def test_a_packet_that_comes_too_slowly_ends_its_connection() -> None:
    here = world()
    slow, _ = here.comes(GREEDY, "slow")
    size = 100_000
    here.says(slow, announced(size))
    seconds = CONNECT_TIMEOUT_S + size / 1_000
    for _ in range(10):  # a byte now and then is no progress
        here.waits(seconds / 10 - 0.01)
        here.says(slow, b"x")
    assert slow.is_open
    here.waits(0.2)
    assert slow.closing
    assert slow.disconnect_reason is not None
    assert slow.disconnect_reason[0] == ReasonCode.QUOTA_EXCEEDED
    assert here.displaced(DisplacementCause.SLOW_PACKET) == 1
    assert here.frontend.disconnector.counts == {ReasonCode.QUOTA_EXCEEDED: 1}


def test_packets_that_come_at_the_least_rate_are_taken_for_ever() -> None:
    here = world()
    thin, _ = here.comes(GREEDY, "thin")
    size = 50_000
    for _ in range(5):
        here.says(thin, announced(size))
        for chunk in rest_of(size, 1_000):
            here.waits(1)
            here.says(thin, chunk)
    assert thin.is_open
    assert here.frontend.ledger.published == 5
    assert not any(here.frontend.displaced.values())


def test_the_least_rate_is_a_setting_that_can_change_and_be_none() -> None:
    here = world(Quota(packet_bytes_per_s_min=0))
    slow, _ = here.comes(GREEDY, "slow")
    here.says(slow, announced(100_000))
    here.waits(24 * 3_600)
    assert slow.is_open
    change_quota(here.frontend, Quota(packet_bytes_per_s_min=1_000_000), here.now)
    here.says(slow, *rest_of(100_000, 64 * KIB), announced(2_000_000))
    here.waits(CONNECT_TIMEOUT_S + 3)
    assert slow.closing


def test_a_client_that_is_not_read_is_not_blamed_for_that() -> None:
    """It publishes faster than it may, and is paused in the middle of a packet."""
    here = world(Quota(publish_bytes_per_s=1_000))
    fast, _ = here.comes(GREEDY, "fast")
    here.says(fast, announced(200_000) + b"x" * 150_000)
    assert fast.is_held
    here.waits(CONNECT_TIMEOUT_S + 145)
    assert fast.is_open


@pytest.mark.parametrize("is_connected", [True, False])
def test_unfinished_packets_of_one_address_keep_nobody_out(is_connected: bool) -> None:
    """Seventeen of 16 MiB would fill what all clients may hold; so would 64 KiB from each of 4,000 connections."""
    quota = Quota(memory_bytes_max=16 * MIB, connects_per_s=0, connects_per_address_per_s=0)
    here = world(quota, FrontendOptions(packet_bytes_max=MIB))
    for number in range(40 if is_connected else 400):
        greedy = here.opens(GREEDY)
        if is_connected:
            here.says(greedy, Connect(f"greedy-{number}", dialect=V5))
            here.says(greedy, announced(MIB), *[b"x" * 64 * KIB] * 15)
        else:
            here.says(greedy, b"\x10\xff\xff\x02" + b"x" * 49_000)
        _, answer = here.comes(OTHER, f"other-{number}")
        assert answer is not None
        assert answer.reason == ReasonCode.SUCCESS
    assert here.displaced(DisplacementCause.UNFINISHED_INPUT) > 0
    held = sum(one.pending_bytes for one in here.frontend.connections.values())
    assert held <= 16 * MIB // 4 + 16 * MIB // 8 + MIB


def test_many_addresses_together_leave_half_of_the_memory() -> None:
    quota = Quota(memory_bytes_max=16 * MIB, connects_per_s=0)
    here = world(quota, FrontendOptions(packet_bytes_max=2 * MIB))
    for number in range(40):
        greedy, answer = here.comes(f"192.0.2.{number}", f"greedy-{number}")
        assert answer is not None
        assert answer.reason == ReasonCode.SUCCESS
        here.says(greedy, announced(MIB), *[b"x" * 64 * KIB] * 15)
    assert here.displaced(DisplacementCause.UNFINISHED_INPUT) > 20


def test_one_packet_as_large_as_is_allowed_is_nobodys_concern() -> None:
    here = world(Quota(memory_bytes_max=32 * MIB))
    large, _ = here.comes(GREEDY, "large")
    size = 16 * MIB - 8
    here.says(large, announced(size), *rest_of(size, 64 * KIB))
    assert large.is_open
    assert here.frontend.ledger.published == 1


# -- sessions ----------------------------------------------------------------------------------------------------

FEW = Quota(sessions_max=10, connects_per_s=0, connects_per_address_per_s=0)


def test_one_address_has_half_of_the_sessions_and_its_oldest_gives_way() -> None:
    here = world(FEW)
    for number in range(20):
        connection, answer = here.comes(GREEDY, f"greedy-{number}", expiry_s=1_000_000)
        assert answer is not None
        assert answer.reason == ReasonCode.SUCCESS
        here.leaves(connection)
    sessions = here.frontend.connect_handler.sessions
    assert list(sessions) == [f"greedy-{number}" for number in range(15, 20)]
    assert here.displaced(DisplacementCause.SESSION) == 15
    for number in range(5):
        assert here.comes(OTHER, f"other-{number}")[1] is not None
    assert len(sessions) == 10


def test_who_is_connected_or_has_messages_gives_way_to_nobody() -> None:
    here = world(FEW)
    for number in range(5):
        connection, _ = here.comes(GREEDY, f"greedy-{number}", expiry_s=1_000_000)
        if number % 2:
            here.says(connection, Subscribe(1, [SubscriptionOption("t", 1)]))
            here.says(connection, Publish("t", b"", 1, packet_id=1))
            here.leaves(connection)
    refused, answer = here.comes(GREEDY, "greedy-5")
    assert answer is not None
    assert answer.reason == ReasonCode.QUOTA_EXCEEDED
    assert answer.properties[Property.REASON_STRING] == "too many sessions of one user or address"
    assert refused.closing
    assert here.frontend.connect_handler.counters.refused == {ReasonCode.QUOTA_EXCEEDED: 1}
    assert here.frontend.connect_handler.session_quota.refused == {"account": 1}
    assert here.displaced(DisplacementCause.SESSION) == 0
    last = here.comes(OTHER, "other")[1]
    assert last is not None
    assert last.reason == ReasonCode.SUCCESS


def test_when_all_sessions_are_taken_those_of_users_stay() -> None:
    users = PasswordFile.parse(quick("anna", "apple"))
    here = world(FEW, access=AccessPolicy(users))
    for number in range(5):
        anna, _ = here.comes(GREEDY, f"anna-{number}", expiry_s=1_000, username="anna", password=b"apple")
        verified(here)
        here.leaves(anna)
    for number in range(5):
        here.leaves(here.comes(OTHER, f"other-{number}", expiry_s=1_000)[0])
    for number in range(3):
        answer = here.comes(THIRD, f"third-{number}")[1]
        assert answer is not None
        assert answer.reason == ReasonCode.SUCCESS
    assert sorted(here.frontend.connect_handler.sessions) == [
        *(f"anna-{number}" for number in range(5)),
        *("other-3", "other-4"),
        *(f"third-{number}" for number in range(3)),
    ]
    anna = here.opens(THIRD)
    here.says(anna, Connect("anna-5", dialect=V5, username="anna", password=b"apple"))
    verified(here)
    assert anna.closing, "a user has half of them too, from wherever"


def test_the_number_of_sessions_changes_at_once() -> None:
    here = world(FEW)
    change_quota(here.frontend, Quota(sessions_max=1), here.now)
    first, answer = here.comes(GREEDY, "first")
    assert answer is not None
    assert answer.reason == ReasonCode.SUCCESS
    assert here.comes(OTHER, "second")[0].closing
    here.leaves(first)
    assert not here.comes(OTHER, "second")[0].closing


def test_a_session_that_changes_hands_counts_for_who_has_it() -> None:
    here = world(FEW)
    for number in range(5):
        here.leaves(here.comes(GREEDY, f"one-{number}", expiry_s=1_000)[0])
        here.leaves(here.comes(OTHER, f"one-{number}", expiry_s=1_000, clean_start=False)[0])
    for number in range(5):
        here.leaves(here.comes(GREEDY, f"two-{number}", expiry_s=1_000)[0])
    assert len(here.frontend.connect_handler.sessions) == 10
    assert here.displaced(DisplacementCause.SESSION) == 0


# -- connections before CONNECT ----------------------------------------------------------------------------------


def test_idle_connections_of_one_address_fill_no_gateway() -> None:
    here = world(options=FrontendOptions(connections_max=20))
    insiders = [here.comes(f"198.51.100.{number}", f"insider-{number}")[0] for number in range(5)]
    idle = [here.opens(GREEDY) for _ in range(100)]
    assert len(here.frontend.connections) <= 20
    other, answer = here.comes(OTHER, "other")
    assert answer is not None
    assert answer.reason == ReasonCode.SUCCESS
    assert all(insider.is_open for insider in [*insiders, other])
    assert [one.closing for one in idle] == [True] * 86 + [False] * 14, "the oldest went"
    assert here.displaced(DisplacementCause.CONNECTING) == 86
    waiting = len(here.frontend.connect_handler.connecting)
    assert waiting == 14
    for connection in list(here.frontend.connections.values()):
        here.leaves(connection)
    assert len(here.frontend.connect_handler.connecting) == 0


def test_a_gateway_full_of_clients_refuses_the_newcomer() -> None:
    here = world(options=FrontendOptions(connections_max=3))
    insiders = [here.comes(GREEDY, f"insider-{number}")[0] for number in range(3)]
    assert here.opens(OTHER).closing
    assert all(insider.is_open for insider in insiders)
    assert here.frontend.disconnector.counts == {ReasonCode.SERVER_BUSY: 1}
    assert here.displaced(DisplacementCause.CONNECTING) == 0


def test_a_listener_with_a_bound_of_its_own_closes_one_of_its_own() -> None:
    here = world()
    one, two = ListenerContext(number=1), ListenerContext(number=2)
    elsewhere = [here.opens(GREEDY, one) for _ in range(3)]
    first, second = here.opens(GREEDY, two), here.opens(OTHER, two)
    here.frontend.close_for_newcomer(second, 2)
    assert first.closing
    assert not second.closing
    assert not any(connection.closing for connection in elsewhere)


def test_handshakes_hold_a_quarter_of_the_memory_at_most() -> None:
    quota = Quota(memory_bytes_max=16 * MIB, connects_per_s=0, connects_per_address_per_s=0)
    here = world(quota)
    most = 16 * MIB // HANDSHAKES_SHARE // HANDSHAKE_BYTES
    first = here.opens(OTHER)
    here.frontend.begin_handshake(first)
    greedy = [here.opens(GREEDY) for _ in range(2 * most)]
    for connection in greedy:
        here.frontend.begin_handshake(connection)
        here.flush()
    connecting = here.frontend.connect_handler.connecting
    assert connecting.handshakes == most
    assert connecting.handshake_bytes <= 4 * MIB
    assert not first.closing, "it has its share, and came first"
    assert here.displaced(DisplacementCause.HANDSHAKE) == most + 1
    here.frontend.memory_limit.check(here.now)
    assert here.frontend.memory_limit.held_bytes >= connecting.handshake_bytes
    connecting.end_handshake(first)
    assert first.transport_bytes == TLS_BYTES
    here.waits(CONNECT_TIMEOUT_S)
    assert connecting.handshakes == 0, "they have the time of a CONNECT"


# -- passwords ---------------------------------------------------------------------------------------------------


def quick(name: str, password: str) -> str:
    """The line of a user, with a hash that takes milliseconds."""
    return str(PasswordFile().with_user(make_user(name, password, b"salt" * 4, None)))


def verified(here: World) -> None:
    """All checks are done, without a thread."""
    for verification in here.frontend.verifications():
        here.frontend.verified(verification.connection, verification.run(0), here.now)
    here.flush()


def test_wrong_passwords_from_three_addresses_delay_nobody() -> None:
    """Each of them refills its share at once, as 300 clients would."""
    here = world(access=AccessPolicy(PasswordFile.parse(quick("anna", "apple"))))
    flood = count()

    def refill() -> None:
        for address in ("192.0.2.11", "192.0.2.12", "192.0.2.13"):
            for _ in range(40):
                here.comes(address, f"f{next(flood)}", username="anna", password=b"wrong")

    refill()
    anna = here.opens(OTHER)
    here.says(anna, Connect("anna", dialect=V5, username="anna", password=b"apple"))
    assert anna.state is ConnectionState.AUTHENTICATING, "there is room for who has less"
    began, checks = here.now, 0
    while anna.state is ConnectionState.AUTHENTICATING:
        for verification in here.frontend.verifications(THREADS):
            is_right = verification.connection is anna
            if verification.is_slow:
                checks += 1
                here.now += HASH_TIME // THREADS
            verdict = verification.run(0) if is_right or not verification.is_slow else WRONG_CREDENTIALS
            here.frontend.verified(verification.connection, verdict, here.now)
        here.flush()
        refill()
    assert anna.is_open
    assert checks <= 6
    assert here.now - began < 2 * SECOND


def test_a_user_who_was_right_before_waits_for_no_stranger_of_the_same_address() -> None:
    here = world(access=AccessPolicy(PasswordFile.parse(quick("anna", "apple"))))
    first, _ = here.comes(GREEDY, "anna", username="anna", password=b"apple")
    verified(here)
    assert first.is_open
    here.leaves(first)
    here.frontend.authenticator.replace_access(AccessPolicy(PasswordFile.parse(quick("anna", "apple"))))
    for number in range(VERIFICATIONS_MAX):
        here.comes(GREEDY, f"f{number}", username="bert", password=b"wrong")
    anna = here.opens(GREEDY)
    here.says(anna, Connect("anna", dialect=V5, username="anna", password=b"apple"))
    turns = [verification.connection for verification in here.frontend.verifications(2)]
    assert anna in turns


def test_who_makes_room_hears_that_the_server_is_busy() -> None:
    here = world(access=AccessPolicy(PasswordFile.parse(quick("anna", "apple"))))
    greedy = [
        here.comes(f"192.0.2.{100 + number % 2}", f"f{number}", username="anna", password=b"wrong")[0]
        for number in range(VERIFICATIONS_MAX)
    ]
    here.comes(OTHER, "other", username="anna", password=b"apple")
    assert here.displaced(DisplacementCause.VERIFICATION) == 1
    (told,) = [one for one in here.frontend.verifications(0) if not one.is_slow]
    here.frontend.verified(told.connection, told.run(0), here.now)
    assert told.connection is greedy[-2]
    assert here.frontend.connect_handler.counters.refused == {ReasonCode.SERVER_BUSY: 1}
    assert len(here.frontend.authenticator) == VERIFICATIONS_MAX


# -- groups of shared subscriptions ------------------------------------------------------------------------------


def test_an_address_makes_so_many_groups_and_joins_any() -> None:
    here = world(Quota(shared_groups_max=3))
    one, _ = here.comes(GREEDY, "one")
    two, _ = here.comes(GREEDY, "two")
    other, _ = here.comes(OTHER, "other")

    def subscribe(connection: Connection, *groups: str) -> list[int]:
        asked = [SubscriptionOption(f"$share/{group}/#", 0) for group in groups]
        (answer,) = [one for one in here.says(connection, Subscribe(1, asked)) if isinstance(one, SubAck)]
        return list(answer.reasons)

    full = ReasonCode.QUOTA_EXCEEDED
    assert subscribe(one, "a", "b") == [0, 0]
    assert subscribe(two, "c", "d", "a") == [0, full, 0], "the address has three; who joins makes none"
    assert subscribe(one, "a") == [0], "once more"
    assert subscribe(other, "d", "a", "e", "f", "g") == [0, 0, 0, 0, full]
    assert here.frontend.subscribe_handler.refused == {"shared_groups": 2}
    here.says(two, Disconnect(ReasonCode.NORMAL_DISCONNECTION))
    here.waits(1)
    assert subscribe(one, "h", "i") == [0, full], "c has gone with its only member"
    change_quota(here.frontend, Quota(shared_groups_max=5), here.now)
    assert subscribe(one, "i") == [0]


def test_a_message_to_all_groups_of_an_address_is_little_work() -> None:
    """Counted in units of a turn, about a microsecond each: at the bound it is one turn's part, 2 ms."""
    here = world()
    most = here.frontend.quota.shared_groups_max
    reader, _ = here.comes(GREEDY, "reader")
    for first in range(0, most + 100, 100):
        here.says(reader, Subscribe(1, [SubscriptionOption(f"$share/{n}/#", 0) for n in range(first, first + 100)]))
        here.waits(1)
    assert len(here.frontend.node.groups) == most
    writer, _ = here.comes(OTHER, "writer")
    before = here.frontend.node.routes.work
    here.says(writer, Publish("t", b"x", 0))
    assert here.frontend.node.routes.work - before < 2_000

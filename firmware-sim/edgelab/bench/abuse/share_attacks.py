"""Attacks that take what all clients share, so that others find no room: connections, memory, sessions, threads, turns.

Each has the address 127.0.0.1, and a newcomer from 127.0.0.2 must get in within two seconds all the while.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from edgebridge.session.passwordfile import PasswordFile, make_user
from edgebridge.session.passwordhash import SALT_BYTES
from edgelab.bench import packets
from edgelab.bench.abuse.attack import Attack
from edgelab.bench.trial import free_port

USERS: Final = 60
"""Each has its password checked once: a second time it would be known."""
PASSWORD: Final = "correct horse"
NEWCOMER_ADDRESS: Final = "127.0.0.2"
"""Where others come from: attacks come from 127.0.0.1, or from addresses of their own."""
MEMORY_BYTES_MAX: Final = 64 << 20
UNHURRIED: Final = "[quota]\nconnects_per_s = 0\nconnects_per_address_per_s = 0\n"
"""What is attacked is not the rate of connections, which would be the first bound that is met."""


def user_name(number: int) -> str:
    """The name of one of the users of `WrongPasswords`."""
    return f"user-{number % USERS}"


def connect(client_id: str, clean: bool = True, user: str = "", password: str = "") -> bytes:
    """CONNECT of version 3.1.1, without keep alive."""
    flags = 0x02 * clean | 0xC0 * bool(user)
    names = packets.text(user) + packets.text(password) if user else b""
    return packets.packet(0x10, packets.text("MQTT") + bytes([4, flags, 0, 0]) + packets.text(client_id) + names)


class ShareAttack(Attack):
    """An attack beside which a newcomer connects."""

    has_newcomer: ClassVar = True

    @classmethod
    def configure(cls, folder: Path) -> str:
        return UNHURRIED


class UnfinishedPackets(ShareAttack):
    """Packets that are announced and sent up to their last bytes."""

    name: ClassVar = "unfinished"
    about: ClassVar = (
        "PUBLISH of 16 MiB from 40 connections, each without its last 64 KiB, until what clients may hold is full"
    )
    unit: ClassVar = "MiB"
    SIZE: ClassVar = (16 << 20) - 64
    CHUNK: ClassVar = b"\0" * 65_536

    @classmethod
    def configure(cls, folder: Path) -> str:
        return f"{UNHURRIED}memory_bytes_max = {MEMORY_BYTES_MAX}\n"

    def prepare(self) -> None:
        self._left: dict[int, int] = {}
        self._number = self._sent = 0

    def strike(self) -> int:
        while len(self.crowd.members) < self.scaled(40):
            self._number += 1
            member = self.crowd.connect(packets.connect(f"abuse-{self._number}"))
            if member is None:
                time.sleep(0.01)
                return 0
            self.crowd.push(member, packets.head(0x30, self.SIZE))
            self._left[id(member)] = self.SIZE - len(self.CHUNK)
        sent = 0
        for member in list(self.crowd.members):
            if self._left[id(member)] > 0:
                done = self.crowd.push(member, self.CHUNK)
                self._left[id(member)] -= done
                sent += done
            if member.fileno() >= 0:
                self.crowd.discard_input(member)
        if not sent:
            time.sleep(0.01)
        self._sent += sent
        done, self._sent = divmod(self._sent, 1 << 20)
        return done


class KeptSessions(ShareAttack):
    """Sessions that last, of ever new client identifiers."""

    name: ClassVar = "sessions"
    about: ClassVar = "kept sessions of ever new identifiers without a user, until 200 are all there may be and beyond"
    unit: ClassVar = "sessions"

    @classmethod
    def configure(cls, folder: Path) -> str:
        return f"{UNHURRIED}sessions_max = 200\n"

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        for _ in range(10):
            self._number += 1
            self.crowd.connect(connect(f"abuse-{self._number}", clean=False))
        self.crowd.hang_up_all()
        return 10


class IdleConnections(ShareAttack):
    """Connections that say nothing, as many as there may be."""

    name: ClassVar = "idle"
    about: ClassVar = "1,000 connections that say nothing where there may be 500, opened again when they are closed"
    unit: ClassVar = "connections"

    @classmethod
    def configure(cls, folder: Path) -> str:
        return f"[limits]\nconnections_max = 500\n{UNHURRIED}"

    def strike(self) -> int:
        opened = 0
        while len(self.crowd.members) < self.scaled(1_000) and opened < 20:
            opened += self.crowd.dial() is not None
        for member in list(self.crowd.members):
            self.crowd.discard_input(member)
        time.sleep(0.001)
        return opened


class HalfHandshakes(ShareAttack):
    """TLS handshakes that never end."""

    name: ClassVar = "handshakes"
    about: ClassVar = "4,000 TLS handshakes that end with the first message, opened again when they are closed"
    unit: ClassVar = "handshakes"

    @classmethod
    def configure(cls, folder: Path) -> str:
        from edgebroker.cli.init.authority import Authority

        pair = Authority.make(folder, "bench").server(folder, ["localhost"])
        port = free_port()
        Path(folder, "port").write_text(str(port))
        return (
            '[[listener]]\nname = "plain"\n[[listener]]\nname = "tls"\n'
            f'port = {port}\ntls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
            f"{UNHURRIED}memory_bytes_max = {MEMORY_BYTES_MAX}\n"
        )

    def prepare(self) -> None:
        self._port = int(Path(self.folder, "port").read_text())
        context = ssl.create_default_context()
        outgoing = ssl.MemoryBIO()
        try:
            context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
        except ssl.SSLWantReadError:
            self._hello = outgoing.read()

    def strike(self) -> int:
        opened = 0
        while len(self.crowd.members) < self.scaled(4_000) and opened < 10:
            member = self.crowd.dial(port=self._port)
            if member is not None:
                self.crowd.push(member, self._hello)
                opened += 1
        for member in self.crowd.members[:50]:
            self.crowd.discard_input(member)
        return opened


class WrongPasswords(ShareAttack):
    """Wrong passwords from three addresses, as many as can wait to be checked."""

    name: ClassVar = "passwords"
    about: ClassVar = "300 wrong passwords at once from three addresses, again and again; the newcomer has a right one"
    unit: ClassVar = "CONNECTs"
    ADDRESSES: ClassVar = ("127.0.0.11", "127.0.0.12", "127.0.0.13")

    @classmethod
    def configure(cls, folder: Path) -> str:
        users = PasswordFile()
        for number in range(USERS):
            users = users.with_user(make_user(user_name(number), PASSWORD, secrets.token_bytes(SALT_BYTES), None))
        Path(folder, "users").write_text(str(users))
        return f'[access]\npassword_file = "{folder}/users"\n{UNHURRIED}'

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        sent = 0
        while len(self.crowd.members) < self.scaled(300) and sent < 20:
            self._number += 1
            member = self.crowd.dial(source=self.ADDRESSES[self._number % len(self.ADDRESSES)])
            if member is not None:
                self.crowd.push(
                    member, connect(f"abuse-{self._number}", user=user_name(self._number), password="wrong")
                )
                sent += 1
        for member in list(self.crowd.members):
            self.crowd.discard_input(member)
        time.sleep(0.001)
        return sent


class SharedGroupsFlood(ShareAttack):
    """Groups of shared subscriptions on everything."""

    name: ClassVar = "groups"
    about: ClassVar = "100,000 shared subscriptions $share/N/# of one client in packets of 100, then over again"
    unit: ClassVar = "subscriptions"
    rate: ClassVar = 100.0

    def prepare(self) -> None:
        self._number = 0

    def strike(self) -> int:
        if not self.crowd.members and self.crowd.connect(packets.connect("abuse-groups")) is None:
            time.sleep(0.01)
            return 0
        first = self._number = self._number % 100_000
        self._number += 100
        filters = [f"$share/{number}/#" for number in range(first, first + 100)]
        self.crowd.push_all(self.crowd.members[0], packets.subscribe(filters, 0))
        return 100


OWNER_ADDRESS: Final = "127.0.0.3"
"""Not that of the thief, who has used up the connections a second of one address."""


class SessionTheft(ShareAttack):
    """Somebody's client identifier, with a clean start and without a user."""

    name: ClassVar = "theft"
    about: ClassVar = (
        "CONNECT with a clean start, no user and the identifier of a user whose session waits with 10 messages"
    )
    unit: ClassVar = "CONNECTs"
    MESSAGES: ClassVar = 10

    @classmethod
    def configure(cls, folder: Path) -> str:
        return WrongPasswords.configure(folder)

    def prepare(self) -> None:
        self._failure = ""
        self._owner = connect("owner", clean=False, user=user_name(0), password=PASSWORD)
        owner = self.crowd.connect(self._owner)
        assert owner is not None
        self.crowd.push_all(owner, packets.subscribe(["owner/#"], 1))
        self._read(owner, b"\x90\x03\x00\x01\x01")
        self.crowd.hang_up(owner)
        writer = self.crowd.connect(packets.connect("writer"))
        assert writer is not None
        for number in range(1, self.MESSAGES + 1):
            self.crowd.push_all(writer, packets.publish("owner/1", packets.numbered_payload(number), number))
            self._read(writer, packets.puback(number))
        self.crowd.hang_up(writer)

    def strike(self) -> int:
        for _ in range(5):
            if self.crowd.connect(connect("owner")) is not None:
                self._failure = "a stranger took the identifier of a user"
        self.crowd.hang_up_all()
        return 5

    def retreat(self) -> None:
        """The owner comes back, and finds all that waited; nothing is acknowledged, so it waits on."""
        super().retreat()
        owner = self.crowd.dial(source=OWNER_ADDRESS)
        assert owner is not None
        owner.sendall(self._owner)
        found = self._read(owner, b"\x20\x02\x01\x00")
        until = time.monotonic() + 2
        while found.count(b"owner/1") < self.MESSAGES and time.monotonic() < until:
            found += owner.recv(65_536)
        if found.count(b"owner/1") < self.MESSAGES:
            self._failure = f"{found.count(b'owner/1')} of {self.MESSAGES} messages of the owner are left"
        self.crowd.hang_up_all()

    def verdict(self) -> dict[str, str]:
        return {"failure": self._failure} if self._failure else {}

    def _read(self, member: object, wanted: bytes) -> bytes:
        """Everything up to *wanted*. What else came first is an error."""
        heard = b""
        while len(heard) < len(wanted):
            more = member.recv(65_536)  # type: ignore[attr-defined]
            if not more:
                break
            heard += more
        if not heard.startswith(wanted):
            self._failure = f"heard {heard[:8].hex()} instead of {wanted.hex()}"
        return heard


SHARE_ATTACKS: Final[Sequence[type[Attack]]] = (
    UnfinishedPackets,
    KeptSessions,
    IdleConnections,
    HalfHandshakes,
    WrongPasswords,
    SharedGroupsFlood,
    SessionTheft,
)

"""Listens to a broker and writes down what it hears, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final
from uuid import uuid4

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edgedevices.access import Access
from edgedevices.address import Address
from edgedevices.call import Call, CallFailed
from edgedevices.errors import BrokerUnreachable, InputInvalid
from edgedevices.identity import Dialect
from edgedevices.interrupt import signals

from .heard import Heard, written
from .recording import RecordingWriter, now_us

KEEP_ALIVE_S: Final = 30
SESSION_EXPIRY_S: Final = 300  # MQTT 5: what the broker queues for us while a connection is cut; then it forgets us
BACKOFF_FIRST_S: Final = 0.25
BACKOFF_MAX_S: Final = 15.0
FLUSH_EVERY_S: Final = 10.0  # so that a recorder that dies loses no more than that, however slow the traffic is
FAREWELL_S: Final = 1.0
SUBACK_TIMEOUT_S: Final = 10.0
CLIENTS_COUNTED_MAX: Final = 10_000  # names of clients kept for the summary


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record, and where it ends (None: never).

    client_level: the topic level, from 1, that names the publisher. client_property: the user property that does.
    """

    topics: Sequence[str] = ("#",)
    qos: int = 2
    client_level: int | None = None
    client_property: str | None = None
    skips_retained: bool = False
    """Leave out what the broker had stored when we came (MQTT 5: it is not even sent)."""
    seconds: float | None = None
    messages: int | None = None


class Recorder:
    """One subscription to a broker, over as many connections as it takes, written to one file or several.

    MQTT tells a subscriber nothing about who published; see `Wanted.client_level` and `Wanted.client_property`.
    """

    def __init__(
        self,
        address: Address,
        dialect: Dialect,
        access: Access,
        wanted: Wanted,
        path: Path,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._tell = tell  # one line for people whenever a connection begins or ends
        self._address, self._dialect, self._wanted, self._path = address, dialect, wanted, path
        self._client = self._new_client(access)
        self._writer = RecordingWriter(path, str(address))
        self.files = [path]
        """Every file written; a second one begins when the index of the first is full."""
        self._file_bytes = 0
        self._stop = asyncio.Event()
        self._granted: asyncio.Future[list[ReasonCode]] | None = None
        self._call: Call | None = None
        self._trouble: Exception | None = None
        self.messages = Counter[int]()
        """Recorded, per QoS."""
        self.retained = 0
        self.payload_bytes = 0
        self.too_large = 0
        """Heard, and not recorded."""
        self.connections = 0
        self.losses = Counter[str]()
        """Connections that ended early and attempts that failed, by reason. Messages may be missing for each."""
        self._clients: set[str] = set()

    def stop(self) -> None:
        """End the recording; `run` returns soon."""
        self._stop.set()

    async def run(self) -> dict[str, Any]:
        """Record until stopped, interrupted or at a limit; the account, for `--json`.

        Raises BrokerUnreachable if no connection was ever made, InputInvalid if a topic is refused, OSError if the disk
        takes no more. The file is closed whole in every case.
        """
        started = monotonic()
        interrupted = False

        def on_signal() -> None:
            nonlocal interrupted
            interrupted = True
            self.stop()

        flushing = asyncio.create_task(self._flush_often())
        timer = None
        if self._wanted.seconds is not None:
            timer = asyncio.get_running_loop().call_later(self._wanted.seconds, self.stop)
        try:
            with signals(on_signal):
                await self._listen()
        finally:
            flushing.cancel()
            if timer is not None:
                timer.cancel()
            self._writer.close()
            self._file_bytes += self._writer.bytes
            if not self.connections:
                self._path.unlink(missing_ok=True)  # nobody was heard: a file without a message helps nobody
        if self._trouble is not None:
            raise self._trouble
        return {
            "broker": str(self._address),
            "topics": list(self._wanted.topics),
            "files": [str(path) for path in self.files],
            "file_bytes": self._file_bytes,
            "seconds": round(monotonic() - started, 3),
            "interrupted": interrupted,
            "messages": self.messages.total(),
            "qos": {str(qos): number for qos, number in sorted(self.messages.items())},
            "retained": self.retained,
            "clients": len(self._clients),
            "payload_bytes": self.payload_bytes,
            "too_large": self.too_large,
            "connections": self.connections,
            "losses": dict(sorted(self.losses.items())),
        }

    async def _listen(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                await self._connection()
                failures = 0
            except CallFailed as failure:
                self.losses[str(failure)] += 1
                failures += 1
                if not self.connections and str(failure).startswith("refused"):
                    raise BrokerUnreachable(f"{self._address}: {failure}") from failure
            if not self._stop.is_set():
                pause_s = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(failures, 10)) * Random().uniform(0.5, 1.5)
                await self._stopped(pause_s)

    async def _connection(self) -> None:
        """One connection, from dialling to its end."""
        call = self._call = Call(self._client)
        await call.dial()
        try:
            await self._subscribe(call)
            self.connections += 1
            self._tell(f"recording {', '.join(self._wanted.topics)} from {self._address} in {self._writer.path}")
            stopping = asyncio.create_task(self._stop.wait())
            ended = asyncio.create_task(call.end())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if ended.done() and not self._stop.is_set():
                self.losses[ended.result()] += 1
                self._tell(f"{ended.result()}; dialling again")
            elif not ended.done():
                self._client.disconnect(properties=self._expiry(PacketTypes.DISCONNECT, 0))
                call.flush()
                await asyncio.wait({ended}, timeout=FAREWELL_S)
            ended.cancel()
        finally:
            call.cut()
            self._call = None

    async def _subscribe(self, call: Call) -> None:
        """Ask for the topics and wait for the answer. Raises InputInvalid for one that the broker refuses."""
        self._granted = asyncio.get_running_loop().create_future()
        wanted = self._wanted
        try:
            if self._dialect is Dialect.V5:
                handling = 2 if wanted.skips_retained or self.connections else 0  # what was stored is recorded once
                options = SubscribeOptions(wanted.qos, retainAsPublished=True, retainHandling=handling)
                self._client.subscribe([(topic, options) for topic in wanted.topics])
            else:
                self._client.subscribe([(topic, wanted.qos) for topic in wanted.topics])
        except ValueError as error:
            raise InputInvalid(f"--topic: {', '.join(wanted.topics)}: {error}") from error
        call.flush()
        ended = asyncio.create_task(call.end())
        either: set[asyncio.Future[Any]] = {self._granted, ended}
        done, _ = await asyncio.wait(either, timeout=SUBACK_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if self._granted not in done:
            raise CallFailed(ended.result() if ended in done else f"no SUBACK in {SUBACK_TIMEOUT_S:g} s")
        for topic, code in zip(wanted.topics, self._granted.result(), strict=False):
            if code.is_failure:
                raise InputInvalid(f"{self._address} refuses {topic!r}: {code}")

    def _on_message(self, client: Client, userdata: Any, message: MQTTMessage) -> None:
        """Runs inside paho, where an exception would look like a broken connection: trouble is kept for `run`."""
        wanted = self._wanted
        if self._stop.is_set():
            return
        properties = message.properties
        if wanted.skips_retained and message.retain and self._dialect is Dialect.V311:
            return  # 3.1.1 sets the flag on what was stored, and on nothing else
        name = self._publisher(message.topic, properties)
        heard = Heard(
            now_us(), name, message.topic, message.qos, message.retain, bytes(message.payload), written(properties)
        )
        try:
            if not self._writer.add(heard):
                self.too_large += 1
                return
            if self._writer.is_full:
                self._continue()
        except Exception as error:
            self._trouble = error
            self._stop.set()
            return
        self.messages[message.qos] += 1
        self.retained += message.retain
        self.payload_bytes += len(heard.payload)
        if name and len(self._clients) < CLIENTS_COUNTED_MAX:
            self._clients.add(name)
        if wanted.messages is not None and self.messages.total() >= wanted.messages:
            self.stop()

    def _publisher(self, topic: str, properties: Any) -> str:
        wanted = self._wanted
        if wanted.client_property is not None:
            pairs = getattr(properties, "UserProperty", ())
            return next((value for name, value in pairs if name == wanted.client_property), "")
        if wanted.client_level is not None:
            levels = topic.split("/", wanted.client_level)
            return levels[wanted.client_level - 1] if len(levels) >= wanted.client_level else ""
        return ""

    def _continue(self) -> None:
        """Go on in another file, of the next number that is free. It is open before the full one is closed."""
        numbered = (self._path.with_stem(f"{self._path.stem}-{number}") for number in count(len(self.files) + 1))
        path = next(path for path in numbered if not path.exists())
        full, self._writer = self._writer, RecordingWriter(path, str(self._address))
        self.files.append(path)
        full.close()
        self._file_bytes += full.bytes

    async def _flush_often(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            try:
                self._writer.flush()
            except OSError as error:
                self._trouble = error
                self.stop()

    async def _stopped(self, patience_s: float) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self._stop.wait()
        except TimeoutError:
            pass

    def _new_client(self, access: Access) -> Client:
        is_v5 = self._dialect is Dialect.V5
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"record-{uuid4().hex[:12]}",
            clean_session=None if is_v5 else True,
            protocol=MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        access.present(client)
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.connect_async(
            self._address.host,
            self._address.port,
            KEEP_ALIVE_S,
            properties=self._expiry(PacketTypes.CONNECT, SESSION_EXPIRY_S),
        )
        return client

    def _on_subscribe(
        self, client: Client, userdata: Any, mid: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        if self._granted is not None and not self._granted.done():
            self._granted.set_result(codes)

    def _expiry(self, packet: int, seconds: int) -> Properties | None:
        if self._dialect is Dialect.V311:
            return None
        properties: Properties = Properties(packet)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = seconds
        return properties

"""Section `bridge`: a `[[bridge]]` for each foreign broker; docs/bridging.md explains the keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgebridge.session.queue.outbox import OverflowPolicy
from edgebroker import limits
from edgebroker.dataclasses import dataclass
from edgebroker.names import Address
from edgebroker.runtime.settings.kinds import (
    FILE,
    Boolean,
    Choice,
    Integer,
    InvalidValue,
    ListOf,
    ParsedText,
    Text,
    toml_name,
)
from edgebroker.runtime.settings.schema import Activation, Conflict, key

if TYPE_CHECKING:
    from edgebridge.bridge.budget import ScheduleSpan
    from edgebridge.bridge.rules import BridgeRule

LIVE: Final = Activation.LIVE
RULES_MAX: Final = 256
"""The most rules of a bridge: each is a subscription at one end or both."""
ADDRESSES_MAX: Final = 8
ADDRESS: Final = ParsedText('"HOST:PORT"', lambda text: str(Address.parse(text)))
"""The address of a remote broker."""
NAME: Final = Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_', '-'")
"""A name of a bridge or of a pair."""
SPANS_MAX: Final = 32
"""The most time spans of a bridge's schedule for a day."""
INFLIGHT_MAX: Final = 128
"""Messages on their way to a remote of version 5 where `inflight_max` is not set; 20 to one of version 3.1.1."""
BYTES_PER_DAY_MAX: Final = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class RuleKind:
    """A rule of a bridge: a table with the fields of `BridgeRule`, or one line of text."""

    def read(self, value: object, folder: Path) -> BridgeRule:
        from edgebridge.bridge.rules import parse_rule  # only gateways with bridges load it
        from edgebroker.errors import RuleInvalid

        try:
            if isinstance(value, str):
                return parse_rule(value)
            if not isinstance(value, dict):
                raise InvalidValue(f"has {toml_name(value)} in it", f"write {self}")
            rule = _rule_of(value)
            rule.check()
        except RuleInvalid as error:
            raise InvalidValue(f"has a rule that cannot be used: {error.reason}", error.mend) from error
        return rule

    def __str__(self) -> str:
        return 'a table [[bridge.topic]], or text like "sensors/# out 1"'


OWN_CLIENT: Final = "give each its own: the remote would take them for one client, and each would throw the other out"
_IN_A_FILE: Final[dict[str, type]] = {"select": list, "rename": dict}
"""The types that fields of a rule have in a file where `BridgeRule` has tuples."""


def _rule_of(table: dict[str, Any]) -> BridgeRule:
    """Return the rule in *table*; `BridgeRule.check` is not called. Raises InvalidValue."""
    from edgebridge.bridge.payload_options import PayloadOptions
    from edgebridge.bridge.rules import BridgeRule

    defaults, shapes = ({one.name: one.default for one in fields(kind)} for kind in (BridgeRule, PayloadOptions))
    del defaults["shape"]
    given = dict(_given(table, {**defaults, **shapes}))
    said = {name: given.pop(name) for name in shapes if name in given}
    return BridgeRule(**given, shape=PayloadOptions(**said) if any(said.values()) else None)


def _given(table: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a rule with their values. Raises InvalidValue."""
    from edgebridge.bridge.rules import BridgeDirection

    if "pattern" not in table:
        raise InvalidValue("has a rule without pattern", 'name topics, as pattern = "sensors/#"')
    for name, value in table.items():
        if name not in known:
            raise InvalidValue(f"has a rule with {name!r}", f"a rule has {', '.join(known)}")
        expected = str if name in ("pattern", "direction") else _IN_A_FILE.get(name, type(known[name]))
        if type(value) is not expected:
            raise InvalidValue(f"has a rule whose {name} is {toml_name(value)}", f"write {toml_name(expected())}")
        if name in _IN_A_FILE:
            value = _names(name, value)
        if name == "direction" and value not in tuple(BridgeDirection):
            raise InvalidValue(f"has a rule with the direction {value!r}", 'write "out", "in" or "both"')
        yield name, BridgeDirection(value) if name == "direction" else value


def _names(field: str, value: Any) -> tuple[Any, ...]:
    """Return the strings of a list, or the pairs of strings of a table. Raises InvalidValue."""
    texts = [*value, *value.values()] if isinstance(value, dict) else value
    if not all(isinstance(one, str) for one in texts):
        raise InvalidValue(f"has a rule whose {field} has something else than names in it", "write them in quotes")
    return tuple(value.items()) if isinstance(value, dict) else tuple(value)


@dataclass(frozen=True, slots=True)
class SpanKind:
    """A time span of the day in which a bridge is closed, or limited: a table, or one line of text."""

    def read(self, value: object, folder: Path) -> ScheduleSpan:
        # Imported here: only bridges with a schedule need it.
        from edgebridge.bridge.budget import ScheduleSpanInvalid, parse_span, span_of

        try:
            if isinstance(value, str):
                return parse_span(value)
            if isinstance(value, dict):
                return span_of(value)
        except ScheduleSpanInvalid as error:
            raise InvalidValue(f"has a span that cannot be used: {error.reason}", error.mend) from error
        raise InvalidValue(f"has {toml_name(value)} in it", f"write {self}")

    def __str__(self) -> str:
        return 'a table [[bridge.schedule]], or text like "06:00-22:00 closed"'


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """A bridge: a remote broker, the rules for messages, and limits."""

    name: str = key("", NAME, LIVE)
    addresses: tuple[str, ...] = key((), ListOf(ADDRESS, ADDRESSES_MAX), LIVE)
    topic: tuple[BridgeRule, ...] = key((), ListOf(RuleKind(), RULES_MAX), LIVE)
    version: str = key("5", Choice(("5", "3.1.1")), LIVE)
    try_private: bool = key(True, Boolean(), LIVE)
    client_id: str | None = key(None, Text(r"[^\0]{1,128}", "1 to 128 characters"), LIVE)
    username: str | None = key(None, Text(r"[^\0]{1,1024}", "a user name"), LIVE)
    password_file: Path | None = key(None, FILE, LIVE)
    local_user: str | None = key(None, Text(r"[^\0]{1,128}", "a user name"), LIVE)
    paused: bool = key(False, Boolean(), LIVE)
    pair: str | None = key(
        None, Text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, '.', '_', '-'"), LIVE
    )
    takeover_s: int = key(15, Integer(1, 3_600), LIVE)
    keep_alive_s: int = key(60, Integer(0, 65_535), LIVE)
    retry_s_max: int = key(60, Integer(1, 3_600), LIVE)
    answer_s_max: int = key(60, Integer(1, 3_600), LIVE)
    inflight_max: int | None = key(None, Integer(1, 65_535), LIVE)
    queue_messages_max: int | None = key(None, Integer(1, 10_000_000), LIVE)
    queue_bytes_max: int | None = key(None, Integer(limits.KIB, 65_536 * limits.MIB), LIVE)
    queue_full: str | None = key(None, Choice(tuple(OverflowPolicy)), LIVE)
    queue_age_s_max: int | None = key(None, Integer(1, 31_536_000), LIVE)
    live_first: bool = key(False, Boolean(), LIVE)
    rate_bytes_s: int = key(0, Integer(0, 1_000_000_000), LIVE)
    rate_messages_s: int = key(0, Integer(0, 1_000_000), LIVE)
    bytes_per_day: int = key(0, Integer(0, BYTES_PER_DAY_MAX), LIVE)
    schedule: tuple[ScheduleSpan, ...] = key((), ListOf(SpanKind(), SPANS_MAX), LIVE)
    protocol: str = key("mqtt", Choice(("mqtt", "websocket")), LIVE)
    websocket_path: str = key("/mqtt", Text(r"/[!-\"$->@-~]{0,255}", "a path that begins with '/'"), LIVE)
    tls: bool = key(False, Boolean(), LIVE)
    tls_ca: Path | None = key(None, FILE, LIVE)
    tls_certificate: Path | None = key(None, FILE, LIVE)
    tls_key: Path | None = key(None, FILE, LIVE)
    tls_server_name: str | None = key(None, Text(r"[^\s/]{1,253}", "a host name or an IP address"), LIVE)
    origin: bool = key(True, Boolean(), LIVE)
    retained_again: bool = key(True, Boolean(), LIVE)
    notification_topic: str | None = key(None, Text(r"[^+#\0]{1,1024}", "a topic without wildcards"), LIVE)

    @property
    def label(self) -> str:
        """The name of the bridge in messages."""
        return self.name

    @property
    def is_tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or any((self.tls_ca, self.tls_certificate, self.tls_server_name))

    def conflicts(self, given: Set[str]) -> Iterator[Conflict]:
        """Yield the contradictions between keys; *given* are those that the file names."""
        if not self.name:
            yield "name", "is not set", 'every bridge has a name, as name = "cloud"'
        if not self.addresses:
            yield "addresses", "is not set", 'say where the remote is, as addresses = ["mqtt.example.org:1883"]'
        if not self.topic:
            yield "topic", "is not set", 'say what to carry, as topic = ["sensors/# out 1"]'
        batches = max((rule.shape.batch_messages for rule in self.topic if rule.shape is not None), default=0)
        if batches > (inflight_max := self.inflight_max or INFLIGHT_MAX):
            mend = f"write at least {batches}: all in a batch are on their way until it is answered"
            yield "inflight_max", f"is {inflight_max}, and a rule has batch_messages = {batches}", mend
        if (age_s := self.queue_age_s_max) is not None and batches:
            from edgebridge.bridge.payload_options import (
                BATCH_S_DEFAULT,
            )  # it is there already, where a rule has batches

            shapes = [rule.shape for rule in self.topic if rule.shape is not None and rule.shape.batch_messages]
            longest = max(shape.batch_s or BATCH_S_DEFAULT for shape in shapes)
            if longest > age_s:
                said = "batch_s =" if any(shape.batch_s == longest for shape in shapes) else "no batch_s, which is"
                mend = f"write at least {longest}, or a batch_s of at most {age_s}: what waits in a batch gets older"
                yield "queue_age_s_max", f"is {age_s}, and a rule has {said} {longest}", mend
        if "websocket_path" in given and self.protocol != "websocket":
            yield "websocket_path", 'does nothing without protocol = "websocket"', "leave the line out"
        if (self.tls_certificate is None) != (self.tls_key is None):
            names = ("tls_certificate", "tls_key")
            name, other = names if self.tls_key is None else reversed(names)
            yield name, f"stands without {other}", "they go together"
        if self.schedule and self._never_opens():
            yield "schedule", "is closed all day", "leave some hours open, or write paused = true"
        if self.password_file is not None and self.username is None and self.version == "3.1.1":
            yield "password_file", "stands without username", "version 3.1.1 has no password without a user name"

    def is_same_client_as(self, other: BridgeSettings) -> bool:
        """Return whether both use one client identifier at one address. Only one of them may run at a time."""
        meet = not set(self.addresses).isdisjoint(other.addresses)
        return self.client_id is not None and self.client_id == other.client_id and meet

    def is_as_other(self, other: BridgeSettings) -> str:
        """Return the reason why this bridge's client identifier is refused beside *other*."""
        return f"is {self.client_id!r}, as that of {other.name} to the same address"

    def unused(self) -> Iterator[str]:
        """Yield the keys that have no effect with the others as they are."""
        if self.protocol != "websocket":
            yield "websocket_path"
        if self.pair is None:
            yield "takeover_s"

    def _never_opens(self) -> bool:
        from edgebridge.bridge.budget import Schedule

        return Schedule(self.schedule).opens_at(0) is None

    @staticmethod
    def identities(bridges: Sequence[BridgeSettings]) -> list[str]:
        """Return what identifies each bridge at a reload: its name."""
        return [one.name for one in bridges]

    @staticmethod
    def clashes(bridges: Sequence[BridgeSettings]) -> Iterator[tuple[int, Conflict]]:
        """Yield what two bridges cannot both have: (index of the later one, conflict)."""
        names: set[str] = set()
        pairs: set[str | None] = {None}
        for index, one in enumerate(bridges):
            if one.pair in pairs and one.pair is not None:
                yield index, ("pair", f"is {one.pair!r} a second time", "the bridges of a pair are at several gateways")
            pairs.add(one.pair)
            if one.name in names:
                yield index, ("name", f"is {one.name!r} a second time", "give every bridge a name of its own")
            names.add(one.name)
            others = () if one.paused else (other for other in bridges[:index] if not other.paused)
            if other := next(filter(one.is_same_client_as, others), None):
                yield index, ("client_id", one.is_as_other(other), OWN_CLIENT)

"""What the lines of a script have asked for so far, as far as the rules of `differences` need it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from edgebridge.wire.packets import Connect, PubAck, Publish, SubAck, Subscribe, SubscriptionOption, Unsubscribe
from edgebridge.wire.properties import Property, number
from edgebridge.wire.reasons import FAILURE
from edgebroker.topics import TopicFilter
from edgelab.simworld.notation import read_packet

from .lines import message_of, payload_of, qos_of
from .player import CLOSED, Received

GOOD_BYE: Final = ("> DISCONNECT session=", "> DISCONNECT reason=0x00 session=")
"""With another session expiry: an error of who began with none."""


@dataclass
class State:
    """One client identifier: its connection, and what it is subscribed to."""

    version: str = ""
    connected: bool = False
    holding: bool = False
    expiry_s: int = 0
    connect: Connect | None = None
    subscriptions: dict[str, SubscriptionOption] = field(default_factory=dict)
    former: list[SubscriptionOption] = field(default_factory=list)
    """Replaced or ended; messages for them may still wait."""
    stale: set[str] = field(default_factory=set)
    """Filters that were subscribed to again with another no local or retain as published."""
    versions: set[str] = field(default_factory=set)
    """Spoken since the session began."""
    heard: set[str] = field(default_factory=set)
    """Messages received since the session began, as `message_of` has them."""
    will_waits: bool = False
    """For its delay, the connection being over."""
    has_answered_nothing: bool = False
    """It holds, and has acknowledged what it was never sent."""
    surplus: int = 0
    """Messages that fill a window which only Mosquitto's client has, less those that only ours has, and holds."""
    debt: int = 0
    """QoS 2 messages that only our client has, less those that only Mosquitto's has, and holds."""

    @property
    def delay_s(self) -> int:
        """Of the will."""
        will = self.connect.will if self.connect is not None else None
        return number(will.properties, Property.WILL_DELAY_INTERVAL) if will is not None else 0

    def matching(self, topic: str) -> int:
        """How many subscriptions of this session match *topic*, or did."""
        return len(self.granted(topic))

    def granted(self, topic: str) -> list[int]:
        """Their QoS."""
        options = [*self.subscriptions.values(), *self.former]
        return [one.qos for one in options if TopicFilter.parse(one.topic_filter).matches(topic)]

    def has_stale(self, topic: str) -> bool:
        """Whether a filter of `stale` matches *topic*."""
        return any(TopicFilter.parse(text).matches(topic) for text in self.stale)

    def forget(self) -> None:
        """The session ends."""
        self.subscriptions, self.former, self.stale, self.heard, self.versions = {}, [], set(), set(), set()
        self.debt = 0


class Model:
    """Clients by identifier, and which identifier each name of a script stands for."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.identifiers: dict[str, str] = {}
        self.wills: dict[str, str] = {}
        """Payloads of wills that we have published and Mosquitto has not, and the rule that says why."""
        self.publishers: dict[str, str] = {}
        """Payload, which no other message has, and the client identifier it came from."""
        self.published_at: dict[str, int] = {}
        """Payload, and the QoS it was published at."""

    def of(self, name: str) -> State:
        """The state of the client called *name*."""
        return self.states.setdefault(self.identifiers.get(name, name), State())

    def may_be(self, message: str) -> bool:
        """Whether a PUBLISH has a QoS that it can have: at most that of whoever published it."""
        return qos_of(message) <= self.published_at.get(payload_of(message), 2)

    def foresee(self, line: str) -> None:
        """Take in what *line* is about to do to wills, and at which QoS it publishes."""
        for action in line.split(" ; "):
            name, what = action.split(" ", 1)
            if found := re.match(r'> PUBLISH .*?qos=(\d).* "(\w+)"$', what):
                self.published_at[found[2]] = int(found[1])
            if found := re.match(r"> CONNECT .*will-payload=(\w+) .*?will-qos=(\d)", what):
                self.published_at[found[1]] = int(found[2])
            if found := re.match(r"> CONNECT id=(\w+) .*clean=(\d)", what):
                state = self.states.get(found[1], State())
                if state.connected:
                    ends = state.delay_s and not state.expiry_s
                    self._is_published(state, "will_of_a_session_that_ends" if ends else "will_of_a_session_taken_over")
                elif found[2] == "1" and state.delay_s and state.will_waits:
                    state.connected = True
                    self._is_published(state, "will_of_a_session_that_ends")
                    state.connected = False
                self.identifiers[name] = found[1]
            elif what.startswith(("> DISCONNECT reason=0x8", "> 0xe0010a")):
                self._is_published(self.of(name), "will_after_a_failure")
            elif what == "drops" or what.startswith(("> 0x", "> DISCONNECT reason=0x04", *GOOD_BYE)):
                state = self.of(name)
                if what.startswith(GOOD_BYE) and state.expiry_s:
                    continue  # an ordinary good-bye; without a session it is a protocol error
                state.will_waits = bool(state.delay_s and state.expiry_s)
                if state.delay_s and not state.expiry_s:
                    self._is_published(state, "will_of_a_session_that_ends")

    def _is_published(self, state: State, why: str) -> None:
        if state.connect is not None and state.connect.will is not None and state.connected:
            self.wills[state.connect.will.payload.decode()] = why

    def note(self, line: str, received: Received) -> None:
        """Take in *line* and what our broker's clients received because of it."""
        for other, packets in received.items():
            if packets[-1:] == [CLOSED]:
                self._end(other)
        for other, packets in received.items():
            self.of(other).heard.update(message_of(one) for one in packets if one.startswith("PUBLISH "))
        for action in line.split(" ; "):
            self._note(*action.split(" ", 1), received)

    def _note(self, name: str, what: str, received: Received) -> None:
        state = self.of(name)
        if what in ("holds", "answers"):
            state.holding, state.surplus = what == "holds", 0
        elif what == "drops" or what.startswith("> DISCONNECT"):
            self._end(name)
        elif what.startswith("> ") and not what.startswith("> 0x"):
            self._sent(name, what[2:], received)

    def _sent(self, name: str, what: str, received: Received) -> None:
        version = re.search(r" v=(\S+)", what)
        match read_packet(re.sub(r" v=\S+", "", what)):
            case Connect() as connect if version is not None:
                self.identifiers[name] = connect.client_id
                state = self.of(name)
                if connect.clean_start:
                    state.forget()
                v5 = version[1] == "5"
                kept = not connect.clean_start
                state.expiry_s = number(connect.properties, Property.SESSION_EXPIRY_INTERVAL) if v5 else int(kept)
                state.version, state.connected, state.connect = version[1], True, connect
                state.versions.add(version[1])
                state.will_waits = state.holding = state.has_answered_nothing = False
                state.surplus = 0
                if connect.will is not None:
                    self.publishers[connect.will.payload.decode()] = connect.client_id
            case PubAck():
                self.of(name).has_answered_nothing |= self.of(name).holding
            case Publish(payload=payload):
                self.publishers[payload.decode()] = self.identifiers.get(name, name)
            case Subscribe(subscriptions=options):
                answered = next((one for one in received.get(name, []) if one.startswith("SUBACK")), "")
                for option, reason in zip(options, _granted(answered), strict=False):
                    if reason < FAILURE:
                        before = self.of(name).subscriptions.get(option.topic_filter, option)
                        if (before.no_local, before.retain_as_published) != (
                            option.no_local,
                            option.retain_as_published,
                        ):
                            self.of(name).stale.add(option.topic_filter)
                        self._drop(name, option.topic_filter)
                        self.of(name).subscriptions[option.topic_filter] = option
            case Unsubscribe(topic_filters=filters):
                for text in filters:
                    self._drop(name, text)
                    self.of(name).stale.discard(text)

    def _drop(self, name: str, text: str) -> None:
        state = self.of(name)
        if text in state.subscriptions:
            state.former.append(state.subscriptions.pop(text))

    def _end(self, name: str) -> None:
        state = self.of(name)
        state.connected = False
        if not state.expiry_s:
            state.forget()


def _granted(line: str) -> list[int]:
    packet = read_packet(line) if line else SubAck(0, [])
    assert isinstance(packet, SubAck)
    return packet.reasons

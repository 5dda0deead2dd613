"""What Mosquitto does and we do differently, one rule for each class of docs/differences.md.

A rule looks at one line of a script where the two brokers differed. If it recognises its class it rewrites what
Mosquitto's clients received into what ours must have received for this reason and no other, and says True. What still
differs when every rule has had its turn is unexplained.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from edgebridge.wire.packets import Subscribe
from edgebroker.topics import TopicFilter
from edgelab.simworld.notation import read_packet

from .lines import identifiers_of, message_of, payload_of, qos_of, retain_of, topic_of
from .model import State
from .player import CLOSED
from .step import Step, rule

# -- CONNECT -----------------------------------------------------------------------------------------------------


@rule
def keep_alive_is_limited(step: Step) -> bool:
    """A version 5 client without keep alive is told to keep 65,535 s."""
    answer = next(iter(step.theirs.get(step.actor, [])), "")
    if not answer.startswith("CONNACK") or " server-keep-alive=65535" not in answer or "keep-alive=" in step.line:
        return False
    return step.rewrite(step.actor, [answer], [answer.replace(" server-keep-alive=65535", "")])


@rule
def taken_over_in_silence(step: Step) -> bool:
    """The old connection of a client that connects again is closed without DISCONNECT 0x8E."""
    if " > CONNECT" not in step.line:
        return False
    good_bye = "DISCONNECT reason=0x8E"
    for name, theirs, ours in step.differing():
        if good_bye in ours and good_bye not in theirs and theirs[-1:] == [CLOSED] == ours[-1:]:
            return step.rewrite(name, [], [good_bye])
    return False


# -- acknowledgements --------------------------------------------------------------------------------------------


@rule
def nobody_is_told(step: Step) -> bool:
    """PUBACK and PUBREC say 0x10 where nobody has subscribed."""
    for answer in step.theirs.get(step.actor, []):
        if re.fullmatch(r"PUB(ACK|REC) id=\d+ reason=0x10", answer):
            return step.rewrite(step.actor, [answer], [answer.removesuffix(" reason=0x10")])
    return False


@rule
def unknown_identifiers_are_no_secret(step: Step) -> bool:
    """PUBREL and PUBCOMP for an identifier that is not in use say 0x92 here, success there."""
    theirs = step.theirs.get(step.actor, [])
    for at, (there, here) in enumerate(zip(theirs, step.ours.get(step.actor, []), strict=False)):
        if re.fullmatch(r"PUBCOMP id=\d+|PUBREL", there) and here == f"{there} reason=0x92":
            theirs[at] = here
            return True
    return False


# -- overlapping subscriptions -----------------------------------------------------------------------------------


@rule
def a_copy_for_each_subscription(step: Step) -> bool:
    """A version 5 client gets a message once for every subscription that matches.

    While its window is full some of the copies wait; while it is away those of QoS 0 are lost.
    """

    def is_union(state: State, copies: list[str], message: str) -> bool:
        waits = state.holding or not state.connected
        return (
            "5" in state.versions
            and (len(copies) > 1 or waits)
            and (waits or retain_of(message) == max(map(retain_of, copies)))
            and (waits or qos_of(message) == max(map(qos_of, copies)))
            and all(number in identifiers_of(message) for line in copies for number in identifiers_of(line))
        )

    return _merged(step, is_union)


@rule
def options_of_a_subscription_stay(step: Step) -> bool:
    """No local and retain as published of a subscription made again are those of its first time."""
    if _merged(step, lambda state, copies, message: state.has_stale(topic_of(message))):
        return True
    for name, theirs, ours in step.differing():
        own, actor = step.model.publishers, step.model.identifiers.get(step.actor)
        state = step.model.of(name)
        for here, there in ((ours, theirs), (theirs, ours)):
            for line in here:
                if not line.startswith("PUBLISH ") or message_of(line) in map(message_of, there):
                    continue
                identifier = step.model.identifiers.get(name, name)
                payload = payload_of(line)  # an empty one tells nobody's message from another's: that of this line
                is_own = (own.get(payload, actor) if payload else actor) == identifier
                if is_own and state.has_stale(topic_of(line)):
                    release = ["PUBREL"] * (qos_of(line) == 2 and ours.count("PUBREL") != theirs.count("PUBREL"))
                    if here is ours:
                        return step.rewrite(name, [], [line, *release])
                    return step.rewrite(name, [line, *release], [])
    return False


@rule
def one_subscription_decides(step: Step) -> bool:
    """A 3.1.1 client gets a message at the QoS of one subscription that matches, not of the highest.

    If that is 0, the message is not sent again, nor kept for a client that is away.
    """
    for name, theirs, ours in step.differing():
        state = step.model.of(name)
        for message in ours:
            if not message.startswith("PUBLISH ") or message in theirs or "3.1.1" not in state.versions:
                continue
            granted = state.granted(topic_of(message))
            copies = [line for line in theirs if message_of(line) == message_of(message)]
            lower = [line for line in copies if qos_of(line) < qos_of(message) and qos_of(line) in granted]
            is_lost = not copies and 0 in granted and " > CONNECT" in step.line
            if len(granted) > 1 and (len(lower) == 1 or is_lost):
                extra = ours.count("PUBREL") > theirs.count("PUBREL") and qos_of(message) == 2
                return step.rewrite(name, lower, [message] + ["PUBREL"] * extra)
    return False


def _merged(step: Step, holds: Callable[[State, list[str], str], bool]) -> bool:
    """Rewrite the copies of one message to ours, if *holds* says of (client, copies, ours) that they are the same."""
    for name, theirs, ours in step.differing():
        state = step.model.of(name)
        for message in sorted({line for line in [*ours, *theirs] if line.startswith("PUBLISH ")}):
            if state.matching(topic_of(message)) < 2 and not state.has_stale(topic_of(message)):
                continue
            copies = [line for line in theirs if message_of(line) == message_of(message)]
            mine = [line for line in ours if message_of(line) == message_of(message)]
            if copies == mine or not copies or len(mine) > 1:
                continue
            if mine and not holds(state, copies, mine[0]):
                continue
            if not mine and message_of(message) not in state.heard and (not state.holding or any(map(qos_of, copies))):
                continue  # of QoS 0 one copy does not wait for the window, while ours does
            if not mine and not holds(state, [*copies, message], message):
                continue
            surplus = theirs.count("PUBREL") - ours.count("PUBREL")
            released = sum(qos_of(line) == 2 for line in copies) - sum(qos_of(line) == 2 for line in mine)
            out, put = max(min(released, surplus), 0), max(min(-released, -surplus), 0)
            return step.rewrite(name, copies + ["PUBREL"] * out, mine + ["PUBREL"] * put)
    return False


@rule
def own_retained_messages(step: Step) -> bool:
    """A subscription with no local gets the client's own retained messages, and again when the session goes on."""
    if " > SUBSCRIBE" in step.line:
        wanted = read_packet(step.line.partition(" > ")[2])
        assert isinstance(wanted, Subscribe)
        options, is_again = wanted.subscriptions, False
    elif " > CONNECT" in step.line:
        options, is_again = list(step.model.of(step.actor).subscriptions.values()), True
    else:
        return False
    filters = [TopicFilter.parse(one.topic_filter) for one in options if one.no_local]
    identifier = step.model.identifiers.get(step.actor)
    theirs, ours = step.theirs.get(step.actor, []), step.ours.get(step.actor, [])
    for line in theirs:
        is_more = theirs.count(line) > ours.count(line) and _copies(line, theirs) > _copies(line, ours)
        if line.startswith("PUBLISH ") and is_more:
            is_own = step.model.publishers.get(payload_of(line)) == identifier and is_again == (" dup=1" in line)
            if is_own and retain_of(line) and any(one.matches(topic_of(line)) for one in filters):
                is_released = qos_of(line) == 2 and not is_again and not step.model.of(step.actor).holding
                return step.rewrite(step.actor, [line, *["PUBREL"] * is_released], [])
    return False


def _copies(line: str, lines: list[str]) -> int:
    return sum(one.startswith("PUBLISH ") and message_of(one) == message_of(line) for one in lines)


@rule
def the_same_filter_twice(step: Step) -> bool:
    """A SUBSCRIBE with the same filter twice gets its retained messages twice, or at the QoS of the first."""
    if " > SUBSCRIBE" not in step.line:
        return False
    wanted = read_packet(step.line.partition(" > ")[2])
    assert isinstance(wanted, Subscribe)
    texts = [one.topic_filter for one in wanted.subscriptions]
    stays = {one.topic_filter: one.qos for one in wanted.subscriptions if texts.count(one.topic_filter) > 1}
    theirs, ours = step.theirs.get(step.actor, []), step.ours.get(step.actor, [])
    for line in theirs:
        if not line.startswith("PUBLISH ") or not retain_of(line):
            continue
        granted = [qos for text, qos in stays.items() if TopicFilter.parse(text).matches(topic_of(line))]
        there = [one for one in theirs if message_of(one) == message_of(line)]
        here = [one for one in ours if message_of(one) == message_of(line)]
        if not granted or not 0 < len(here) <= len(there) or here == there:
            continue
        if {*map(qos_of, here)} <= {*range(max(granted) + 1), *map(qos_of, there)}:
            surplus = theirs.count("PUBREL") - ours.count("PUBREL")
            fewer = sum(qos_of(one) == 2 for one in there) - sum(qos_of(one) == 2 for one in here)
            out, put = max(min(fewer, surplus), 0), max(min(-fewer, -surplus), 0)
            return step.rewrite(step.actor, there + ["PUBREL"] * out, here + ["PUBREL"] * put)
    return False


@rule
def qos_0_does_not_wait(step: Step) -> bool:
    """Two subscriptions' copies of a retained message come in another order: QoS 0 passes one that waits."""
    for name, theirs, ours in step.differing():
        both = zip(theirs, ours, strict=False)
        if sorted(theirs) == sorted(ours) and all(message_of(one) == message_of(other) for one, other in both):
            step.theirs[name] = list(ours)
            return True
    return False


def _has_more_room(lines: list[str], others: list[str]) -> bool:
    """Whether *lines* are *others* and messages that a window has room for, or has not."""
    more = [line for line in lines if line not in others]
    had = [line for line in lines if line in others]
    return had == others and all(line.startswith("PUBLISH ") and qos_of(line) for line in more)


@rule
def an_answer_to_nothing_makes_room(step: Step) -> bool:
    """PUBACK for an identifier that is not in use lets one more message than the window has on the way."""
    for name, theirs, ours in step.differing():
        state = step.model.of(name)
        if not (state.holding and state.has_answered_nothing and _has_more_room(theirs, ours)):
            return False
    step.is_last = True
    return True


@rule
def what_fills_the_window(step: Step) -> bool:
    """What only one of the two clients has leaves less room there, and as many that come wait."""
    for name, theirs, ours in step.differing():
        state = step.model.of(name)
        fuller, other = (theirs, ours) if state.surplus > 0 else (ours, theirs)
        if not (state.holding and len(other) - len(fuller) <= abs(state.surplus) and _has_more_room(other, fuller)):
            return False
    step.is_last = True
    return True


@rule
def another_topic_first(step: Step) -> bool:
    """Of the retained messages of several topics, others come first, and only those when the window is full."""
    if " > SUBSCRIBE" not in step.line or not step.model.of(step.actor).holding:
        return False
    for name, theirs, ours in step.differing():
        there = list((Counter(theirs) - Counter(ours)).elements())
        here = list((Counter(ours) - Counter(theirs)).elements())
        if name != step.actor or not all(qos_of(line) and retain_of(line) for line in there + here):
            return False
        if not len(there) == len(here) > 0 or {topic_of(line) for line in there} & {topic_of(line) for line in here}:
            return False
    step.is_last = True
    return True


@rule
def what_follows_from_it(step: Step) -> bool:
    """The last packets of a QoS 2 message that only one of the two clients has, for a reason given above."""
    for name, theirs, ours in step.differing():
        surplus = ours.count("PUBREL") - theirs.count("PUBREL")
        state = step.model.of(name)
        if surplus and 0 < surplus / (state.debt or -surplus) <= 1:
            state.debt -= surplus
            return step.rewrite(name, ["PUBREL"] * -surplus, ["PUBREL"] * surplus)
    return False

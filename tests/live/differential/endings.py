"""Differences at the end of connections: wills, and those who break the protocol (docs/differences.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .lines import payload_of, qos_of, retain_of, topic_of
from .offences import SILENCE, TAKEN, Offence, offence
from .player import CLOSED
from .step import Step, rule

# -- wills -------------------------------------------------------------------------------------------------------


def _will_rule(name: str, meaning: str) -> None:
    """Add the rule for wills of `Model.wills` that are there because of *name*."""

    def recognise(step: Step) -> bool:
        payloads = [payload for payload, why in step.model.wills.items() if why == name]
        for client, theirs, ours in step.differing():
            for payload in payloads:
                if sorted(theirs) == sorted(ours) and _without(payload, theirs) == _without(payload, ours):
                    step.theirs[client] = list(ours)  # it came there behind what was said while it waited
                    return True
                mine = [line for line in ours if payload_of(line) == payload and ours.count(line) > theirs.count(line)]
                late = [line for line in theirs if payload_of(line) == payload and line not in ours]
                if late:  # it waits there for the delay, or for the session's end
                    return step.rewrite(client, late, [])
                if mine:
                    older = [line for line in theirs if _replaced(line, mine[0]) and line not in ours]
                    extra = min(sum(qos_of(line) == 2 for line in mine), ours.count("PUBREL") - theirs.count("PUBREL"))
                    less = min(sum(qos_of(line) == 2 for line in older), theirs.count("PUBREL") - ours.count("PUBREL"))
                    return step.rewrite(client, older + ["PUBREL"] * less, mine + ["PUBREL"] * extra)
        return False

    recognise.__name__ = name
    recognise.__doc__ = meaning
    rule(recognise)


def _without(payload: str, lines: list[str]) -> list[str]:
    return [line for line in lines if payload_of(line) != payload]


def _replaced(line: str, by: str) -> bool:
    """Whether *line* is a retained message that the retained message *by* took the place of."""
    return line.startswith("PUBLISH ") and retain_of(line) and retain_of(by) and topic_of(line) == topic_of(by)


@rule
def will_to_ones_own_connection(step: Step) -> bool:
    """A connection that is taken over gets its own will before it is closed."""
    for name, theirs, ours in step.differing():
        will = [line for line in theirs if line.startswith("PUBLISH ") and line not in ours]
        identifier = step.model.identifiers.get(name, name)
        is_own = will and all(step.model.publishers.get(payload_of(line)) == identifier for line in will)
        if is_own and f" > CONNECT id={identifier} " in step.line and theirs[-1:] == [CLOSED]:
            return step.rewrite(name, will, [])
    return False


_will_rule("will_of_a_session_taken_over", "A client taken over has lost its connection: its will is published.")
_will_rule("will_after_a_failure", "DISCONNECT with a reason from 0x80 on leaves the will to be published.")
_will_rule("will_of_a_session_that_ends", "A will does not wait longer than its session, which ends at once.")


# -- offences: the last line of a script -------------------------------------------------------------------------


def _offence(step: Step) -> Offence | None:
    """What the line breaks, if the two answers are those the offence is known for."""
    found = offence(step.model.of(step.actor).version or "-", step.line.partition(" > 0x")[2])
    if found is None:
        return None
    theirs, ours = found.answer(found.theirs), found.answer(found.ours)
    actual = step.theirs.get(step.actor, []), step.ours.get(step.actor, [])
    if [line for line in actual[1] if line in ours] != ours:
        return None
    if found.theirs == SILENCE and any(line.startswith(("DISCONNECT", "CONNACK")) for line in actual[0]):
        return None
    if found.theirs == TAKEN:
        return found if "CLOSED" not in actual[0] else None
    return found if [line for line in actual[0] if line in theirs] == theirs else None


@rule
def closed_in_silence(step: Step) -> bool:
    """Who breaks the protocol is closed without CONNACK or DISCONNECT."""
    found = _offence(step)
    return found is not None and found.theirs == SILENCE and step.rewrite(step.actor, [], found.answer(found.ours)[:1])


@rule
def another_reason(step: Step) -> bool:
    """Who breaks the protocol hears another reason."""
    found = _offence(step)
    if found is None or found.theirs in (SILENCE, TAKEN):
        return False
    return step.rewrite(step.actor, found.answer(found.theirs)[:1], found.answer(found.ours)[:1])


@rule
def taken_all_the_same(step: Step) -> bool:
    """What the standard forbids is passed over, or taken."""
    found = _offence(step)
    step.is_last = found is not None and found.theirs == TAKEN
    return step.is_last


@rule
def a_filter_that_is_none_closes(step: Step) -> bool:
    """An ill-formed topic filter closes the connection there; here its entry is refused and the others are granted."""
    if " > SUBSCRIBE" not in step.line or step.theirs.get(step.actor, [])[-1:] != [CLOSED]:
        return False
    answer = next(iter(step.ours.get(step.actor, [])), "")
    if not re.fullmatch(r"SUBACK id=\d+ granted=1,0x8[0F]", answer):
        return False
    step.is_last = True
    return True


@rule
def a_third_time_closes(step: Step) -> bool:
    """Who sends the same QoS 2 message a third time is closed."""
    if step.line.count(" > PUBLISH ") != 3 or CLOSED not in step.theirs.get(step.actor, []):
        return False
    if len([line for line in step.ours.get(step.actor, []) if line.startswith("PUBREC")]) != 3:
        return False
    step.is_last = True
    return True


@rule
def qos_2_waits_for_its_release(step: Step) -> bool:
    """A QoS 2 message goes to its readers with PUBREL there, with PUBLISH here."""
    if not re.match(r"\w+ > PUBLISH \S+ qos=2", step.line) or not step.model.of(step.actor).holding:
        return False
    for _, theirs, ours in step.differing():
        late = [line for line in ours if line.startswith("PUBLISH ") and line not in theirs]
        if any(topic_of(line) != step.line.split(" ")[3] for line in late):
            return False
        # PUBREL belongs to the late one, or to one that only our client had before.
        if _without_releases(theirs) != _without_releases(line for line in ours if line not in late):
            return False
    step.is_last = True
    return True


def _without_releases(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line != "PUBREL"]

"""What a line of what a client received says."""

from __future__ import annotations

import re


def topic_of(line: str) -> str:
    """Where a PUBLISH went."""
    return line.split(" ")[1]


def qos_of(line: str) -> int:
    """The QoS of a PUBLISH, 0 for what is none."""
    found = re.search(r" qos=(\d)", line)
    return int(found[1]) if found else 0


def retain_of(line: str) -> bool:
    """Whether RETAIN is set."""
    return " retain=1" in line


def identifiers_of(line: str) -> list[int]:
    """Its subscription identifiers, sorted."""
    found = re.search(r" sub=([\d,]+)", line)
    return sorted(map(int, found[1].split(","))) if found else []


def payload_of(line: str) -> str:
    """Its payload, if that is a word."""
    found = re.search(r' "(\w*)"$', line)
    return found[1] if found else ""


def message_of(line: str) -> str:
    """A PUBLISH without what differs between the copies of one message."""
    return re.sub(r" (qos|retain|sub|dup)=[\d,]+", "", line)

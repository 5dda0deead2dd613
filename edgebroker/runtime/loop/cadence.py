"""Expects what clients send regularly, so that the process is awake when it comes.

To be woken takes longer than everything else that is done for a message. A client that sends every 10 ms tells by it
when its next message comes: the process sleeps until shortly before that, and waits for the rest awake. Storage drivers
poll for completions like this. What is waited awake is a bounded share of the time, and where nobody is regular it is
none.
"""

from __future__ import annotations

from typing import Final

from edgebroker.instants import Instant

QUIET: Final = 400
"""After so long without a byte from a client its next one begins a beat; whoever is quicker has no beats. Shorter sleep
is not worth it."""
PERIOD_MAX: Final = 10_000_000
"""Of clients that send less often nothing is expected: there is not enough of them to matter."""
OFF_MAX: Final = 80
"""A beat that comes this much too soon or too late counts as regular, and is waited for so long after it was due. It is
longer than being woken takes, by which the last one was seen too late if the process slept."""
REGULAR: Final = 4
"""So many regular beats make a client expected."""
STEADY: Final = 8
"""More are not counted. Each irregular one takes two away."""
EXPECTED_MAX: Final = 64
"""Clients that are expected at a time: each takes 2 ns of every wait."""
LEAD: Final = 100.0
"""How long before a beat the process wants to be awake, to begin with."""
LEAD_MAX: Final = 300.0
LATE: Final = 12.0
EARLY: Final = 0.25
"""The lead grows by LATE when a beat woke the process, and shrinks by EARLY when it was awake: one of 49 wakes it."""
WAKE: Final = 15
"""What it costs to be woken once more than otherwise."""
CREDIT_MAX: Final = 10_000.0
"""What was not used of the share is saved up to this."""


class Beat:
    """What is known of the pace of one client. Instants and durations are in microseconds."""

    __slots__ = ("began", "came", "due", "is_expected", "period", "regular")

    def __init__(self) -> None:
        self.began: Instant = 0
        """The first byte of its last beat."""
        self.came: Instant = 0
        """Its last byte."""
        self.due: Instant = 0
        """When its next beat is expected, if it is."""
        self.is_expected = False
        self.period = 0.0
        self.regular = 0


class Cadence:
    """Whom one process expects. Instants and durations are in microseconds."""

    __slots__ = ("_aim", "_credit", "_credited", "_expected", "_lead", "_share", "is_on", "until")

    def __init__(self, percent: int) -> None:
        """*percent*: of the time may be waited awake; 0: nobody is expected."""
        self.is_on = percent > 0
        self._share = percent / 100
        self._lead = LEAD
        self._expected: list[Beat] = []
        self._credit = 0.0
        self._credited: Instant = 0
        self._aim: Instant = 0
        """What was waited for last, 0 if nothing was."""
        self.until: Instant = 0
        """When to give up waiting awake."""

    def came(self, beat: Beat, now: Instant, was_asleep: bool) -> None:
        """Something of a client can be read *now*; *was_asleep* if that woke the process."""
        quiet = now - beat.came
        beat.came = now
        if quiet < QUIET:
            return
        interval = now - beat.began
        beat.began = now
        off = interval - beat.period
        if -OFF_MAX <= off <= OFF_MAX:
            beat.period += off / 8
            if beat.regular < STEADY:
                beat.regular += 1
            if self._aim and beat.due == self._aim:
                self._lead = min(self._lead + LATE, LEAD_MAX) if was_asleep else max(self._lead - EARLY, 0.0)
        else:
            beat.regular = max(beat.regular - 2, 0)
            if not beat.regular:
                beat.period = interval
        if beat.regular < REGULAR or beat.period > PERIOD_MAX:
            if beat.is_expected:
                self.forget(beat)
            return
        beat.due = now + int(beat.period)
        if not beat.is_expected and len(self._expected) < EXPECTED_MAX:
            beat.is_expected = True
            self._expected.append(beat)

    def passed(self, beat: Beat, now: Instant) -> None:
        """Something of a client can be read, and came before *now*, while others were served: if it may have come when
        it was due, it did.
        """
        due = beat.began + int(beat.period)
        if beat.regular < REGULAR or now - due < -OFF_MAX or now - due > beat.period / 2:
            self.came(beat, now, False)
            return
        quiet = now - beat.came
        beat.came = now
        if quiet >= QUIET:
            beat.began = due
            beat.due = due + int(beat.period)

    def forget(self, beat: Beat) -> None:
        """Its client is gone, or does not send regularly any more."""
        if beat.is_expected:
            beat.is_expected = False
            self._expected.remove(beat)

    def sleep(self, now: Instant) -> Instant:
        """How long to sleep before waiting awake until `until`; negative: nothing is waited for."""
        due: Instant = 0
        for at in range(len(self._expected) - 1, -1, -1):
            beat = self._expected[at]
            if beat.due + OFF_MAX <= now:  # it did not come
                beat.regular -= 2
                beat.due += int(beat.period)
                if beat.regular < REGULAR or beat.due <= now:
                    beat.is_expected = False
                    del self._expected[at]
                    continue
            if not due or beat.due < due:
                due = beat.due
        self._credit = min(self._credit + (now - self._credited) * self._share, CREDIT_MAX)
        self._credited = now
        self._aim = 0
        if not due:
            return -1
        if self._credit <= 0.0:  # to wait for most of them for less is better than for some of them
            self._lead = max(self._lead - LATE, 0.0)
            return -1
        self._aim = due
        self.until = due + OFF_MAX
        return max(due - int(self._lead) - now, 0)

    def waited(self, awake: Instant) -> None:
        """The process slept and woke for a beat, and then waited awake for so long."""
        self._credit -= awake + WAKE

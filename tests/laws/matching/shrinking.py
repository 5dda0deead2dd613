"""From a trial that fails to the least one that still does, told in words."""

from __future__ import annotations

from collections.abc import Sequence

from edgebroker.predicate import ElementaryTest, Predicate

from .cases import Case
from .oracle import Oracle
from .planting import Planting, growing
from .trial import Ask, Insert, Operation, Remove, Tend, Trial

WORK_MAX = 500_000  # operations played while shrinking; about half a minute in pure Python


def failure_of(case: Case, oracle: Oracle, operations: Sequence[Operation], planting: Planting) -> Exception | None:
    """What goes wrong when *operations* are played on new trees."""
    try:
        with growing(case):
            Trial(case, oracle, planting(case)).play(operations)
    except Exception as error:  # whatever a tree raises is a failure of the trial
        return error
    return None


def shrunk(case: Case, oracle: Oracle, operations: Sequence[Operation], planting: Planting) -> list[Operation]:
    """As few of the *operations*, of which the last one fails, as removing some of them time and again leaves."""
    return _Shrinking(case, oracle, planting).least(list(operations))


class _Shrinking:
    def __init__(self, case: Case, oracle: Oracle, planting: Planting) -> None:
        self.case = case
        self.oracle = oracle
        self.planting = planting
        self.work = 0

    def fails(self, operations: Sequence[Operation]) -> bool:
        """Whether *operations* go wrong. When enough work has been done, none do any more."""
        self.work += len(operations)
        return self.work < WORK_MAX and None is not failure_of(self.case, self.oracle, operations, self.planting)

    def least(self, operations: list[Operation]) -> list[Operation]:
        *before, last = operations
        silent = [each for each in before if not isinstance(each, Ask)] + [last]
        if self.fails(silent):
            operations = silent
        operations = self.without_subscriptions(operations)
        operations = self.without_operations(operations)
        return self.with_less_events(operations)

    def without_subscriptions(self, operations: list[Operation]) -> list[Operation]:
        """Without all that concerns some subscriptions, halves first, single ones last."""
        indexes = sorted({each.index for each in operations if isinstance(each, (Insert, Remove))})
        size = len(indexes)
        while size:
            for start in range(0, len(indexes), size):
                dropped = set(indexes[start : start + size])
                fewer = [
                    each for each in operations if not isinstance(each, (Insert, Remove)) or each.index not in dropped
                ]
                if len(fewer) < len(operations) and self.fails(fewer):
                    operations = fewer
            size //= 2
        return operations

    def without_operations(self, operations: list[Operation]) -> list[Operation]:
        size = len(operations) // 2
        while size:
            start = 0
            while start < len(operations):
                fewer = operations[:start] + operations[start + size :]
                if self.fails(fewer):
                    operations = fewer
                else:
                    start += size
            size //= 2
        return operations

    def with_less_events(self, operations: list[Operation]) -> list[Operation]:
        for place, operation in enumerate(operations):
            if isinstance(operation, Ask):
                for name in operation.choice:
                    asked = operations[place]
                    assert isinstance(asked, Ask)
                    less = asked._replace(choice={key: at for key, at in asked.choice.items() if key != name})
                    fewer = [*operations[:place], less, *operations[place + 1 :]]
                    if self.fails(fewer):
                        operations = fewer
        return operations


def told(case: Case, operations: Sequence[Operation]) -> str:
    """The operations, one a line, with everything that is needed to repeat them by hand."""
    lines = []
    for operation in operations:
        match operation:
            case Insert(index):
                each = case.subscriptions[index]
                what = each.filter.text if each.filter else " OR ".join(map(spelled, each.predicates))
                lines.append(f"insert {case.numbers[index]} {each.topic_filter.text!r} link {each.link}: {what}")
            case Remove(index):
                lines.append(f"remove {case.numbers[index]}")
            case Tend():
                lines.append("tend")
            case Ask(topic, choice, mask, local, narrow, anew):
                event = {name: case.values[name][index] for name, index in choice.items()}
                how = (", wanted attributes only" if narrow else "") + (", resolved anew" if anew else "")
                lines.append(f"ask {topic!r} {event} mask {mask:#x} local {local}{how}")
    return "\n".join(lines)


def spelled(predicate: Predicate) -> str:
    """*predicate* in few words; intervals as in mathematics."""
    return "{" + ", ".join(map(_test_spelled, predicate)) + "}"


def _test_spelled(test: ElementaryTest) -> str:
    if not test.intervals:
        return f"{test.attribute} {test.kind.name}"
    intervals = " ".join(
        f"{'[' if each.low_closed else '('}{each.low!r} {each.high!r}{']' if each.high_closed else ')'}"
        for each in test.intervals
    )
    patterns = "".join(f" {'unlike' if each.negated else 'like'} {each.parts}" for each in test.patterns)
    return f"{test.attribute} {test.kind.name} {intervals}{patterns}"

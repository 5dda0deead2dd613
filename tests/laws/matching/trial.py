"""A trial: operations on trees beside the oracle, and the least operations that still show a disagreement."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from edgebroker.matching.pst import Pst
from edgebroker.predicate import Value

from .cases import Case
from .oracle import Choice, Oracle

ALL_LINKS = (1 << 256) - 1  # more links than any subscription has


class Insert(NamedTuple):
    """Subscription *index* comes; nothing happens if it is there."""

    index: int


class Remove(NamedTuple):
    """Subscription *index* goes; nothing happens if it is not there."""

    index: int


class Tend(NamedTuple):
    """The trees do a step of maintenance."""


class Ask(NamedTuple):
    """An event."""

    topic: str
    choice: Choice
    mask: int
    """Of the decision that is about some links only."""
    local: int
    """The link whose subscriptions `route` is to find."""
    narrow: bool
    """Whether it brings the wanted attributes and no others."""
    anew: bool
    """Whether the topic is resolved for it, although there is a resolution of this epoch."""


Operation = Insert | Remove | Tend | Ask


class Disagreement(AssertionError):
    """A tree says something else than the oracle or than another tree."""


# -- drawing ----------------------------------------------------------------------------------------------------------


def operations_of(case: Case, oracle: Oracle, questions: int) -> list[Operation]:
    """Subscriptions come and go in every order, all of them at last; *questions* events are spread between."""
    rng = random.Random(case.seed ^ 0x5EED)
    everyone = list(range(len(case.subscriptions)))
    operations: list[Operation] = []
    rounds = rng.choice((1, 2, 2, 3))
    present: list[int] = []
    for _ in range(rounds):
        changes: list[Operation] = []
        coming = _in_some_order(rng, [index for index in everyone if index not in set(present)])
        if rng.random() < 0.4:  # stays below what is there at most
            coming = coming[: rng.randint(1, len(everyone))]
        changes += map(Insert, coming)
        present += coming
        for _ in range(rng.randint(0, min(len(everyone), 60))):
            changes += _churn(rng, everyone, present)
        going = _in_some_order(rng, present)
        if rng.random() < 0.4:
            going = going[: rng.randint(0, len(present))]
        # Half of the questions while all is there, a quarter during the changes, a quarter while most goes.
        share = questions // rounds
        operations += _spread(rng, changes, _questions(rng, case, oracle, present, share // 4))
        operations += _questions(rng, case, oracle, present, share // 2)
        operations += _spread(
            rng,
            [Remove(index) for index in going],
            _questions(rng, case, oracle, present, share - share // 4 - share // 2),
        )
        gone = set(going)
        present = [index for index in present if index not in gone]
    operations += map(Remove, _in_some_order(rng, present))
    return operations


def _in_some_order(rng: random.Random, indexes: Iterable[int]) -> list[int]:
    """Ascending, which is the order of insertion most of the time, descending or shuffled."""
    ordered = sorted(indexes)
    order = rng.randrange(3)
    if order == 1:
        ordered.reverse()
    elif order == 2:
        rng.shuffle(ordered)
    return ordered


def _churn(rng: random.Random, everyone: list[int], present: list[int]) -> list[Operation]:
    if rng.random() < 0.1:
        return [Tend()]
    index = rng.choice(everyone)
    if index not in present:
        present.append(index)
        return [Insert(index)]
    if rng.random() < 0.3:
        return [Remove(index), Insert(index)]
    present.remove(index)
    return [Remove(index)]


def _spread(rng: random.Random, changes: list[Operation], questions: list[Operation]) -> list[Operation]:
    """Both in one list, each in its order, the questions in up to ten heaps."""
    heaps = sorted(rng.choices(range(len(changes) + 1), k=min(10, len(questions))))
    if not heaps:
        return changes
    mixed: list[Operation] = []
    done = 0
    for number, place in enumerate(heaps):
        mixed += changes[done:place]
        mixed += questions[number :: len(heaps)]
        done = place
    return mixed + changes[done:]


def _questions(rng: random.Random, case: Case, oracle: Oracle, present: list[int], count: int) -> list[Operation]:
    return [_question(rng, case, oracle, present) for _ in range(count)]


def _question(rng: random.Random, case: Case, oracle: Oracle, present: list[int]) -> Ask:
    """Any event; two of three times one that some predicate accepts, or nearly."""
    chance = rng.random
    choice = {name: int(chance() * len(of)) for name, of in case.values.items() if chance() < case.presence}
    if chance() < 0.66 and oracle.owners:
        row = 1 << int(chance() * len(oracle.owners))
        for name in oracle.names:
            size = len(case.values[name])
            for _ in range(8):
                if oracle.accepting(name, choice.get(name, -1)) & row:
                    break
                choice[name] = int(chance() * size)
    mask = rng.choice((0, 1, 1 << rng.randrange(200), rng.getrandbits(8), rng.getrandbits(8), rng.getrandbits(200)))
    return Ask(rng.choice(case.topics), choice, mask, rng.randrange(8), chance() < 0.5, chance() < 0.2)


# -- playing ----------------------------------------------------------------------------------------------------------


class Trial:
    """Trees under trial beside the oracle. Every method raises Disagreement, or what a tree raises unasked."""

    def __init__(self, case: Case, oracle: Oracle, trees: Sequence[Pst]) -> None:
        self.case = case
        self.oracle = oracle
        self.trees = trees
        self.present: set[int] = set()
        self.installed = 0
        self.played = 0
        """Operations begun."""
        self.pairs = 0
        """Questions answered rightly."""
        self._resolutions: dict[str, list[Any]] = {}  # by topic, one for each tree; kept as long as its epoch lasts

    def play(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.played += 1
            match operation:
                case Insert(index):
                    if index not in self.present:
                        self.insert(index)
                case Remove(index):
                    if index in self.present:
                        self.remove(index)
                case Tend():
                    for tree in self.trees:
                        tree.tend()
                case Ask():
                    self.ask(operation)

    def insert(self, index: int) -> None:
        subscription, number = self.case.subscriptions[index], self.case.numbers[index]
        arguments = (number, subscription.topic_filter, subscription.predicates, subscription.link)
        for tree in self.trees:
            epoch = tree.epoch
            if not index % 8:
                _refuses(KeyError, tree.remove, number)
                equal(tree.epoch, epoch, "the epoch after removing what is not there")
            tree.insert(*arguments)
            true(tree.epoch >= epoch, "the epoch goes back")
            if not index % 8:
                epoch = tree.epoch
                _refuses(ValueError, tree.insert, *arguments)
                equal(tree.epoch, epoch, "the epoch after inserting twice")
        self.present.add(index)
        self.installed |= self.oracle.rows[index]
        self._changed(number)

    def remove(self, index: int) -> None:
        number = self.case.numbers[index]
        for tree in self.trees:
            epoch = tree.epoch
            tree.remove(number)
            true(tree.epoch >= epoch, "the epoch goes back")
        self.present.discard(index)
        self.installed &= ~self.oracle.rows[index]
        self._changed(number)

    def ask(self, question: Ask) -> None:
        """One pair: this event, and every subscription that is there."""
        case = self.case
        topic, choice, mask, local, narrow, anew = question
        attributes: dict[str, Value] = {name: case.values[name][index] for name, index in choice.items()}
        plain_here, found_here = self.oracle.matching(topic, choice, self.installed)
        plain_here &= self.present
        if self.pairs % 16 == 0 and len(self.present) <= 100:
            by_definition = {i for i in self.present if case.subscriptions[i].accepts(topic, attributes)}
            equal(plain_here | found_here, by_definition, "the oracle itself")
        numbers = case.numbers
        links = 0
        at_local = []
        for index in plain_here | found_here:
            link = case.subscriptions[index].link
            links |= 1 << link
            if link == local:
                at_local.append(numbers[index])
        at_local.sort()
        expected = sorted([numbers[index] for index in found_here])
        steps: list[tuple[int, int, int]] = []
        for tree, resolution in zip(self.trees, self._resolved(topic, anew), strict=True):
            equal(sorted(resolution.plain), sorted(numbers[index] for index in plain_here), "plain subscriptions")
            wanted = {name: attributes[name] for name in resolution.wanted if name in attributes}
            brought = wanted if narrow else attributes
            before = tree.steps
            found = tree.match(resolution, brought)
            taken = tree.steps - before
            equal(sorted(found), expected, "the matches")
            full = tree.decide(resolution, brought, ALL_LINKS)
            equal(full.yes, links, "the links of all")
            part = tree.decide(resolution, brought, mask)
            equal(part.yes, links & mask, f"the links of {mask:#x}")
            route = tree.route(resolution, brought, mask, local)
            equal((sorted(route.numbers), route.yes), (at_local, links & mask), f"the route at link {local}")
            true(max(full.steps, part.steps) <= taken, f"{full.steps}, {part.steps} steps to decide, {taken} to match")
            steps.append((taken, full.steps, part.steps))
        for others in steps[1:]:
            equal(others, steps[0], "the steps of the second tree")
        for tree in self.trees[1:]:
            if self.pairs % 64 == 0:
                equal(tree.census()[:-1], self.trees[0].census()[:-1], "the census of the second tree")
        self.pairs += 1

    def _resolved(self, topic: str, anew: bool) -> list[Any]:
        """One resolution for each tree, possibly an old one: as long as the epoch lasts it has to tell the truth."""
        resolutions = self._resolutions.get(topic)
        if resolutions is not None and not anew:
            if all(each.epoch == tree.epoch for each, tree in zip(resolutions, self.trees, strict=True)):
                return resolutions
            for tree, stale in zip(self.trees, resolutions, strict=True):
                _refuses(ValueError, tree.match, stale, {})
                _refuses(ValueError, tree.decide, stale, {}, 1)
        resolutions = self._resolutions[topic] = [tree.resolve(topic) for tree in self.trees]
        for tree, resolution in zip(self.trees, resolutions, strict=True):
            equal(resolution.epoch, tree.epoch, "the epoch of a resolution")
            true(resolution.wanted <= set(self.oracle.names), f"wanted: {sorted(resolution.wanted)}")
        return resolutions

    def _changed(self, number: int) -> None:
        for tree in self.trees:
            equal(len(tree), len(self.present), "the number of subscriptions")
        if not self.present:
            for tree in self.trees:
                true(number not in tree, "a removed number is in the tree")
                resolution = tree.resolve(self.case.topics[0])
                left = (resolution.plain, resolution.contents, resolution.wanted, tree.match(resolution, {}))
                equal(left, ((), (), frozenset(), []), "what is left of nothing")
                equal(tree.decide(resolution, {}, ALL_LINKS).yes, 0, "the links of nothing")
                equal(tree.census()[:-1], Pst(tree.kernel).census()[:-1], "the census of nothing, without its bytes")


def equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Disagreement(f"{what}: {found!r}, expected {expected!r}")


def true(holds: bool, what: str) -> None:
    if not holds:
        raise Disagreement(what)


def _refuses(error: type[Exception], function: Callable[..., object], *arguments: Any) -> None:
    try:
        function(*arguments)
    except error:
        return
    raise Disagreement(f"{function.__name__}{arguments!r} is accepted, expected {error.__name__}")

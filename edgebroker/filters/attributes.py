"""Extracts the attributes that filters name from a publication, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from edgebroker.filters.elements import ELEMENTS_MAX, ElementArray, arrays_of
from edgebroker.filters.names import AttributeName, AttributeSource, Step
from edgebroker.filters.payloads import EXACT_FLOAT_MAX, NOTHING, SPARKPLUG, payload_tree, value_of
from edgebroker.limits import KIB
from edgebroker.predicate import Value

if TYPE_CHECKING:
    from edgebroker.filters.sparkplug import Births

TREE_BYTES_KEPT = 64 * KIB
"""Bytes of the largest payload whose tree is kept until the next message: with 64 KiB it takes up to about 1 MiB."""
NAMES_REMEMBERED = 4_096
"""Cached parsed names: 4 us and half a kilobyte each."""
UNREADABLE_TOPICS_MAX = 1_000
"""Topics whose unreadable payloads are counted each on its own: 150 KiB with names of usual length."""
UNREADABLE_TOPIC_CHARS_MAX = 256
"""Longer topics are counted together, as those beyond UNREADABLE_TOPICS_MAX are: MQTT allows 65,535 bytes."""
OTHER_TOPICS = ""
"""Stands for all topics that are counted together. No topic is empty."""
VALUE = "value"
"""The single attribute of a payload that is no object: a bare number, string, boolean or array."""


class UnreadableCounts:
    """Counts messages whose payload a content filter asked for and that could not be read."""

    __slots__ = ("by_topic", "last_topic", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_topic: dict[str, int] = {}
        """Messages by topic; those of further topics, and of very long ones, as OTHER_TOPICS."""
        self.last_topic = ""

    def add(self, topic: str) -> None:
        """Count a message of *topic*."""
        self.total += 1
        self.last_topic = topic
        if topic not in self.by_topic and (
            len(self.by_topic) >= UNREADABLE_TOPICS_MAX or len(topic) > UNREADABLE_TOPIC_CHARS_MAX
        ):
            topic = OTHER_TOPICS
        self.by_topic[topic] = self.by_topic.get(topic, 0) + 1


class Extractor:
    """Extracts a fixed set of attributes from publications. The paths are prepared once, each payload is parsed once.

    `reads_payload`: whether any wanted attribute is in the payload; else it is not parsed. `is_unreadable`: whether
    the payload of the last extraction could not be read, so that its attributes are unknown rather than absent.
    `arrays_too_long`: arrays of the last payload of which not all elements were looked at. `element_work`: the cost of
    tests of elements, in about microseconds.
    """

    __slots__ = (
        "_arrays",
        "_births",
        "_deep",
        "_levels",
        "_plain",
        "_shallow",
        "_user",
        "arrays_too_long",
        "element_work",
        "is_unreadable",
        "names",
        "reads_payload",
    )

    def __init__(self, names: Iterable[str], births: Births | None = None) -> None:
        """*names*: canonical attribute names (`edgebroker.filters.Filter.attributes`). Raises FilterInvalid.

        births: for Sparkplug topics only. Birth certificates are stored there, whatever is wanted.
        """
        self._births = births
        wanted = [_parsed(name) for name in names]
        self.names = frozenset(name.canonical for name in wanted)
        # By their first key: a hostile filter names hundreds of attributes, and a payload has a few keys.
        self._shallow: dict[Any, str] = {}
        self._deep: dict[Any, list[tuple[str, tuple[Step, ...]]]] = {}
        for name in wanted:
            if name.source is AttributeSource.PAYLOAD:
                key, *rest = name.steps
                if rest:
                    self._deep.setdefault(key, []).append((name.canonical, tuple(rest)))
                else:
                    self._shallow[key] = name.canonical
        self._levels = tuple(
            (name.canonical, int(name.steps[0]) - 1) for name in wanted if name.source is AttributeSource.LEVEL
        )
        self._user = {name.steps[0]: name.canonical for name in wanted if name.source is AttributeSource.USER}
        self._plain = tuple(
            name.source
            for name in wanted
            if name.source
            not in (AttributeSource.PAYLOAD, AttributeSource.LEVEL, AttributeSource.USER, AttributeSource.ELEMENT)
        )
        self._arrays = arrays_of(name.canonical for name in wanted if name.source is AttributeSource.ELEMENT)
        self.arrays_too_long = 0
        self.element_work = 0
        self.reads_payload = bool(self._shallow or self._deep or self._arrays)
        self.is_unreadable = False

    def extract(
        self,
        payload: bytes,
        *,
        topic: str,
        qos: int,
        retain: bool,
        client: str,
        user: Sequence[tuple[str, str]] = (),
        content_type: str | None = None,
    ) -> dict[str, Value]:
        """Return the wanted attributes that the publication has and that are not null, by canonical name. Never
        raises.
        """
        found: dict[str, Value] = {}
        if self._plain:
            plain: dict[AttributeSource, Value] = {
                AttributeSource.TOPIC: topic,
                AttributeSource.QOS: qos,
                AttributeSource.RETAIN: retain,
                AttributeSource.SIZE: len(payload),
                AttributeSource.CLIENT: client,
            }
            for source in self._plain:
                found[source.value] = plain[source]
        if self._levels:
            levels = topic.split("/")
            for name, index in self._levels:
                if index < len(levels):
                    found[name] = levels[index]
        if self._user:
            for key, text in user:
                wanted = self._user.get(key)
                if wanted is not None:
                    found.setdefault(wanted, text)
        tree: Any = None
        if self._arrays:
            self.arrays_too_long = self.element_work = 0
        if self._births is not None:
            tree = self._births.tree(topic, payload)
            self._take(tree, found)
        elif self.reads_payload:
            tree = _read_tree(topic, payload, content_type)
            if tree is not NOTHING and not self._take(tree, found):
                self._take(payload_tree(payload, content_type, exact=True), found)
        self.is_unreadable = tree is NOTHING
        return found

    def _take(self, tree: Any, found: dict[str, Value]) -> bool:
        """Extract attributes from *tree*; False if a number is so large that a fast parser may have rounded it."""
        if tree is NOTHING:
            return True
        root = tree if isinstance(tree, dict) else {VALUE: tree}
        exact = self._take_elements(root, found) if self._arrays else True
        shallow = self._shallow
        for key in shallow if len(shallow) < len(root) else root:
            name = shallow.get(key)
            if name is None:
                continue
            value = value_of(root.get(key))
            if value is not None:
                found[name] = value
                if type(value) is float and not -EXACT_FLOAT_MAX < value < EXACT_FLOAT_MAX:
                    exact = False
        deep = self._deep
        for key in deep if len(deep) < len(root) else root:
            for name, steps in deep.get(key, ()):
                value = value_of(_item_at(steps, root.get(key)))
                if value is not None:
                    found[name] = value
                    if type(value) is float and not -EXACT_FLOAT_MAX < value < EXACT_FLOAT_MAX:
                        exact = False
        return exact

    def _take_elements(self, root: dict[Any, Any], found: dict[str, Value]) -> bool:
        """Extract the tests of elements; as `_take`."""
        exact = True
        self.arrays_too_long = 0  # a payload may be read twice
        for array in self._arrays:
            items = _item_at(array.path, root)
            if not isinstance(items, list):
                continue
            values = _element_values(array, items)
            true = array.true_tests(values)
            is_whole = len(items) <= ELEMENTS_MAX
            for test in array.tests:
                if test.name in true or is_whole:
                    found[test.name] = test.name in true
            self.arrays_too_long += not is_whole
            self.element_work += len(values) * array.weight >> 5
            exact = exact and not any(
                type(value) is float and not -EXACT_FLOAT_MAX < value < EXACT_FLOAT_MAX for value in values
            )
        return exact


def _element_values(array: ElementArray, items: list[Any]) -> list[Value]:
    """Return what tests are asked of, for as many elements as are looked at."""
    if array.rest:
        return [value_of(_item_at(array.rest, item)) for item in items[:ELEMENTS_MAX]]
    return [value_of(item) for item in items[:ELEMENTS_MAX]]


_last: tuple[bytes, str, str | None, Any] = (b"", "", None, {})
"""The payload that was read last, its topic if that is one of Sparkplug, its content type, and its tree."""


def _read_tree(topic: str, payload: bytes, content_type: str | None) -> Any:
    """Reads the tree of a payload, once for all who ask about one message: access rules, peers and local readers.

    The same object of the same kind always has the same tree, so the last one never has to be invalidated. That of a
    payload over TREE_BYTES_KEPT is not kept: it may take ten times the memory of the payload.
    """
    global _last
    sparkplug_topic = topic if topic.startswith(SPARKPLUG) else ""
    known, known_topic, known_type, tree = _last
    if payload is known and sparkplug_topic == known_topic and content_type == known_type:
        return tree
    tree = _read_metrics(topic, payload) if sparkplug_topic else None
    if tree is None:
        tree = payload_tree(payload, content_type)
    if len(payload) <= TREE_BYTES_KEPT:
        _last = payload, sparkplug_topic, content_type, tree
    return tree


def _read_metrics(topic: str, payload: bytes) -> Any:
    """Reads the metrics of a Sparkplug payload; None if *topic* is not one of Sparkplug's payloads."""
    from edgebroker.filters.sparkplug import is_sparkplug, sparkplug_tree  # loaded with the first such topic

    return sparkplug_tree(payload) if is_sparkplug(topic) else None


@lru_cache(NAMES_REMEMBERED)
def _parsed(name: str) -> AttributeName:
    """As `AttributeName.parse`, cached, because the filters of many topics name the same attributes."""
    return AttributeName.parse(name)


def _item_at(steps: tuple[Step, ...], tree: Any) -> Any:
    """Return the item at the end of the path; None if the path leaves the tree."""
    for step in steps:
        if isinstance(step, str):
            if not isinstance(tree, dict):
                return None
            tree = tree.get(step)
        elif isinstance(tree, list) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree

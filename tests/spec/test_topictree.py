"""The topic part of the tree, both twins: what matches what, what an end is, and that nothing is left behind."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from edgebroker.limits import TOPIC_BYTES_MAX, TOPIC_LEVELS_LIMIT
from edgebroker.topics import TopicFilter

if TYPE_CHECKING:
    from edgebroker.matching.reference.topictree import TopicTree


@pytest.fixture(params=["reference", "compiled"])
def tree(request: pytest.FixtureRequest) -> TopicTree:
    try:
        twin = importlib.import_module(f"edgebroker.matching.{request.param}.topictree")
    except ImportError:
        pytest.skip("the compiled topic tree is not built here")
    made: TopicTree = twin.TopicTree()
    return made


def add(tree: TopicTree, *texts: str) -> list[int]:
    return [tree.add(TopicFilter.parse(text)) for text in texts]


def matching(tree: TopicTree, topic: str) -> list[str]:
    return [tree.filter_of(end) for end in tree.ends(topic)]


# -- what matches (MQTT 5.0 section 4.7) ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "topic", "expected"),
    [
        (["a/b", "a/c", "a", "a/b/c"], "a/b", ["a/b"]),
        (["a/+", "+/b", "+/+", "+", "a/b/+"], "a/b", ["a/+", "+/b", "+/+"]),
        (["#", "a/#", "a/b/#", "a/b/c/#", "b/#", "+/#"], "a/b", ["#", "a/#", "+/#", "a/b/#"]),
        (["a/#", "a/+"], "a", ["a/#"]),
        (["a/#", "a/+"], "a/", ["a/#", "a/+"]),
        (["a//b", "a/+/b", "a/b", "a//"], "a//b", ["a//b", "a/+/b"]),
        (["/", "+/+", "/+", "+/", "+", "/#", "//"], "/", ["/#", "/", "/+", "+/", "+/+"]),
        (["#", "+/x", "$SYS/#", "$SYS/+", "+/#"], "$SYS/x", ["$SYS/#", "$SYS/+"]),
        (["#", "+", "$SYS/#"], "$SYS", ["$SYS/#"]),
        (["a/#", "a/+"], "a/$b", ["a/#", "a/+"]),
        (
            ["žár/+/温度", "žár/#", "zar/#"],
            "žár/1/温度",
            ["žár/#", "žár/+/温度"],
        ),
        (["🌡/+", "+/🌡"], "🌡/🌡", ["🌡/+", "+/🌡"]),
        (["\ud83c/\udf21", "\ud83c\udf21", "+", "+/+"], "\ud83c\udf21", ["\ud83c\udf21", "+"]),
        (["🌡", "\ud83c\udf21", "+"], "🌡", ["🌡", "+"]),
        (["café", "cafe\u0301", "+"], "café", ["café", "+"]),
        ([], "a/b", []),
        (["a"], "", []),
        (["#"], "", ["#"]),
    ],
)
def test_the_filters_that_match_and_their_order(
    tree: TopicTree, filters: list[str], topic: str, expected: list[str]
) -> None:
    add(tree, *filters)
    assert matching(tree, topic) == expected
    assert sorted(expected) == sorted(text for text in filters if TopicFilter.parse(text).matches(topic))


def test_levels_of_any_length_are_told_apart(tree: TopicTree) -> None:
    texts = ["x" * length + last for length in range(1, 40) for last in ("", "y", "é")]
    add(tree, *texts)
    for text in texts:
        assert matching(tree, text) == [text]


def test_the_longest_filter_and_topic(tree: TopicTree) -> None:
    long, deep, wild = "x" * TOPIC_BYTES_MAX, "/" * (TOPIC_LEVELS_LIMIT - 1), "+/" * (TOPIC_LEVELS_LIMIT - 1) + "#"
    add(tree, long, deep, wild)
    assert matching(tree, long) == [long]
    assert matching(tree, deep) == [wild, deep]
    assert matching(tree, deep + "/" * TOPIC_LEVELS_LIMIT) == [wild], "no topic of a client, but no reason to fail"


def test_every_mixture_of_names_and_plus(tree: TopicTree) -> None:
    texts = ["/".join("+" if bits >> level & 1 else "a" for level in range(10)) for bits in range(1024)]
    add(tree, *texts)
    assert sorted(matching(tree, "/".join("a" * 10))) == sorted(texts)
    assert tree.steps == 2**11 - 1


# -- ends -------------------------------------------------------------------------------------------------------------


def test_equal_filters_share_an_end_until_the_last_use_is_gone(tree: TopicTree) -> None:
    first, second, other = add(tree, "a/+/b", "a/+/b", "a/+")
    assert first == second != other
    assert len(tree) == 2
    tree.discard(first)
    assert matching(tree, "a/x/b") == ["a/+/b"]
    tree.discard(first)
    assert matching(tree, "a/x/b") == []
    assert matching(tree, "a/x") == ["a/+"]
    assert len(tree) == 1


def test_numbers_of_ends_are_positive_and_given_again(tree: TopicTree) -> None:
    ends = add(tree, *(f"a/{number}" for number in range(100)))
    assert sorted(ends) == sorted(set(ends))
    assert min(ends) > 0
    for end in ends:
        tree.discard(end)
    again = add(tree, *(f"b/{number}" for number in range(100)))
    assert max(again) <= max(ends)


def test_find(tree: TopicTree) -> None:
    texts = ["a/b", "a/+", "a/#", "#", "+", "a/b/c"]
    ends = add(tree, *texts)
    assert [tree.find(TopicFilter.parse(text)) for text in texts] == ends
    for text in ("a", "b", "+/b", "a/+/c", "a/b/#", "a/b/c/d", "+/#", "a/", "/"):
        assert tree.find(TopicFilter.parse(text)) == -1


@pytest.mark.parametrize("end", [-1, 0, 2, 10**6, 2**31, 2**32 + 1])
def test_there_is_no_such_end(tree: TopicTree, end: int) -> None:
    add(tree, "a/b")
    with pytest.raises(KeyError):
        tree.discard(end)
    with pytest.raises(KeyError):
        tree.filter_of(end)


def test_an_end_that_is_gone_is_no_end(tree: TopicTree) -> None:
    (end,) = add(tree, "a/b")
    tree.discard(end)
    with pytest.raises(KeyError):
        tree.discard(end)


# -- counts and memory ------------------------------------------------------------------------------------------------


def test_nodes_and_steps(tree: TopicTree) -> None:
    assert (len(tree), tree.nodes, tree.steps) == (0, 1, 0)
    ends = add(tree, "a/b", "a/+", "a/#", "c/d/e")
    assert tree.nodes == 1 + 3 + 3
    tree.ends("a/b")
    assert tree.steps == 1 + 1 + 2
    tree.ends("x/y/z")
    assert tree.steps == 4 + 1
    for end in ends:
        tree.discard(end)
    assert (len(tree), tree.nodes) == (0, 1)


def test_bytes_grow_and_shrink(tree: TopicTree) -> None:
    empty = tree.bytes()
    assert empty > 0
    ends = add(tree, *(f"site{number % 7}/{number:040}/+/{number}" for number in range(5_000)))
    full = tree.bytes()
    assert full > empty
    for end in ends[1_000:]:
        tree.discard(end)
    rest = tree.bytes()
    assert rest < full
    for end in ends[:1_000]:
        tree.discard(end)
    assert tree.bytes() < rest


# -- drawing ----------------------------------------------------------------------------------------------------------


def test_children(tree: TopicTree) -> None:
    ends = dict(zip(texts := ["b", "a/c", "a/+/x", "#", "a/#", "+", "é"], add(tree, *texts), strict=True))
    edges = tree.children()
    assert [(level, end) for level, _, end in edges] == [
        ("a", -1),
        ("b", ends["b"]),
        ("é", ends["é"]),
        ("+", ends["+"]),
        ("#", ends["#"]),
    ]
    assert edges[-1][1] == -1
    below = tree.children(edges[0][1])
    assert [(level, end) for level, _, end in below] == [("c", ends["a/c"]), ("+", -1), ("#", ends["a/#"])]
    assert tree.children(edges[1][1]) == []
    assert [level for level, _, _ in tree.children(below[1][1])] == ["x"]


@pytest.mark.parametrize("node", [-1, 2, 3, 10**6, 2**31])
def test_there_is_no_such_node(tree: TopicTree, node: int) -> None:
    ends = add(tree, "a", "b/c")
    tree.discard(ends[1])
    with pytest.raises(KeyError):
        tree.children(node)

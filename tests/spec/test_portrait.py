"""The portrait of the search tree: edges in words, text that is cut where it gets long, and drawings."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from edgebroker.filters import Filter
from edgebroker.matching.cells import ABSENT, OTHERWISE, STAR, Cells, thinned
from edgebroker.matching.drawing import BOXES_MAX, svg
from edgebroker.matching.labels import accepted, label_of
from edgebroker.matching.portrait import FAMILY_MIN, Portrait
from edgebroker.matching.pst import Pst
from edgebroker.topics import TopicFilter

SVG = "{http://www.w3.org/2000/svg}"


def planted(*subscriptions: tuple[str, str | None, int], bucket_max: int | None = None) -> Pst:
    """A tree with these subscriptions: topic filter, content filter, link; numbered from 1."""
    tree = Pst(bucket_max=bucket_max)
    for number, (topic, where, link) in enumerate(subscriptions, 1):
        predicates = Filter.parse(where).predicates if where is not None else ((),)
        tree.insert(number, TopicFilter.parse(topic), predicates, link)
    return tree


SITES = planted(
    *(("plant/+", f"site = '{site}' AND note LIKE '%{note}'", note % 2) for site in "abcd" for note in range(6)),
    ("plant/+", "note LIKE '%z'", 1),
    ("plant/hall/door", None, 0),
    bucket_max=24,
)
"""24 predicates that name a site fill a bucket of 24; the next one makes it a fork. Patterns tell nothing apart."""

# -- edges in words ---------------------------------------------------------------------------------------------------


def covered(where: str, among: tuple[str, ...]) -> str:
    """The words of the cells that *where* covers, if the cells are made for the filters *among*."""
    tree = planted(*(("t", one, 0) for one in (where, *among)))
    bucket = tree.resolve("t").contents[0].root
    (use,) = tree.kernel.survey(bucket).values()
    cells = Cells(0, None if use.cuts is None else thinned(use.cuts), use.strings, use.booleans)
    strings = tree.leaves.strings
    ((test,),) = Filter.parse(where).predicates
    return accepted(cells, cells.cover(test, strings.values, strings.numbers).cells, strings.values)


@pytest.mark.parametrize(
    ("where", "among", "words"),
    [
        ("a >= 20 AND a < 30", (), "20 <= .. < 30"),
        ("a BETWEEN 20 AND 30", (), "20 <= .. <= 30"),
        ("a > 20 AND a < 30", (), "20 < .. < 30"),
        ("a > 20", ("a < 7",), "> 20"),
        ("a >= 20", ("a < 7",), ">= 20"),
        ("a < 7", ("a > 20",), "< 7"),
        ("a <= 7", ("a > 20",), "<= 7"),
        ("a = 2.5", ("a = 3",), "2.5"),
        ("a IN (1, 5)", ("a = 3",), "1 or 5"),
        ("a = -4", (), "-4"),
        ("a = 1e300", (), "1e+300"),
        ("a NOT BETWEEN 1 AND 2", (), "< 1 or > 2"),
        ("a = 'north'", ("a = 'south'",), "'north'"),
        ("a = 'it''s'", (), "'it''s'"),
        ("a IN ('n', 's')", ("a = 'w'",), "'n', 's'"),
        ("a IN ('1', '2', '3', '4', '5', '6')", (), "'1', '2', '3', '4' and 2 more"),
        ("a <> 'n'", ("a = 's'",), "a string but 'n'"),
        ("a LIKE '%'", ("a = 's'",), "a string"),
        ("a", (), "TRUE"),
        ("NOT a", ("a",), "FALSE"),
        ("a IN (TRUE, FALSE)", (), "a boolean"),
        ("a IS NULL", ("a = 1",), "absent"),
        ("a IS NOT NULL", ("a = 1",), "present"),
        ("a = 'x\x1b[2J'", (), "'x\\x1b[2J'"),
        ("a = '" + "long" * 30 + "'", (), "'" + "long" * 10 + "...'"),
    ],
)
def test_cells_in_words(where: str, among: tuple[str, ...], words: str) -> None:
    assert covered(where, among) == words


def test_cells_of_several_kinds_are_all_named() -> None:
    cells = Cells(0, [10.0], [0], booleans=True)
    edge = 1 << ABSENT | 1 << OTHERWISE | 1 << cells.true_cell | 1 << cells.first_string | 1 << cells.first_number
    assert accepted(cells, edge, ["n"]) == "absent or TRUE or 'n' or < 10 or of another kind"
    assert accepted(cells, (1 << cells.count) - 1, ["n"]) == "anything"


def test_strings_that_share_cells_are_counted_in_groups() -> None:
    cells = Cells(0, None, range(40))
    assert accepted(cells, 0b101 << cells.first_string, []) == "a string in 2 of 32 groups"
    assert accepted(cells, 1 << cells.other_string, []) == "a string that no test names"


def test_an_edge_that_tests_nothing_is_a_star() -> None:
    assert label_of(None, None, 6) == label_of(None, Cells(0), STAR) == "*"


# -- text -------------------------------------------------------------------------------------------------------------


def without_bytes(lines: list[str]) -> list[str]:
    """*lines* up to the first number of bytes, which depends on the kernel."""
    return [line.rpartition(", ")[0] if line.endswith("bytes") else line for line in lines]


def test_the_portrait_of_a_small_tree() -> None:
    lines = Portrait(SITES, links=2).lines()
    assert without_bytes(lines[:-1]) == [
        "plant",
        "  hall/door      YN  1 subscription: 1 without filter",
        "  +              MM  25 subscriptions: 25 predicates",
        "    (content)    MM  fork on site: 25 leaves",
        "      site: 'a'  MM  bucket: 6 leaves, no columns",
        "      site: 'b'  MM  bucket: 6 leaves, no columns",
        "      site: 'c'  MM  bucket: 6 leaves, no columns",
        "      site: 'd'  MM  bucket: 6 leaves, no columns",
        "      *          NM  bucket: 1 leaf, no columns",
        "26 subscriptions with 25 leaves in 5 buckets",
    ]
    census = SITES.census()
    assert lines[-1].startswith(f"{census.nodes} nodes (levels, forks and buckets), {census.bytes:,} bytes, ")


def test_without_links_there_are_no_trits() -> None:
    assert Portrait(SITES).lines()[1] == "  hall/door      1 subscription: 1 without filter"


def test_levels_of_one_path_share_a_line_as_long_as_no_topic_filter_ends() -> None:
    heads = [
        line.split("  1 sub")[0] for line in Portrait(planted(*((t, None, 0) for t in ("a/b/c/d", "a/b/#")))).lines()
    ]
    assert heads[:3] == ["a/b", "  c/d", "  #  "]


def test_empty_levels_control_characters_and_hopeless_filters_are_shown() -> None:
    lines = Portrait(planted(("/x", None, 0), ("y\n", "a = 1 AND a = 2", 0))).lines()
    assert lines[0].startswith("/x ")
    assert lines[1] == "y\\n  1 subscription: none can match"


def test_an_empty_tree_has_a_portrait() -> None:
    assert Portrait(Pst()).lines()[0] == "0 subscriptions with 0 leaves in 0 buckets"
    ElementTree.fromstring(svg(Portrait(Pst())))


def test_a_large_tree_is_cut_near_the_root_and_says_what_is_left_out() -> None:
    tree = planted(*((f"site{site}/room{room}/+", None, 0) for site in range(40) for room in range(5)))
    *lines, _, _ = Portrait(tree).lines(lines_max=60)
    assert len(lines) == 60
    sites = [line for line in lines if not line.startswith(" ")]
    assert len(sites) == 60 // 4  # a quarter of what is left, at least FAMILY_MIN
    assert FAMILY_MIN > 5
    complete = [line for line in sites if "not shown" not in line]
    assert len(complete) * 5 <= 60 - len(sites) < (len(complete) + 1) * 5 + 5
    assert sites[-1].endswith("5 edges not shown")


def test_a_tree_that_just_fits_is_shown_whole() -> None:
    tree = planted(*((f"room{room}", None, 0) for room in range(30)))
    assert not any("not shown" in line for line in Portrait(tree).lines(lines_max=30))
    assert sum("subscription:" in line for line in Portrait(tree).lines(lines_max=29)) == FAMILY_MIN


# -- drawings ---------------------------------------------------------------------------------------------------------


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def test_a_small_tree_is_drawn_as_boxes_with_labelled_edges_and_trits() -> None:
    document = svg(Portrait(SITES, links=2))
    said = texts(document)
    assert {"plant", "hall/door", "+", "fork on site", "bucket", "site: 'a'", "*"} <= set(said)
    root = ElementTree.fromstring(document)
    boxes = [rect for rect in root.iter(f"{SVG}rect") if rect.get("rx")]
    assert len(boxes) == len(list(Portrait(SITES).walk()))
    trits = [title.text for title in root.iter(f"{SVG}title") if (title.text or "").startswith("link ")]
    assert trits.count("link 0: yes: certain here") == 1  # hall/door
    assert len(trits) == 2 * (len(boxes) - 1)  # on `plant` no topic filter ends


def test_nothing_is_drawn_outside_and_boxes_do_not_overlap() -> None:
    root = ElementTree.fromstring(svg(Portrait(SITES, links=2)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [
        [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
        for rect in root.iter(f"{SVG}rect")
        if rect.get("rx")
    ]
    for number, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x <= width - w
        assert 0 <= y <= height - h
        for x2, y2, w2, h2 in boxes[:number]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_a_large_tree_is_drawn_as_an_icicle_whose_heights_are_shares() -> None:
    rng = random.Random(5)
    tree = planted(
        *((f"s{number % 3}/#", f"a = {number} AND b > {rng.randrange(99)}", 0) for number in range(600)), bucket_max=32
    )
    portrait = Portrait(tree, links=1)
    assert len(list(portrait.walk())) > BOXES_MAX
    root = ElementTree.fromstring(svg(portrait))
    slices = [(group.find(f"{SVG}title"), group.find(f"{SVG}rect")) for group in root.iter(f"{SVG}g")]
    heights = {
        (title.text or "").split("  ")[0]: float(rect.attrib["height"])
        for title, rect in slices
        if title is not None and rect is not None and (title.text or "").startswith("s")
    }
    assert set(heights) == {"s0/#", "s1/#", "s2/#"}
    assert max(heights.values()) - min(heights.values()) < 1  # 200 subscriptions each
    bottom = max(float(r.attrib["y"]) + float(r.attrib["height"]) for _, r in slices if r is not None)
    assert bottom <= float(root.attrib["height"])


def test_names_from_clients_cannot_break_the_drawing() -> None:
    tree = planted(('<script>&"/#', "\"<b>\" = '</svg>\x00' AND c = 1", 0))
    document = svg(Portrait(tree))
    assert '<script>&"/#' in texts(document)
    assert "<script>" not in document

"""What a benchmark says while it runs goes to people: a changing line on terminals alone, remarks everywhere."""

import io
import sys

import pytest

from edgelab.bench.match.report import ERASE_LINE, BenchProgress


class Stream(io.StringIO):
    """Standard error that is a terminal or is not."""

    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


def said(monkeypatch, is_terminal):
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    progress = BenchProgress()
    progress.show("one")
    progress.show("one")
    progress.remark("by the way")
    progress.show("")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("is_terminal", "expected"),
    [
        (False, "by the way\n"),
        (True, f"{ERASE_LINE}one{ERASE_LINE}by the way\n{ERASE_LINE}one{ERASE_LINE}"),
    ],
)
def test_a_line_changes_on_terminals_only(monkeypatch, is_terminal, expected):
    assert said(monkeypatch, is_terminal) == expected

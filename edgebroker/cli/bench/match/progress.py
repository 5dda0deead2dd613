"""What a long run says on standard error while it lasts."""

from __future__ import annotations

import sys

ERASE_LINE = "\r\x1b[K"


class Progress:
    """One line that changes, on a terminal only; and remarks, everywhere."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown = ""

    def show(self, doing: str) -> None:
        """Replace the line by *doing*; an empty text clears it."""
        if self._is_terminal and doing != self._shown:
            self._shown = doing
            self._stream.write(ERASE_LINE + doing)
            self._stream.flush()

    def remark(self, sentence: str) -> None:
        """Print *sentence* on a line of its own."""
        doing = self._shown
        self.show("")
        self._stream.write(sentence + "\n")
        self._stream.flush()
        self.show(doing)

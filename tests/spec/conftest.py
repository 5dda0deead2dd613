"""What the tests of specifications share."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "clause(*numbers): the sentences of a specification that the test shows")

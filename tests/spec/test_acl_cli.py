"""`edgebroker acl`: a slip in the kind of access."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from click.testing import CliRunner

from edgebroker.cli import main


def test_a_misspelt_kind_of_access_is_put_right(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("topic wirte a/#\n")
    result = CliRunner().invoke(main, ["acl", str(file)])
    assert (result.exit_code, "did you mean 'write'?" in result.stderr) == (1, True)
    file.write_text("topic write a/#\n")
    result = CliRunner().invoke(main, ["acl", str(file), "wirte", "a/b"])
    assert (result.exit_code, result.stderr.endswith("Did you mean 'write'?\n")) == (2, True), result.stderr
    result = CliRunner().invoke(main, ["acl", str(file), "zzz", "a/b"])
    assert (result.exit_code, "you mean" in result.stderr) == (2, False)
    assert CliRunner().invoke(main, ["acl", str(file), "write", "a/b"]).output == "yes\n"


def test_rules_may_come_through_a_pipe(tmp_path: Path) -> None:
    """A shell gives what a command prints so. Settings may name none: they are read again at a reload."""
    file = tmp_path / "rules"
    os.mkfifo(file)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(file.write_text, "topic write a/#\n")
        assert CliRunner().invoke(main, ["acl", str(file), "write", "a/b"]).output == "yes\n"
        assert written.result() > 0

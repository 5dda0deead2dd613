"""Without an extra, the command that needs it says in one line which, and exits with 2."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "arguments", "extra"),
    [
        ("edgedevices.__main__", "psutil", ["host", "--broker", "127.0.0.1:9"], "sim"),
        ("edgeanalytics.__main__", "pyarrow", ["report", "."], "analytics"),
    ],
)
def test_a_missing_package_is_one_clear_line(module: str, package: str, arguments: list[str], extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from {module} import main; main({arguments!r})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1].count(package) >= 1
    assert f"edgebroker[{extra}]" in ended.stderr
    assert "Traceback" not in ended.stderr

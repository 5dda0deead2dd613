"""Without an extra, the command that needs it says in one line which, and exits with 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgebroker.storage.deliverylog.writer import DeliveryLog


@pytest.mark.parametrize(
    ("module", "package", "arguments", "extra"),
    [
        ("edgedevices.__main__", "psutil", ["host", "--broker", "127.0.0.1:9"], "sim"),
        ("edgeanalytics.__main__", "pyarrow", ["report", "."], "analytics"),
    ],
)
def test_a_missing_package_is_one_clear_line(
    module: str, package: str, arguments: list[str], extra: str, tmp_path: Path
) -> None:
    log = DeliveryLog("gw", "b1")
    log.published(0, "p", 1, 1, "t", 1, 8, 0)
    (tmp_path / "gw.edl").write_bytes(log.header(0, 0) + b"".join(log.take(0, closing=True)))
    program = f"import sys; sys.modules[{package!r}] = None; from {module} import main; main({arguments!r})"
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1].count(package) >= 1
    assert f"edgebroker[{extra}]" in ended.stderr
    assert "Traceback" not in ended.stderr

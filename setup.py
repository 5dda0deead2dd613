"""Compiles the modules listed in pyproject.toml, `[tool.edgebroker] compiled`. Three outcomes:

- default: compiled where Cython and a C compiler work; otherwise, in one line, pure Python;
- EDGEBROKER_PURE=1: pure Python, nothing is tried;
- EDGEBROKER_REQUIRE_EXT=1: compiled, or the build fails (what CI and wheels use).

The version of a build is that of the tag `v0.2.0` at its commit. Any other build is one of development, and newer than
the last release by the time of its commit: 0.2.1.dev20261127062546+g56f877721. Without git, or with changed files, that
is the time of the newest source. An sdist has its version in `edgebroker/__init__.py`, as every build.
"""

import os
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
OUTCOME = ROOT / "build" / "outcome.txt"  # one line for people: pip swallows what a build prints
PURE = os.environ.get("EDGEBROKER_PURE", "") not in ("", "0")
REQUIRED = os.environ.get("EDGEBROKER_REQUIRE_EXT", "") not in ("", "0")
if PURE and REQUIRED:
    sys.exit("EDGEBROKER_PURE and EDGEBROKER_REQUIRE_EXT exclude each other: unset one of them")

CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
FOLDERS = CONFIGURATION["setuptools"]["packages"]["find"]["where"]
# Bounds and wraparound checks are turned off module by module, in the sources that have earned it.
# Annotations stay documentation: a C type is said in the .pxd, where it cannot change what the .py means.
DIRECTIVES = {"language_level": 3, "annotation_typing": False}
# -O3 took a third longer to compile, 8 % more room, and nothing that was measured was quicker by it.
COMPILE_ARGUMENTS = [] if sys.platform == "win32" else ["-O2", "-g0"]

STAMPED = "edgebroker/__init__.py"
SOURCE = "+source"  # ends the version of a tree that is no build and no sdist
TIME = "%Y%m%d%H%M%S"


def constant(name: str) -> str:
    """The text that STAMPED assigns to *name*."""
    found = re.search(rf'^{name} = "(.*)"$', (ROOT / STAMPED).read_text(encoding="utf-8"), re.M)
    if found is None:
        sys.exit(f"{STAMPED} has no {name}")
    return found[1]


def git(*arguments: str) -> str:
    """The output of git about this tree; "" if git, its repository or what is asked for is not there."""
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def version_and_commit() -> tuple[str, str]:
    """What this build is called, and the commit it is made of; "" if nobody knows."""
    version, commit = constant("__version__"), constant("__commit__")
    if not version.endswith(SOURCE):
        return version, commit
    if (ROOT / ".git").exists():  # a copy of the tree may lie in the repository of something else
        commit = git("rev-parse", "--short=9", "HEAD")
    is_changed = bool(git("status", "--porcelain", "--untracked-files=no"))
    if commit and not is_changed and (tags := re.findall(r"^v(\d\S*)$", git("tag", "--points-at", "HEAD"), re.M)):
        return tags[-1], commit
    releases = re.findall(r"^v(\d+)\.(\d+)\.(\d+)$", git("tag", "--merged", "HEAD") if commit else "", re.M)
    major, minor, patch = max(tuple(map(int, one)) for one in [*releases, version.removesuffix(SOURCE).split(".")])
    if commit and not is_changed:
        seconds = float(git("show", "--no-patch", "--format=%ct", "HEAD"))
    else:
        sources = [path for folder in FOLDERS for path in (ROOT / folder).glob("edge*/**/*.p[xy]*")]
        seconds = max(path.stat().st_mtime for path in sources if path.suffix in (".py", ".pyx", ".pxd"))
    local = f"g{commit}{'.changed' if is_changed else ''}" if commit else "unknown"
    return f"{major}.{minor}.{patch + 1}.dev{datetime.fromtimestamp(seconds, UTC):{TIME}}+{local}", commit


VERSION, COMMIT = version_and_commit()


def stamp(file: Path) -> None:
    """Write version and commit into *file*, a copy of STAMPED, which may be a hard link."""
    text = file.read_text(encoding="utf-8")
    for name, value in (("__version__", VERSION), ("__commit__", COMMIT)):
        text = re.sub(rf'^{name} = ".*"$', f'{name} = "{value}"', text, flags=re.M)
    file.unlink()
    file.write_text(text, encoding="utf-8")


def extension(path: str) -> Extension:
    """bridge/edgebridge/wire/head.py -> the extension module edgebridge.wire.head; a .pyx likewise."""
    if not (ROOT / path).is_file():
        sys.exit(f"pyproject.toml lists {path} as compiled, but there is no such file")
    parts = Path(path).with_suffix("").parts
    name = ".".join(parts[1:] if parts[0] in FOLDERS else parts)
    return Extension(name, [path], extra_compile_args=COMPILE_ARGUMENTS)


def extensions_in_place() -> list[Path]:
    """The extension modules that an earlier editable build left beside their sources."""
    packages = [path.parent for folder in FOLDERS for path in (ROOT / folder).glob("edge*/__init__.py")]
    return [found for package in packages for found in package.rglob("*") if found.suffix in (".so", ".pyd")]


def say(outcome: str) -> None:
    """Print the outcome and leave it where `make setup` finds it."""
    print(f"edgebroker: {outcome}", file=sys.stderr)
    OUTCOME.parent.mkdir(exist_ok=True)
    OUTCOME.write_text(outcome + "\n", encoding="utf-8")


class BuildPython(build_py):
    """An editable build starts without the last one's extensions: a pure build would go on running them."""

    def run(self) -> None:
        if self.editable_mode:
            for path in extensions_in_place():
                path.unlink()
        say(f"pure Python, as asked: {constant('PURE_COSTS')}" if PURE else "compiled")
        super().run()
        if not self.editable_mode:
            stamp(Path(self.build_lib, STAMPED))


class SourceDistribution(sdist):
    """Has the version in it: who builds from it has no git."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        stamp(Path(base_dir, STAMPED))


class BuildExtensions(build_ext):
    """All extensions or none: they share C types, so one that is missing makes the others useless."""

    def run(self) -> None:
        planned = list(self.extensions)
        try:
            self.cythonize()
            super().run()
        except Exception as error:
            if REQUIRED:
                raise
            for ext in planned:
                Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            if wheel := self.distribution.get_command_obj("bdist_wheel", create=False):
                wheel.root_is_pure = True  # py3-none-any: what has nothing compiled in it runs everywhere
            say(f"pure Python, because compiling failed: {reason}")
            say(f"pure Python: {constant('PURE_COSTS')}")

    def cythonize(self) -> None:
        from Cython.Build import cythonize

        ready = cythonize(
            self.extensions,
            compiler_directives=DIRECTIVES,
            build_dir=str(ROOT / "build" / "cython"),
            include_path=FOLDERS,
            quiet=True,
            nthreads=os.cpu_count() or 1,
        )
        for planned, translated in zip(self.extensions, ready, strict=True):
            planned.sources = translated.sources
        self.parallel = os.cpu_count()


setup(
    version=VERSION,
    ext_modules=[] if PURE else [extension(path) for path in CONFIGURATION["edgebroker"]["compiled"]],
    cmdclass={"build_py": BuildPython, "build_ext": BuildExtensions, "sdist": SourceDistribution},
)

"""Compiles the modules listed in pyproject.toml, `[tool.edgebroker] compiled`. Three outcomes:

- default: compiled where Cython and a C compiler work; otherwise, in one line, pure Python;
- EDGEBROKER_PURE=1: pure Python, nothing is tried;
- EDGEBROKER_REQUIRE_EXT=1: compiled, or the build fails (what CI and wheels use).
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

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
        say("pure Python, as asked" if PURE else "compiled")
        super().run()


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
            say(f"pure Python, because compiling failed: {reason}")

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
    ext_modules=[] if PURE else [extension(path) for path in CONFIGURATION["edgebroker"]["compiled"]],
    cmdclass={"build_py": BuildPython, "build_ext": BuildExtensions},
)

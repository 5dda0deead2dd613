"""A copy of this tree without any compiled module in it: what runs there is pure Python by construction.

python tools/puretree.py FOLDER     copy the tree to FOLDER, which is replaced
python tools/puretree.py --kind     say what this tree runs as: compiled or pure
python tools/puretree.py --path     this tree's folders of packages, as PYTHONPATH wants them
"""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [ROOT, ROOT / "bridge", ROOT / "firmware-sim", ROOT / "analytics"]
LEFT_OUT = (".git", ".venv", "build", "dist", "*.so", "*.pyd", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info")


def kind() -> str:
    """`compiled` if an extension module lies beside its source; setup.py builds all of them or none."""
    packages = [path.parent for folder in FOLDERS for path in folder.glob("edge*/__init__.py")]
    compiled = any(path.suffix in (".so", ".pyd") for package in packages for path in package.rglob("*"))
    return "compiled" if compiled else "pure"


def copy_to(target: Path) -> None:
    """Make *target* a copy of this tree without what was compiled."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT_OUT))


match sys.argv[1:]:
    case ["--kind"]:
        print(kind())
    case ["--path"]:
        print(os.pathsep.join(map(str, FOLDERS)))
    case [folder] if not folder.startswith("-"):
        copy_to(Path(folder).resolve())
    case _:
        sys.exit(__doc__)

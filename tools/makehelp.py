"""Prints the targets of a Makefile that carry a `##` comment: what `make help` shows."""

import re
import sys
from pathlib import Path

for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    if found := re.match(r"([a-z-]+):.*## (.*)", line):
        print(f"make {found[1]:<10} {found[2]}")

#!/usr/bin/env python3
"""Prints requirements from pyproject.toml, one a line: the only place where they are written.

Groups: `build` (what a build without isolation needs), `run` (what singa imports), and the extras
`train`, `test`, `dev`; `torch` is the version of PyTorch that the tests compare with.
"""

import sys
import tomllib
from pathlib import Path

# Pinned, and no extra: a plain `torch` brings several gigabytes of CUDA along.
TORCH = ["torch==2.13.0"]


def main(groups: list[str]) -> int:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    known = {
        "build": project["build-system"]["requires"],
        "run": project["project"]["dependencies"],
        "torch": TORCH,
        **project["project"]["optional-dependencies"],
    }
    unknown = [group for group in groups if group not in known]
    if not groups or unknown:
        print(f"usage: requirements.py GROUP...   groups: {' '.join(known)}", file=sys.stderr)
        return 2
    for requirement in sorted({line for group in groups for line in known[group]}):
        print(requirement)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

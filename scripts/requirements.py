#!/usr/bin/env python3
"""Prints requirements from pyproject.toml, one per line.

Groups: `build` (for a build without isolation), `run` (packages that singa imports), the extras
`train`, `test`, `browser` and `dev`, the versions that tests compare with: `torch` (PyTorch,
torchvision and timm) and `trainers` (transformers and Lightning), and `array_api`, what the tests
of that standard need.
"""

import sys
import tomllib
from pathlib import Path

# Pinned, and not an extra, because plain `torch` installs several gigabytes of CUDA.
TORCH = ["torch==2.13.0", "torchvision==0.28.0", "timm==1.0.31"]
# The version of hypothesis decides which calls are drawn.
ARRAY_API = ["hypothesis==6.170.17", "ndindex==1.10.1", "pytest-json-report==1.5.0"]
TRAINERS = ["accelerate==1.15.0", "lightning==2.6.6", "transformers==5.24.0"]


def main(groups: list[str]) -> int:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)
    known = {
        "build": project["build-system"]["requires"],
        "run": project["project"]["dependencies"],
        "array_api": ARRAY_API,
        "torch": TORCH,
        "trainers": TRAINERS,
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

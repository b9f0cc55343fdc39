#!/usr/bin/env python3
"""Trains accelerated networks under the trainers of other libraries, beside PyTorch.

    PYTHONPATH=build/ci/python python scripts/torch_trainers.py [--timm train.py] [--seeds 20]

Lightning's and transformers' trainers run, and with --timm the script of timm's repository. Each
trains the same network in PyTorch, accelerated, and several times in PyTorch with other rounding:
in channels_last, and with each weight off by at most a unit of its last place. The script prints
the losses of all steps and evaluations, the largest difference between singa and PyTorch, and the
largest one between PyTorch's own runs. The exit status is 1 if singa's is above that.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1] / "test" / "python" / "support" / "pytorch")
)


def main() -> int:
    import torch_trainers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timm", type=Path, help="train.py of timm's repository")
    parser.add_argument("--seeds", type=int, default=20, help="of rounding")
    options = parser.parse_args()
    trainers: dict[str, Callable[..., list[float]]] = {
        "Lightning": torch_trainers.with_lightning,
        "transformers, ResNet": torch_trainers.with_transformers,
        "transformers, GPT-2": functools.partial(torch_trainers.with_transformers, name="gpt2"),
    }
    if options.timm:
        trainers["timm"] = functools.partial(torch_trainers.with_timm, script=options.timm)
    failed = 0
    for name, train in trainers.items():
        wanted, found, noise = torch_trainers.compared(train, options.seeds)
        error = max(abs(a - b) for a, b in zip(wanted, found, strict=True))
        print(name, "PyTorch:", *[f"{loss:.7f}" for loss in wanted])
        print(name, "singa:  ", *[f"{loss:.7f}" for loss in found])
        print(f"{name}: singa differs by {error:.2g}, PyTorch by {noise:.2g}", flush=True)
        failed += error > noise
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

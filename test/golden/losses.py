"""Prints the first 20 losses of seven networks.

    python test/golden/losses.py [MODEL...]                  # all seven, without names
    python test/golden/losses.py --steps 5 vgg16             # only five
    python test/golden/losses.py --add COMMIT [MODEL...]     # also adds an entry to losses.json

The last line is JSON: {model: [20 losses as float.hex()]}. The line before it describes the
processor: the same processor, cache, instruction set and oneDNN give the same bits. The
environment variable ONEDNN_MAX_CPU_ISA limits the instruction set.

Training is in float32, with one thread, recorded steps and the default implementations. Each step
gets the same batch. Learning rates are so small that rounding changes losses by less than 1e-4,
and so large that training lowers them by more than a hundred times that.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # before singa is imported, because it reads each of them once
    os.environ |= {"OMP_NUM_THREADS": "1", "SINGA_PREFER": "fastest", "SINGA_LAYOUT": "auto"}

import numpy as np
import singa
from singa import models, opt, tensor

ENTRIES = Path(__file__).with_name("losses.json")
STEPS = 20
#: {network: (images of a batch, learning rate)}
MODELS = {
    "lenet": (16, 1e-2),
    "resnet20_cifar": (16, 3e-4),
    "resnet18_cifar": (16, 3e-5),
    "vgg16_cifar": (16, 3e-7),
    "alexnet": (4, 5e-4),
    "resnet50": (4, 3e-9),  # its gradients are large at first, and grow with each block
    "vgg16": (4, 5e-6),
}


def processor() -> dict[str, str]:
    """What the bits of losses depend on, besides singa's code."""
    report = singa.doctor()
    cache = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    onednn = _onednn(report["onednn"][0]) if isinstance(report["onednn"], list) else "no oneDNN"
    return {
        "processor": str(report["cpu"]),
        "cache": cache.read_text().strip() if cache.exists() else "",
        "isa": f"{' '.join(report['isa'])}, {onednn}{_build()}",
    }


def _build() -> str:
    """How the library was built, unless for speed: the compiler then orders sums otherwise."""
    kind = getattr(singa._version, "BUILD_TYPE", "Release")  # earlier versions do not say
    return "" if kind == "Release" else f", {kind}"


def _onednn(path: str) -> str:
    """oneDNN's version, and the number of the instruction set that it and singa use, which
    ONEDNN_MAX_CPU_ISA limits."""
    library = ctypes.CDLL(path)
    library.dnnl_version.restype = ctypes.POINTER(ctypes.c_int)
    version = ".".join([str(number) for number in library.dnnl_version()[:3]])
    return f"oneDNN {version} isa {library.dnnl_get_effective_cpu_isa()}"


def batch(shape: Sequence[int], classes: int) -> tuple[tensor.Tensor, tensor.Tensor]:
    """Images of mean 0 and variance 1, and their classes. RandomState's numbers never change."""
    images = (np.random.RandomState(0).random_sample(shape) * 2 - 1) * 3**0.5
    labels = np.arange(shape[0]) * 7 % classes
    return tensor.from_numpy(images.astype(np.float32)), tensor.from_numpy(labels.astype(np.int32))


def losses(name: str, steps: int = STEPS) -> list[float]:
    """The first losses of a network."""
    images, rate = MODELS[name]
    singa.seed(0)
    net = models.create(name)
    net.set_optimizer(opt.SGD(lr=rate, momentum=0.9))
    x, y = batch((images, *net.image_shape), net.num_classes)
    net.compile([x], is_train=True, use_graph=True)
    return [float(net(x, y)[1].item()) for _ in range(steps)]


def add(commit: str, found: dict[str, list[str]]) -> None:
    """Adds losses to the entry of this processor and commit."""
    entries = json.loads(ENTRIES.read_text()) if ENTRIES.exists() else []
    key = {**processor(), "commit": commit}
    for entry in entries:
        if key.items() <= entry.items():
            entry["losses"] |= found
            break
    else:
        entries.append({**key, "losses": found})
    ENTRIES.write_text(json.dumps(entries, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the first 20 losses of networks.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--add", metavar="COMMIT", help="also add an entry to losses.json")
    parser.add_argument("--steps", type=int, default=STEPS, help="losses to print [%(default)s]")
    arguments = parser.parse_args()
    if arguments.add and arguments.steps != STEPS:
        parser.error(f"--add needs all {STEPS} losses")
    if unknown := sorted(set(arguments.models) - set(MODELS)):
        parser.error(f"no network {unknown[0]!r}; there are {', '.join(MODELS)}")
    warnings.simplefilter("error")  # such as that of a step that is not recorded
    found = {}
    for name in arguments.models or MODELS:
        began = time.monotonic()
        numbers = losses(name, arguments.steps)
        print(f"{name}: {time.monotonic() - began:.1f} s,", *[f"{loss:.5f}" for loss in numbers])
        found[name] = [loss.hex() for loss in numbers]
    if arguments.add:
        add(arguments.add, found)
    print(json.dumps(processor()))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

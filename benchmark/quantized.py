#!/usr/bin/env python3
"""Memory and time of a quantised ResNet-20, in singa and in ONNX Runtime, in processes run in turn.

    python benchmark/quantized.py --batches 1 64 256

The weights are random. Each side runs the file of int8 that `Model.quantize` writes, and the float
file. "MiB" is the peak of the process less what the process had before it loaded the file, "ms" the
median over the batches of a process, minimum over the processes. Needs `onnx` and `onnxruntime`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import numpy as np

FILES = ("int8", "float")


def prepare(folder: Path) -> None:
    """Writes both files."""
    import singa.onnx
    from singa import device, models, tensor

    device.get_default_device().SetRandSeed(0)
    random = np.random.default_rng(0)
    samples = [tensor.from_numpy(_images(random, 64)) for _ in range(2)]
    network = models.create("resnet20_cifar")
    network.compile([samples[0]], is_train=False, use_graph=False)
    network.eval()
    network.quantize(samples, folder / "int8.onnx")
    axes = {"x": {0: "batch"}}
    singa.onnx.save(network, folder / "float.onnx", samples[:1], dynamic_axes=axes)


def _images(random: Any, batch: int) -> Any:
    return random.standard_normal((batch, 3, 32, 32)).astype(np.float32)


def singa_side(file: Path, images: Any) -> Callable[[], Any]:
    import singa.onnx
    from singa import tensor

    network, x = singa.onnx.load(file), tensor.from_numpy(images)
    network.compile([x], is_train=False, use_graph=True)
    return lambda: network(x).numpy()


def runtime_side(file: Path, images: Any) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: images}
    return lambda: session.run(None, given)[0]


#: What makes the function that computes a batch, and the modules that are loaded before.
SIDES: dict[str, Any] = {
    "singa": (singa_side, "import onnx.reference, singa.onnx"),
    "onnxruntime": (runtime_side, "import onnxruntime"),
}


def peak() -> float:
    """The most memory this process had, in MiB. (ru_maxrss begins with that of the parent.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def child(side: str, file: Path, batch: int, seconds: float) -> dict[str, float]:
    start, imports = SIDES[side]
    exec(imports)
    images = _images(np.random.default_rng(1), batch)
    before = peak()
    run = start(file, images)
    for _ in range(4):  # plans, and the recording of a step
        run()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return {"ms": 1e3 * statistics.median(times), "mib": peak() - before, "process": peak()}


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64, 256])
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds measured per process")
    parser.add_argument("--rounds", type=int, default=2, help="processes per side")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child, args.file, args.batches[0], args.seconds)))
        return
    print(f"{harness.cpu_name()}, 1 thread")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for batch in args.batches:
            common = [sys.executable, __file__, "--batches", str(batch)]
            common += ["--seconds", str(args.seconds)]
            sides = {
                f"{side} {file}": harness.Side(
                    [*common, "--child", side, "--file", f"{folder}/{file}.onnx"]
                )
                for side in SIDES
                for file in FILES
            }
            for name, run in harness.alternate(sides, args.rounds).items():
                figures = {key: f"{run[key]:.1f}" for key in ("ms", "mib", "process")}
                rows.append({"batch": str(batch), "side": name, **figures})
    print(harness.table(rows))


if __name__ == "__main__":
    main()

"""A call of each family that spot checks sample, and the table of what they find.

    PYTHONPATH=build/release/python python test/python/support/calls/spot_calls.py [cpu|gpu]

prints for each family and each wrong kernel (test/wrong_kernels) the run at which it is found,
without OPCHECK.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import replay_calls
from replay_calls import ALWAYS, LAST_CORNER, MIDDLE

GPU = replay_calls.LIBRARY.with_name("libsinga_cuda_emulated.so")
# What programs of these calls begin with, on each device.
BEGIN = """
import json, os, sys
import numpy as np
import singa
from singa import autograd, layer, model, opt, singa_wrap as wrap, tensor
from replay_calls import add_wrong_kernels, bfloat16, integers, make, spoil_kernels

def results(call):
    found = eval(call)
    found = found if isinstance(found, (tuple, list)) else [found]
    return [tensor.from_raw_tensor(t.AsType(wrap.kFloat32)).numpy() for t in found if t is not None]

"""
ON_CPU = "kind = wrap.DeviceKind_kCpu\n"
ON_GPU = """
kind, gpu = wrap.DeviceKind_kCuda, singa.device.create_cuda_gpu()
singa.device.set_default_device(gpu)
def make(*shape, on_cpu=make, **options):
    return on_cpu(*shape, **options).ToDevice(gpu)
def bfloat16(*shape):
    return make(*shape).AsType(wrap.kBFloat16)
"""

# An operation of each family of the table of docs/how_it_works/spot_checks.md, with its Spec.
CONV = "wrap.ConvHandle(make(2, 16, 6, 6), [3, 3], [1, 1], [1, 1], 16, 20)"
TRANSPOSED = (
    "wrap.ConvTransposeHandle(make(2, 5, 4, 4), [3, 3], [2, 2], [1, 1], [1, 1], 5, 6, True)"
)
POOLING = "wrap.PoolingHandle(make(2, 5, 6, 6), [3, 3], [2, 2], [1, 1], False)"
MAXIMUM = "wrap.PoolingHandle(make(2, 5, 6, 6), [3, 3], [2, 2], [1, 1], True)"
BYTES = "integers(2, 4, 5, 5, most=200, dtype='uint8'), integers(6, 4, 3, 3, dtype='int8')"
CALLS = {
    "convolution": (
        "ConvSpec",
        f"wrap.ConvForward(make(2, 16, 6, 6), make(20, 16, 3, 3, seed=1), make(20), {CONV})",
    ),
    "convolution with addition and ReLU": (
        "ConvSpec",
        f"wrap.ConvForward(make(2, 16, 6, 6), make(20, 16, 3, 3, seed=1), make(20), {CONV},"
        " make(2, 20, 6, 6), True)",
    ),
    "convolution in 16 bits": (
        "ConvSpec",
        f"wrap.ConvForward(bfloat16(2, 16, 6, 6), bfloat16(20, 16, 3, 3), bfloat16(20), {CONV})",
    ),
    "gradient of an image": (
        "ConvSpec",
        f"wrap.ConvBackwardX(make(2, 20, 6, 6), make(20, 16, 3, 3, seed=1), {CONV})",
    ),
    "gradient of a filter": (
        "ConvSpec",
        f"wrap.ConvBackwardW(make(2, 20, 6, 6), make(2, 16, 6, 6, seed=1), {CONV})",
    ),
    "gradient of a bias": ("ConvSpec", f"wrap.ConvBackwardB(make(2, 20, 6, 6), {CONV})"),
    "transposed convolution": (
        "ConvTransposeSpec",
        f"wrap.ConvTransposeForward(make(2, 5, 4, 4), make(5, 6, 3, 3, seed=1), make(6),"
        f" {TRANSPOSED})",
    ),
    "gradients of a transposed convolution": (
        "ConvTransposeSpec",
        f"wrap.ConvTransposeBackward(make(2, 6, 8, 8), make(2, 5, 4, 4), make(5, 6, 3, 3),"
        f" {TRANSPOSED}, True, True, True)",
    ),
    "product": ("MatMulSpec", "wrap.MatMul(make(3, 4, 5), make(5, 6, seed=1))"),
    "product of transposed matrices": (
        "MatMulSpec",
        "wrap.MatMul(make(2, 5, 4), make(2, 6, 5, seed=1), True, True)",
    ),
    "linear layer": (
        "MatMulSpec",
        "wrap.LinearForward(make(3, 4), make(4, 5, seed=1), make(5), False, True)",
    ),
    "average pooling": ("PoolingForwardSpec", f"wrap.PoolingForward({POOLING}, make(2, 5, 6, 6))"),
    "gradient of average pooling": (
        "PoolingBackwardSpec",
        f"wrap.PoolingBackward({POOLING}, make(2, 5, 3, 3), make(2, 5, 6, 6), None, None)",
    ),
    "maximum pooling": ("PoolingForwardSpec", f"wrap.PoolingForward({MAXIMUM}, make(2, 5, 6, 6))"),
    "softmax": ("SoftmaxSpec", "wrap.Softmax(make(3, 7), 1)"),
    "log softmax": ("SoftmaxSpec", "wrap.LogSoftmax(make(3, 7, 2), 1)"),
    "gradient of softmax": (
        "SoftmaxBackwardSpec",
        "wrap.SoftmaxBackward(make(3, 7, seed=1), make(3, 7), 1)",
    ),
    "LRN": ("LrnForwardSpec", "wrap.LrnForward(make(2, 7, 3, 3), 5)"),
    "LRN that saves": (
        "LrnForwardSpec",
        "wrap.LrnForward(wrap.ToBlocked(make(2, 16, 3, 3)), 5, 1e-4, 0.75, 1.0, True)[0]",
    ),
    "gradient of LRN": (
        "LrnBackwardSpec",
        "wrap.LrnBackward(make(2, 7, 3, 3), make(2, 7, 3, 3, seed=1), None, None, 5, 0.1, 0.75,"
        " 1.0)",
    ),
    "convolution of bytes": (
        "QuantizedConvSpec",
        f"wrap.QuantizedConv({BYTES}, integers(1, dtype='int32'), make(6), make(6),"
        " integers(1, dtype='int32'), wrap.ConvHandle(make(2, 4, 5, 5), [3, 3], [1, 1], [1, 1],"
        " 4, 6), wrap.kUInt8, True)",
    ),
    "product of bytes": (
        "QuantizedMatMulSpec",
        "wrap.QuantizedMatMul(integers(3, 4, most=200, dtype='uint8'),"
        " integers(4, 6, dtype='int8'), integers(1, dtype='int32'), make(6), None, None,"
        " wrap.kFloat32)",
    ),
    "GELU of a product of bytes": (
        "QuantizedMatMulSpec",
        "wrap.QuantizedMatMul(integers(3, 4, most=200, dtype='uint8'),"
        " integers(4, 6, dtype='int8'), None, make(6), make(6, seed=1), None, wrap.kUInt8, False,"
        " True, make(1))",
    ),
    "batch norm": (
        "BatchNormForwardSpec",
        "wrap.BatchNormForwardTraining(wrap.BatchNormHandle(0.1, make(4, 5, 3, 3)),"
        " make(4, 5, 3, 3), make(5, seed=1), make(5, seed=2), make(5), make(5))",
    ),
    "batch norm with given statistics": (
        "BatchNormForwardSpec",
        "wrap.BatchNormForwardInference(wrap.BatchNormHandle(0.1, make(4, 5)), make(4, 5),"
        " make(5, seed=1), None, make(5), make(5))",
    ),
}
#: Families that GPUs have.
ON_GPUS = [family for family in CALLS if "bytes" not in family]
WRONG = {"first corner": ALWAYS, "last corner": LAST_CORNER, "middle": MIDDLE}
RUNS = 64
FIND = """
found = {{}}
for family, (spec, call) in {calls!r}.items():
    add_wrong_kernels(spec, {wrong}, kind)
    before = len(wrap.GetRefusedPlans())
    found[family] = None
    for run in range(1, {runs} + 1):
        results(call)
        if len(wrap.GetRefusedPlans()) > before:
            found[family] = run
            break
print(json.dumps(found))
"""


def result_of(program: str, folder: str | None = None, **environment: str) -> tuple[Any, list[str]]:
    """The JSON object that a program prints last, and its lines on stderr. It runs in `folder`."""
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [str(Path(__file__).parent), *map(os.path.abspath, given)]
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr.splitlines()


def found(where: str, wrong: int) -> dict[str, int | None]:
    """By family, the run in which a kernel that is wrong in this way is found, on "cpu" or "gpu";
    None if it is not."""
    program = FIND.format(
        calls={family: CALLS[family] for family in (ON_GPUS if where == "gpu" else CALLS)},
        wrong=wrong,
        runs=RUNS,
    )
    on = (ON_GPU, str(GPU)) if where == "gpu" else (ON_CPU, "")
    with tempfile.TemporaryDirectory() as folder:  # of replay files
        return result_of(on[0] + program, folder, SINGA_CUDA_LIBRARY=on[1])[0]


def main(where: str) -> None:
    columns = [found(where, wrong) for wrong in WRONG.values()]
    print("| family | " + " | ".join(WRONG) + " |")
    print("|---|" + "---|" * len(WRONG))
    for family in columns[0]:
        cells = [f"run {c}" if (c := column[family]) else "no" for column in columns]
        print(f"| {family} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")

#!/usr/bin/env python3
"""Compares inference with ONNX Runtime, OpenVINO and PyTorch, alternating in child processes.

    python benchmark/inference.py                                # resnet50, resnet20_cifar, lenet
    python benchmark/inference.py --graph --models resnet50 --batches 1
    python benchmark/inference.py --out results/                 # resumable: a file per case
    python benchmark/inference.py --graph --sides singa singa-other --other OLD/build/release/python
    python benchmark/inference.py --graph --models resnet50 lstm --sides singa-onnx onnxruntime
    python benchmark/inference.py --graph --int8 --models resnet50 mobilenet_v2 vit_tiny_16

All sides use the same weights and images, made by PyTorch. Each process first compares its scores
with PyTorch's and fails if they differ. Prints milliseconds per batch (median over the batches of a
process, minimum over the processes), images/s, and the time divided by singa's, which is the time
of singa-onnx without the side singa. "load" is the time from the file to a network that can be
called. Needs PyTorch, and `onnx` for the export, `onnxruntime` and `openvino`; skips sides that are
not installed, and channels_last where there are no images.

singa-onnx imports the ONNX file that the others run; singa has the network from singa.models.
vit_b_16 and lstm are not among these, so they are for all sides but singa.

With --int8 each side runs the file of its own quantizer, made with the same images: singa that of
Model.quantize, onnxruntime and singa-onnx that of onnxruntime.quantization (QDQ, a scale for each
output channel), openvino that of NNCF, where the package nncf is installed. onnxruntime-singa and
openvino-singa run singa's file. Scores may then differ from PyTorch's by INT8_TOLERANCE.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np

#: Shape of an input, and number of classes, of networks that singa.models does not have.
IMPORTED = {"vit_b_16": ((3, 224, 224), 1000), "lstm": ((64, 128), 10)}
#: Largest allowed difference from PyTorch's scores, relative to the largest score.
TOLERANCE = 1e-3
#: The same for int8. It tells a wrong network from a rounded one, and says nothing of accuracy.
INT8_TOLERANCE = 0.5
#: With int8: images from which ranges are measured.
SAMPLES = 32


def prepare(
    model: str, classes: int, image: tuple[int, ...], batch: int, folder: Path, files: set[str]
) -> None:
    """Writes weights, images, PyTorch's scores and these files, among FILES."""
    import torch
    import torch_models

    torch.manual_seed(0)
    network = torch_models.create(model, classes)

    def random_inputs(count: int) -> torch.Tensor:
        """Images, or tokens for inputs of one axis."""
        if len(image) == 1:
            return torch.randint(0, classes, (count, *image), dtype=torch.int32)
        return torch.randn(count, *image)

    with torch.no_grad():
        for name, value in network.named_parameters():
            if name == "heads.head.weight":  # torchvision's ViT begins with zeros
                value.normal_(std=0.02)
        for _ in range(3):  # running statistics of real activations, as after training
            network(random_inputs(max(8, min(batch, 32))))
    network.eval()
    x = random_inputs(batch)
    with torch.no_grad():
        scores = network(x)
    np.savez(folder / "weights.npz", **{k: v.numpy() for k, v in network.state_dict().items()})
    np.savez(folder / "images.npz", x=x.numpy(), scores=scores.numpy())
    if files:
        torch.onnx.export(network, (x,), str(folder / "model.onnx"), dynamo=False)
    batches = [random_inputs(batch).numpy() for _ in range(max(1, SAMPLES // batch))]
    for file in files & FILES.keys():
        FILES[file](model, folder, file, batches)


def quantize_by_singa(model: str, folder: Path, file: str, batches: Sequence[np.ndarray]) -> None:
    from singa import models, tensor

    network = models.create(model)
    network.compile([tensor.from_numpy(batches[0])], is_train=False)
    with np.load(folder / "weights.npz") as weights:
        network.load_torch(dict(weights))
    network.eval()
    network.quantize(batches, folder / file, tolerance=float("inf"))  # all layers, as the others do


def quantize_by_onnxruntime(
    model: str, folder: Path, file: str, batches: Sequence[np.ndarray]
) -> None:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, optimized = str(folder / "model.onnx"), str(folder / "optimized.onnx")
    session = onnxruntime_session(source)
    rest = iter([{session.get_inputs()[0].name: batch} for batch in batches])

    class Samples(CalibrationDataReader):
        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(rest, None)

    quant_pre_process(source, optimized, skip_symbolic_shape=True)
    quantize_static(
        optimized,
        str(folder / file),
        Samples(),
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def quantize_by_nncf(model: str, folder: Path, file: str, batches: Sequence[np.ndarray]) -> None:
    import nncf
    import openvino

    network = openvino.Core().read_model(folder / "model.onnx")
    network = nncf.quantize(network, nncf.Dataset(batches), subset_size=len(batches))
    openvino.save_model(network, folder / file, compress_to_fp16=False)


#: Who writes quantized files, whose names begin with that of the package.
FILES: dict[str, Callable[[str, Path, str, Sequence[np.ndarray]], None]] = {
    "singa-int8.onnx": quantize_by_singa,
    "onnxruntime-int8.onnx": quantize_by_onnxruntime,
    "nncf-int8.xml": quantize_by_nncf,
}


Step = Callable[[], np.ndarray]  # returns scores


def singa_step(network: Any, images: Any, graph: bool) -> Step:
    from singa import autograd

    network.compile([images], is_train=False, use_graph=graph)

    def step() -> np.ndarray:
        with autograd.no_grad():
            return network(images).numpy()

    return step


def singa_side(args: argparse.Namespace, x: np.ndarray) -> tuple[Step, str]:
    import singa
    from singa import models, tensor

    singa.set_num_threads(args.threads)
    network = models.create(args.model)
    step = singa_step(network, tensor.from_numpy(x), args.graph)
    with np.load(Path(args.folder, "weights.npz")) as weights:
        network.load_torch(dict(weights))
    return step, singa.__version__


def singa_onnx_side(args: argparse.Namespace, x: np.ndarray) -> tuple[Step, str]:
    import singa
    from singa import onnx, tensor

    singa.set_num_threads(args.threads)
    network = onnx.load(Path(args.folder, args.file))
    return singa_step(network, tensor.from_numpy(x), args.graph), singa.__version__


def onnxruntime_session(file: str, threads: int = 1) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def onnxruntime_side(args: argparse.Namespace, x: np.ndarray) -> tuple[Step, str]:
    import onnxruntime

    session = onnxruntime_session(f"{args.folder}/{args.file}", args.threads)
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})[0], onnxruntime.__version__


def openvino_side(args: argparse.Namespace, x: np.ndarray) -> tuple[Step, str]:
    import openvino

    options = {
        "INFERENCE_NUM_THREADS": args.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    network = core.read_model(f"{args.folder}/{args.file}")
    network.reshape(x.shape)  # singa's file takes any batch
    compiled = core.compile_model(network, "CPU", options)
    request = compiled.create_infer_request()
    return lambda: request.infer([x], share_inputs=True)[0], openvino.__version__


def torch_side(args: argparse.Namespace, x: np.ndarray) -> tuple[Step, str]:
    import torch
    import torch_models

    torch.set_num_threads(args.threads)
    network = torch_models.create(args.model, args.classes).eval()
    with np.load(Path(args.folder, "weights.npz")) as weights:
        network.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
    images = torch.from_numpy(x)
    if args.side == "torch-channels-last":
        network = network.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)

    def step() -> np.ndarray:
        with torch.inference_mode():
            return network(images).numpy()

    return step, torch.__version__


class Side(NamedTuple):
    """What makes the step of a side, and the modules that it imports, which takes no part in the
    time of loading. `file` is the one that it reads, of FILES or PyTorch's export."""

    make: Callable[[argparse.Namespace, np.ndarray], tuple[Step, str]]
    modules: tuple[str, ...]
    file: str = ""

    def is_installed(self) -> bool:
        """Whether the packages are there that run it and that write its file."""
        names = [self.modules[0].split(".")[0]]
        names += [self.file.split("-")[0]] if self.file in FILES else []
        return all(importlib.util.find_spec(name) for name in names)


SIDES = {
    "singa": Side(singa_side, ("singa.models",)),
    "singa-onnx": Side(singa_onnx_side, ("singa.onnx",), "model.onnx"),
    "singa-other": Side(singa_side, ("singa.models",)),
    "onnxruntime": Side(onnxruntime_side, ("onnxruntime",), "model.onnx"),
    "openvino": Side(openvino_side, ("openvino",), "model.onnx"),
    "torch": Side(torch_side, ("torch", "torch_models")),
    "torch-channels-last": Side(torch_side, ("torch", "torch_models")),
}
INT8_SIDES = {
    "singa": Side(singa_onnx_side, ("singa.onnx",), "singa-int8.onnx"),
    "singa-onnx": Side(singa_onnx_side, ("singa.onnx",), "onnxruntime-int8.onnx"),
    "singa-other": Side(singa_onnx_side, ("singa.onnx",), "singa-int8.onnx"),
    "onnxruntime": Side(onnxruntime_side, ("onnxruntime",), "onnxruntime-int8.onnx"),
    "onnxruntime-singa": Side(onnxruntime_side, ("onnxruntime",), "singa-int8.onnx"),
    "openvino": Side(openvino_side, ("openvino",), "nncf-int8.xml"),
    "openvino-singa": Side(openvino_side, ("openvino",), "singa-int8.onnx"),
}


def sides_of(int8: bool) -> dict[str, Side]:
    return INT8_SIDES if int8 else SIDES


def child(args: argparse.Namespace) -> dict:
    """Measures a side. args: side, file, model, classes, folder, threads, seconds, graph, int8."""
    from singa import bench

    with np.load(Path(args.folder, "images.npz")) as arrays:
        x, scores = arrays["x"], arrays["scores"]
    side = sides_of(args.int8)[args.side]
    for module in side.modules:
        importlib.import_module(module)
    start = time.perf_counter()
    step, version = side.make(args, x)
    load = time.perf_counter() - start
    difference = float(np.abs(step() - scores).max() / np.abs(scores).max())
    if not difference <= (INT8_TOLERANCE if args.int8 else TOLERANCE):
        raise SystemExit(f"{args.side}: scores differ from PyTorch's by {difference:.2g}")
    start = time.perf_counter()
    count = 0
    while count < 3 or time.perf_counter() - start < args.seconds / 4:  # warm
        step()
        count += 1
    each = (time.perf_counter() - start) / count
    figures = bench.measure(step, max(5, int(args.seconds / each)))
    return {**figures, "load_ms": load * 1e3, "difference": difference, "version": version}


def compare(model: str, batch: int, args: argparse.Namespace) -> dict:
    from singa import models

    if model in IMPORTED:
        shape, classes = IMPORTED[model]
    else:
        network = models.create(model)
        shape, classes = network.image_shape, network.num_classes
    given = {name: getattr(args, name) for name in ("threads", "seconds", "graph", "int8")}
    with tempfile.TemporaryDirectory() as folder:
        files = {side: sides_of(args.int8)[side].file for side in args.sides}
        prepare(model, classes, shape, batch, Path(folder), {*files.values()} - {""})
        given |= {"model": model, "classes": classes, "folder": folder}
        sides = {
            side: harness.Side(
                harness.command(__file__, side=side, file=files[side], **given),
                {"PYTHONPATH": str(args.other)} if side == "singa-other" else None,
            )
            for side in args.sides
            if not (model in IMPORTED and side in ("singa", "singa-other"))
            and not (len(shape) != 3 and side == "torch-channels-last")
        }
        results = harness.alternate(
            sides, args.rounds, lambda text: print(f"  {model} {batch} {text}", file=sys.stderr)
        )
    return {
        "model": model,
        "batch": batch,
        "threads": args.threads,
        "graph": args.graph,
        "int8": args.int8,
        "cpu": harness.cpu_name(),
        "sides": results,
    }


def rows(result: dict) -> list[dict[str, str]]:
    ours = result["sides"].get("singa") or result["sides"].get("singa-onnx")
    return [
        {
            "model": result["model"],
            "batch": result["batch"],
            "side": f"{side} {r['version']}",
            "ms": f"{r['ms']:.3f}",
            "images/s": f"{result['batch'] / r['ms'] * 1e3:.1f}",
            "load ms": f"{r['load_ms']:.0f}" if "load_ms" in r else "",
            "difference": f"{r['difference']:.1e}",
            "side / singa": f"{r['ms'] / ours['ms']:.2f}" if ours else "",
        }
        for side, r in result["sides"].items()
    ]


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument(
        "--models", nargs="+", default=["resnet50", "resnet20_cifar", "lenet"], metavar="NAME"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument(
        "--sides", nargs="+", choices={**SIDES, **INT8_SIDES}, help="default: all installed ones"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds measured per process")
    parser.add_argument("--rounds", type=int, default=2, help="processes per side")
    parser.add_argument(
        "--graph", action="store_true", help="compile singa's model with use_graph=True"
    )
    parser.add_argument("--int8", action="store_true", help="quantized networks")
    parser.add_argument(
        "--out", type=Path, help="folder for JSON files; runs in it are not repeated"
    )
    parser.add_argument(
        "--other", type=Path, help="folder `python` of another build, for singa-other"
    )
    args = parser.parse_args()
    sides = sides_of(args.int8)
    if not args.sides:
        args.sides = [
            s for s in sides if (s != "singa-other" or args.other) and sides[s].is_installed()
        ]
    if unknown := set(args.sides) - sides.keys():
        without = "with" if args.int8 else "without"
        parser.error(f"there are no sides {sorted(unknown)} {without} --int8")
    from singa import models

    names = [*models.names(), *(() if args.int8 else IMPORTED)]
    if unknown := set(args.models) - set(names):
        parser.error(f"unknown model {sorted(unknown)}; there are {' '.join(names)}")
    print(f"{harness.cpu_name()}, {args.threads} threads")
    everything = []
    for model in args.models:
        for batch in args.batches:
            mode = ("int8-" if args.int8 else "") + ("graph" if args.graph else "eager")
            file = args.out / f"inference-{model}-{batch}-{mode}.json" if args.out else None
            if file and file.exists():
                result = json.loads(file.read_text())
            else:
                result = compare(model, batch, args)
                if file:
                    harness.save(file, result)
            everything += rows(result)
    print(harness.table(everything))


if __name__ == "__main__":
    harness.main(main, child)

#!/usr/bin/env python3
"""Looks at an ONNX file: contents, results between nodes, implementations, reorders and times.

    python explore.py net.onnx
    python explore.py net.onnx --batch 8 --size 224 --top 20
    python explore.py                            a small network that the script makes

Lengths that the file leaves open are --batch for the first axis of an input, and --size for the
others. `python -m singa onnx FILE --check` compares the outputs with those of ONNX Runtime.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import singa
import singa.onnx
from singa import layer, tensor
from singa.onnx.inspect import Report, inspect
from singa.training.program import at_least, reporting_errors

PROG = "python explore.py"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog=PROG, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    count = at_least(1, int)
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="an ONNX file")
    parser.add_argument("--batch", type=count, default=2, metavar="N", help="[%(default)s]")
    parser.add_argument("--size", type=count, default=32, metavar="N", help="[%(default)s]")
    parser.add_argument(
        "--top", type=count, default=10, metavar="N", help="rows of each table [%(default)s]"
    )
    return parser.parse_args(argv)


def small_network(path: Path) -> None:
    """Writes a network of convolutions, batch norm and a linear layer."""
    net = layer.Sequential(
        layer.Conv2d(16, 3, padding=1, bias=False),
        layer.BatchNorm2d(),
        layer.ReLU(),
        layer.MaxPool2d(2),
        layer.Conv2d(32, 3, padding=1),
        layer.ReLU(),
        layer.Flatten(),
        layer.Linear(10),
    )
    x = tensor.Tensor((2, 3, 32, 32))
    net(x)
    singa.onnx.save(net, path, [x], input_names=["x"], dynamic_axes={"x": {0: "batch"}})


def inputs_of(report: Report, batch: int, size: int) -> list[tensor.Tensor]:
    """Random inputs. Raises ValueError for one whose shape or type is not known."""
    random = np.random.default_rng(0)
    found = []
    for name in report.graph.inputs:
        declared = report.graph.types.get(name)
        if declared is None or declared.shape is None or declared.type is None:
            raise ValueError(f"the shape or type of input {name!r} is not known")
        shape = [
            n if isinstance(n, int) else size if axis else batch
            for axis, n in enumerate(declared.shape)
        ]
        if declared.type in ("bool", "int32", "int64"):
            array = random.integers(0, 2, shape)
        else:
            array = random.standard_normal(shape)
        found.append(tensor.from_numpy(array, dtype=declared.type))
    return found


def rows_of(table: Sequence[Sequence[Any]]) -> str:
    """A table as text, with aligned columns."""
    rows = [[str(cell) for cell in row] for row in table]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(f"  {line}" for line in lines)


def between(net: Any, report: Report, inputs: Sequence[tensor.Tensor], top: int) -> str:
    """What the first nodes compute: shape, mean, standard deviation and zeros of their results."""
    nodes = [node for node in report.graph.nodes if node.outputs and node.outputs[0]][:top]
    results = net.values(inputs, [node.outputs[0] for node in nodes])
    table: list[Sequence[Any]] = [("node", "operator", "shape", "mean", "std", "zeros")]
    for node, y in zip(nodes, results, strict=True):
        array = y.numpy().astype(np.float64)
        figures = ("-", "-", "-")
        if array.size:
            zeros = f"{(array == 0).mean():.0%}"
            figures = (f"{array.mean():.4g}", f"{array.std():.4g}", zeros)
        table.append((node.name, node.op, tuple(y.shape), *figures))
    return rows_of(table)


def explore(path: Path, args: argparse.Namespace) -> int:
    """Prints what there is to see; returns the exit status."""
    report = inspect(path)
    print(report)
    if report.problems:
        return 1
    net = singa.onnx.load(path)
    inputs = inputs_of(report, args.batch, args.size)
    print(f"\nresults of the first nodes:\n{between(net, report, inputs, args.top)}")

    net.compile(inputs, is_train=False)
    print()
    net.summary()

    print("\nimplementations:")
    table: list[Sequence[Any]] = [("node", "operation", "implementation", "workspace")]
    for entry in singa.explain(net, *inputs)[: args.top]:
        table.append((entry["layer"], entry["op"], entry["implementation"], entry["workspace"]))
    print(rows_of(table))

    singa.layout_report()
    net(*inputs)
    reorders = singa.layout_report(record=False)
    print(f"\n{len(reorders)} reorders")
    for reorder in reorders[: args.top]:
        print(f"  {reorder['layer']}: {reorder['from']} to {reorder['to']}, {reorder['reason']}")

    with singa.profile() as profile:
        net(*inputs)
    print(f"\ntimes of one pass:\n{profile}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit status."""
    args = parse(argv)

    def program() -> int:
        try:
            if args.file is not None:
                return explore(args.file, args)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "small.onnx"
                small_network(path)
                return explore(path, args)
        except ImportError as error:
            raise ValueError(error) from None

    return reporting_errors(PROG, program)


if __name__ == "__main__":
    sys.exit(main())

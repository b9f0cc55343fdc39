"""Compares singa with ONNX Runtime: what is about to be saved, and what was loaded."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.errors import UnsupportedError
from ..tensor import Tensor
from .errors import ExportError
from .specification import all_nodes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

#: Largest difference of floats, as a part of the largest number of an output.
_BOUNDS = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-6}
#: The same for models with quantised values: a value between two steps may go to either of them.
_QUANTIZED_BOUND = 5e-2
#: Rounding that ONNX Runtime is allowed where singa reads the same from the file: its functions,
#: such as Sigmoid, have errors of some units of the type's precision at 1, however small they are.
_ROUNDINGS = 64
#: Largest part of integers and truth values that may differ: a rounded number may lie between two.
_MOST_DIFFERENT = 0.01


def is_installed() -> bool:
    """Whether ONNX Runtime can be imported. It is not loaded."""
    return importlib.util.find_spec("onnxruntime") is not None


def require_runtime() -> None:
    """Raises ImportError, with the way to get it, if ONNX Runtime is not installed."""
    if not is_installed():
        raise ImportError("[onnx.save] check=True needs ONNX Runtime: pip install onnxruntime")


class Unchecked(Exception):  # noqa: N818 - it becomes a warning
    """ONNX Runtime cannot run the model. The message says why."""


def runtime_outputs(model: ModelProto, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of a model in ONNX Runtime. Raises Unchecked if it cannot run the model."""
    from onnx import helper

    try:
        run = session(model.SerializeToString())
        names = [value.name for value in run.get_inputs()]
        given = {
            value.name: x.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
            for value, x in zip(model.graph.input, inputs, strict=True)
            if value.name in names
        }
        return list(run.run(None, given))
    except Exception as error:  # it raises errors of many kinds
        raise Unchecked(" ".join(str(error).split())[:300]) from None


def session(model: bytes | str) -> Any:
    """ONNX Runtime's session of a model, its bytes or path. Raises errors of many kinds."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@dataclass
class Comparison:
    """How far an output is from ONNX Runtime's.

    difference  of floats the largest one, relative to the largest finite value, else the part of
                the elements that differ; infinite if `problem` is set
    problem     what cannot be compared: another shape, or a NaN or infinity on one side only
    """

    name: str
    difference: float
    problem: str = ""
    is_part: bool = False

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        if self.is_part:
            return f"{self.name}: {self.difference:.2g} of the elements differ"
        return f"{self.name}: largest difference {self.difference:.2g} of the largest value"


def is_quantized(model: ModelProto) -> bool:
    """Whether a model has quantised values."""
    return any(map(quantizes, {node.op_type for node in all_nodes(model.graph)}))


def quantizes(op: str) -> bool:
    """Whether an operator takes or makes quantised values."""
    return "Quantize" in op or op.endswith("Integer") or op.startswith("QLinear") or op == "QGemm"


def compared(name: str, y: Any, wanted: Any, step: int = 0) -> Comparison:
    """The comparison of an output of singa, a Tensor, array or a list of them, with ONNX Runtime's.
    Integers may differ by `step`."""
    if isinstance(y, list):
        if len(y) != len(wanted):
            problem = f"{len(y)} elements, ONNX Runtime has {len(wanted)}"
            return Comparison(name, math.inf, problem)
        parts = [compared(name, *pair, step) for pair in zip(y, wanted, strict=True)]
        return max(parts, key=lambda part: part.difference, default=Comparison(name, 0.0))
    if tuple(y.shape) != tuple(wanted.shape):
        problem = f"shape {tuple(y.shape)}, ONNX Runtime has {tuple(wanted.shape)}"
        return Comparison(name, math.inf, problem)
    ours = y.numpy() if isinstance(y, Tensor) else y
    if wanted.dtype.kind in "biuOUS":
        differs = ours != wanted
        if step and wanted.dtype.kind in "iu":
            differs = np.abs(ours.astype(np.float64) - wanted) > step
        part = float(np.mean(differs)) if wanted.size else 0.0
        return Comparison(name, part, is_part=True)
    ours, theirs = ours.astype(np.float64), wanted.astype(np.float64)
    for what, marks in (("NaN", np.isnan), ("infinity", np.isinf)):
        for side, here, there in (("singa", ours, theirs), ("ONNX Runtime", theirs, ours)):
            count = int((marks(here) & ~marks(there)).sum())
            if count:
                problem = f"{count} of {ours.size} elements are {what} in {side} only"
                return Comparison(name, math.inf, problem)
    finite, infinite = np.isfinite(theirs), np.isinf(theirs)
    if (ours[infinite] != theirs[infinite]).any():
        return Comparison(name, math.inf, "infinities of different signs")
    largest = float(np.abs(theirs[finite]).max(initial=0)) or 1.0
    gap = np.abs(ours[finite] - theirs[finite])
    return Comparison(name, float(gap.max(initial=0)) / largest)


def compare(
    names: Sequence[str],
    found: Sequence[Any],
    expected: Sequence[NDArray[Any]],
    where: str,
    quantized: bool = False,
    read_again: Callable[[], Sequence[NDArray[Any]]] | None = None,
) -> None:
    """Raises ExportError if an output of ONNX Runtime is not what singa computes. Results of a
    quantized model may differ by some steps. Where all of an output is about as small as rounding,
    it has to be what `read_again` computes from the file."""
    for i, (name, y, wanted) in enumerate(zip(names, found, expected, strict=True)):
        result = compared(f"output {name!r}", wanted, np.asarray(y), int(quantized))
        bound = _BOUNDS.get(wanted.dtype.name, _MOST_DIFFERENT)
        if quantized and not result.is_part:
            bound = max(bound, _QUANTIZED_BOUND)
        if (
            read_again is not None
            and bound < result.difference < math.inf
            and wanted.dtype.name in _BOUNDS
            and np.nanmax(np.abs(y - wanted)) <= _ROUNDINGS * np.finfo(wanted.dtype).eps
        ):
            with contextlib.suppress(UnsupportedError):
                result = compared(f"output {name!r}", wanted, read_again()[i])
        if result.difference > bound:
            raise ExportError(
                f"[onnx.save] {where}, ONNX Runtime computes another output from the file than "
                f"singa: {result}. Nothing was written; check=False writes it all the same"
            )

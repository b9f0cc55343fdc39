"""Runs a model that is about to be saved in ONNX Runtime, and compares it with singa."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ExportError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

#: Largest difference of floats, as a part of the largest number of an output.
_BOUNDS = {"float16": 2e-2, "float32": 2e-3, "float64": 1e-6}
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
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [value.name for value in session.get_inputs()]
        given = {
            value.name: x
            for value, x in zip(model.graph.input, inputs, strict=True)
            if value.name in names
        }
        return list(session.run(None, given))
    except Exception as error:  # it raises errors of many kinds
        raise Unchecked(" ".join(str(error).split())[:300]) from None


def compare(
    names: Sequence[str],
    found: Sequence[NDArray[Any]],
    expected: Sequence[NDArray[Any]],
    where: str,
) -> None:
    """Raises ExportError if an output of ONNX Runtime is not what singa computes."""
    for name, y, wanted in zip(names, found, expected, strict=True):
        why = _difference(np.asarray(y), wanted)
        if why:
            raise ExportError(
                f"[onnx.save] {where}, ONNX Runtime computes another output {name!r} from the "
                f"file than singa: {why}. Nothing was written; check=False writes it all the same"
            )


def _difference(y: NDArray[Any], wanted: NDArray[Any]) -> str:
    if y.shape != wanted.shape:
        return f"shape {y.shape}, and not {wanted.shape}"
    if not y.size:
        return ""
    bound = _BOUNDS.get(y.dtype.name)
    if bound is None:
        different = float(np.mean(y != wanted))
        return f"{different:.1%} of it differs" if different > _MOST_DIFFERENT else ""
    a, b = y.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        special = ~np.isfinite(a) | ~np.isfinite(b)
        if not np.array_equal(a[special], b[special], equal_nan=True):
            return "an infinity or NaN on one side only"
    a, b = a[~special], b[~special]
    error = np.abs(a - b).max(initial=0)
    largest = np.abs(b).max(initial=0)
    return f"they differ by {error:.2g}" if error > bound * max(largest, 1e-6) else ""

"""Readers of operators that onnx's reference evaluator computes, and the choice of a reader.

They are operators that no network repeats often and that have no gradient: choices among boxes, and
texts. So are all others for element types of which singa has no tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtypes import DType
from ...networks.element_types import FLOATS, HELD, is_singas, name_of, numpy_type
from ...networks.errors import Refused
from ...networks.front_end import Compute, Reader
from ...networks.graph import Node, subgraphs
from ..data_types import NAMES, NUMBERS
from ..evaluator import evaluator
from .missing import MISSING
from .registry import find, reads, versions_of

_OPERATORS: dict[str, tuple[int, ...]] = {
    "BitCast": (26,),
    "BitShift": (11, 28),
    **dict.fromkeys(("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"), (18,)),
    "DeformConv": (19, 22),
    "MelWeightMatrix": (17,),
    "NonMaxSuppression": (10, 11),
    "STFT": (17,),
    "StringConcat": (20,),
    "StringNormalizer": (10,),
    "StringSplit": (20,),
    "TensorScatter": (24,),
    "TfIdfVectorizer": (9,),
    "Unique": (11, 28),
}


def _evaluated(node: Node) -> Compute:
    try:
        compute = evaluator(node)
    except Refused:
        raise
    except Exception as error:  # it raises errors of many kinds
        what = " ".join(str(error).split())[:200]
        raise Refused(f"onnx's reference evaluator cannot compute it: {what}") from None

    held = _types_of_held(node)

    def checked(run: Any, *values: Any) -> tuple[Any, ...]:
        values = tuple(
            x.astype(held[i], copy=False) if i in held and isinstance(x, np.ndarray) else x
            for i, x in enumerate(values)
        )
        if node.op == "NonMaxSuppression":
            _check_boxes(node, *values)
        pairs = zip(compute(values), node.output_types, strict=False)
        return tuple(_converted(y, declared.type) for y, declared in pairs)

    return checked


def _converted(y: Any, wanted: str | None) -> Any:
    """Floats in the type to which `load` has converted the network."""
    is_other = wanted in FLOATS and isinstance(y, np.ndarray) and name_of(y) != wanted
    return y.astype(numpy_type(str(wanted))) if is_other and name_of(y) in FLOATS else y


def _types_of_held(node: Node) -> dict[int, np.dtype[Any]]:
    """The types of inputs that may come in tensors of int32 instead, by their number."""
    from onnx import helper

    declared = {i: value.type for i, value in enumerate(node.input_types) if value.type in HELD}
    return {i: helper.tensor_dtype_to_np_dtype(NUMBERS[kind]) for i, kind in declared.items()}


def _check_boxes(node: Node, boxes: Any, scores: Any, *limits: Any) -> None:
    """Raises ValueError for inputs of NonMaxSuppression that ONNX Runtime refuses."""
    what = f"[NonMaxSuppression] node {node.name!r}: boxes {boxes.shape}, scores {scores.shape}"
    fits = boxes.ndim == 3 and scores.ndim == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ValueError(what)
    if any(limit is not None and limit.size != 1 for limit in limits):
        raise ValueError(f"{what}: a threshold has several elements")
    if len(limits) > 1 and limits[1] is not None and not 0.0 <= limits[1].item() <= 1.0:
        raise ValueError(f"{what}: iou_threshold {limits[1].item()} is outside [0, 1]")


for _op, _versions in _OPERATORS.items():
    reads(
        _op,
        *_versions,
        types=NAMES.values(),
        gradient=False,
        evaluated=True,
        sequences=True,
    )(_evaluated)


# The choice of a reader.

#: Operators whose results may have any type although their readers are not evaluated.
_OF_ANY_TYPE = ("If", "Scan", "Range", "ConstantOfShape")


def is_evaluated(node: Node) -> bool:
    """Whether onnx's reference evaluator computes a node."""
    try:
        return choose(node).evaluated
    except Refused:
        return False


def choose(node: Node) -> Reader:
    """The reader of a node. Raises Refused if there is none for it or for its types."""
    reader = find(node.domain, node.op, node.version)
    if reader is None:
        raise Refused(_why_no_reader(node))
    reason = _wrong_type(node, reader) or _wrong_result(node, reader)
    if not reason:
        return reader
    kinds = {value.kind for value in node.input_types if value.kind != "tensor"}
    computable = reader.sequences if kinds == {"sequence"} else not kinds
    computable = computable and not node.domain
    if reader.evaluated or not computable or any(True for _ in subgraphs(node)):
        raise Refused(reason)
    return Reader(
        node.op,
        node.domain,
        reader.versions,
        _evaluated,
        frozenset(NAMES.values()),
        gradient=False,
        evaluated=True,
        sequences=True,
    )


def _why_no_reader(node: Node) -> str:
    if node.domain == "ai.onnx.ml":
        return "singa has no classical models: ONNX Runtime computes them"
    if node.domain not in ("", "com.microsoft"):
        return f"singa has no operators of domain {node.domain!r}"
    there = versions_of(node.domain, node.op)
    if there:
        return f"singa reads versions {', '.join(map(str, there))} of this operator"
    return MISSING.get(node.op, "singa has no such operator")


def _wrong_type(node: Node, reader: Reader) -> str:
    """Why the types of the inputs are refused; empty if they are not."""
    for i, value in enumerate(node.input_types):
        if not node.has(i) or i in reader.host:
            continue
        if value.kind != "tensor" and not (value.kind == "sequence" and reader.sequences):
            return f"input {i} is not a tensor ({value.kind})"
        if value.type not in (None, *reader.types) and not _has_tensors(value.type, reader):
            return f"input {i} has type {value.type}, of which singa has no tensors"
    first = next((i for i in range(len(node.inputs)) if node.has(i)), None)
    if first is not None and first < len(node.input_types):
        found = node.input_types[first].type
        if found is not None and found not in reader.types:
            allowed = ", ".join(name for name in DType.__members__ if name in reader.types)
            return f"input {first} has type {found}; this operator takes {allowed}"
    return ""


def _has_tensors(name: str | None, reader: Reader) -> bool:
    """Whether a reader computes values of a type with tensors of singa."""
    return name is not None and (is_singas(name) or (reader.held and name in HELD))


def _wrong_result(node: Node, reader: Reader) -> str:
    """Why the types of the results are refused; empty if they are not."""
    if reader.evaluated or reader.sequences or node.op in _OF_ANY_TYPE:
        return ""
    for i, value in enumerate(node.output_types):
        known = value.kind != "tensor" or value.type is None
        if not known and not _has_tensors(value.type, reader):
            return f"output {i} has type {value.type}, of which singa has no tensors"
    return ""

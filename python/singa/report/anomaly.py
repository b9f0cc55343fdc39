"""detect_anomaly: the first operation that makes a NaN or an infinity."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, is_float
from ..layer.names import LayerNames
from ..tape import operator as tape
from ..tape.operator import Operator
from ..tape.tensor import Tensor


class detect_anomaly(contextlib.ContextDecorator):  # noqa: N801 (used as a function)
    """Context manager or decorator: raises FloatingPointError at the first operation, forward or
    backward, that makes a NaN or an infinity that its inputs did not have.

        with singa.detect_anomaly():
            model(x, y)

    The message names the operation and its layer, and describes its inputs. It also names a
    parameter that an update, or what was loaded, has made NaN or infinite. A constant infinity,
    such as that of a mask, is no anomaly, but a NaN that comes of it is. Gradients are named with
    their layers if forward ran inside the context, too.

    It applies to all threads. Steps of a model with use_graph=True are executed meanwhile, not
    replayed, and each result is read, so steps take longer. With float16 and a `GradScaler`, whose
    search for a scale begins with infinite gradients, it raises at the first of them. What is
    computed beside the tape, such as an update or a sum of gradients, is not watched itself: the
    next operation that reads it is named, with the parameter or gradient.

    >>> x = tensor.Tensor(data=[0.0])
    >>> try:
    ...     with singa.detect_anomaly():
    ...         autograd.log(x - 1)
    ... except FloatingPointError as error:
    ...     print("Log" in str(error))
    ...
    True
    """

    def __init__(self) -> None:
        self._inherited = False  # whether a gradient was NaN or infinite as its inputs were

    def __enter__(self) -> None:
        self._inherited = False
        LayerNames.start(self)
        tape.followers.append(self._forward)
        tape.backward_followers.append(self._backward)

    def __exit__(self, *error: object) -> None:
        tape.followers.remove(self._forward)
        tape.backward_followers.remove(self._backward)
        LayerNames.stop(self)

    def _recreate_cm(self) -> detect_anomaly:
        return type(self)()  # one per call: a decorated function may call itself

    def _forward(self, op: Operator, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> None:
        raws = [x.data for x in xs]
        where = f"{_kind(op)}{_in_layer(_c.CurrentLayer())}"
        for i, y in enumerate(ys):
            if not (made := _found([y.data])):
                continue
            for x in xs:
                if x.stores_grad and _found([x.data]):
                    name = x.name or "without a name"
                    what = "before that: an update, or what was loaded, made it so"
                    _fail(f"{where} got", x.data, f"parameter {name}", (), what)
            if made - _found(raws):
                _fail(f"{where} made", y.data, f"result {i}" if len(ys) > 1 else "result", raws)

    def _backward(self, op: Operator, dys: Sequence[Any], dxs: Sequence[Any]) -> None:
        given = [dy for dy in dys if dy is not None]
        where = f"backward of {_kind(op)}{_in_layer(op._layer)}"
        if not self._inherited:
            for dy in given:
                if _found([dy]):
                    what = "which is a sum of gradients that overflowed, or was given to backward"
                    _fail(f"{where} got", dy, "gradient", (), what)
        inputs = [*given, *[t for t in op._held() if t is not None]]
        for i, dx in enumerate(dxs):
            if not isinstance(dx, _c.Tensor) or not (made := _found([dx])):
                continue
            if made - _found(inputs):
                _fail(f"{where} made", dx, f"gradient of input {i}", inputs)
            self._inherited = True


def _kind(op: Operator) -> str:
    return op._name or type(op).__name__.lstrip("_")


def _in_layer(name: str) -> str:
    return f" in layer {name}" if name else ""


def _found(raws: Iterable[_c.Tensor]) -> set[str]:
    """Which of "NaN" and "infinity" the tensors have."""
    found: set[str] = set()
    for raw in raws:
        if not is_float(BY_VALUE[raw.data_type()]) or math.isfinite(raw.L1()) or not raw.size():
            continue
        array = _array(raw)  # L1 is also infinite where the sum overflows
        if np.isnan(array).any():
            found.add("NaN")
        if np.isinf(array).any():
            found.add("infinity")
    return found


def _array(raw: _c.Tensor) -> np.ndarray:
    array = np.empty(raw.shape(), np.float64)
    _c.to_buffer(raw.AsType(_c.kFloat64), array)
    return array


def _fail(
    begin: str, raw: _c.Tensor, what: str, inputs: Iterable[_c.Tensor], end: str = ""
) -> NoReturn:
    described = "; ".join(_described(t) for t in inputs)
    tail = f", {end}" if end else f", from {described}" if described else ""
    raise FloatingPointError(f"[detect_anomaly] {begin} a {what} with {_described(raw)}{tail}")


def _described(raw: _c.Tensor) -> str:
    """Such as "2 NaN among the finite values from 0 to 3 of float32 (4, 3)"."""
    dtype = BY_VALUE[raw.data_type()]
    if not is_float(dtype) or not raw.size():
        return f"{dtype} {raw.shape()}"
    array = _array(raw)
    finite = array[np.isfinite(array)]
    counts = [(int(np.isnan(array).sum()), "NaN"), (int(np.isinf(array).sum()), "infinity")]
    parts = [f"{count} {name}" for count, name in counts if count]
    if finite.size:
        parts.append(f"values from {finite.min() + 0.0:g} to {finite.max() + 0.0:g}")
    return f"{', '.join(parts)} in {dtype} {raw.shape()}"

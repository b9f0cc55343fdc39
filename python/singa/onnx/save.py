"""Export: networks go out as ONNX files.

A forward pass on example inputs is followed, and each operator is written as ONNX nodes
(`export`). With dynamic axes, the pass is followed once more for each of them with another length:
a number in an operator that changes with it is written as an expression of the input's shape.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.atomic import atomic_write, is_special
from ..layer import Layer
from ..tensor import Tensor
from .export import export
from .module import ImportedModel
from .trace import traced

if TYPE_CHECKING:
    from onnx import ModelProto

#: Bytes of weights from which they go to a file of their own; a protobuf file ends at 2 GiB.
_MOST_BYTES = 2_000_000_000

Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


def save(
    model: Layer,
    path: str | os.PathLike[str],
    inputs: Sequence[Tensor],
    *,
    dynamic_axes: Axes | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    training: bool = False,
    external_data: bool | None = None,
) -> None:
    """Saves a network as an ONNX file.

    model          a layer or model; its forward pass in inference mode is exported
    inputs         example inputs: shapes and types matter, values do not
    dynamic_axes   axes of any length: {"x": {0: "batch"}} or {"x": [0]}
    input_names    names of the inputs (default: those of the arguments of `forward`)
    output_names   names of the outputs (default: those of a network that came from ONNX, else
                   "output", or "output_0", ...)
    opset          version of ONNX's operators, 13 or newer (default: that of the file for a network
                   that came from ONNX, else 21)
    ir_version     version of the file format (default: the oldest with this opset)
    training       batch norm and dropout in training mode
    external_data  weights in a file beside `path`, named path + ".data" (default: from 2 GB)

    Parameters keep their names. A network that came from ONNX, also as a part of another one, keeps
    the nodes of its file, with branches and loops.

    Raises ExportError for an operator that cannot be expressed, and
    where a shape does not follow the dynamic axes in a simple way; ValueError for a file of weights
    beside a device or FIFO.
    """
    proto = to_model(
        model,
        inputs,
        dynamic_axes=dynamic_axes,
        input_names=input_names,
        output_names=output_names,
        opset=opset,
        ir_version=ir_version,
        training=training,
    )
    write_model(proto, path, external_data)


def to_model(
    model: Layer,
    inputs: Sequence[Tensor],
    *,
    dynamic_axes: Axes | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    training: bool = False,
) -> ModelProto:
    """The ModelProto that `save` writes; see there for the arguments."""
    inputs = list(inputs)
    if not inputs or not all(isinstance(x, Tensor) for x in inputs):
        raise TypeError("[onnx.save] inputs must be a list of tensors")
    names = list(input_names or _argument_names(model, len(inputs)))
    if output_names is None and isinstance(model, ImportedModel):
        output_names = _own_output_names(model, names)
    if len(names) != len(inputs) or len(set(names)) < len(names):
        raise ValueError(f"[onnx.save] {len(inputs)} inputs need as many names, got {names}")
    axes = _dynamic(dynamic_axes or {}, names, inputs)
    forward: Callable[..., Any] = model.forward
    forward(*inputs) if not model._initialized else None
    traces = [traced(lambda *xs: _called(model, xs), inputs)]
    lengths: dict[str, tuple[int, int]] = {}
    for name in dict.fromkeys(name for each in axes.values() for name in each.values()):
        other, lengths[name] = _stretched(inputs, names, axes, name)
        traces.append(traced(lambda *xs: _called(model, xs), other))
    return export(
        traces,
        names,
        output_names,
        {str(name): t for name, t in model.get_states().items()},
        axes=axes,
        lengths=lengths,
        opset=opset,
        ir_version=ir_version,
        training=training,
        title=type(model).__name__,
    )


def _called(model: Any, xs: Sequence[Tensor]) -> Any:
    """The forward pass as a call of a layer: observers see it, and no training step runs."""
    return Layer.__call__(model, *xs)


def _argument_names(model: Any, count: int) -> list[str]:
    if isinstance(model, ImportedModel):
        return list(model.input_names)
    parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][1:]
    if len(names) < count:
        names = ["input"] if count == 1 else [f"input_{i}" for i in range(count)]
    return names[:count]


def _own_output_names(model: ImportedModel, inputs: Sequence[str]) -> list[str] | None:
    """The names in the file that the network came from, unless an input or parameter is an output,
    or a subclass has other outputs."""
    names = list(model.output_names)
    taken = {*inputs, *model.get_states()}
    plain = type(model).forward is ImportedModel.forward and len(set(names)) == len(names)
    return names if plain and taken.isdisjoint(names) else None


def _dynamic(
    given: Axes, names: Sequence[str], inputs: Sequence[Tensor]
) -> dict[str, dict[int, str]]:
    """Names of the dynamic axes, by input and axis."""
    result: dict[str, dict[int, str]] = {}
    for name, axes in given.items():
        if name not in names:
            raise ValueError(f"[onnx.save] dynamic_axes names {name!r}; inputs are {list(names)}")
        rank = len(inputs[list(names).index(name)].shape)
        named = axes if isinstance(axes, Mapping) else {i: f"{name}_dim_{i}" for i in axes}
        for axis, label in named.items():
            if not -rank <= axis < rank:
                raise ValueError(f"[onnx.save] input {name!r} has no axis {axis}")
            result.setdefault(name, {})[axis % rank] = str(label)
    return result


def _stretched(
    inputs: Sequence[Tensor],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    label: str,
) -> tuple[list[Tensor], tuple[int, int]]:
    """Inputs in which the axes called `label` are longer, and their lengths before and after."""
    found: set[tuple[int, int]] = set()
    result = []
    for name, x in zip(names, inputs, strict=True):
        array = x.numpy()
        for axis, own in axes.get(name, {}).items():
            if own == label:
                n = array.shape[axis]
                m = n + 1 if axis == 0 else 2 * n
                found.add((n, m))
                array = np.take(array, np.arange(m) % max(n, 1), axis)
        result.append(Tensor(array.shape, x.device, x.dtype, np.ascontiguousarray(array)))
    if len(found) != 1:
        raise ValueError(f"[onnx.save] axis {label!r} has lengths {sorted(n for n, _ in found)}")
    return result, found.pop()


def write_model(
    proto: ModelProto, path: str | os.PathLike[str], external_data: bool | None = None
) -> None:
    """Writes a model; see `save` for external_data."""
    from onnx import TensorProto

    path = Path(path)
    total = sum(len(t.raw_data) for t in proto.graph.initializer)
    if external_data or (external_data is None and total >= _MOST_BYTES):
        if is_special(path):
            raise ValueError(f"[onnx.save] {path} is no regular file: use external_data=False")
        with atomic_write(path.with_name(path.name + ".data")) as file:
            offset = 0
            for tensor in proto.graph.initializer:
                data = tensor.raw_data
                if len(data) < 1024:
                    continue
                file.write(b"\0" * (-offset % 4096))
                offset += -offset % 4096
                file.write(data)
                tensor.ClearField("raw_data")
                tensor.data_location = TensorProto.EXTERNAL
                for key, value in (
                    ("location", path.name + ".data"),
                    ("offset", str(offset)),
                    ("length", str(len(data))),
                ):
                    tensor.external_data.add(key=key, value=value)
                offset += len(data)
    with atomic_write(path) as file:
        file.write(proto.SerializeToString())

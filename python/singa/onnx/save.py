"""Export: networks go out as ONNX files.

A forward pass on example inputs is followed, and each operator is written as ONNX nodes
(`export`). The pass is followed again with other lengths of the dynamic axes and other values of
the inputs. What an operator is given that differs then is written as a formula of shapes and of
inputs, or refused.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.atomic import atomic_write, is_special
from ..layer import Layer
from ..model import Model
from ..raw.calls import says_what_to_write
from ..tensor import Tensor, from_numpy
from . import checking
from .errors import ExportError
from .exporting import export
from .module import ImportedModel, read_graph
from .trace import GraphRun, Trace, executed, traced

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

#: Bytes of weights from which they go to a file of their own; a protobuf file ends at 2 GiB.
_MOST_BYTES = 2_000_000_000

Axes = Mapping[str, Mapping[int, str] | Sequence[int]]


@says_what_to_write("onnx.save")
def save(
    model: Layer,
    path: str | os.PathLike[str],
    inputs: Sequence[Tensor | NDArray[Any]] | Tensor | NDArray[Any],
    *,
    dynamic_axes: Axes | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    training: bool = False,
    external_data: bool | None = None,
    check: bool | None = None,
) -> None:
    """Saves a network as an ONNX file.

    model          a layer or model; its forward pass in inference mode is exported
    inputs         example inputs, a list of tensors or arrays, or the only one; only shapes and
                   types matter
    dynamic_axes   axes of any length: {"x": {0: "batch"}} or {"x": [0]}
    input_names    names of the inputs (default: those of the arguments of `forward`)
    output_names   names of the outputs (default: those of a network that came from ONNX, else
                   "output", or "output_0", ...)
    opset          version of ONNX's operators, 13 or newer (default: that of the file for a network
                   that came from ONNX, else 21)
    ir_version     version of the file format (default: the oldest with this opset)
    training       batch norm and dropout in training mode
    external_data  weights in a file beside `path`, named path + ".data" (default: from 2 GB)
    check          compares the outputs in ONNX Runtime with singa's, with other lengths of the
                   dynamic axes than those of the example (default: where it is installed, for
                   the inference form)

    Parameters keep their names. The `class_names` and the `transform` of a Model are in the
    metadata of the file, as JSON, where `load` finds them. A network that came from ONNX, also as a
    part of another one, keeps the nodes of its file, with branches and loops.

    Raises ExportError for an operator that cannot be expressed, where a number or constant follows
    neither the dynamic axes nor the values of the inputs in a simple way, and if the check fails;
    ImportError for check=True without ONNX Runtime; ValueError for a file of weights beside a
    device or FIFO. Warns if the check is not possible, or with the lengths of the example only.

    >>> import onnx
    >>> net = models.Sequential(layer.Linear(2))
    >>> x = tensor.ones((1, 4))
    >>> net.compile([x])
    >>> singa.onnx.save(net, "net.onnx", [x], dynamic_axes={"x": {0: "batch"}})
    >>> [node.op_type for node in onnx.load("net.onnx").graph.node]
    ['Gemm']
    """
    if isinstance(model, str | bytes | os.PathLike) or not isinstance(model, Layer):
        raise TypeError(
            f"[onnx.save] the first argument is a layer or model, the second one a path: got "
            f"{type(model).__name__} and {type(path).__name__}"
        )
    if check is None:
        check = checking.is_installed() and not training
    elif check:
        checking.require_runtime()
    inputs = _as_tensors(inputs)
    try:
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
        if check:
            _check(model, proto, inputs, dynamic_axes or {}, training)
    except ExportError as error:
        if not _is_random(model, inputs):
            raise
        raise ExportError(
            "[onnx.save] the forward pass computes other numbers when it runs again on the same "
            "inputs: random numbers of a network cannot be exported"
        ) from error
    write_model(proto, path, external_data)


def _as_tensors(inputs: Any) -> list[Tensor]:
    """The example inputs. Arrays become tensors, as in calls of a model."""
    if isinstance(inputs, Tensor | np.ndarray):  # the only input
        inputs = [inputs]
    given = list(inputs) if isinstance(inputs, list | tuple) else []
    found = [from_numpy(x) if isinstance(x, np.ndarray) else x for x in given]
    if not found or not all(isinstance(x, Tensor) for x in found):
        raise TypeError("[onnx.save] inputs must be a list of tensors or arrays")
    return found


def _is_random(model: Layer, inputs: Sequence[Tensor]) -> bool:
    """Whether another forward pass gives other outputs for the same inputs."""
    runs = [traced(lambda *xs: _called(model, xs), inputs).outputs for _ in range(2)]
    if len(runs[0]) != len(runs[1]):
        return True
    pairs = [(a.numpy(), b.numpy()) for a, b in zip(*runs, strict=True)]
    return not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _check(
    model: Layer, proto: ModelProto, inputs: list[Tensor], given: Axes, training: bool
) -> None:
    """Compares a model in ONNX Runtime with singa, for other lengths of the dynamic axes."""
    names = [value.name for value in proto.graph.input]
    axes = _dynamic(given, names, inputs)
    labels = list(dict.fromkeys(name for each in axes.values() for name in each.values()))
    example = {label: length_of(label, inputs, names, axes) for label in labels}
    unchecked = "[onnx.save] the file was not checked with ONNX Runtime: "
    if training:
        warnings.warn(f"{unchecked}it is in training form", stacklevel=3)
        return
    if sum(len(t.raw_data) for t in proto.graph.initializer) >= _MOST_BYTES:
        warnings.warn(f"{unchecked}it has more than 2 GB", stacklevel=3)
        return
    for lengths in _other_sizes(example) if labels else [example]:
        try:
            xs = resized(inputs, names, axes, lengths)
            expected = [y.numpy() for y in executed(lambda *ts: _called(model, ts), xs)]
        except Exception:
            if lengths == example:
                raise
            continue  # the network does not take these lengths
        where = ", ".join(f"{label} = {n}" for label, n in lengths.items())
        try:
            found = checking.runtime_outputs(proto, [x.numpy() for x in xs])
        except checking.Unchecked as reason:
            warnings.warn(f"{unchecked}{reason}", stacklevel=3)
            return
        outputs = [value.name for value in proto.graph.output]
        where = f"with {where or 'the example'}"
        read_again = functools.partial(_read_again, proto, xs)
        checking.compare(outputs, found, expected, where, checking.is_quantized(proto), read_again)
        if labels and lengths == example:
            what = "[onnx.save] the file was checked with the lengths of the example only"
            warnings.warn(f"{what}: singa runs no others that were tried", stacklevel=3)
        return


def _read_again(proto: ModelProto, xs: Sequence[Tensor]) -> list[NDArray[Any]]:
    """What singa computes from a file."""
    net = ImportedModel(read_graph(proto), xs[0].device)
    return [y.numpy() for y in net.values(xs, net.output_names)]


def _other_sizes(example: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Lengths to check: others than those of the example and of the traces, then the example's."""
    yield {label: n + 3 + i for i, (label, n) in enumerate(example.items())}
    yield {label: n + 32 * (i + 1) for i, (label, n) in enumerate(example.items())}
    yield {label: 4 * n for label, n in example.items()}
    yield dict(example)


def to_model(
    model: Layer,
    inputs: Sequence[Tensor | NDArray[Any]],
    *,
    dynamic_axes: Axes | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset: int | None = None,
    ir_version: int | None = None,
    training: bool = False,
) -> ModelProto:
    """The ModelProto that `save` writes; see there for the arguments."""
    inputs = _as_tensors(inputs)
    names = list(input_names or argument_names(model, len(inputs)))
    if output_names is None and isinstance(model, ImportedModel):
        output_names = _own_output_names(model, names)
    if len(names) != len(inputs) or len(set(names)) < len(names):
        raise ValueError(f"[onnx.save] {len(inputs)} inputs need as many names, got {names}")
    axes = _dynamic(dynamic_axes or {}, names, inputs)
    forward: Callable[..., Any] = model.forward
    forward(*inputs) if not model._initialized else None
    traces, changes = _variations(model, inputs, names, axes)
    if traces[0].writes_in_place:
        _check_names(model, traces[0])
    proto = export(
        traces,
        names,
        output_names,
        {str(name): t for name, t in model.get_states().items()},
        axes=axes,
        changes=changes,
        opset=opset,
        ir_version=ir_version,
        training=training,
        title=type(model).__name__,
    )
    for key, text in model._texts_of_use().items() if isinstance(model, Model) else ():
        proto.metadata_props.add(key=key, value=text)
    return proto


def _check_names(model: Layer, trace: Trace) -> None:
    """Raises ExportError if the forward pass computes something else when it writes to tensors than
    in the trace, where `t += other` makes a new one."""
    computed = executed(lambda *ts: _called(model, ts), trace.inputs)
    for y, traced_y in zip(computed, trace.outputs, strict=True):
        here, there = (t.numpy().astype(np.float64) for t in (y, traced_y))
        size = np.abs(here).max(initial=0, where=np.isfinite(here))
        if not np.allclose(here, there, rtol=1e-3, atol=1e-3 * size, equal_nan=True):
            raise ExportError(
                "[onnx.save] the forward pass writes to a tensor in place (t += other) and reads "
                "it by another name: write t = t + other"
            )


def to_batched_model(
    model: Layer, inputs: Sequence[Tensor], opset: int | None = None
) -> ModelProto:
    """The ModelProto of a network, with batches of any length if it takes them. The batch is the
    first axis of the inputs."""
    inputs = list(inputs)
    names = argument_names(model, len(inputs))
    first = inputs[0].shape[:1]
    axes = {
        name: {0: "batch"} for name, x in zip(names, inputs, strict=False) if x.shape[:1] == first
    }
    try:
        return to_model(model, inputs, dynamic_axes=axes, opset=opset)
    except ExportError:
        return to_model(model, inputs, opset=opset)


def _called(model: Any, xs: Sequence[Tensor]) -> Any:
    """The forward pass as a call of a layer: observers see it, and no training step runs."""
    return Layer.__call__(model, *xs)


def argument_names(model: Any, count: int) -> list[str]:
    """The default names of `count` inputs: those of the arguments of `forward`."""
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


def _variations(
    model: Layer,
    inputs: Sequence[Tensor],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> tuple[list[Trace], list[str]]:
    """Traces of the forward pass, for the example first, and what is different in each.

    Each dynamic axis gets two other lengths. Each input gets other values, two times where the host
    reads any, but not where all is in imported graphs.
    """

    def follow(xs: Sequence[Tensor]) -> Trace:
        trace = traced(lambda *ys: _called(model, ys), xs)
        trace.drop_elements()
        return trace

    traces, changes = [traced(lambda *xs: _called(model, xs), inputs)], [""]
    reads, applied = bool(traces[0].reads), traces[0].applications
    imported = bool(applied) and not reads and all(isinstance(a.op, GraphRun) for a in applied)
    for label in dict.fromkeys(name for each in axes.values() for name in each.values()):
        n, found = length_of(label, inputs, names, axes), 0
        for m in (n + 1, max(2 * n, n + 2), max(3 * n, n + 3)):
            change = f"axis {label!r} has {m} and not {n}"
            try:
                trace = follow(resized(inputs, names, axes, {label: m}))
            except Exception as error:
                if m == n + 1 or imported:
                    continue  # a network may need even lengths, or the nodes of a file this one
                why = f"[onnx.save] the forward pass fails where {change}: {error}"
                raise ExportError(why) from error
            traces.append(trace)
            changes.append(change)
            found += 1
            if found == 2:
                break
    if imported:
        return traces, changes
    for i, name in enumerate(names):
        for others in (_others(inputs[i]), _repeated(inputs[i]) if reads else ()):
            for x in others:
                try:
                    traces.append(follow([*inputs[:i], x, *inputs[i + 1 :]]))
                except Exception:  # these values are not allowed
                    continue
                changes.append(f"input {name!r} has other values")
                break
    return traces, changes


def length_of(
    label: str,
    inputs: Sequence[Tensor],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
) -> int:
    """The length of the axes that are called `label`. Raises ValueError unless it is the same."""
    found = {
        x.shape[axis]
        for name, x in zip(names, inputs, strict=True)
        for axis, own in axes.get(name, {}).items()
        if own == label
    }
    if len(found) != 1:
        raise ValueError(f"[onnx.save] axis {label!r} has lengths {sorted(found)}")
    return found.pop()


def resized(
    inputs: Sequence[Tensor],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    lengths: Mapping[str, int],
) -> list[Tensor]:
    """Inputs whose axes have the lengths in `lengths`, by name: elements repeat."""
    result = []
    for name, x in zip(names, inputs, strict=True):
        array = x.numpy()
        for axis, label in axes.get(name, {}).items():
            if label in lengths:
                shape, m = list(array.shape), lengths[label]
                n, shape[axis] = shape[axis], m
                elements = np.take(array, np.arange(m) % n, axis) if n else 0
                array = np.broadcast_to(np.asarray(elements, array.dtype), shape)
        result.append(_like(x, array) if array.shape != x.shape else x)
    return result


def _others(x: Tensor) -> Iterator[Tensor]:
    """Tensors like x with other elements: those that are likely to be allowed come first."""
    array = x.numpy()
    if array.dtype.kind == "b":
        yield _like(x, ~array)
    elif array.dtype.kind == "f":
        turned = array.reshape(-1)[::-1].reshape(array.shape)
        for scale, shift in ((-0.75, 0.125), (0.75, 0.125)):
            yield _like(x, (scale * turned + shift).astype(array.dtype))
    else:
        turned = array.reshape(-1)[::-1].reshape(array.shape)
        for other in (turned, array + 1, array - 1):
            if (other != array).any():
                yield _like(x, other.astype(array.dtype))


def _repeated(x: Tensor) -> Iterator[Tensor]:
    """A tensor like x in which other elements are equal: sorting and counting give other results.
    Its elements are those of x."""
    array = x.numpy()
    flat = array.reshape(-1)[::-1]
    if array.dtype.kind == "f":
        flat = np.repeat(flat[::2], 2)[: flat.size]
    elif flat.size:
        flat = np.where(flat == flat.min(), flat.max(), flat)
    if (flat != array.reshape(-1)).any():
        yield _like(x, flat.reshape(array.shape).astype(array.dtype))


def _like(x: Tensor, array: Any) -> Tensor:
    """A tensor of the device and type of x with the elements of an array."""
    return Tensor(array.shape, x.device, x.dtype, np.require(array, requirements="C"))


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

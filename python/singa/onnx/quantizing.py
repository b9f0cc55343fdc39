"""Makes quantised networks: what `Model.quantize` does."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..model import Model
from ..tensor import Tensor
from .folded_norms import fold_norms
from .graph_proto import free_names
from .module import ImportedModel, read_graph
from .qdq import Points, QuantizableLayer, Range, layers_of, quantized
from .save import to_batched_model, write_model
from .specification import opsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import ModelProto

    Array = NDArray[Any]

#: Scales of channels are an attribute of DequantizeLinear from here on.
_OLDEST = 13


class QuantizedModel(ImportedModel):
    """A network with layers of int8, for inference.

    float_layers  layers that were left in float since they lose accuracy: for each the change of
                  the outputs if it alone is quantised, as in `error`
    error         change of the outputs: the root mean square of the difference from the network of
                  floats, relative to that of its outputs, over all samples

    >>> net = models.Sequential(layer.Linear(2))
    >>> x = tensor.random((8, 4))
    >>> net.compile([x])
    >>> net.eval()
    >>> quantized = net.quantize([x])
    >>> isinstance(quantized, singa.onnx.QuantizedModel)
    True
    >>> float((quantized(x) - net(x)).abs().max()) < 0.05
    True
    """

    not_settings: ClassVar[tuple[str, ...]] = (
        *ImportedModel.not_settings,
        *("float_layers", "error"),
    )

    def __init__(
        self, graph: Any, device: Any, float_layers: dict[str, float], error: float
    ) -> None:
        super().__init__(graph, device)
        self.float_layers, self.error = float_layers, error


def quantize(
    model: Model,
    samples: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    tolerance: float = 0.1,
) -> QuantizedModel:
    """The quantised form of a network; see `Model.quantize`."""
    batches = _batches(model, samples)
    proto = _exported(model, batches[0])
    taken = _names(proto)
    fresh = free_names(taken)
    fold_norms(proto.graph, fresh)
    layers = layers_of(proto.graph)
    if not layers:
        raise ValueError(
            "[quantize] the network has no convolution or fully connected layer of float32"
        )
    device = batches[0][0].device
    reference = ImportedModel(read_graph(proto), device)
    ranges = _ranges(proto, device, batches, Points(proto.graph, layers).names)
    expected = [_outputs(reference, batch) for batch in batches]

    def made(chosen: Sequence[QuantizableLayer]) -> ModelProto:
        return quantized(proto, chosen, ranges, free_names(set(taken)))

    def error(result: ModelProto, count: int | None = None) -> float:
        net = ImportedModel(read_graph(result), device)
        return _error([_outputs(net, batch) for batch in batches[:count]], expected[:count])

    result = made(layers)
    total, left = error(result), {}
    if not total <= tolerance:  # it may be NaN
        alone = {layer: error(made([layer]), 1) for layer in layers}
        worst = sorted(layers, key=lambda layer: -alone[layer])
        while not total <= tolerance and worst:
            first = worst.pop(0)
            left[first.name] = alone[first]
            if sum(alone[layer] ** 2 for layer in worst) > tolerance**2:
                continue  # the errors of layers add up like those of independent numbers
            result = made([layer for layer in layers if layer in worst])
            total = error(result)
    if left:
        named = ", ".join(f"{name} ({change:.2g})" for name, change in left.items())
        warnings.warn(f"[quantize] layers that lose accuracy stay in float: {named}", stacklevel=3)
    net = QuantizedModel(read_graph(result), device, left, total)
    net.class_names, net.transform, net.task = model.class_names, model.transform, model.task
    if path is not None:
        write_model(result, path)
    return net


def _batches(model: Model, samples: Any) -> list[list[Tensor]]:
    """The inputs of each forward pass."""
    if isinstance(samples, Tensor | np.ndarray):
        samples = [samples]
    if not isinstance(samples, Iterable):
        raise TypeError(f"[quantize] samples must be batches, got {type(samples).__name__}")
    batches = []
    for batch in samples:
        given = batch if isinstance(batch, list | tuple) else [batch]
        if len(given) == len(model._inputs) + 1 and hasattr(samples, "state_dict"):
            given = given[:-1]  # the targets of a loader
        batches.append(model._as_tensors(list(given)))
        if not all(isinstance(x, Tensor) for x in batches[-1]):
            raise TypeError(f"[quantize] a batch must be tensors, got {batch!r:.80}")
    if not batches:
        raise ValueError("[quantize] there are no samples")
    return batches


def _exported(model: Model, inputs: list[Tensor]) -> ModelProto:
    """The network as ONNX, with the operators that are needed here."""
    proto = to_batched_model(model, inputs)
    if opsets_of(proto).get("", _OLDEST) >= _OLDEST:
        return proto
    return to_batched_model(model, inputs, _OLDEST)


def _names(proto: ModelProto) -> set[str]:
    graph = proto.graph
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return names.union(*(({*node.output, node.name}) for node in graph.node))


def _outputs(net: ImportedModel, inputs: Sequence[Tensor]) -> list[Array]:
    results = net(*inputs)  # a new network infers, whatever mode this thread is in
    return [y.numpy() for y in (results if isinstance(results, tuple) else (results,))]


def _ranges(
    proto: ModelProto, device: Any, batches: Sequence[Sequence[Tensor]], names: Collection[str]
) -> dict[str, Range]:
    """The ranges of values over all samples, from a network that computes no other outputs: it
    keeps no value longer than needed."""
    from onnx import ModelProto, TensorProto, helper

    made = [name for node in proto.graph.node for name in node.output]
    order = [name for name in (*(v.name for v in proto.graph.input), *made) if name in names]
    measured = ModelProto()
    measured.CopyFrom(proto)
    fresh = free_names(_names(proto))
    del measured.graph.output[:]
    for name in order:
        for op in ("ReduceMin", "ReduceMax"):
            result = fresh(f"{name}_{op}")
            measured.graph.node.append(helper.make_node(op, [name], [result], result, keepdims=0))
            output = helper.make_tensor_value_info(result, TensorProto.FLOAT, [])
            measured.graph.output.append(output)
    net = ImportedModel(read_graph(measured), device)
    extremes = np.array([_outputs(net, batch) for batch in batches]).reshape(len(batches), -1, 2)
    for name, infinite in zip(order, (~np.isfinite(extremes)).any((0, 2)), strict=True):
        if infinite:
            raise ValueError(f"[quantize] value {name!r} is not finite for these samples")
    low, high = extremes[..., 0].min(0, initial=0), extremes[..., 1].max(0, initial=0)
    pairs = zip(low, high, strict=True)
    return {name: Range(*map(float, pair)) for name, pair in zip(order, pairs, strict=True)}


def _error(found: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]]) -> float:
    """The root mean square of differences, relative to that of what is expected."""
    pairs = [
        (y.astype(np.float64), wanted.astype(np.float64))
        for ys, all_wanted in zip(found, expected, strict=True)
        for y, wanted in zip(ys, all_wanted, strict=True)
    ]
    off = sum(float(np.square(y - wanted).sum()) for y, wanted in pairs)
    size = sum(float(np.square(wanted).sum()) for _, wanted in pairs)
    return float(np.sqrt(off / size)) if size else float(off > 0)

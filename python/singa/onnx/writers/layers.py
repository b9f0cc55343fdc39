"""Writers of normalisation and dropout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ... import singa_wrap as wrap
from ...dtypes import BY_VALUE
from ...networks.element_types import numpy_type
from ...ops.layer_norm import ChannelNorm
from ...ops.normalization import ACTIVATIONS
from ..data_types import NUMBERS
from ..functions import OF_NORM
from .elementwise import write_clip, write_silu
from .registry import writes

if TYPE_CHECKING:
    from ..node_writer import Call


def _vector(call: Call, name: str, raw: Any) -> str:
    """A parameter of batch norm as (C): SINGA's scripts also give it as (1, C, 1, 1)."""
    if len(raw.shape()) == 1:
        return name
    return call.step("Reshape", [name, call.constant(np.array([-1], np.int64))])


@writes(ag._BatchNorm2d, reads="handle running_mean running_var relu activation")
def batch_norm(call: Call) -> None:
    """BatchNormalization, with Add and the activation where they are part of the operator."""
    op, (x, scale, bias, *add) = call.op, call.inputs
    kind, low, high = op.activation
    if op.running_mean is None or op.running_var is None:
        raise call.refuse("batch norm without running statistics")
    kept = [(scale, call.x[1]), (bias, call.x[2])]
    kept += [(call.value(t), t) for t in (op.running_mean, op.running_var)]
    vectors = [_vector(call, name, raw) for name, raw in kept]
    if call.opset < 15:
        types = [BY_VALUE[raw.data_type()].name for _, raw in kept]
        wanted = call.type_of_input()
        vectors = [call.cast(v, t, wanted) for v, t in zip(vectors, types, strict=True)]
    attributes: dict[str, Any] = {
        "epsilon": op.handle.epsilon,
        "momentum": 1.0 - op.handle.factor,
    }
    outputs = 1
    if call.writer.training and call.opset >= 14:
        attributes["training_mode"] = 1
        outputs = 3
    last = not add and kind == wrap.ActivationKind_kNone
    names: Any = outputs
    if last:
        more = [call.writer.fresh(f"{call.outputs[0]}_{i}") for i in range(1, outputs)]
        names = [call.outputs[0], *more]
    y = call.writer.node("BatchNormalization", [x, *vectors], names, **attributes)[0]
    if add:
        if kind == wrap.ActivationKind_kNone:
            call.node("Add", [y, add[0]])
            return
        y = call.step("Add", [y, add[0]])
    if kind == wrap.ActivationKind_kClip:
        write_clip(call, y, low, high)
    elif kind == wrap.ActivationKind_kSilu:
        write_silu(call, y)
    elif kind != wrap.ActivationKind_kNone:
        _ACTIVATIONS[kind].write(call, y)


#: Those that are a row of the table, by their kinds.
_ACTIVATIONS = {ACTIVATIONS[name][0]: row for name, row in OF_NORM.items()}


@writes(ag.Dropout, reads="seed ratio")
def dropout(call: Call) -> None:
    """Dropout in training form; nothing in inference form."""
    if not call.writer.training:
        call.node("Identity", call.inputs)
        return
    ratio = call.constant(np.array(call.op.ratio, np.float32))
    call.node("Dropout", [call.inputs[0], ratio, call.constant(np.array(True))])


@writes(ag.LRN, reads="size alpha beta k")
def lrn(call: Call) -> None:
    """LRN."""
    size, alpha, beta, bias = call.op._constants
    call.node("LRN", call.inputs, size=size, alpha=alpha, beta=beta, bias=bias)


def _ones(call: Call, shape: tuple[int, ...], value: float = 1.0) -> str:
    return call.constant(np.full(shape, value, numpy_type(call.type_of_input())))


def _parameters(call: Call) -> list[str]:
    """Weight and bias in the type of x."""
    kinds = [BY_VALUE[raw.data_type()].name for raw in call.x]
    return [call.cast(n, k, kinds[0]) for n, k in zip(call.inputs[1:], kinds[1:], strict=True)]


@writes(ag.LayerNorm, reads="axis eps centered")
def layer_norm(call: Call) -> None:
    """LayerNormalization, or RMSNormalization; older opsets compute it of other operators."""
    op = call.op
    rank = len(call.x[0].shape())
    axis = op.axis % rank
    weights = _parameters(call)
    if not weights:  # a vector of ones takes their place
        call.agreed([shape[axis:] for shape in call.in_shapes()], "the normalised shape")
    inner = tuple(call.x[0].shape()[axis:])
    if op.centered and call.opset >= 17:
        scale = weights[:1] or [_ones(call, inner)]
        call.node(
            "LayerNormalization",
            [call.inputs[0], *scale, *weights[1:]],
            axis=axis - rank,
            epsilon=op.eps,
        )
        return
    if not op.centered and call.opset >= 23:
        scale = weights[:1] or [_ones(call, inner)]
        call.node("RMSNormalization", [call.inputs[0], *scale], axis=axis - rank, epsilon=op.eps)
        return
    y = _normalised(call, call.inputs[0], list(range(axis - rank, 0)), op)
    for name, node in zip(weights, ("Mul", "Add"), strict=False):
        y = call.step(node, [y, name])
    call.finish(y)


def _normalised(call: Call, x: str, axes: list[int], op: Any) -> str:
    """x divided by its deviation over axes; `op.centered` subtracts the mean first."""
    wide = call.type_of_input() if call.type_of_input() == "float64" else "float32"
    y = call.cast(x, call.type_of_input(), wide)
    if op.centered:
        y = call.step("Sub", [y, call.reduced("ReduceMean", y, axes)])
    power = call.reduced("ReduceMean", call.step("Mul", [y, y]), axes)
    more = call.step("Add", [power, call.constant(op.eps, wide)])
    return call.cast(call.step("Div", [y, call.step("Sqrt", [more])]), wide, call.type_of_input())


@writes(ChannelNorm, reads="eps centered")
def channel_norm(call: Call) -> None:
    """LayerNormalization of (N, ..., C)."""
    op, rank = call.op, len(call.x[0].shape())
    last = [0, *range(2, rank), 1]
    back = sorted(range(rank), key=lambda i: last[i])
    weights = _parameters(call)
    x = call.step("Transpose", call.inputs[:1], perm=last)
    if op.centered and call.opset >= 17:
        scale = weights[:1] or [_ones(call, (call.x[0].shape()[1],))]
        y = call.step("LayerNormalization", [x, *scale, *weights[1:]], axis=-1, epsilon=op.eps)
    else:
        y = _normalised(call, x, [-1], op)
        for name, node in zip(weights, ("Mul", "Add"), strict=False):
            y = call.step(node, [y, name])
    call.node("Transpose", [y], perm=back)


@writes(ag.GroupNorm, reads="groups eps")
def group_norm(call: Call) -> None:
    """InstanceNormalization for one channel each, GroupNormalization from opset 21 on."""
    op, shapes = call.op, call.in_shapes()
    channels = shapes[0][1]
    groups = op._groups(call.x[0])
    weights = _parameters(call)
    weights += [_ones(call, (channels,), value) for value in (1.0, 0.0)[len(weights) :]]
    if groups == channels:
        call.node("InstanceNormalization", [call.inputs[0], *weights], epsilon=op.eps)
    elif call.opset >= 21:
        call.node(
            "GroupNormalization",
            [call.inputs[0], *weights],
            epsilon=op.eps,
            num_groups=groups,
            stash_type=NUMBERS["float32"],
        )
    else:
        rows = [(s[0], groups, int(np.prod(s[1:])) // groups) for s in shapes]
        x = call.step("Reshape", [call.inputs[0], call.constant(np.array([0, groups, -1]))])
        unit = [_ones(call, (groups,)), _ones(call, (groups,), 0.0)]
        x = call.step("InstanceNormalization", [x, *unit], epsilon=op.eps)
        x = call.reshape(x, rows, shapes)
        wide = call.constant(np.array([-1, *[1] * (len(shapes[0]) - 2)], np.int64))
        factor, offset = (call.step("Reshape", [w, wide]) for w in weights)
        call.node("Add", [call.step("Mul", [x, factor]), offset])

"""Writers of operators that move, repeat or join elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd as ag
from ...networks.element_types import numpy_type
from ...ops.movement import Index
from ...ops.resampling import COORDINATES, MODES, NEAREST, Interpolate
from ...raw.indexing import bounds
from .registry import writes

_MODE_NAMES, _COORDINATE_NAMES, _NEAREST_NAMES = (
    {number: name for name, number in table.items()} for table in (MODES, COORDINATES, NEAREST)
)

if TYPE_CHECKING:
    from ..node_writer import Call


@writes(ag.Reshape, reads="shape")
@writes(ag.Squeeze, ag.Unsqueeze, reads="axis")
def reshape(call: Call) -> None:
    """Another shape."""
    shape = call.writer.new_shape(call.in_shapes(), call.out_shapes())
    call.node("Reshape", [call.inputs[0], shape])


@writes(ag.Transpose, reads="perm")
def transpose(call: Call) -> None:
    """Permuted axes."""
    rank = len(call.x[0].shape())
    order = [i % rank for i in call.op.perm] if call.op.perm else list(range(rank))[::-1]
    call.node("Transpose", call.inputs, perm=order)


@writes(ag.Expand, reads="shape")
def expand(call: Call) -> None:
    """A broadcast."""
    call.node("Expand", [call.inputs[0], call.writer.integers(call.out_shapes(), "a shape")])


@writes(ag.Slice, reads="starts ends axes steps")
def slice_(call: Call) -> None:
    """Slices along axes."""
    starts, ends, axes, steps = zip(*call.each(lambda op: op._parts), strict=True)
    _sliced(call, starts, ends, axes, steps)


def _sliced(call: Call, starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    inputs = [
        call.inputs[0],
        _ends(call, starts, axes, "starts of a slice"),
        _ends(call, ends, axes, "ends of a slice"),
    ]
    axes_, steps_ = call.agreed(axes, "axes"), call.agreed(steps, "steps")
    if axes_ or steps_:
        axes_ = axes_ or tuple(range(len(starts[0])))
        inputs.append(call.constant(np.array(axes_, np.int64)))
    if steps_:
        inputs.append(call.constant(np.array(steps_, np.int64)))
    call.node("Slice", inputs)


def _ends(call: Call, rows: Any, axes: Any, what: str) -> str:
    """Ends of slices, where the end of a dynamic axis is any number beyond it."""
    result = []
    shapes = call.in_shapes()
    for i, column in enumerate(zip(*rows, strict=True)):
        axis = axes[0][i] if axes[0] else i
        whole = all(
            end >= shape[axis] for end, shape in zip(column, shapes, strict=True)
        ) and what.startswith("ends")
        result.append([2**31 - 1] * len(column) if whole else list(column))
    return call.writer.integers(list(zip(*result, strict=True)), what)


@writes(Index, reads="entries")
def index(call: Call) -> None:
    """Integers, slices and new axes: a Slice and a Reshape."""
    rows: list[tuple[list[int], list[int], list[int]]] = []
    for application in call.applications:
        shape = application.raw_inputs[0].shape()
        starts, ends, steps = [], [], []
        source = 0
        op: Any = application.op
        for entry in op.entries:
            if entry is None:
                continue
            n = shape[source]
            if isinstance(entry, slice):
                start, stop, step = bounds(entry, n)
            else:
                start, stop, step = entry % n, entry % n + 1, 1
            starts.append(start)
            ends.append(stop)
            steps.append(step)
            source += 1
        rows.append((starts, ends, steps))
    all_starts, all_ends, all_steps = zip(*rows, strict=True)
    call.same(lambda op: [type(entry).__name__ for entry in op.entries], "entries")
    axes = tuple(range(len(all_starts[0])))
    x = call.inputs[0]
    if axes:
        parts = [
            _ends(call, all_starts, [axes], "starts of an index"),
            _ends(call, all_ends, [axes], "ends of an index"),
            call.constant(np.array(axes, np.int64)),
            call.constant(np.array(call.agreed(all_steps, "steps"), np.int64)),
        ]
        x = call.step("Slice", [x, *parts])
    between = []
    for application in call.applications:
        op = application.op
        shape = list(application.raw_inputs[0].shape())
        kept = iter(application.raw_outputs[0].shape())
        source = 0
        for entry in op.entries:
            if entry is None:
                next(kept)
            elif isinstance(entry, slice):
                shape[source] = next(kept)
                source += 1
            else:
                shape[source] = 1
                source += 1
        between.append(tuple(shape))
    call.node("Reshape", [x, call.writer.new_shape(between, call.out_shapes())])


@writes(ag.Split, reads="axis parts num_output")
def split(call: Call) -> None:
    """Pieces along an axis."""
    axis = call.op.axis
    lengths = [
        [y.shape()[axis] for y in application.raw_outputs] for application in call.applications
    ]
    parts = call.writer.integers(lengths, "lengths of pieces")
    call.node("Split", [call.inputs[0], parts], axis=axis)


@writes(ag.Tile, reads="repeats")
def tile(call: Call) -> None:
    """Repeated tensors."""
    rows = []
    for application in call.applications:
        op: Any = application.op
        rows.append(op._aligned)
    repeats = call.writer.integers(rows, "repeats")
    x, before = call.inputs[0], call.in_shapes()
    if len(rows[0]) > len(before[0]):
        extra = (1,) * (len(rows[0]) - len(before[0]))
        x = call.reshape(x, before, [extra + shape for shape in before])
    call.node("Tile", [x, repeats])


@writes(ag.Repeat, reads="repeats axis")
def repeat(call: Call) -> None:
    """Repeated elements: a Gather."""
    op = call.op
    x, shapes = call.inputs[0], call.in_shapes()
    if op.axis is None:
        x = call.step("Reshape", [x, call.constant(np.array([-1], np.int64))])
        lengths = {int(np.prod(shape)) for shape in shapes}
    else:
        lengths = {shape[op.axis] for shape in shapes}
    if len(lengths) > 1:
        raise call.refuse("repeats along a dynamic axis")
    indices = np.repeat(np.arange(lengths.pop()), call.same(lambda o: o.repeats, "repeats"))
    call.node("Gather", [x, call.constant(indices.astype(np.int64))], axis=op.axis or 0)


@writes(ag.Roll, reads="shifts axis")
def roll(call: Call) -> None:
    """The end of each axis, and then the rest: two slices that are joined."""
    op = call.op
    x, shapes = call.inputs[0], call.in_shapes()
    if not op.axes:
        x = call.step("Reshape", [x, call.constant(np.array([-1], np.int64))])
        flat = [(int(np.prod(shape)),) for shape in shapes]
        call.node("Reshape", [_rolled(call, x, flat, op.shifts[0], 0), _shape_of(call)])
        return
    many = op.shifts * len(op.axes) if len(op.shifts) == 1 else op.shifts
    for shift, axis in zip(many, op.axes, strict=True):
        x = _rolled(call, x, shapes, shift, axis)
    call.finish(x)


@writes(ag.ChannelShuffle, reads="groups")
def channel_shuffle(call: Call) -> None:
    """The groups as an axis, which changes places with the channels of a group."""
    groups, shapes = call.same(lambda o: o.groups, "groups"), call.in_shapes()
    apart = [(s[0], groups, s[1] // groups, int(np.prod(s[2:]))) for s in shapes]
    turned = [(n, c, g, rest) for n, g, c, rest in apart]
    x = call.step("Transpose", [call.reshape(call.inputs[0], shapes, apart)], perm=[0, 2, 1, 3])
    call.node("Reshape", [x, call.writer.new_shape(turned, shapes)])


def _shape_of(call: Call) -> str:
    return call.writer.integers(call.out_shapes(), "a shape")


def _rolled(call: Call, x: str, shapes: Any, shift: int, axis: int) -> str:
    lengths = {shape[axis] for shape in shapes}
    if len(lengths) == 1:
        shift %= max(*lengths, 1)
    elif any(abs(shift) >= n for n in lengths):
        raise call.refuse("a shift beyond a dynamic axis")
    if not shift:
        return x
    cut, axes = (call.constant(np.array([i], np.int64)) for i in (-shift, axis))
    first, last = (call.constant(np.array([i], np.int64)) for i in (0, 2**31 - 1))
    parts = [call.step("Slice", [x, *ends, axes]) for ends in ((cut, last), (first, cut))]
    return call.step("Concat", parts, axis=axis)


@writes(ag.Shape)
def shape(call: Call) -> None:
    """The shape as int32."""
    call.finish(call.step("Shape", call.inputs), "int64")


@writes(ag.ConstantOfShape, reads="value")
def constant_of_shape(call: Call) -> None:
    """A filled tensor."""
    from onnx import numpy_helper

    kind = np.dtype(call.type_of_output())
    value = numpy_helper.from_array(np.array([call.op.value], kind))
    shape_ = call.cast(call.inputs[0], call.type_of_input(), "int64")
    call.node("ConstantOfShape", [shape_], value=value)


@writes(ag.Pad, reads="mode pads constant")
def pad(call: Call) -> None:
    """Elements added around a tensor."""
    if call.op.mode == "wrap" and call.opset < 19:
        raise call.refuse("mode 'wrap' needs opset 19")
    pads = call.writer.integers(call.each(lambda op: op.pads), "pads")
    inputs = [call.inputs[0], pads]
    if call.op.mode == "constant":
        kind = call.type_of_input()
        inputs.append(call.constant(np.array(call.op.constant, numpy_type(kind))))
    call.node("Pad", inputs, mode=call.op.mode)


@writes(ag.UpSample, reads="mode scales")
def upsample(call: Call) -> None:
    """Nearest-neighbour upsampling."""
    scales = call.constant(np.array(call.op.scales, np.float32))
    call.node(
        "Resize",
        [call.inputs[0], "", scales],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


@writes(
    Interpolate,
    reads="axes sizes scales mode coordinate_transformation_mode nearest_mode cubic_coeff_a "
    "exclude_outside antialias",
)
def interpolate(call: Call) -> None:
    """Resize: by scales where the operator has them and they are not just the ratio of lengths."""
    handle = call.op._handle
    mode, coordinates = _MODE_NAMES[handle.mode], _COORDINATE_NAMES[handle.coordinates]
    if handle.antialias and call.opset < 18:
        raise call.refuse("antialias needs opset 18")
    if coordinates == "half_pixel_symmetric" and call.opset < 19:
        raise call.refuse("half_pixel_symmetric needs opset 19")
    if mode == "area":
        _average(call)
        return
    if mode == "nearest" and handle.antialias:
        raise call.refuse("antialias of nearest neighbours")
    sizes = scales = ""
    factors = _factors(call)
    if factors is None:
        sizes = call.writer.integers(call.out_shapes(), "sizes")
    else:
        scales = call.constant(factors)
    call.node(
        "Resize",
        [call.inputs[0], "", scales, sizes] if sizes else [call.inputs[0], "", scales],
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=_NEAREST_NAMES[handle.nearest] if mode == "nearest" else None,
        cubic_coeff_a=handle.cubic_coeff_a if mode == "cubic" else None,
        # Singa's antialiasing never has weights outside.
        exclude_outside=int(handle.exclude_outside or handle.antialias),
        antialias=1 if handle.antialias else None,
    )


def _average(call: Call) -> None:
    """Averages of equal windows are pooling. Others are a product with a matrix for each axis."""
    shapes = zip(call.in_shapes(), call.out_shapes(), strict=True)
    if len({(x[2:], y[2:]) for x, y in shapes}) > 1:
        raise call.refuse("averages of axes whose lengths change")
    x, y = call.in_shapes()[0], call.out_shapes()[0]
    pairs = list(zip(x, y, strict=True))
    if len(x) > 2 and x[:2] == y[:2] and all(m and n % m == 0 for n, m in pairs[2:]):
        window = [n // m for n, m in pairs[2:]]
        call.node("AveragePool", call.inputs, kernel_shape=window, strides=window)
        return
    found = call.type_of_input()
    wide = found if found in ("float32", "float64") else "float32"
    value = call.cast(call.inputs[0], found, wide)
    for axis, (n, m) in enumerate(pairs):
        if n != m:
            value = call.averaged(value, axis, len(x), n, m, wide)
    call.finish(value, wide)


def _factors(call: Call) -> Any:
    """The scales of all axes; None if lengths say the same.

    The corners are where they are whatever the scale, of which readers make different things.
    """
    aligned = call.op._handle.coordinates == COORDINATES["align_corners"]
    if aligned and not call.op._handle.antialias:
        return None
    scales = call.same(lambda op: op.scales, "scales")
    factors = np.ones(len(call.x[0].shape()), np.float32)
    exact = True
    for axis, scale in zip(call.op.axes, scales, strict=False):
        factors[axis] = scale
        exact = exact and scale == call.y[0].shape()[axis] / max(call.x[0].shape()[axis], 1)
    shapes = list(zip(call.in_shapes(), call.out_shapes(), strict=True))
    if not scales or (exact and len(shapes) == 1):
        return None
    if aligned:
        raise call.refuse("antialias by scales with aligned corners")
    for before, after in shapes:
        if tuple(np.floor(np.array(before, np.float32) * factors)) != after:
            raise call.refuse(f"scales {scales} that float32 does not hold")
    return factors


@writes(ag.SpaceToDepth, reads="blocksize mode")
def space_to_depth(call: Call) -> None:
    """Blocks of pixels to channels."""
    if call.op.mode == "DCR":
        call.node("SpaceToDepth", call.inputs, blocksize=call.op.blocksize)
    elif call.opset >= 28:
        call.node("SpaceToDepth", call.inputs, blocksize=call.op.blocksize, mode="CRD")
    else:
        b = call.op.blocksize
        shapes = call.in_shapes()
        blocks = [(n, c, h // b, b, w // b, b) for n, c, h, w in shapes]
        x = call.reshape(call.inputs[0], shapes, blocks)
        x = call.step("Transpose", [x], perm=[0, 1, 3, 5, 2, 4])
        moved = [tuple(s[i] for i in (0, 1, 3, 5, 2, 4)) for s in blocks]
        call.node("Reshape", [x, call.writer.new_shape(moved, call.out_shapes())])

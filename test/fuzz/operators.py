"""The operators of random programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from draw import Draw
from singa import autograd, layer

#: Programs do not use results with more elements than this.
LARGEST = 20_000

SMOOTH = (
    *("relu", "tanh", "sigmoid", "abs", "negative", "exp", "softplus", "softsign", "sin", "cos"),
    *("erf", "gelu", "silu", "elu", "selu", "leakyrelu", "hardsigmoid", "atan", "asinh", "square"),
    *("identity", "clip"),
)
#: Functions with poles, jumps, or a limited domain.
WILD = (
    *("log", "sqrt", "reciprocal", "acos", "acosh", "asin", "atanh", "tan", "sinh", "cosh"),
    *("ceil", "floor", "round", "rounde", "sign"),
)
_BINARY = ("add", "mul", "sub", "add", "mul", "prelu")
_WILD_BINARY = ("div", "pow", "less", "greater", "equal", "max", "min", "mod", "less_equal")

Apply = Callable[..., Any]


class Step:
    """One operator of a program: `apply(*values)`. `name` describes it, and `layers` have its
    parameters."""

    def __init__(self, name: str, operands: list[int], apply: Apply, smooth: bool = True) -> None:
        self.name, self.operands, self.apply, self.smooth = name, operands, apply, smooth
        self.layers: list[Any] = []


def draw_step(draw: Draw, shapes: list[tuple[int, ...]]) -> Step:
    """A random step on values of these shapes, which it may reject."""
    latest = len(shapes) - 1
    first = latest if not draw.chance(3) else draw.below(len(shapes))
    shape = shapes[first]
    makers = [_unary, _unary, _binary, _scalar, _view, _join, _reduce, _index]
    if len(shape) == 4:
        makers += [_conv, _conv, _norm, _norm_relu, _pool, _image]
    if len(shape) == 2:
        makers += [_linear, _linear, _product]
    return draw.pick(makers)(draw, shapes, first)


def _unary(draw: Draw, shapes: Any, at: int) -> Step:
    wild = draw.chance(6)
    name = draw.pick(WILD if wild else SMOOTH)
    function = getattr(autograd, name)
    if name == "clip":
        return Step("clip(-0.7, 0.9)", [at], lambda x: autograd.clip(x, -0.7, 0.9))
    return Step(name, [at], function, not wild)


def _scalar(draw: Draw, shapes: Any, at: int) -> Step:
    number = draw.pick((0.5, -1.5, 2.0, 0.0, -0.0, 1e-3))
    ways: tuple[tuple[str, Apply, bool], ...] = (
        ("x + s", lambda x: x + number, True),
        ("x * s", lambda x: x * number, True),
        ("s - x", lambda x: number - x, True),
        ("x / s", lambda x: x / number, number != 0),
        ("s / x", lambda x: number / x, False),
        ("x ** 2", lambda x: x**2, True),
    )
    name, apply, smooth = draw.pick(ways)
    return Step(f"{name}, s = {number}", [at], apply, smooth)


def _binary(draw: Draw, shapes: Any, at: int) -> Step:
    wild = draw.chance(6)
    name = draw.pick(_WILD_BINARY if wild else _BINARY)
    same = [i for i, shape in enumerate(shapes) if shape == shapes[at]]
    other = draw.pick(same) if not draw.chance(4) else draw.below(len(shapes))
    return Step(name, [at, other], getattr(autograd, name), not wild)


def _view(draw: Draw, shapes: Any, at: int) -> Step:
    rank = len(shapes[at])
    way = draw.below(7)
    if way == 0:
        axes = list(range(rank))
        for i in range(rank - 1, 0, -1):
            j = draw.below(i + 1)
            axes[i], axes[j] = axes[j], axes[i]
        return Step(f"transpose{axes}", [at], lambda x: autograd.transpose(x, axes))
    if way == 1:
        return Step("flatten", [at], autograd.flatten)
    if way == 2:
        axis = draw.below(rank + 1)
        return Step(f"unsqueeze({axis})", [at], lambda x: autograd.unsqueeze(x, axis))
    if way == 3:
        return Step("squeeze", [at], autograd.squeeze)
    if way == 4 and rank == 4:
        return Step("to_blocked", [at], autograd.to_blocked)
    if way == 5:
        shape = [*shapes[at][:1], -1] if draw.chance(2) else [-1, *shapes[at][-1:]]
        return Step(f"reshape{shape}", [at], lambda x: autograd.reshape(x, shape))
    return Step("transpose twice", [at], lambda x: _twice(x, rank))


def _twice(x: Any, rank: int) -> Any:
    axes = (*range(rank - 2), rank - 1, rank - 2) if rank > 1 else tuple(range(rank))
    return autograd.transpose(autograd.transpose(x, axes), axes)


def _join(draw: Draw, shapes: Any, at: int) -> Step:
    rank = len(shapes[at])
    axis = draw.below(max(rank, 1))
    way = draw.below(4)
    if way == 0:
        count = draw.pick((2, 3, 13, 20))
        return Step(f"cat of {count}", [at], lambda x: autograd.cat([x] * count, axis))
    if way == 1:
        same = [i for i, shape in enumerate(shapes) if shape == shapes[at]]
        other = draw.pick(same)
        return Step(f"cat, axis {axis}", [at, other], lambda a, b: autograd.cat([a, b], axis))
    if way == 2:
        parts = draw.pick((1, 2, 13))

        def split(x: Any) -> Any:
            length = x.shape[axis]
            pieces = [length // parts] * (parts - 1) + [length - length // parts * (parts - 1)]
            found = autograd.split(x, axis, pieces)
            return found[-1] if isinstance(found, list | tuple) else found

        return Step(f"split into {parts}", [at], split)
    return Step(
        "tile", [at], lambda x: autograd.tile(x, [2 if i == axis else 1 for i in range(rank)])
    )


def _reduce(draw: Draw, shapes: Any, at: int) -> Step:
    rank = len(shapes[at])
    names = ("reduce_sum", "reduce_mean", "reduce_mean", "reduce_max", "reduce_min", "reduce_l2")
    name = draw.pick((*names, "softmax", "log_softmax", "reduce_prod"))
    axis = draw.below(max(rank, 1))
    function = getattr(autograd, name)
    if "softmax" in name:
        return Step(f"{name}({axis})", [at], lambda x: function(x, axis))
    keep = draw.below(2)
    return Step(
        f"{name}({axis}, {keep})", [at], lambda x: function(x, [axis], keep), name != "reduce_l2"
    )


def _index(draw: Draw, shapes: Any, at: int) -> Step:
    shape = shapes[at]
    axis = draw.below(max(len(shape), 1))
    length = shape[axis] if shape else 1
    way = draw.below(5)
    if way == 0:
        start = draw.below(max(length, 1))
        return Step(
            f"slice from {start}", [at], lambda x: autograd.slice(x, [start], [length], [axis])
        )
    if way == 1:
        return Step(
            "slice backwards", [at], lambda x: autograd.slice(x, [-1], [-(2**31)], [axis], [-1])
        )
    if way == 2:
        picked = [draw.below(max(length, 1)) for _ in range(3)]
        return Step(f"gather{picked}", [at], lambda x: autograd.gather(x, axis, picked))
    if way == 3:
        ratio = draw.pick((0.3, 0.5, 0.0))
        return Step(f"dropout {ratio}", [at], lambda x: autograd.dropout(x, ratio=ratio))
    mode = draw.pick(("constant", "reflect", "edge", "wrap"))
    pads = [0] * (2 * len(shape))
    if pads:
        pads[axis] = 1
    return Step(f"pad {mode}", [at], lambda x: autograd.pad(x, mode, pads))


def _conv(draw: Draw, shapes: Any, at: int) -> Step:
    size = draw.pick((3, 1, 5, 2))
    out = draw.pick((8, 16, 3, 17, 32))
    group = shapes[at][1] if draw.chance(6) else 1
    conv = layer.Conv2d(
        out * group if group > 1 else out, size, padding=draw.pick((size // 2, 0)),
        stride=draw.pick((1, 1, 2)), bias=draw.chance(2), group=group,
    )  # fmt: skip
    apply: Apply = conv
    name = f"Conv2d({conv.nb_kernels}, {size}, group {group})"
    if draw.chance(2):
        name, apply = f"{name} and relu", lambda x: autograd.relu(conv(x))
    step = Step(name, [at], apply)
    step.layers.append(conv)
    return step


def _norm(draw: Draw, shapes: Any, at: int) -> Step:
    norm = layer.BatchNorm2d(momentum=0.5)
    step = Step("BatchNorm2d", [at], norm)
    step.layers.append(norm)
    return step


def _norm_relu(draw: Draw, shapes: Any, at: int) -> Step:
    norm = layer.BatchNorm2d(momentum=0.5)
    if draw.chance(2):
        step = Step("BatchNorm2d with relu", [at], lambda x: norm(x, relu=True))
    else:
        same = draw.pick([i for i, shape in enumerate(shapes) if shape == shapes[at]])
        step = Step(
            "BatchNorm2d with add and relu", [at, same], lambda x, y: norm(x, add=y, relu=True)
        )
    step.layers.append(norm)
    return step


def _pool(draw: Draw, shapes: Any, at: int) -> Step:
    size, stride, pad = draw.pick((2, 3)), draw.pick((1, 2)), draw.below(2)
    kind = draw.pick((layer.MaxPool2d, layer.AvgPool2d))
    pool = kind(size, stride, padding=pad)
    name = f"{kind.__name__}({size}, {stride}, {pad})"
    if draw.chance(3):
        return Step(f"relu and {name}", [at], lambda x: pool(autograd.relu(x)))
    return Step(name, [at], pool)


def _image(draw: Draw, shapes: Any, at: int) -> Step:
    way = draw.below(3)
    if way == 0:
        return Step("globalaveragepool", [at], autograd.globalaveragepool)
    if way == 1:
        return Step("upsample", [at], lambda x: autograd.upsample(x, "nearest", [1, 1, 2, 2]))
    return Step("depth_to_space", [at], lambda x: autograd.depth_to_space(x, 2))


def _linear(draw: Draw, shapes: Any, at: int) -> Step:
    fc = layer.Linear(draw.pick((4, 1, 16, 7)), bias=draw.chance(2))
    relu = draw.chance(2)
    step = Step(
        "Linear and relu" if relu else "Linear",
        [at],
        lambda x: autograd.relu(fc(x)) if relu else fc(x),
    )
    step.layers.append(fc)
    return step


def _product(draw: Draw, shapes: Any, at: int) -> Step:
    return Step("x @ x.T", [at], lambda x: autograd.matmul(x, autograd.transpose(x, (1, 0))))

"""Elementwise operators, reductions and movement, compared with PyTorch over 200 random shapes,
axes and views of each family. `random_geometry` has the method."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_geometry import Bound, Bounds, Families, Trial, copies, elementwise, products, run
from singa import autograd, tensor

family = Families()


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


# Elementwise operators.

# name: (lowest and highest input, PyTorch's function, whether the derivative is computed from the
# result)
_UNARY: dict[str, tuple[float, float, Callable[[Any, Any], Any], bool]] = {
    "abs": (-3, 3, lambda torch, x: x.abs(), False),
    "acos": (-0.95, 0.95, lambda torch, x: x.acos(), False),
    "acosh": (1.1, 9, lambda torch, x: x.acosh(), False),
    "asin": (-0.95, 0.95, lambda torch, x: x.asin(), False),
    "asinh": (-4, 4, lambda torch, x: x.asinh(), False),
    "atan": (-4, 4, lambda torch, x: x.atan(), False),
    "atanh": (-0.95, 0.95, lambda torch, x: x.atanh(), False),
    "ceil": (-4, 4, lambda torch, x: x.ceil(), False),
    "celu": (-4, 4, lambda torch, x: torch.nn.functional.celu(x), False),
    "cos": (-4, 4, lambda torch, x: x.cos(), False),
    "cosh": (-3, 3, lambda torch, x: x.cosh(), False),
    "erf": (-3, 3, lambda torch, x: x.erf(), False),
    "erfc": (-3, 3, lambda torch, x: x.erfc(), False),
    "erfinv": (-0.95, 0.95, lambda torch, x: x.erfinv(), True),
    "exp": (-4, 4, lambda torch, x: x.exp(), True),
    "exp2": (-4, 4, lambda torch, x: x.exp2(), True),
    "floor": (-4, 4, lambda torch, x: x.floor(), False),
    "lgamma": (0.2, 9, lambda torch, x: x.lgamma(), False),
    "log": (0.1, 9, lambda torch, x: x.log(), False),
    "log10": (0.1, 9, lambda torch, x: x.log10(), False),
    "log2": (0.1, 9, lambda torch, x: x.log2(), False),
    "logsigmoid": (-6, 6, lambda torch, x: torch.nn.functional.logsigmoid(x), False),
    "negative": (-3, 3, lambda torch, x: -x, False),
    "reciprocal": (0.2, 4, lambda torch, x: x.reciprocal(), True),
    "round": (-4, 4, lambda torch, x: x.sign() * (x.abs() + 0.5).floor(), False),
    "rounde": (-4, 4, lambda torch, x: x.round(), False),
    "sigmoid": (-6, 6, lambda torch, x: x.sigmoid(), True),
    "sign": (-3, 3, lambda torch, x: x.sign(), False),
    "sin": (-4, 4, lambda torch, x: x.sin(), False),
    "sinh": (-3, 3, lambda torch, x: x.sinh(), False),
    "softplus": (-6, 6, lambda torch, x: torch.nn.functional.softplus(x), False),
    "softsign": (-4, 4, lambda torch, x: x / (1 + x.abs()), False),
    "sqrt": (0.1, 9, lambda torch, x: x.sqrt(), True),
    "square": (-3, 3, lambda torch, x: x * x, False),
    "tan": (-1.4, 1.4, lambda torch, x: x.tan(), True),
    "tanh": (-3, 3, lambda torch, x: x.tanh(), True),
    "trunc": (-4, 4, lambda torch, x: x.trunc(), False),
}


@family
def functions(t: Trial) -> None:
    name = t.pick(*_UNARY)
    low, high, theirs, from_y = _UNARY[name]
    shape = t.shape(t.integer(0, 4))
    t.facts.update(function=name, x=shape)
    t.check(
        getattr(autograd, name),
        lambda x: theirs(t.torch, x),
        [t.input(shape, low, high)],
        elementwise(from_y),
    )


@family
def activations(t: Trial) -> None:
    functional, torch = t.torch.nn.functional, t.torch
    a, b = t.real(0.05, 1.5), t.real(0.6, 1.4)
    kinds: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "relu": (autograd.relu, functional.relu),
        "leakyrelu": (
            lambda x: autograd.leakyrelu(x, a), lambda x: functional.leaky_relu(x, a)
        ),
        "elu": (lambda x: autograd.elu(x, a), lambda x: functional.elu(x, a)),
        "selu": (
            lambda x: autograd.selu(x, a, b),
            lambda x: b * torch.where(x > 0, x, a * torch.expm1(x)),
        ),
        "gelu": (autograd.gelu, lambda x: x * torch.special.erfc(-x / 2**0.5) / 2),
        "silu": (autograd.silu, functional.silu),
        "hardsigmoid": (
            lambda x: autograd.hardsigmoid(x, a, 0.5), lambda x: (a * x + 0.5).clip(0, 1)
        ),
        "clip": (lambda x: autograd.clip(x, -a, b), lambda x: x.clip(-a, b)),
    }  # fmt: skip
    name = t.pick(*kinds)
    shape = t.shape(t.integer(0, 4))
    t.facts.update(function=name, a=a, b=b, x=shape)
    ours, theirs = kinds[name]
    t.check(ours, theirs, [t.input(shape, -4, 4)], elementwise())


def _broadcast_shapes(t: Trial, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together: some axes have length 1, or are missing in front."""
    whole = t.shape(t.integer(0, 4), 6)
    shapes = [whole]
    for _ in range(count - 1):
        shape = [1 if t.chance(0.3) else n for n in whole]
        shapes.append(tuple(shape[t.integer(0, len(shape)) if t.chance(0.4) else 0 :]))
    return [shapes[i] for i in t.order(count)]


@family
def two_tensors(t: Trial) -> None:
    torch = t.torch
    kinds: dict[str, tuple[Any, float, float]] = {
        "add": (lambda a, b: a + b, -2, 2),
        "sub": (lambda a, b: a - b, -2, 2),
        "mul": (lambda a, b: a * b, -2, 2),
        "div": (lambda a, b: a / b, 0.2, 2),
        "pow": (lambda a, b: a**b, 0.2, 3),
        "max": (torch.maximum, -2, 2),
        "min": (torch.minimum, -2, 2),
        "prelu": (lambda a, b: torch.where(a > 0, a, b * a), -2, 2),
    }
    name = t.pick(*kinds)
    theirs, low, high = kinds[name]
    shapes = _broadcast_shapes(t, 2)
    t.facts.update(function=name, a=shapes[0], b=shapes[1])
    if name == "prelu":  # the slope must broadcast to the input
        shapes.sort(key=lambda shape: (np.prod(shape), len(shape)), reverse=True)
    inputs = [t.input(shape, low, high) for shape in shapes]
    t.check(getattr(autograd, name), theirs, inputs, elementwise(name == "pow"))


@family
def comparisons(t: Trial) -> None:
    torch = t.torch
    names = {
        "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq",
        "not_equal": "ne", "_and": "logical_and", "_or": "logical_or", "_xor": "logical_xor",
    }  # fmt: skip
    name = t.pick(*names)
    shapes = _broadcast_shapes(t, 2)
    t.facts.update(function=name, a=shapes[0], b=shapes[1])
    inputs = [t.input(s, values=t.random.integers(-1, 2, s)) for s in shapes]
    t.check(
        getattr(autograd, name),
        lambda a, b: getattr(torch, names[name])(a, b).double(),
        inputs,
        copies(),
        backward=False,
    )


@family
def where(t: Trial) -> None:
    shapes = _broadcast_shapes(t, 3)
    condition = t.random.integers(0, 2, shapes[2])
    kind = t.pick("bool", "float32", "int32")
    t.facts.update(x=shapes[0], y=shapes[1], condition=shapes[2], kind=kind)
    t.check(
        lambda x, y: autograd.where(x, y, condition.astype(kind)),
        lambda x, y: t.torch.where(t.torch.tensor(condition != 0), x, y),
        [t.input(shapes[0]), t.input(shapes[1])],
        copies(),
    )


# Reductions.


def _extremum_bound() -> Bound:
    """Equal elements share the gradient."""

    def bound(trial: Trial, oracle: Any, xs: list[Any], dys: list[Any]) -> Bounds:
        y, dx = copies()(trial, oracle, xs, dys)
        return y, [8 * dys[0].abs().max() + slope if slope.numel() else slope for slope in dx]

    return bound


@family
def reductions(t: Trial) -> None:
    shape = t.shape(t.integer(0, 4), 9)
    rank = len(shape)
    axes = t.order(rank)[: t.integer(0, rank)]
    over = tuple(axes) or tuple(range(rank))
    axes = [axis - rank if t.chance(0.3) else axis for axis in axes]
    keep = t.chance()
    name = t.pick("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square")
    t.facts.update(function=name, x=shape, axes=axes, keep=keep)
    terms = int(np.prod([shape[axis] for axis in over])) if over else 1
    if terms == 0 and name in ("max", "min"):  # no elements: an error, tested elsewhere
        shape = tuple(max(1, n) for n in shape)

    def oracle(x: Any) -> Any:
        if not over:  # a single element
            return (
                x * 1
                if name not in ("l1", "l2", "sum_square")
                else (x * x if name == "sum_square" else x.abs())
            )
        if name in ("sum", "mean"):
            return getattr(x, name)(over, keepdim=keep)
        if name in ("max", "min"):
            return getattr(x, "a" + name)(over, keepdim=keep)
        if name == "prod":
            for axis in sorted(over, reverse=True):
                x = x.prod(axis, keepdim=keep)
            return x
        if name == "l1":
            return x.abs().sum(over, keepdim=keep)
        square = (x * x).sum(over, keepdim=keep)
        return square if name == "sum_square" else square.sqrt()

    values = None
    if name in ("max", "min") and t.chance(0.5):  # ties share the gradient
        values = t.random.integers(-2, 3, shape)
    bound = _extremum_bound() if name in ("max", "min") else products(terms**2, None, name == "l2")
    function = getattr(autograd, f"reduce_{name}")
    x = t.input(shape, 0.2, 1.5, values) if name == "prod" else t.input(shape, values=values)
    t.check(lambda x: function(x, axes or None, keep), oracle, [x], bound)


@family
def positions_of_extrema(t: Trial) -> None:
    shape = tuple(t.integers(t.integer(1, 4), 1, 7))
    axis, keep = t.integer(-len(shape), len(shape) - 1), t.chance()
    name = t.pick("argmax", "argmin")
    t.facts.update(function=name, x=shape, axis=axis, keep=keep)
    x = t.input(shape, values=t.random.integers(-3, 4, shape))  # ties: the first one
    t.check(
        lambda x: getattr(autograd, name)(x, axis, keep),
        lambda x: t.torch.tensor(
            getattr(np, name)(x.numpy(), axis, keepdims=keep).astype(np.float64)
        ),
        [x],
        copies(),
        backward=False,
    )


# Movement of elements.


@family
def slices(t: Trial) -> None:
    """ONNX's slices and Python's, with negative steps and bounds outside of the axis."""
    shape = t.shape(t.integer(1, 4))
    rank = len(shape)
    axes = t.order(rank)[: t.integer(1, rank)]
    steps = [t.pick(1, 1, 2, 3, -1, -2) for _ in axes]
    starts, ends = t.integers(len(axes), -9, 9), t.integers(len(axes), -9, 9)
    python = t.chance()
    t.facts.update(x=shape, axes=axes, starts=starts, ends=ends, steps=steps, python=python)
    entries = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        entries[axis] = slice(start, end, step)

    def oracle(x: Any) -> Any:
        for axis, entry in enumerate(entries):
            index = np.arange(shape[axis])[entry]
            x = x.index_select(axis, t.torch.tensor(index.copy()))
        return x

    def ours(x: Any) -> Any:
        if python:
            return x[tuple(entries)]
        named = [axis - rank if t.chance(0.3) else axis for axis in axes]
        return autograd.slice(x, starts, ends, named, steps)

    t.check(ours, oracle, [t.input(shape)], copies())


@family
def indexing(t: Trial) -> None:
    """x[key] with integers, new axes, an ellipsis, and arrays of indices or a mask."""
    shape = tuple(t.integers(t.integer(1, 4), 1, 6))
    key: list[Any] = []
    arrays = {axis for axis in range(len(shape)) if t.chance(0.3)}
    rows, columns = t.integer(1, 4), t.integer(1, 4)
    for axis, n in enumerate(shape):
        if t.chance(0.15):
            key.append(None)
        if axis in arrays:
            key.append(
                t.random.integers(-n, n, t.pick((columns,), (1,), (rows, columns), (rows, 1)))
            )
        else:
            key.append(t.pick(slice(None), slice(t.integer(0, n - 1), n), t.integer(-n, n - 1)))
    if not arrays and t.chance(0.3):
        key = [*key[: t.integer(0, len(key))], ...]
    if t.chance(0.15):
        key = [t.random.integers(0, 2, shape[: t.integer(1, len(shape))]).astype(bool)]
    t.facts.update(x=shape, key=key)
    index = tuple(t.torch.tensor(e) if isinstance(e, np.ndarray) else e for e in key)
    t.check(lambda x: x[tuple(key)], lambda x: x[index], [t.input(shape)], copies())


@family
def gather(t: Trial) -> None:
    shape = tuple(t.integers(t.integer(1, 4), 1, 6))
    axis = t.integer(-len(shape), len(shape) - 1)
    n = shape[axis]
    picked = t.random.integers(-n, n, t.shape(t.integer(0, 2), 5))
    kind = t.pick("int32", "int64")
    t.facts.update(x=shape, axis=axis, indices=picked.shape, kind=kind)

    def oracle(x: Any) -> Any:
        flat = t.torch.tensor(picked.reshape(-1) % n)
        y = x.index_select(axis, flat)
        at = axis % len(shape)
        return y.reshape((*shape[:at], *picked.shape, *shape[at + 1 :]))

    def ours(x: Any) -> Any:
        return autograd.gather(x, axis, tensor.from_numpy(picked.astype(kind), dtype=kind))

    t.check(ours, oracle, [t.input(shape)], copies())


@family
def repetition(t: Trial) -> None:
    """tile, repeat, upsample, expand."""
    kind = t.pick("tile", "repeat", "upsample", "expand")
    shape = t.shape(t.integer(1, 3), 5)
    rank = len(shape)
    t.facts.update(kind=kind, x=shape)
    torch = t.torch
    if kind == "tile":
        repeats = t.integers(t.integer(1, 4), 0 if t.chance(0.1) else 1, 3)
        full = [*repeats, *[1] * (rank - len(repeats))]  # singa's counts begin with the first axis
        ours, theirs = (lambda x: autograd.tile(x, repeats)), (lambda x: x.tile(*full))
    elif kind == "repeat":
        axis = t.integer(-rank, rank - 1)
        counts = t.integers(shape[axis], 0, 3)
        ours = lambda x: x.repeat(counts, axis)  # noqa: E731
        theirs = lambda x: x.repeat_interleave(torch.tensor(counts), axis)  # noqa: E731
        if not counts or t.chance():
            ours = lambda x: x.repeat(2, axis)  # noqa: E731
            theirs = lambda x: x.repeat_interleave(2, axis)  # noqa: E731
    elif kind == "upsample":
        scales = t.integers(rank, 1, 3)

        def ours(x: Any) -> Any:
            return autograd.upsample(x, "nearest", scales)

        def theirs(x: Any) -> Any:
            for axis, scale in enumerate(scales):
                x = x.repeat_interleave(scale, axis)
            return x
    else:
        target = _broadcast_shapes(t, 2)
        shape = target[0]
        ours = lambda x: autograd.expand(x, target[1])  # noqa: E731
        theirs = lambda x: x.expand(torch.broadcast_shapes(*target)) * 1  # noqa: E731
    t.check(ours, theirs, [t.input(shape)], copies())


@family
def joining(t: Trial) -> None:
    """cat of views, and split."""
    shape = t.shape(t.integer(1, 4))
    axis = t.integer(-len(shape), len(shape) - 1)
    parts = t.integers(t.integer(1, 4), 0 if t.chance(0.2) else 1, 4)
    split = t.chance()
    t.facts.update(x=shape, axis=axis, parts=parts, split=split)

    def sized(n: int) -> tuple[int, ...]:
        lengths = list(shape)
        lengths[axis] = n
        return tuple(lengths)

    if split:
        t.check(
            lambda x: autograd.split(x, axis, parts),
            lambda x: t.torch.split(x, parts, axis),
            [t.input(sized(sum(parts)))],
            copies(),
        )
    else:
        t.check(
            lambda *xs: autograd.cat(xs, axis),
            lambda *xs: t.torch.cat(xs, axis),
            [t.input(sized(n)) for n in parts],
            copies(),
        )


@family
def axes_and_shapes(t: Trial) -> None:
    """transpose, reshape, flatten, squeeze and unsqueeze, depth to space and back."""
    kind = t.pick("transpose", "reshape", "flatten", "squeeze", "unsqueeze", "shuffle")
    shape = t.shape(t.integer(0 if kind != "shuffle" else 1, 4), 5)
    rank = len(shape)
    t.facts.update(kind=kind, x=shape)
    if kind == "transpose":
        order = t.order(rank)
        named = [i - rank if t.chance(0.3) else i for i in order]
        ours, theirs = (lambda x: autograd.transpose(x, named)), (lambda x: x.permute(order))
    elif kind == "reshape":
        flat = int(np.prod(shape, dtype=int))
        first = t.pick(*[n for n in range(1, flat + 1) if flat % n == 0] or [1])
        new = (first, -1) if flat else (1, 0, 3)
        ours = lambda x: autograd.reshape(x, new)  # noqa: E731
        theirs = lambda x: x.reshape(new)  # noqa: E731
    elif kind == "flatten":
        axis = t.integer(-rank, rank)
        rows = int(np.prod(shape[: axis + rank if axis < 0 else axis], dtype=int))
        rest = int(np.prod(shape[axis + rank if axis < 0 else axis :], dtype=int))
        ours = lambda x: autograd.flatten(x, axis)  # noqa: E731
        theirs = lambda x: x.reshape(rows, rest)  # noqa: E731
    elif kind == "squeeze":
        ours, theirs = autograd.squeeze, lambda x: x.squeeze() * 1
    elif kind == "unsqueeze":
        axis = t.integer(-rank - 1, rank)
        ours = lambda x: autograd.unsqueeze(x, axis)  # noqa: E731
        theirs = lambda x: x.unsqueeze(axis)  # noqa: E731
    else:
        block, mode = t.integer(1, 3), t.pick("DCR", "CRD")
        n, c, h, w = t.batch(), t.integer(1, 3), *t.integers(2, 1, 3)
        deep, wide = (n, c * block * block, h, w), (n, c, h * block, w * block)
        split = (n, block, block, c, h, w) if mode == "DCR" else (n, c, block, block, h, w)
        order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        if t.chance():
            shape = deep
            ours = lambda x: autograd.depth_to_space(x, block, mode)  # noqa: E731
            theirs = lambda x: x.reshape(split).permute(order).reshape(wide)  # noqa: E731
        else:
            shape = wide
            back = [int(i) for i in np.argsort(order)]
            cut = (n, c, h, block, w, block)
            ours = lambda x: autograd.space_to_depth(x, block, mode)  # noqa: E731
            theirs = lambda x: x.reshape(cut).permute(back).reshape(deep)  # noqa: E731
    t.check(ours, theirs, [t.input(shape)], copies())


@family
def embedding(t: Trial) -> None:
    vocabulary, width = t.integer(1, 12), t.channels(20)
    picked = t.random.integers(0, vocabulary, t.shape(t.integer(0, 3), 5))
    kind = t.pick("int32", "int64", "float32")
    t.facts.update(w=(vocabulary, width), indices=picked.shape, kind=kind)
    indices = tensor.from_numpy(picked.astype(kind), dtype=kind)
    t.check(
        lambda w: autograd.embedding(indices, w),
        lambda w: w[t.torch.tensor(picked)],
        [t.input((vocabulary, width))],
        copies(),
    )


@family
def casts(t: Trial) -> None:
    """Conversion between float types, with the gradient converted back, and to integers, with
    truncation."""
    to = t.pick("float32", "float64", "float16", "bfloat16", "int32", "uint8")
    shape = t.shape(t.integer(0, 3))
    t.facts.update(x=shape, to=to)
    x = t.input(shape, 0 if to == "uint8" else -3, 90)
    if to in ("int32", "uint8"):
        t.check(lambda x: autograd.cast(x, to), lambda x: x.trunc(), [x], copies(), False)
        return
    t.check(lambda x: autograd.cast(x, to), lambda x: x * 1, [x], copies(), dy_dtype=to)

"""Operators that take, place, count, order or move elements, compared with PyTorch or NumPy over
200 random shapes of each family. `random_geometry` has the method."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from random_geometry import Families, Trial, copies, products, run
from singa import autograd, tensor
from singa import singa_wrap as wrap

family = Families()

#: Types of indices, and of what is moved beside the floats of a trial.
_INDEX_TYPES = ("int64", "int32", "float32", "int8")
_OTHER_TYPES = ("int8", "uint8", "int32", "int64", "bool")


@pytest.mark.parametrize("check", family, ids=lambda check: check.__name__)
def test_family_is_pytorch(check: Callable[[Trial], None], torch: ModuleType) -> None:
    run(check, torch)


def _indices(t: Trial, values: Any) -> tensor.Tensor:
    """As a tensor of any type, which is row-major or not."""
    kind = t.pick(*_INDEX_TYPES)
    t.facts["indices"] = (kind, values.shape)
    if values.ndim > 1 and t.chance():
        return autograd.transpose(tensor.from_numpy(values.T.copy().astype(kind), dtype=kind))
    return tensor.from_numpy(values.astype(kind), dtype=kind)


def _moves(t: Trial, ours: Any, theirs: Any, shape: Any) -> None:
    """Elements of other types that are moved keep their bits."""
    kind = _OTHER_TYPES[t.random.integers(len(_OTHER_TYPES))]
    x = t.random.integers(0, 2 if kind == "bool" else 100, shape).astype(kind)
    got = ours(tensor.from_numpy(x, dtype=kind))
    assert got.dtype.name == kind
    np.testing.assert_array_equal(got.numpy(), theirs(t.torch.tensor(x)).numpy(), t.message(kind))


def _beside(t: Trial, longest: int = 9) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """A shape, an axis, and the shape of indices that are no longer beside the axis."""
    shape = tuple(t.integers(t.integer(1, 4), 1, 6))
    axis = t.integer(0, len(shape) - 1)
    size = tuple(
        t.integer(0, longest) if i == axis else t.integer(1, n) for i, n in enumerate(shape)
    )
    t.facts.update(x=shape, axis=axis)
    return shape, axis, size


@family
def gather_elements(t: Trial) -> None:
    shape, axis, size = _beside(t)
    picked = t.random.integers(-shape[axis], shape[axis], size)
    places = t.torch.tensor(picked % shape[axis])
    named, indices = axis - len(shape) * t.chance(), _indices(t, picked)
    ours = lambda x: autograd.gather_elements(x, indices, named)  # noqa: E731
    theirs = lambda x: x.gather(axis, places)  # noqa: E731
    t.check(ours, theirs, [t.input(shape)], copies())
    _moves(t, ours, theirs, shape)


@family
def gather_nd(t: Trial) -> None:
    shape = tuple(t.integers(t.integer(1, 4), 2, 5))
    batch = t.integer(0, len(shape) - 1)
    count = t.integer(1, len(shape) - batch)
    rows = (*shape[:batch], *t.integers(t.integer(0, 2), 0, 4))
    picked = t.random.integers(-2, 2, (*rows, count))
    t.facts.update(x=shape, batch=batch)
    own = np.meshgrid(*map(np.arange, rows), indexing="ij")[:batch]
    key = tuple(
        t.torch.tensor(each)
        for each in (*own, *(picked[..., i] % shape[batch + i] for i in range(count)))
    )
    indices = _indices(t, picked)
    ours, theirs = (lambda x: autograd.gather_nd(x, indices, batch)), (lambda x: x[key])
    t.check(ours, theirs, [t.input(shape)], copies())
    _moves(t, ours, theirs, shape)


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@family
def scatter_elements(t: Trial) -> None:
    """Updates of one place several times."""
    shape, axis, size = _beside(t)
    picked = t.random.integers(-shape[axis], shape[axis], size)
    places = t.torch.tensor(picked % shape[axis])
    how, indices = t.pick(*_REDUCTIONS), _indices(t, picked)
    t.facts["reduction"] = how
    # Values of 1 and 2 have exact products. Distinct ones have one extremum.
    values = [2.0 ** t.random.integers(0, 2, each) for each in (shape, size)]
    if how in ("max", "min"):
        every = t.random.permutation(int(np.prod(shape)) + int(np.prod(size))) / 8.0
        values = [each.reshape(s) for each, s in zip(
            np.split(every, [int(np.prod(shape))]), (shape, size), strict=True)]  # fmt: skip
    t.check(
        lambda x, u: autograd.scatter_elements(x, indices, u, axis, how),
        lambda x, u: x.scatter_reduce(axis, places, u, _REDUCTIONS[how]),
        [t.input(shape, values=values[0]), t.input(size, values=values[1])],
        products(4, lambda x, u: x.scatter_reduce(axis, places, u, _REDUCTIONS[how])),
    )


@family
def last_writes(t: Trial) -> None:
    """Of several updates of one place the last remains, and gets the gradient."""
    shape, axis, size = _beside(t)
    picked = t.random.integers(0, shape[axis], size)
    writer = np.full(shape, -1)
    for at, index in enumerate(np.ndindex(*size)):
        to = list(index)
        to[axis] = picked[index]
        writer[tuple(to)] = at
    places, indices = t.torch.tensor(writer), _indices(t, picked)

    def theirs(x: Any, u: Any) -> Any:
        taken = t.torch.cat([u.reshape(-1), u.new_zeros(1)])[places]
        return t.torch.where(places < 0, x, taken)

    ours = lambda x, u: autograd.scatter_elements(x, indices, u, axis)  # noqa: E731
    t.check(ours, theirs, [t.input(shape), t.input(size)], copies())


@family
def scatter_nd(t: Trial) -> None:
    shape, count = (3, 4, 2), t.integer(1, 3)
    picked = t.random.integers(-2, 2, (t.integer(0, 9), count))
    how = t.pick("none", *_REDUCTIONS)
    kind = t.pick("float32", "int64", "uint8")
    t.facts.update(reduction=how, kind=kind)
    x, updates = (
        t.random.integers(0, 4, each).astype(kind)
        for each in (shape, (len(picked), *shape[count:]))
    )
    want = x.copy()
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for row, update in zip(picked, updates, strict=True):
        at = tuple(row)
        want[at] = combine[how](want[at], update) if how != "none" else update
    ours, theirs = (tensor.from_numpy(each, dtype=kind) for each in (x, updates))
    got = autograd.scatter_nd(ours, _indices(t, picked), theirs, how)
    assert got.dtype.name == kind
    np.testing.assert_array_equal(got.numpy(), want)


@family
def one_hot(t: Trial) -> None:
    shape, depth = t.shape(t.integer(0, 3), 5), t.integer(0, 6)
    axis = t.integer(-len(shape) - 1, len(shape))
    picked = t.random.integers(-depth - 2, depth + 3, shape)
    t.facts.update(depth=depth, axis=axis)
    hot = (picked[..., None] % max(depth, 1) == np.arange(depth)) & (
        (picked >= -depth) & (picked < depth)
    )[..., None]
    raw = wrap.OneHot(_indices(t, picked).data, depth, -2.0, 5.0, axis, wrap.kInt32)
    got = tensor.from_raw_tensor(raw).numpy()
    np.testing.assert_array_equal(got, np.moveaxis(np.where(hot, 5, -2), -1, axis))


@family
def nonzero(t: Trial) -> None:
    shape = t.shape(t.integer(0, 4), 6)
    x = t.input(shape, values=t.random.integers(-1, 2, shape))
    t.facts.update(x=shape)
    got = autograd.nonzero(tensor.Tensor(data=x.raw))
    assert got.dtype == tensor.int64
    want = np.reshape(np.nonzero(np.atleast_1d(x.values)), (max(len(shape), 1), -1))
    np.testing.assert_array_equal(got.numpy(), want if shape else want[:0])


@family
def top_k(t: Trial) -> None:
    """Ties keep their order."""
    shape = tuple(t.integers(t.integer(1, 4), 1, 7))
    axis, largest = t.integer(-len(shape), len(shape) - 1), t.chance()
    k = t.integer(0, shape[axis])
    t.facts.update(x=shape, axis=axis, k=k, largest=largest)
    x = t.input(shape, values=t.random.integers(-6, 7, shape))
    order = np.argsort(-x.values if largest else x.values, axis, kind="stable").take(range(k), axis)
    places = t.torch.tensor(order)
    t.check(
        lambda x: autograd.topk(x, k, axis, largest)[0],
        lambda x: x.gather(axis % x.ndim, places),
        [x],
        copies(),
    )
    np.testing.assert_array_equal(
        autograd.topk(tensor.Tensor(data=x.raw), k, axis, largest)[1].numpy(), order
    )


@family
def running_sums(t: Trial) -> None:
    shape = t.shape(t.integer(1, 4))
    axis = t.integer(0, len(shape) - 1)
    exclusive, reverse = t.chance(), t.chance()
    t.facts.update(x=shape, axis=axis, exclusive=exclusive, reverse=reverse)

    def theirs(x: Any) -> Any:
        x = x.flip(axis) if reverse else x
        y = x.cumsum(axis) - (x if exclusive else 0)
        return y.flip(axis) if reverse else y

    ours = lambda x: autograd.cumsum(x, axis, exclusive, reverse)  # noqa: E731
    t.check(ours, theirs, [t.input(shape, 0, 1)], products(shape[axis]))
    counts = t.random.integers(0, 100, shape).astype("uint8")
    got = ours(tensor.from_numpy(counts, dtype="uint8"))
    np.testing.assert_array_equal(got.numpy(), theirs(t.torch.tensor(counts).long()).numpy())


@family
def rolls(t: Trial) -> None:
    shape = t.shape(t.integer(1, 4))
    axes = [t.integer(-len(shape), len(shape) - 1) for _ in range(t.integer(0, 3))]
    shifts = [t.integer(-20, 20) for _ in axes]
    t.facts.update(x=shape, axes=axes, shifts=shifts)
    ours = lambda x: autograd.roll(x, shifts, axes) if axes else x  # noqa: E731
    theirs = lambda x: x.roll(shifts, axes) if axes else x * 1  # noqa: E731
    t.check(ours, theirs, [t.input(shape)], copies())
    if axes:
        _moves(t, ours, theirs, shape)


@family
def channel_shuffle(t: Trial) -> None:
    groups, length = t.integer(1, 5), t.integer(1, 5)
    shape = (t.batch(), groups * length, *t.shape(t.integer(0, 3), 5))
    t.facts.update(x=shape, groups=groups)
    ours = lambda x: autograd.channel_shuffle(x, groups)  # noqa: E731
    theirs = lambda x: x.reshape(  # noqa: E731
        x.shape[0], groups, length, *x.shape[2:]
    ).transpose(1, 2).reshape(x.shape)  # fmt: skip
    t.check(ours, theirs, [t.input(shape)], copies())
    _moves(t, ours, theirs, shape)


@family
def pad(t: Trial) -> None:
    """By as many elements as wanted: reflection goes to and fro."""
    mode = t.pick("constant", "reflect", "edge", "wrap")
    shape = tuple(t.integers(t.integer(1, 4), 1, 6))
    before = [t.integer(-n, 8) if t.chance() else 0 for n in shape]
    after = [
        max(t.integer(-n, 20) if t.chance() else 0, -n - b)
        for n, b in zip(shape, before, strict=True)
    ]
    t.facts.update(mode=mode, x=shape, before=before, after=after)
    sources = []
    for n, b, a in zip(shape, before, after, strict=True):
        wide = np.pad(
            np.arange(n), (max(b, 0), max(a, 0)), mode,
            **({"constant_values": -1} if mode == "constant" else {}),
        )  # fmt: skip
        sources.append(wide[max(-b, 0) : len(wide) - max(-a, 0)])

    def theirs(x: Any, constant: float = 0.5) -> Any:
        inside = t.torch.ones(x.shape, dtype=bool)
        for axis, source in enumerate(sources):
            index = t.torch.tensor(source)
            x = x.index_select(axis, index.clamp(min=0))
            inside = inside.index_select(axis, index.clamp(min=0))
            inside &= (index >= 0).reshape(*[1] * axis, -1, *[1] * (x.ndim - axis - 1))
        return t.torch.where(inside, x, t.torch.tensor(constant, dtype=x.dtype))

    ours = lambda x, constant=0.5: autograd.pad(x, mode, [*before, *after], constant)  # noqa: E731
    t.check(ours, theirs, [t.input(shape)], copies())
    _moves(t, lambda x: ours(x, 1), lambda x: theirs(x, 1), shape)


@family
def moves_of_any_type(t: Trial) -> None:
    """Concatenation, slices, repetition and casts of elements that are no floats."""
    shape = tuple(t.integers(t.integer(1, 4), 1, 5))
    axis, step = t.integer(0, len(shape) - 1), t.pick(1, 2, -1, -2)
    repeats = t.integers(len(shape), 1, 3)
    t.facts.update(x=shape, axis=axis, step=step, repeats=repeats)
    entry = tuple(slice(None, None, step) if i == axis else slice(None) for i in range(len(shape)))
    index = t.torch.arange(shape[axis])
    index = index[::step] if step > 0 else index.flip(0)[::-step]
    _moves(t, lambda x: x[entry], lambda x: x.index_select(axis, index), shape)
    _moves(t, lambda x: autograd.cat([x, x], axis), lambda x: t.torch.cat([x, x], axis), shape)
    _moves(t, lambda x: autograd.tile(x, repeats), lambda x: x.tile(*repeats), shape)
    _moves(t, lambda x: x.repeat(2, axis), lambda x: x.repeat_interleave(2, axis), shape)

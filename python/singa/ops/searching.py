"""Sets, counts and searches, random draws, and elements put where a mask is true."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import bool_, float64, int64, is_float
from ..raw.calls import checks_flags
from ..raw.check import integer
from ..tape.arguments import also_named
from ..tape.elements import as_raw
from ..tape.tensor import Tensor, wrap
from .arithmetic import _and, _or, clip, equal, less, less_equal, not_equal
from .base import tensor_of
from .conversion import cast, converted
from .elementwise import log, negative
from .indexing import gather, gather_elements, where
from .movement import expand, reshape
from .reduction import reduce_max, reduce_sum
from .sorting import cumsum, topk
from .statistics import min as minimum


@also_named(dim="axis")
def unique(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The sorted elements of x, each once, or its slices along an axis, as torch.unique. No NaN is
    equal to another.

    With `return_inverse` also the index of each element of x among them (int64), with
    `return_counts` how often each is there: then a tuple. Results are constants. Their number
    depends on the values, so NumPy computes them, and a recorded step that calls it with what it
    has computed is executed.

    >>> autograd.unique(tensor.Tensor(data=[3.0, 1.0, 3.0]))
    Tensor([1., 3.], dtype=float32)
    >>> values, counts = autograd.unique(tensor.Tensor(data=[3.0, 1.0, 3.0]), return_counts=True)
    >>> counts
    Tensor([1, 2], dtype=int64)
    """
    values, _, inverse, counts = np.unique(x.numpy(), True, True, True, axis, equal_nan=False)
    results = [wrap(as_raw(values, x.dtype, x.device), False)]
    for wanted, each in ((return_inverse, inverse), (return_counts, counts)):
        if wanted:
            results.append(wrap(as_raw(each, int64, x.device), False))
    return tuple(results) if len(results) > 1 else results[0]


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on is in x (N), which has no negative ones: int64, of length
    max(x) + 1, but at least `minlength`. With `weights` (N), their sums, in their type.

    The result is a constant. Its length depends on the values, so NumPy computes it, and a recorded
    step that calls it with what it has computed is executed. Raises ValueError for negative numbers
    and other shapes, TypeError for floats.

    >>> autograd.bincount(tensor.Tensor(data=[0, 2, 2], dtype="int32"))
    Tensor([1, 0, 2], dtype=int64)
    """
    least = integer("bincount", "minlength", minlength, 0)
    if is_float(x.dtype):
        raise TypeError(f"[bincount] x must have an integer type, got {x.shape} {x.dtype}")
    if len(x.shape) != 1 or (weights is not None and weights.shape != x.shape):
        raise ValueError(
            f"[bincount] x and weights must have the same one axis, got {x.shape}"
            + ("" if weights is None else f" and {weights.shape}")
        )
    values = x.numpy().astype(np.int64)
    if values.size and values.min() < 0:
        raise ValueError(f"[bincount] x must not be negative, got {values.min()}")
    counts = np.bincount(values, None if weights is None else weights.numpy(), least)
    dtype = int64 if weights is None else weights.dtype
    return wrap(as_raw(counts, dtype, x.device), False)


@checks_flags
def searchsorted(sorted: Tensor, values: Any, right: bool = False) -> Tensor:
    """Where `values` go in sequences that rise along the last axis, so that these stay sorted, as
    torch.searchsorted: int64 indices in the shape of `values`.

    sorted  (N), for values of any shape; or (..., N), for values (..., M)
    right   behind equal elements instead of in front of them (default False)

    NaN comes behind all numbers, as in numpy.searchsorted. Raises ValueError for shapes that do not
    fit.

    >>> autograd.searchsorted(tensor.Tensor(data=[1.0, 3.0, 5.0]), [0.0, 3.0, 9.0])
    Tensor([0, 1, 3], dtype=int64)
    """
    wanted = tensor_of(values, sorted)
    *before, length = sorted.shape or (0,)
    if not sorted.shape or (before and wanted.shape[:-1] != tuple(before)):
        raise ValueError(
            f"[searchsorted] values {wanted.shape} do not fit sequences {sorted.shape}"
        )
    rows = math.prod(before)
    count = wanted.size() // rows if rows else 0
    found = _bisected(
        reshape(sorted, (rows, length)), reshape(wanted.detach(), (rows, count)), right
    )
    return reshape(found, wanted.shape).detach()


def _bisected(sorted: Tensor, wanted: Tensor, right: bool) -> Tensor:
    """`searchsorted` for matrices (rows, N) and (rows, M), in memory of the size of the result."""
    length = sorted.shape[1]
    has_nan = is_float(sorted.dtype) or is_float(wanted.dtype)
    place = wrap(_c.Full(wanted.shape, 0.0, wanted.device, int(int64)), False)
    for bit in reversed(range(length.bit_length())):
        further = place + (1 << bit)
        last = gather_elements(sorted.detach(), clip(further, max=length) - 1, 1)
        before = (less_equal if right else less)(last, wanted)
        if has_nan:  # behind all numbers
            missing = not_equal(wanted, wanted)
            before = _or(before, missing if right else _and(missing, equal(last, last)))
        place = where(further, place, _and(before, less_equal(further, length)))
    return place


@checks_flags
def multinomial(weights: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    """Indices (int64) drawn with probabilities in proportion to the weights (C) or (N, C), as
    torch.multinomial: (num_samples) or (N, num_samples).

    Without `replacement` (the default) no index is drawn twice. An index of weight 0 is never
    drawn. Random numbers are from the device's sequence.

    Raises ValueError for other shapes, for weights that are negative, infinite or NaN, and if fewer
    weights than needed are positive: one with replacement, `num_samples` without. A recorded step
    and a GPU raise IndexError for weights instead, when they compute.

    >>> autograd.multinomial(tensor.Tensor(data=[0.0, 1.0, 0.0]), 1)
    Tensor([1], dtype=int64)
    """
    count = integer("multinomial", "num_samples", num_samples, 1)
    shape = weights.shape
    if len(shape) not in (1, 2) or not shape[-1] or (not replacement and count > shape[-1]):
        raise ValueError(f"[multinomial] cannot draw {count} indices from weights {shape}")
    p = cast(reshape(weights.detach(), (1, *shape)[-2:]), float64)
    needed = 1 if replacement else count
    try:
        zeros = _zeros_if_drawable(p, needed)
    except IndexError:
        raise ValueError(
            f"[multinomial] weights {shape} must be finite and not negative, and at least {needed} "
            "of a row positive"
        ) from None
    if replacement:
        # The first sum that is at least t in [1, all]: that of a positive weight, because sums of
        # integers are exact.
        units = p / reduce_max(p, 1, 1) * 2.0 ** (52 - shape[-1].bit_length())
        sums = cumsum(cast(units, int64), 1)
        t = cast(_uniform(p, count) * sums[:, -1:], int64) + 1
        found = _bisected(sums, minimum(t, sums[:, -1:]), False)
    else:
        # The largest of log p + Gumbel noise (Gumbel 1954; Vieira 2014).
        waits = negative(log(1.0 - _uniform(p, shape[-1])))
        scores = where(log(p) - log(waits), -math.inf, less(0.0, p))
        found = topk(scores, count, 1)[1]
    return reshape(found + zeros, (*shape[:-1], count)).detach()


def _zeros_if_drawable(p: Tensor, needed: int) -> Tensor:
    """Zeros (N, 1). Raises IndexError, as kernels do, also when a recorded step runs, if weights
    (N, C) are not finite or negative, or fewer than `needed` of a row are positive."""
    known = _and(less_equal(0.0, p), less(p, math.inf))
    bad = reduce_sum(equal(known, 0), 1, 1) + less(reduce_sum(less(0.0, p), 1, 1), needed)
    zero = wrap(_c.Full((1,), 0.0, p.device, int(int64)), False)
    return reshape(gather(zero, 0, cast(bad, int64)), (p.shape[0], 1))


def _uniform(like: Tensor, count: int) -> Tensor:
    """Random numbers in [0, 1), as many rows as `like` has."""
    shape = (like.shape[0], count)
    raw = _c.Full(shape, 0.0, like.device, int(like.dtype))
    _c.Uniform(0.0, 1.0, raw)
    return wrap(raw, False)


def masked_scatter(x: Tensor, mask: Any, source: Tensor) -> Tensor:
    """A copy of x in which the elements where `mask` is true are those of `source`, in order, as
    torch's masked_scatter. The mask broadcasts to x. Gradients flow to both.

    Raises IndexError if `source` has too few elements.

    >>> x = tensor.zeros((2, 2))
    >>> mask = np.array([[True, False], [False, True]])
    >>> autograd.masked_scatter(x, mask, tensor.Tensor(data=[5.0, 6.0]))
    Tensor([[5., 0.],
            [0., 6.]], dtype=float32)
    """
    chosen = tensor_of(mask, x).to(x.device)
    chosen = expand(chosen if chosen.dtype == bool_ else cast(chosen, bool_), x.shape)
    flat = reshape(chosen, (-1,))
    marks = converted(flat, int64)
    if source.size():
        places = clip(cumsum(marks, 0) - 1, min=0)
    else:  # any place but 0 is an error
        source, places = wrap(_c.Full((1,), 0.0, x.device, int(source.dtype)), False), marks
    found = gather(reshape(source, (-1,)), 0, places)
    return where(reshape(found, x.shape), x, chosen)

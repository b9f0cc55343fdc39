"""Sets, counts and searches, random draws, and elements put where a mask is true."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import bool_, float32, float64, int64, is_float
from ..raw.check import integer
from ..tape.tensor import Tensor, as_raw, wrap
from .arithmetic import less, less_equal
from .base import tensor_of
from .conversion import cast, converted
from .elementwise import clip, log, negative
from .indexing import gather, where
from .movement import expand, reshape, unsqueeze
from .reduction import reduce_sum
from .sorting import cumsum, topk


def unique(
    x: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The sorted elements of x, each once, or its slices along an axis, as torch.unique.

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
    values, _, inverse, counts = np.unique(x.numpy(), True, True, True, axis)
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


def searchsorted(sorted: Tensor, values: Any, right: bool = False) -> Tensor:
    """Where `values` go in sequences that rise along the last axis, so that these stay sorted, as
    torch.searchsorted: int64 indices in the shape of `values`.

    sorted  (N), for values of any shape; or (..., N), for values (..., M)
    right   behind equal elements instead of in front of them (default False)

    It compares every value with every element. Raises ValueError for shapes that do not fit.

    >>> autograd.searchsorted(tensor.Tensor(data=[1.0, 3.0, 5.0]), [0.0, 3.0, 9.0])
    Tensor([0, 1, 3], dtype=int64)
    """
    wanted = tensor_of(values, sorted)
    if not sorted.shape or (
        len(sorted.shape) > 1 and sorted.shape[:-1] != wanted.shape[: len(sorted.shape) - 1]
    ):
        raise ValueError(
            f"[searchsorted] values {wanted.shape} do not fit sequences {sorted.shape}"
        )
    if len(sorted.shape) > 1:
        sorted = unsqueeze(sorted, -2)
    before = (less_equal if right else less)(sorted, unsqueeze(wanted, -1))
    return cast(reduce_sum(before, -1, 0), int64)


def multinomial(weights: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    """Indices (int64) drawn with probabilities in proportion to the weights (C) or (N, C), as
    torch.multinomial: (num_samples) or (N, num_samples).

    Weights are not negative. Without `replacement` (the default) no index is drawn twice; indices
    of weight 0 come only when all others were drawn. Random numbers are from the device's sequence.
    Raises ValueError for other shapes, and for more samples than indices without replacement.

    >>> autograd.multinomial(tensor.Tensor(data=[0.0, 1.0, 0.0]), 1)
    Tensor([1], dtype=int64)
    """
    count = integer("multinomial", "num_samples", num_samples, 1)
    shape = weights.shape
    if len(shape) not in (1, 2) or not shape[-1] or (not replacement and count > shape[-1]):
        raise ValueError(f"[multinomial] cannot draw {count} indices from weights {shape}")
    rows = (1, *shape)[-2:]
    p = reshape(weights.detach(), rows)
    p = p if p.dtype in (float32, float64) else cast(p, float32)
    if replacement:
        sums = cumsum(p, 1)
        total = sums[:, -1:]
        below = less_equal(unsqueeze(sums, 1), unsqueeze(_uniform(p, count) * total, 2))
        found = cast(reduce_sum(below, 2, 0), int64)
        # A draw that rounds to the total belongs to the last index.
        found = clip(found, max=rows[1] - 1)
    else:
        # The largest of log p + Gumbel noise (Gumbel 1954; Vieira 2014).
        noise = negative(log(negative(log(_uniform(p, rows[1])))))
        found = topk(log(p) + noise, count, 1)[1]
    found = reshape(found, (*shape[:-1], count))
    return found.detach()


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

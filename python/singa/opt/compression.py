"""Sums of gradients over the ranks in fewer bytes, with error feedback.

What a rank does not send in a step, because of rounding or because it is small, is its residual. It
is added to the gradient of the next step. Seide et al. 2014; Karimireddy et al. 2019.

With a GradScaler, limits and residuals are those of gradients without the scale, which may change.
Where a gradient of one rank, or a scaled float16 value, is infinite or NaN, no rank makes the
update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import distributed
from .. import singa_wrap as _c
from ..tape.tensor import wrap
from ..tensor import Tensor

_KEY = "residuals"
_LARGEST = 65504.0  # of float16


class Residuals:
    """This rank's residual for each parameter: float32, as large as the parameter. They lie in a
    dict of the optimizer, by its keys."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self._raw = raw

    def of(self, key: str, grad: Any) -> Any:
        """The residual of the parameter `key`, zeros at first."""
        if key not in self._raw:
            self._raw[key] = _c.Full(grad.shape(), 0.0, grad.device(), _c.kFloat32)
        return self._raw[key]

    def keep(self, key: str, raw: Any) -> None:
        """Sets the residual of the parameter `key`."""
        self._raw[key] = raw

    def get_states(self, communicator: Any) -> dict[str, Any]:
        """The residuals of all ranks, as "rank/parameter"; nothing where there are none. All ranks
        have to call it."""
        if not self._raw:
            return {}
        found = {}
        for key, raw in self._raw.items():
            of_ranks = communicator.all_gather(raw)
            for rank in range(communicator.world_size):
                one = of_ranks.SliceAxis(0, rank, rank + 1).Reshape(raw.shape())
                found[f"{rank}/{key}"] = wrap(one.Clone(), False)
        return {_KEY: found}

    def set_states(self, states: Mapping[str, Tensor], communicator: Any) -> None:
        """Takes over the residuals of its own rank, and where the job has shrunk, of those that are
        gone, so that their sum stays."""
        self._raw.clear()
        for name, value in states.items():
            rank, _, key = name.partition("/")
            if int(rank) % communicator.world_size != communicator.global_rank:
                continue
            if key in self._raw:
                _c.Axpy(1.0, value.data, self._raw[key])
            else:
                self._raw[key] = value.data.Clone()


def clip_values(grads: Sequence[Any], bound: float) -> None:
    """Limits all elements to ±bound, in place."""
    for grad in grads:
        for op, value in ((_c.BinaryOp_kMin, bound), (_c.BinaryOp_kMax, -bound)):
            limit = _c.Full((), value, grad.device(), grad.data_type())
            _c.BinaryInto(op, grad, limit, grad)


def without_scale(grads: Sequence[Any], scale: float) -> list[Any]:
    """Raw gradients of a loss that was scaled, in place where they are wide enough."""
    wide = [g if g.data_type() == _c.kFloat64 else g.AsType(_c.kFloat32) for g in grads]
    if wide and scale != 1.0:
        _c.ScaleAll(wide, 1.0 / scale)
    return wide


def overflow_like(grads: Sequence[Any]) -> list[Any]:
    """NaN for each element: with these all ranks skip their update."""
    return [_c.Full(g.shape(), math.nan, g.device(), g.data_type()) for g in grads]


def is_finite(tensors: Sequence[Any]) -> bool:
    """Whether no element of the raw tensors is infinite or NaN."""
    norm = _c.GlobalNorm(list(tensors))
    return bool(norm - norm == 0)


def sum_of_halves(
    communicator: Any,
    keys: Sequence[str],
    grads: Sequence[Any],
    residuals: Residuals,
    scale: float | None = None,
) -> list[Any] | None:
    """The mean of the raw gradients over the ranks, which send float16 and add in float32.

    With the `scale` of a GradScaler, by which gradients were divided, ranks send scaled values and
    get a scaled mean. None: a value of some rank does not fit into float16, so that no rank may
    make the update; residuals stay. Without a scale, values are limited to what float16 holds, and
    the rest is sent later.
    """
    wanted, halves = [], []
    for key, grad in zip(keys, grads, strict=True):
        total = residuals.of(key, grad).Clone()
        _c.Axpy(1.0, grad, total)
        wanted.append(total)
        scaled = total if scale is None else _c.Unary(_c.UnaryOp_kMulScalar, total, scale)
        halves.append(scaled.AsType(_c.kFloat16))
    fits, lost = is_finite(halves), False
    if scale is not None:
        if distributed.any_rank(not fits):
            return None
    elif not fits:
        lost = not is_finite(grads)  # the loss has overflowed, which is no error of rounding
        if not lost:
            limited = [_c.Unary(_c.UnaryOp_kClip, t, -_LARGEST, _LARGEST) for t in wanted]
            halves = [t.AsType(_c.kFloat16) for t in limited]
    for key, total, half in zip(keys, wanted, halves, strict=True):
        if lost:
            total.Fill(0.0)
        else:
            _c.Axpy(-1.0 if scale is None else -1.0 / scale, half, total)
        residuals.keep(key, total)
    communicator.all_reduce(halves, list(keys), 1.0 / communicator.world_size)
    return [half.AsType(g.data_type()) for half, g in zip(halves, grads, strict=True)]


def sum_of_largest(
    communicator: Any,
    keys: Sequence[str],
    grads: Sequence[Any],
    spars: float,
    topk: bool,
    threshold: int,
    residuals: Residuals | None,
) -> list[Any]:
    """The mean over the ranks of the largest elements of the raw gradients. Each of the buffers
    that `fused` makes is chosen from, and sent, as a whole."""
    sums: list[Any] = [None] * len(grads)
    for places in fused([grad.size() for grad in grads], threshold):
        buffer = [grads[i] for i in places]
        kept = None if residuals is None else [residuals.of(keys[i], grads[i]) for i in places]
        for i, total in zip(
            places, communicator.sum_of_largest(buffer, kept, spars, topk), strict=True
        ):
            sums[i] = total
    _c.ScaleAll(sums, 1.0 / communicator.world_size)
    return sums


def fused(sizes: Sequence[int], threshold: int) -> list[list[int]]:
    """Which gradients of these numbers of elements make a buffer, by their places: as in SINGA, one
    of more than `threshold` elements is a buffer, and others fill one until it has more."""
    buffers: list[list[int]] = []
    filling: list[int] = []
    filled = 0
    for place, size in enumerate(sizes):
        if size > threshold:
            buffers.append([place])
            continue
        filling.append(place)
        filled += size
        if filled > threshold:
            buffers.append(filling)
            filling, filled = [], 0
    return [*buffers, filling] if filling else buffers

"""Sums of gradients over the ranks in fewer bytes, with error feedback.

What a rank does not send in a step, because of rounding or because it is small, is its residual. It
is added to the gradient of the next step. Seide et al. 2014; Karimireddy et al. 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import singa_wrap as _c
from ..tape.tensor import wrap
from ..tensor import Tensor

_KEY = "residuals"


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


def sum_of_halves(
    communicator: Any, keys: Sequence[str], grads: Sequence[Any], residuals: Residuals
) -> list[Any]:
    """The mean of the raw gradients over the ranks, which send float16 and add in float32."""
    halves = []
    for key, grad in zip(keys, grads, strict=True):
        residual = residuals.of(key, grad)
        _c.Axpy(1.0, grad, residual)
        half = residual.AsType(_c.kFloat16)
        _c.Axpy(-1.0, half, residual)
        halves.append(half)
    if not _is_finite(grads):  # the loss has overflowed, which is no error of rounding
        for key, grad in zip(keys, grads, strict=True):
            residuals.of(key, grad).Fill(0.0)
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


def _is_finite(tensors: Sequence[Any]) -> bool:
    norm = _c.GlobalNorm(list(tensors))
    return bool(norm - norm == 0)

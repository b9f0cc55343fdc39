"""How many targets a loss counts, so that the parts of an update are one large batch.

A loss that is a mean over targets of which some do not count, or count more than others, has their
number as `Tensor.counted`, on its device. Where an update has several parts, backward starts from
it: the gradients are those of sums, and the update divides them by all targets together.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import singa_wrap
from ..ops.loss import TargetLoss
from ..tape.tensor import wrap
from ..tensor import Tensor


def counted_copy(loss: Tensor) -> Tensor:
    """A copy of `loss.counted`, which a recorded step may lend to the host."""
    assert loss.counted is not None
    return wrap(singa_wrap.Unary(singa_wrap.UnaryOp_kMulScalar, loss.counted.data, 1.0), False)


def counted_rows(loss: Tensor) -> float | None:
    """The rows of the mean that is the loss, if all of its targets count alike."""
    creator = getattr(loss, "_creator", None)
    return float(creator.rows) if isinstance(creator, TargetLoss) else None


def of_sum(seed: Tensor | None, count: Tensor) -> Tensor:
    """What backward from a mean starts with for the gradient of the sum. `seed` is what it starts
    with for that of the mean; None: 1."""
    return count if seed is None else seed * count


def scale_to_mean(sums: Sequence[Tensor], parts: int, targets: float) -> None:
    """Makes the gradient of the mean over all targets, in place, of those of sums over them, which
    were divided by the number of parts."""
    factor = parts / targets
    if factor != 1.0 and sums:
        singa_wrap.ScaleAll([grad.data for grad in sums], factor)

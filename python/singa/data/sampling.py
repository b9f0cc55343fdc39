"""The order in which a DataLoader draws items that do not all count alike."""

from __future__ import annotations

import zlib
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..raw.check import integer


class WeightedSampler:
    """Draws items with probabilities proportional to weights, for rare classes.

        train = data.ImageFolder("pets")
        loader = data.DataLoader(train, 32, sampler=data.WeightedSampler.balanced(train.labels))

    weights      of each item: not negative, with a positive sum
    count        items of an epoch (default: as many as there are weights)
    replacement  whether an item may be drawn several times in an epoch (default True); if not,
                 `count` items must have a positive weight

    The order depends on the loader's seed and the epoch, as that of `shuffle` does.
    Raises ValueError for other weights or counts.

    >>> sampler = data.WeightedSampler([0, 0, 1, 1], count=3)
    >>> set(sampler.order(np.random.default_rng(0)).tolist()) <= {2, 3}
    True
    """

    def __init__(
        self, weights: ArrayLike, count: int | None = None, *, replacement: bool = True
    ) -> None:
        given = np.asarray(weights, np.float64)
        if given.ndim != 1 or not np.isfinite(given).all() or (given < 0).any() or not given.any():
            raise ValueError(
                "[WeightedSampler] weights must be a vector of finite numbers, none negative and "
                "not all 0"
            )
        self.weights: NDArray[np.float64] = given
        self.count = len(given) if count is None else integer("WeightedSampler", "count", count, 1)
        self.replacement = bool(replacement)
        if not replacement and np.count_nonzero(given) < self.count:
            raise ValueError(
                f"[WeightedSampler] {np.count_nonzero(given)} items have a positive weight, fewer "
                f"than the {self.count} that are drawn without replacement"
            )

    @classmethod
    def balanced(cls, labels: ArrayLike) -> Self:
        """A sampler that draws all classes equally often, whatever their numbers of items.

        labels  the class of each item, integers that are not negative

        >>> data.WeightedSampler.balanced([0, 0, 1]).weights
        array([0.5, 0.5, 1. ])
        """
        each = np.asarray(labels)
        if each.ndim != 1 or each.dtype.kind not in "iu" or (each < 0).any():
            raise ValueError("[WeightedSampler] labels must be a vector of class numbers")
        return cls(1.0 / np.bincount(each)[each])

    def order(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """The numbers of an epoch's items, in their order.

        >>> data.WeightedSampler([1, 0]).order(np.random.default_rng(0))
        array([0, 0])
        """
        shares = self.weights / self.weights.sum()
        return rng.choice(len(shares), self.count, self.replacement, shares).astype(np.intp)

    def identity(self) -> list[Any]:
        """JSON values that differ from those of a sampler with another order.

        >>> data.WeightedSampler([1, 0]).identity()[1:]
        [2, True]
        """
        return [zlib.crc32(self.weights.tobytes()), self.count, self.replacement]

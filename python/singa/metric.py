"""Metrics of classification."""

from __future__ import annotations

from . import singa_wrap
from .tensor import Tensor


def count_top_k(scores: Tensor, labels: Tensor, k: int = 1) -> int:
    """Number of rows whose label has one of the `k` highest scores.

    `scores` has shape (N, C), `labels` has shape (N) and holds class indices, int32 or int64. A row
    counts if fewer than `k` scores are greater than the label's score, so ties count. A row whose
    label has the score NaN does not count. Raises IndexError for a label outside [0, C), and
    ValueError for other shapes.
    """
    return int(singa_wrap.CountTopK(scores.data, labels.data, k))


class Accuracy:
    """Fraction of rows whose label has one of the `top_k` highest scores.

    Raises ValueError unless `top_k` (default 1) is at least 1.
    """

    def __init__(self, top_k: int = 1) -> None:
        if top_k < 1:
            raise ValueError(f"[Accuracy] top_k must be 1 or more, got {top_k}")
        self.top_k = top_k

    def evaluate(self, x: Tensor, y: Tensor) -> float:
        """Accuracy in [0, 1] for scores x (N, C) and class indices y (N); see `count_top_k`.

        Raises ValueError if x has no rows.
        """
        if not x.shape or not x.shape[0]:
            raise ValueError(f"[Accuracy] no rows in scores of shape {tuple(x.shape)}")
        return count_top_k(x, y, self.top_k) / x.shape[0]

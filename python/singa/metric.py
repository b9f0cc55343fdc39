"""How good predictions are."""

from __future__ import annotations

from . import singa_wrap
from .tensor import Tensor


def count_top_k(scores: Tensor, labels: Tensor, k: int = 1) -> int:
    """How many rows of scores (N, C) have the label's score among their k highest.

    `labels` are class numbers (N), of an integer type. Of equal scores the label's counts first.
    """
    return int(singa_wrap.CountTopK(scores.data, labels.data, k))


class Accuracy:
    """The share of rows whose label is among the `top_k` highest scores."""

    def __init__(self, top_k: int = 1) -> None:
        if top_k < 1:
            raise ValueError(f"[Accuracy] top_k must be 1 or more, got {top_k}")
        self.top_k = top_k

    def evaluate(self, x: Tensor, y: Tensor) -> float:
        """Of scores x (N, C) and class numbers y (N). Raises ValueError for no rows."""
        if not x.shape or not x.shape[0]:
            raise ValueError(f"[Accuracy] no rows in scores of shape {tuple(x.shape)}")
        return count_top_k(x, y, self.top_k) / x.shape[0]

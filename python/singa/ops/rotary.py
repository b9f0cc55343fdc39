"""Rotary position embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import integer
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .indexing import gather
from .movement import slice as slice_axes

if TYPE_CHECKING:
    from ..tape.operator import Raw


class RotaryEmbedding(BuiltinOperator):
    """Turns pairs of features of x (B, H, N, D) by angles. Their cosines and sines, (N, R / 2) or
    (B, N, R / 2), are inputs without gradients; see `rotary_embedding`."""

    fresh_gradients = True

    def __init__(self, interleaved: bool = False) -> None:
        super().__init__()
        self.interleaved: bool = bool(interleaved)

    def forward(self, x: Raw, cos: Raw, sin: Raw) -> Raw:
        if 1 in self._leads or 2 in self._leads:
            raise ValueError(
                "[RotaryEmbedding] there are no gradients of cos and sin, which were computed from "
                "a tensor that stores its gradient"
            )
        self.save(cos, sin)
        return _c.Rotary(x, cos, sin, self.interleaved)

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        return _c.RotaryBackward(dy, *self.load(), self.interleaved), None, None


def rotary_embedding(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Any = None,
    first: int = 0,
    interleaved: bool = False,
) -> Tensor:
    """Turns pairs of features of queries or keys by angles that grow with the position, so that
    their products depend on the distance of positions. Su et al. 2021.

    x            (B, H, N, D)
    cos, sin     tables (P, R / 2) with a row for each position, R <= D: cosines and sines of the
                 angles of R / 2 pairs. The features behind the first R stay as they are
    positions    whole numbers (B, N): the position of each row of x. By default they are first,
                 first + 1, ...
    first        the first position, such as the number of positions in a cache (default 0)
    interleaved  pairs are the features (2i, 2i + 1), as in the paper and GPT-J; otherwise
                 (i, i + R / 2), as in GPT-NeoX and Llama, the default

    A pair (a, b) becomes (a·cos - b·sin, a·sin + b·cos). Returns the shape and type of x; 16-bit
    floats are computed in float32. The tables get no gradient.

    Raises ValueError for wrong shapes, for positions from `first` on that have no row, and where
    the tables would need a gradient; IndexError for other positions without a row.

    >>> x = tensor.Tensor(data=[[[[1.0, 0.0], [1.0, 0.0]]]])  # one head, two positions, one pair
    >>> angles = np.array([[0.0], [np.pi / 2]])
    >>> cos, sin = tensor.Tensor(data=np.cos(angles)), tensor.Tensor(data=np.sin(angles))
    >>> autograd.rotary_embedding(x, cos, sin)
    Tensor([[[[1., 0.],
              [0., 1.]]]], dtype=float32)
    """
    op = "RotaryEmbedding"
    if len(x.shape) != 4 or len(cos.shape) != 2 or cos.shape != sin.shape:
        raise ValueError(
            f"[{op}] x must have shape (B, H, N, D), and cos and sin (P, R / 2), got {x.shape}, "
            f"{cos.shape} and {sin.shape}"
        )
    if positions is not None:
        cos, sin = gather(cos, 0, positions), gather(sin, 0, positions)
        return RotaryEmbedding(interleaved)(x, cos, sin)[0]
    begin, length = integer(op, "first", first, 0), x.shape[2]
    if begin + length > cos.shape[0]:
        raise ValueError(
            f"[{op}] positions up to {begin + length} need as many rows, got tables {cos.shape}"
        )
    if begin or length != cos.shape[0]:
        cos, sin = (slice_axes(table, [begin], [begin + length], [0]) for table in (cos, sin))
    return RotaryEmbedding(interleaved)(x, cos, sin)[0]

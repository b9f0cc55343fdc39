"""Scaled dot-product attention, and rotary position embedding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.calls import checks_flags
from ..raw.check import flag, fraction, integer, number
from ..tape.grad_mode import training as is_training
from ..tape.tensor import Tensor
from .base import BuiltinOperator
from .conversion import autocast_operands
from .indexing import gather
from .movement import slice as slice_axes

if TYPE_CHECKING:
    from ..tape.operator import Raw


class ScaledDotProductAttention(BuiltinOperator):
    """softmax(scale · q·kᵀ + mask)·v for each head; see `scaled_dot_product_attention`.

    The mask is a fourth input. For backward it keeps its inputs, its result, and one number for
    each query; dropout's choice is drawn again from the random sequence.
    """

    fresh_gradients = True

    def __init__(
        self,
        dropout: float = 0.0,
        causal: bool = False,
        scale: float | None = None,
        first_query: int = 0,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.dropout: float = fraction(name, "dropout_p", dropout, open_end=True)
        self.scale: float | None = None if scale is None else number(name, "scale", scale)
        self.causal: bool = flag(name, "is_causal", causal)
        self.first_query: int = integer(name, "first_query", first_query)
        self._numbers: tuple[float, bool, int, float] = (0.0, False, 0, 0.0)
        self._masked = self._biased = False

    def forward(self, q: Raw, k: Raw, v: Raw, mask: Raw | None = None) -> Raw:
        scale = self.scale
        if scale is None:
            shape = q.shape()
            scale = 1 / math.sqrt(shape[-1]) if shape and shape[-1] else 1.0
        dropout = self.dropout if is_training() else 0.0
        self._numbers = scale, self.causal, self.first_query, dropout
        self._masked = mask is not None
        self._biased = mask is not None and _c.IsFloat(mask.data_type())
        y, logsumexp, draw = _c.AttentionForward(q, k, v, mask, *self._numbers)
        self.save(q, k, v, mask, y, logsumexp, draw)
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        needs = [*(self._need(i) for i in range(3)), self._biased and self._need(3)]
        gradients = _c.AttentionBackward(dy, *self.load(), *self._numbers, *needs)
        return tuple(gradients) if self._masked else tuple(gradients[:3])


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    first_query: int = 0,
) -> Tensor:
    """softmax(scale · query·keyᵀ + attn_mask)·value for each head. Vaswani et al. 2017.

    query        (B, H, N, D)
    key, value   (B, H, M, D) and (B, H, M, E). With `enable_gqa` they may have fewer heads, whose
                 number divides H: neighbouring heads of the query share one (Ainslie et al. 2023)
    attn_mask    of a shape that broadcasts to (B, H, N, M): bool, where True means that the query
                 uses the key, or float, which is added to the scores, and which has a gradient.
                 The first of four axes may also be a divisor of B: the masks repeat, so that
                 sequence b has mask b modulo their number
    dropout_p    probability in [0, 1) with which each weight becomes zero in training; the others
                 are divided by 1 - dropout_p (default 0). No weight is dropped in inference
    is_causal    query i uses the keys up to first_query + i only, together with `attn_mask`
    scale        factor of the products (default 1 / sqrt(D))
    first_query  where the queries begin among the keys, for is_causal. 0, the default, aligns both
                 at their first positions, as PyTorch does. With keys that are cached from earlier
                 calls it is the number of these; M - N aligns both at their last positions

    Returns (B, H, N, E). The names are those of PyTorch's function. The scores are never in memory
    as a whole: it grows with N + M. A query that uses no key gives zeros. 16-bit floats are summed
    in float32. Under `autocast` float32 operands are converted to 16 bits. Any strides are read in
    place where the last axis is contiguous. The gradient of attn_mask is summed over the axes along
    which it broadcasts or repeats, tile by tile.

    Raises ValueError for wrong shapes and numbers; TypeError for types that differ, or are no
    floats.

    >>> q = k = v = tensor.Tensor(data=np.eye(3).reshape(1, 1, 3, 3))
    >>> autograd.scaled_dot_product_attention(q, k, v, is_causal=True)
    Tensor([[[[1.    , 0.    , 0.    ],
              [0.3595, 0.6405, 0.    ],
              [0.2645, 0.2645, 0.4711]]]], dtype=float32)
    """
    op = ScaledDotProductAttention(dropout_p, is_causal, scale, first_query)
    enable_gqa = flag("scaled_dot_product_attention", "enable_gqa", enable_gqa)
    shapes = query.shape, key.shape
    if not enable_gqa and all(len(shape) == 4 for shape in shapes) and shapes[0][1] != shapes[1][1]:
        raise ValueError(
            f"[ScaledDotProductAttention] query {shapes[0]} and key {shapes[1]} have different "
            "numbers of heads; enable_gqa=True lets heads of the query share those of the key"
        )
    query, key, value = autocast_operands(query, key, value)
    if attn_mask is None:
        return op(query, key, value)[0]
    return op(query, key, value, attn_mask)[0]


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


@checks_flags
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

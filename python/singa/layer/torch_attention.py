"""Multi-head attention as torch.nn.MultiheadAttention is called."""

from __future__ import annotations

import math

from .. import autograd
from ..ops.reduction import softmax_along
from ..tensor import Tensor
from .attention import MultiHeadAttention, added, changed_alike


class MultiheadAttention(MultiHeadAttention):
    """torch.nn.MultiheadAttention: a MultiHeadAttention that also returns its weights.

    embed_dim, num_heads, dropout, bias, kdim, vdim  as for MultiHeadAttention
    add_bias_kv, add_zero_attn                       False; others are not supported
    batch_first                                      whether tensors are (batch, length, features);
                                                     False, the default: (length, batch, features)

    Names, initial values, weights and results are PyTorch's, whose state dict `Model.load_torch`
    reads. Where the weights are not needed, `need_weights=False` or MultiHeadAttention saves the
    memory of (batch, heads, N, M) scores. Masks are tensors of singa.

    Raises ValueError for what is not supported, and as MultiHeadAttention.

    >>> attention = layer.MultiheadAttention(8, num_heads=2, batch_first=True)
    >>> x = tensor.random((1, 5, 8))
    >>> y, weights = attention(x, x, x)
    >>> y.shape, weights.shape
    ((1, 5, 8), (1, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        for name, given in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if given:
                raise ValueError(
                    f"[{type(self).__name__}] {name} must be False: keys and values that are added "
                    "to those of the call are not supported"
                )
        super().__init__(embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first)
        self.add_bias_kv = self.add_zero_attn = False

    def forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """(result, weights); the weights are None unless `need_weights`.

        query             (N, B, embed_dim); (B, N, embed_dim) with batch_first; or (N, embed_dim)
                          of one sequence
        key, value        (M, B, kdim) and (M, B, vdim), alike
        key_padding_mask  (B, M), or (M) of one sequence: bool, where True excludes a key, or float,
                          added to the scores
        attn_mask         (N, M) or (B · num_heads, N, M), alike
        average_attn_weights  weights are the mean over the heads, (B, N, M); or else
                          (B, num_heads, N, M). Without B of one sequence
        is_causal         says that attn_mask is causal, as in PyTorch; without one it is refused

        In training the weights are those after dropout, as in PyTorch.
        """
        if is_causal and attn_mask is None:
            raise ValueError(
                f"[{self.title}] is_causal says of attn_mask that it is causal: give attn_mask; "
                "layer.MultiHeadAttention needs none"
            )
        is_single = len(query.shape) == 2
        if is_single:
            query, key, value = changed_alike(self._as_batch, query, key, value)
            if key_padding_mask is not None:
                key_padding_mask = autograd.unsqueeze(key_padding_mask, 0)
        if need_weights:
            y, weights = self._with_weights(query, key, value, key_padding_mask, attn_mask)
            weights = autograd.reduce_mean(weights, (1,), 0) if average_attn_weights else weights
        else:
            y, weights = super().forward(query, key, value, key_padding_mask, attn_mask), None
        if is_single:
            y = autograd.squeeze(y, 0 if self.batch_first else 1)
            weights = None if weights is None else autograd.squeeze(weights, 0)
        return y, weights

    def _as_batch(self, x: Tensor) -> Tensor:
        return autograd.unsqueeze(x, 0 if self.batch_first else 1)

    def _with_weights(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The result, and the weights (B, num_heads, N, M)."""
        self._check(query, key, value)
        query, key, value = self._batch_first(query, key, value)
        q, k, v = self._project(query, key, value)
        scores = autograd.matmul(q * (1 / math.sqrt(self.head_dim)), k.transpose((0, 1, 3, 2)))
        mask = self._mask(key_padding_mask, attn_mask, query.shape, key.shape[1])
        if mask is not None:
            scores = autograd.add(scores, added(mask))
        weights = softmax_along(scores, -1)
        if self.dropout:
            weights = autograd.dropout(weights, ratio=self.dropout)
        return self._merged(autograd.matmul(weights, v)), weights

"""The decoder of a transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable

from .. import autograd
from ..raw.check import integer
from ..tensor import Tensor
from .attention import MultiHeadAttention, known_activation
from .base import Layer
from .linear import Linear
from .norm import LayerNorm
from .simple import Dropout, Sequential

__all__ = ["TransformerDecoder", "TransformerDecoderLayer"]


class TransformerDecoderLayer(Layer):
    """Self-attention, attention to the encoder's results, and two Linear layers, each with a
    residual connection and layer norm. Vaswani et al. 2017.

    Arguments are those of TransformerEncoderLayer. Names and defaults are those of
    torch.nn.TransformerDecoderLayer, except batch_first, which is True by default.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = True,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = known_activation("TransformerDecoderLayer", activation)
        self.norm_first: bool = bool(norm_first)
        self.self_attn: MultiHeadAttention = MultiHeadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first
        )
        self.multihead_attn: MultiHeadAttention = MultiHeadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first
        )
        self.linear1: Linear = Linear(dim_feedforward, bias=bias)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(d_model, bias=bias)
        self.norm1: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm3: LayerNorm = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1: Dropout = Dropout(dropout)
        self.dropout2: Dropout = Dropout(dropout)
        self.dropout3: Dropout = Dropout(dropout)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The result, in the shape of `tgt`.

        tgt     (B, N, d_model)
        memory  results of the encoder (B, M, d_model)

        The masks are those of MultiHeadAttention for the attention to `tgt` and to `memory`.
        """

        def own(x: Tensor) -> Tensor:
            masks = tgt_key_padding_mask, tgt_mask, tgt_is_causal
            return self.dropout1(self.self_attn(x, None, None, *masks))

        def other(x: Tensor) -> Tensor:
            masks = memory_key_padding_mask, memory_mask, memory_is_causal
            return self.dropout2(self.multihead_attn(x, memory, None, *masks))

        if self.norm_first:
            x = tgt + own(self.norm1(tgt))
            x = x + other(self.norm2(x))
            return x + self._feed_forward(self.norm3(x))
        x = self.norm1(tgt + own(tgt))
        x = self.norm2(x + other(x))
        return self.norm3(x + self._feed_forward(x))

    def _feed_forward(self, x: Tensor) -> Tensor:
        named = {"relu": autograd.relu, "gelu": autograd.gelu}
        activation = named[self.activation] if isinstance(self.activation, str) else self.activation
        return self.dropout3(self.linear2(self.dropout(activation(self.linear1(x)))))


class TransformerDecoder(Layer):
    """A stack of `num_layers` copies of a decoder layer, and a norm behind them if one is given.

    Names are those of torch.nn.TransformerDecoder. A layer that has not been called yet has no
    parameters, so its copies get different initial values.
    """

    def __init__(self, decoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        count = integer("TransformerDecoder", "num_layers", num_layers, 1)
        self.layers: Sequential = Sequential(*[copy.deepcopy(decoder_layer) for _ in range(count)])
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, *masks: object, **named: object) -> Tensor:
        """Arguments are those of TransformerDecoderLayer."""
        for each in self.layers:
            tgt = each(tgt, memory, *masks, **named)
        return tgt if self.norm is None else self.norm(tgt)

"""The decoder of a transformer."""

from __future__ import annotations

import copy

from ..raw.check import integer
from ..tensor import Tensor
from .attention import MultiHeadAttention, TransformerLayer
from .base import Layer
from .norm import LayerNorm
from .simple import Dropout, Sequential


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's results, and two Linear layers, each with a
    residual connection and layer norm.

    Arguments are those of `layer.attention.TransformerLayer`. Names and defaults are those of
    torch.nn.TransformerDecoderLayer, except batch_first, which is True by default.

    Raises ValueError if nhead does not divide d_model.

    >>> block = layer.TransformerDecoderLayer(8, 2, dim_feedforward=16)
    >>> block(tensor.random((1, 4, 8)), tensor.random((1, 5, 8))).shape
    (1, 4, 8)
    """

    _attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiHeadAttention
    norm3: LayerNorm
    dropout3: Dropout

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
            return x + self.dropout3(self._feed_forward(self.norm3(x)))
        x = self.norm1(tgt + own(tgt))
        x = self.norm2(x + other(x))
        return self.norm3(x + self.dropout3(self._feed_forward(x)))


class TransformerDecoder(Layer):
    """A stack of `num_layers` copies of a decoder layer, and a norm behind them if one is given.

    Names are those of torch.nn.TransformerDecoder. A layer that has not been called yet has no
    parameters, so its copies get different initial values.

    >>> decoder = layer.TransformerDecoder(layer.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(tensor.random((1, 4, 8)), tensor.random((1, 5, 8))).shape
    (1, 4, 8)
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

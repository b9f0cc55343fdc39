"""Transformers: layers, encoders and decoders."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .. import autograd
from ..raw.check import integer
from ..tensor import Tensor
from .attention import KeyValueCache, MultiHeadAttention
from .base import Layer
from .linear import Linear
from .norm import LayerNorm
from .simple import Dropout, Sequential


def _known_activation(
    layer: str, activation: str | Callable[[Tensor], Tensor]
) -> str | Callable[[Tensor], Tensor]:
    """The activation, if it is one that transformers take. Raises ValueError for others."""
    if activation not in ("relu", "gelu") and not callable(activation):
        raise ValueError(
            f"[{layer}] activation must be 'relu', 'gelu' or a function, got {activation!r}"
        )
    return activation


class TransformerLayer(Layer):
    """What the layers of encoders and decoders share: attentions and two Linear layers, each with a
    residual connection and layer norm. Vaswani et al. 2017.

    d_model          features of the input and of the result
    nhead            number of heads, which divides d_model
    dim_feedforward  features between the Linear layers (default 2048)
    dropout          of the weights of attention, between the Linear layers, and behind each part
                     (default 0.1)
    activation       "relu" (the default), "gelu", or a function of a tensor
    layer_norm_eps   added to the variances (default 1e-5)
    batch_first      (batch, length, features), the default, or (length, batch, features)
    norm_first       layer norm before each part instead of behind its residual connection (default
                     False). Xiong et al. 2020
    bias             biases of Linear layers, attention and norms (default True)
    """

    _attentions: ClassVar[tuple[str, ...]] = ("self_attn",)  # names, as in torch.nn
    self_attn: MultiHeadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

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
        self.activation = _known_activation(type(self).__name__, activation)
        self.norm_first: bool = bool(norm_first)
        for name in self._attentions:
            attention = MultiHeadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first
            )
            setattr(self, name, attention)
        self.linear1: Linear = Linear(dim_feedforward, bias=bias)
        self.dropout: Dropout = Dropout(dropout)
        self.linear2: Linear = Linear(d_model, bias=bias)
        parts = range(1, len(self._attentions) + 2)
        for part in parts:
            setattr(self, f"norm{part}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for part in parts:
            setattr(self, f"dropout{part}", Dropout(dropout))

    def _feed_forward(self, x: Tensor) -> Tensor:
        named = {"relu": autograd.relu, "gelu": autograd.gelu}
        activation = named[self.activation] if isinstance(self.activation, str) else self.activation
        return self.linear2(self.dropout(activation(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Self-attention and two Linear layers, each with a residual connection and layer norm.

    Arguments are those of `layer.transformer.TransformerLayer`. Names and defaults are those of
    torch.nn.TransformerEncoderLayer, except batch_first, which is True by default.

    Raises ValueError if nhead does not divide d_model.

    >>> block = layer.TransformerEncoderLayer(8, 2, dim_feedforward=16)
    >>> block(tensor.random((1, 5, 8))).shape
    (1, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Arguments are those of MultiHeadAttention."""
        options = src_key_padding_mask, src_mask, is_causal, cache
        if self.norm_first:
            x = src + self._attend(self.norm1(src), *options)
            return x + self.dropout2(self._feed_forward(self.norm2(x)))
        x = self.norm1(src + self._attend(src, *options))
        return self.norm2(x + self.dropout2(self._feed_forward(x)))

    def _attend(self, x: Tensor, *options: Any) -> Tensor:
        return self.dropout1(self.self_attn(x, None, None, *options))


class TransformerEncoder(Layer):
    """A stack of `num_layers` copies of an encoder layer, and a norm behind them if one is given.

    Names are those of torch.nn.TransformerEncoder. A layer that has not been called yet has no
    parameters, so its copies get different initial values.

    >>> encoder = layer.TransformerEncoder(layer.TransformerEncoderLayer(8, 2, 16), 2)
    >>> encoder(tensor.random((1, 5, 8))).shape
    (1, 5, 8)
    """

    def __init__(self, encoder_layer: Layer, num_layers: int, norm: Layer | None = None) -> None:
        super().__init__()
        count = integer("TransformerEncoder", "num_layers", num_layers, 1)
        self.layers: Sequential = Sequential(*[copy.deepcopy(encoder_layer) for _ in range(count)])
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        caches: Sequence[KeyValueCache] | None = None,
    ) -> Tensor:
        """Arguments are those of MultiHeadAttention; `caches` has one cache for each layer."""
        count = len(self.layers)
        if caches is not None and len(caches) != count:
            raise ValueError(f"[{self.title}] {len(caches)} caches for {count} layers")
        for i in range(count):
            cache = None if caches is None else caches[i]
            src = self.layers[i](src, mask, src_key_padding_mask, is_causal, cache)
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(TransformerLayer):
    """Self-attention, attention to the encoder's results, and two Linear layers, each with a
    residual connection and layer norm.

    Arguments are those of `layer.transformer.TransformerLayer`. Names and defaults are those of
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

"""Attention layers: multi-head attention, and the cache of keys and values for
sampling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import autograd, initializer, singa_wrap, tensor
from ..ops.reduction import softmax_along
from ..raw.check import fraction, integer
from ..tensor import Tensor
from .base import Layer
from .linear import Linear, zeros
from .rotary import RotaryEmbedding

#: Initial values of PyTorch's nn.Linear: uniform over ±1 / sqrt(in).
_like_torch = functools.partial(
    initializer.variance_scaling, scale=1 / 3, mode="fan_in", distribution="uniform"
)


class KeyValueCache:
    """The keys and values of positions that a MultiHeadAttention has seen, for sampling.

    A layer that is called with `cache=` computes keys and values of the new positions only, appends
    them, and attends to all. Each layer needs a cache of its own. Memory grows by doubling;
    `capacity` (default 64) is the number of positions that it begins with. Gradients do not flow
    through a cache.

    >>> attention, cache = layer.MultiHeadAttention(8, 2), layer.KeyValueCache()
    >>> for _ in range(3):
    ...     word = tensor.random((1, 1, 8))
    ...     y = attention(word, word, word, cache=cache)[0]
    ...
    >>> len(cache)
    3
    """

    def __init__(self, capacity: int = 64) -> None:
        self.capacity: int = integer("KeyValueCache", "capacity", capacity, 1)
        self.length: int = 0
        self.keys: Any = None
        self.values: Any = None

    def __len__(self) -> int:
        return self.length

    def clear(self) -> None:
        """Forgets all positions; keeps the memory."""
        self.length = 0

    def append(self, key: Tensor, value: Tensor) -> None:
        """Appends keys (B, H, N, D) and values (B, H, N, E).

        Raises ValueError where they do not fit those before, and RuntimeError while the tape
        records.
        """
        if autograd.is_recording():
            raise RuntimeError("[KeyValueCache] has no gradients; use it under autograd.no_grad()")
        length = self.length + key.shape[2]
        self.keys = self._with(self.keys, key.data, length)
        self.values = self._with(self.values, value.data, length)
        self.length = length

    def read(self, whole: bool = False) -> tuple[Tensor, Tensor]:
        """Views of the keys (B, H, length, D) and values (B, H, length, E).

        With `whole` they are of the length of the memory, with zeros behind: causal attention skips
        these, and calls of all lengths then have one shape.
        """
        end = self.keys.shape()[2] if whole else self.length
        key, value = (
            Tensor(data=memory.SliceAxis(2, 0, end), requires_grad=False)
            for memory in (self.keys, self.values)
        )
        return key, value

    def _with(self, memory: Any, new: Any, length: int) -> Any:
        """The memory, or larger memory with the same contents, with `new` behind them."""
        shape = new.shape()
        if memory is not None and self.length == 0 and not _fits(memory, new):
            memory = None
        if memory is not None and not _fits(memory, new):
            raise ValueError(
                f"[KeyValueCache] {new.ToString()} does not fit what is kept, {memory.ToString()}"
            )
        capacity = memory.shape()[2] if memory is not None else self.capacity
        if memory is None or capacity < length:
            while capacity < length:
                capacity *= 2
            larger = singa_wrap.Full(
                (shape[0], shape[1], capacity, shape[3]), 0.0, new.device(), new.data_type()
            )
            if memory is not None:
                larger.SliceAxis(2, 0, self.length).CopyFrom(memory.SliceAxis(2, 0, self.length))
            memory = larger
        memory.SliceAxis(2, self.length, length).CopyFrom(new)
        return memory


def _fits(memory: Any, new: Any) -> bool:
    a, b = memory.shape(), new.shape()
    return (
        (a[0], a[1], a[3]) == (b[0], b[1], b[3])
        and memory.data_type() == new.data_type()
        and memory.device().id() == new.device().id()
    )


class MultiHeadAttention(Layer):
    """Attention of several heads between projections of query, key and value. Vaswani et al. 2017.

    embed_dim     features of the query and of the result; num_heads divides it
    num_heads     number of heads, each of embed_dim / num_heads features
    dropout       probability with which a weight becomes zero in training (default 0)
    bias          whether the projections add biases (default True)
    kdim, vdim    features of key and value (default embed_dim)
    batch_first   whether tensors are (batch, length, features), the default, or (length, batch,
                  features)
    num_kv_heads  number of heads of key and value, which divides num_heads (default num_heads).
                  Neighbouring heads of the query share one (Ainslie et al. 2023)
    rotary        a RotaryEmbedding, which turns queries and keys by their positions: those of keys
                  from 0 on, those of queries from the length of the cache on (default none)

    Names, initial values and weights are those of torch.nn.MultiheadAttention, whose state dict
    `Model.load_torch` reads; its batch_first is False by default, and it has no num_kv_heads and no
    rotary.

    Raises ValueError if num_heads does not divide embed_dim, and for inputs with other numbers of
    features.

    >>> attention = layer.MultiHeadAttention(8, num_heads=2)
    >>> x = tensor.random((1, 5, 8))
    >>> attention(x, x, x).shape
    (1, 5, 8)
    """

    fixed_settings = (
        *("embed_dim", "num_heads", "num_kv_heads", "head_dim", "bias", "kdim", "vdim"),
    )
    input_types = "own"
    in_proj_weight: Tensor | None
    q_proj_weight: Tensor | None
    k_proj_weight: Tensor | None
    v_proj_weight: Tensor | None
    in_proj_bias: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = True,
        num_kv_heads: int | None = None,
        rotary: RotaryEmbedding | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.embed_dim: int = integer(name, "embed_dim", embed_dim, 1)
        self.num_heads: int = integer(name, "num_heads", num_heads, 1)
        if embed_dim % num_heads:
            raise ValueError(
                f"[{name}] num_heads must divide embed_dim, got {num_heads} and {embed_dim}"
            )
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.num_kv_heads: int = integer(name, "num_kv_heads", kv_heads, 1)
        if num_heads % kv_heads:
            raise ValueError(
                f"[{name}] num_kv_heads must divide num_heads, got {kv_heads} and {num_heads}"
            )
        self.head_dim: int = embed_dim // num_heads
        self.rotary = rotary
        self.dropout: float = fraction(name, "dropout", dropout, open_end=True)
        self.bias: bool = bool(bias)
        self.kdim: int = integer(name, "kdim", embed_dim if kdim is None else kdim, 1)
        self.vdim: int = integer(name, "vdim", embed_dim if vdim is None else vdim, 1)
        self.batch_first: bool = bool(batch_first)
        self.out_proj: Linear = Linear(embed_dim, bias=bias, initializer=_like_torch)

    @property
    def _parts(self) -> tuple[int, int, int]:
        """Features of the projected query, key and value."""
        kv_dim = self.num_kv_heads * self.head_dim
        return self.embed_dim, kv_dim, kv_dim

    def initialize(self, query: Tensor, *others: Any, **options: Any) -> None:
        packed = self.kdim == self.vdim == self.embed_dim
        widths = self.embed_dim, self.kdim, self.vdim
        self.in_proj_weight = self.in_proj_bias = None
        self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        glorot = initializer.glorot_uniform
        if packed:
            self._new_param("in_proj_weight", (sum(self._parts), self.embed_dim), query, glorot)
        else:
            for letter, rows, columns in zip("qkv", self._parts, widths, strict=True):
                self._new_param(f"{letter}_proj_weight", (rows, columns), query, glorot)
        if self.bias:
            self._new_param("in_proj_bias", (sum(self._parts),), query, zeros)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """The result (B, N, embed_dim) alone: the weights are never in memory.

        query             (B, N, embed_dim)
        key, value        (B, M, kdim) and (B, M, vdim); by default the query and the key
        key_padding_mask  (B, M), bool: True excludes a key; or float, added to the scores
        attn_mask         (N, M), (B, 1, N, M), (B, num_heads, N, M) or (B · num_heads, N, M): bool,
                          where True excludes a key, or float, added to the scores
        is_causal         each query uses the keys up to its own position only
        cache             keys and values of earlier positions: those of this call are appended, and
                          its queries come after the earlier ones. M counts all positions then

        As in PyTorch, True excludes a key here, and includes it in
        `autograd.scaled_dot_product_attention`.
        """
        key = query if key is None else key
        value = key if value is None else value
        self._check(query, key, value)
        query, key, value = self._batch_first(query, key, value)
        q, k, v = self._project(query, key, value)
        first_query = 0
        keys = key.shape[1]
        if cache is not None:
            first_query = cache.length
        if self.rotary is not None:
            q, k = (self.rotary(x, first=first_query) for x in (q, k))
        if cache is not None:
            cache.append(k, v)
            keys = cache.length
            k, v = cache.read(whole=is_causal and key_padding_mask is None and attn_mask is None)
        mask = self._mask(key_padding_mask, attn_mask, query.shape, keys)
        y = autograd.scaled_dot_product_attention(
            q, k, v, mask, self.dropout, is_causal, None, True, first_query
        )
        return self._merged(y)

    def _batch_first(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value as (batch, length, features)."""
        if self.batch_first:
            return query, key, value
        return _changed_alike(lambda x: x.transpose((1, 0, 2)), query, key, value)

    def _merged(self, y: Tensor) -> Tensor:
        """The result of the layer from that of each head, (B, heads, N, head_dim)."""
        y = y.transpose((0, 2, 1, 3))
        y = self.out_proj(y.reshape((*y.shape[:2], self.embed_dim)))
        return y if self.batch_first else y.transpose((1, 0, 2))

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        for name, t, features in (
            ("query", query, self.embed_dim),
            ("key", key, self.kdim),
            ("value", value, self.vdim),
        ):
            if len(t.shape) != 3 or t.shape[2] != features:
                raise ValueError(
                    f"[{self.title}] {name} must have shape (batch, length, {features}), got "
                    f"{tuple(t.shape)}"
                )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value of each head: (B, heads, length, head_dim)."""
        parts = self._parts
        if self.in_proj_weight is not None and key is query and value is key:
            packed = autograd.linear(query, self.in_proj_weight, self.in_proj_bias, True)
            projected = autograd.split(packed, 2, parts)
        else:
            biases: Sequence[Tensor | None] = (None,) * 3
            if self.in_proj_bias is not None:
                biases = autograd.split(self.in_proj_bias, 0, parts)
            if self.in_proj_weight is not None:
                weights: Sequence[Any] = autograd.split(self.in_proj_weight, 0, parts)
            else:
                weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
            projected = tuple(
                autograd.linear(x, weight, bias, True)
                for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
            )
        heads = self.num_heads, self.num_kv_heads, self.num_kv_heads
        return tuple(
            x.reshape((*x.shape[:2], n, self.head_dim)).transpose((0, 2, 1, 3))
            for x, n in zip(projected, heads, strict=True)
        )

    def _mask(
        self,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        shape: tuple[int, ...],
        keys: int,
    ) -> Tensor | None:
        """Both masks as one, in the form of scaled_dot_product_attention."""
        masks = []
        if key_padding_mask is not None:
            self._check_mask("key_padding_mask", key_padding_mask, [(shape[0], keys)])
            masks.append(key_padding_mask.reshape((shape[0], 1, 1, keys)))
        if attn_mask is not None:
            batch, heads, queries = shape[0], self.num_heads, shape[1]
            self._check_mask(
                "attn_mask",
                attn_mask,
                [(queries, keys), (batch * heads, queries, keys)]
                + [(b, h, queries, keys) for b in (1, batch) for h in (1, heads)],
            )
            if len(attn_mask.shape) == 3:
                attn_mask = attn_mask.reshape((batch, heads, queries, keys))
            masks.append(attn_mask)
        used = [_used(mask) for mask in masks]
        if len(used) < 2:
            return used[0] if used else None
        if all(mask.dtype == tensor.bool_ for mask in used):
            return autograd._and(used[0], used[1])
        return autograd.add(*[_added(mask) for mask in used])

    def _check_mask(self, name: str, mask: Tensor, shapes: list[tuple[int, ...]]) -> None:
        if tuple(mask.shape) not in shapes:
            wanted = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
            raise ValueError(
                f"[{self.title}] {name} must have shape {wanted}, got {tuple(mask.shape)}"
            )


def _changed_alike(
    change: Callable[[Tensor], Tensor], query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """All three changed; those that are one tensor stay one, which has one projection."""
    alone = key is query, value is key
    query = change(query)
    key = query if alone[0] else change(key)
    return query, key, key if alone[1] else change(value)


def _used(mask: Tensor) -> Tensor:
    """True where a key is used, of a mask that is True where it is not; others unchanged."""
    return autograd._not(mask) if mask.dtype == tensor.bool_ else mask


def _added(mask: Tensor) -> Tensor:
    """What a mask adds to the scores."""
    if mask.dtype != tensor.bool_:
        return mask
    excluded = Tensor(data=-math.inf, device=mask.device, requires_grad=False)
    return autograd.where(tensor.zeros((), mask.device), excluded, mask)


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
            query, key, value = _changed_alike(self._as_batch, query, key, value)
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
            scores = autograd.add(scores, _added(mask))
        weights = softmax_along(scores, -1)
        if self.dropout:
            weights = autograd.dropout(weights, ratio=self.dropout)
        return self._merged(autograd.matmul(weights, v)), weights

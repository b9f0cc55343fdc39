"""GPT: a transformer that predicts the next token (Radford et al. 2019). Names as in nanoGPT."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import autograd, initializer, layer, tensor
from ..layer import Dropout, Embedding
from ..raw.check import integer
from ..tensor import Tensor
from .blocks import MLP, SelfAttention, TransformerBlock
from .common import Classifier, normal_002

_TORCH_NAMES = {
    "norm1": "ln_1",
    "norm2": "ln_2",
    "qkv": "c_attn",
    "proj": "c_proj",
    "fc1": "c_fc",
    "fc2": "c_proj",
}


class PositionEmbedding(layer.Layer):
    """Adds a learned vector for each position to x (N, L, width), whose positions begin at `first`
    and are less than `length`."""

    input_types = "own"
    weight: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def initialize(self, x: Tensor, first: int = 0) -> None:
        self._new_param("weight", (self.length, x.shape[2]), x, normal_002)

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        length = x.shape[1]
        if length == self.length:
            return x + self.weight
        return x + autograd.slice(self.weight, [first], [first + length])


class GPT(Classifier):
    """Maps tokens (N, L), integers, to the scores (N, L, num_classes) of the token after each.

    num_classes  size of the vocabulary (default 256: bytes)
    context      largest L
    width        features of a token
    depth        number of blocks
    heads        heads of the attention
    dropout      of the embeddings and of each branch of a block (default 0)

    `train_one_batch(x, y)` takes tokens x and y (N, L), where y has the token after each of x. The
    last linear layer has the weights of the embedding. Raises ValueError for longer inputs.
    """

    torch_ignore = (*Classifier.torch_ignore, "lm_head.weight", "transformer.h.*.attn.bias")

    def __init__(
        self,
        num_classes: int = 256,
        context: int = 256,
        width: int = 384,
        depth: int = 6,
        heads: int = 6,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.context = integer("GPT", "context", context, 1)
        self.image_shape = self.label_shape = (self.context,)
        if width % heads:
            raise ValueError(f"[GPT] heads must divide width, got {heads} and {width}")
        # Each block adds twice to the sum of the shortcuts.
        project = functools.partial(initializer.normal, std=0.02 / (2 * depth) ** 0.5)
        self.wte = Embedding(num_classes, width, normal_002)
        self.wpe = PositionEmbedding(context)
        self.drop = Dropout(dropout)
        self.h = layer.Sequential(
            *(
                TransformerBlock(
                    width,
                    SelfAttention(width, heads, True, dropout, project),
                    MLP(width, 4 * width, "tanh", dropout, project),
                    1e-5,
                )
                for _ in range(depth)
            )
        )
        self.ln_f = layer.LayerNorm(width)

    def forward(
        self, tokens: Tensor, caches: Sequence[layer.KeyValueCache] | None = None
    ) -> Tensor:
        """`caches`, one for each block, have what comes before the tokens, and get them, too."""
        first = len(caches[0]) if caches else 0
        if tokens.ndim() != 2 or first + tokens.shape[1] > self.context:
            raise ValueError(
                f"[GPT] expected tokens (N, at most {self.context - first}), got {tokens.shape}"
            )
        if caches:
            x = self.drop(self.wpe(self.wte(tokens), first))
            for block, cache in zip(self.h, caches, strict=True):
                x = block(x, cache)
        else:
            x = self.h(self.drop(self.wpe(self.wte(tokens))))
        return autograd.linear(self.ln_f(x), self.wte.W, None, transposed=True)

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """Softmax cross-entropy of scores `out` (N, L, num_classes) for tokens y (N, L), averaged
        over all."""
        return super().loss(out.reshape((-1, self.num_classes)), y.reshape((-1,)))

    def generate(
        self,
        tokens: ArrayLike,
        count: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> NDArray[np.int32]:
        """Draws `count` tokens after each row of `tokens` (N, L), from what the last `context`
        tokens predict. Returns (N, L + count). L is at least 1.

        Keys and values of the tokens are kept, so that a step computes its token alone, until the
        context is full. Then each step moves all tokens by a position, and computes all.

        temperature  divides the scores; 0 takes the likeliest token (default 1)
        top_k        draw from the k likeliest tokens only (default: from all)
        seed         of the random numbers (default 0)

        Raises ValueError for other shapes, a negative temperature, or a top_k below 1.
        """
        rows = np.array(tokens, np.int32)
        if rows.ndim != 2 or rows.shape[1] < 1:
            raise ValueError(f"[generate] expected tokens (N, at least 1), got {rows.shape}")
        if not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                f"[generate] temperature must be 0 or more and top_k 1 or more, got {temperature} "
                f"and {top_k}"
            )
        random = np.random.default_rng(seed)
        device = next(iter(self.get_params().values())).device
        caches = [layer.KeyValueCache(self.context) for _ in self.h]
        was_training = self.training
        self.eval()
        try:
            for _ in range(integer("generate", "count", count, 0)):
                if rows.shape[1] <= self.context:
                    new = rows[:, len(caches[0]) :]
                    with self.executed(), autograd.no_grad():
                        scores = self(tensor.from_numpy(new, device), caches)
                else:
                    # Always of the same length, so that a recorded step can be replayed.
                    scores = self(tensor.from_numpy(rows[:, -self.context :], device))
                last = scores.numpy()[:, -1].astype(np.float64)
                drawn = _draw(last, temperature, top_k, random)
                rows = np.concatenate([rows, drawn[:, None]], 1)
        finally:
            self.train(was_training)
        return rows

    def torch_name(self, name: str) -> str:
        return "transformer." + ".".join(_TORCH_NAMES.get(part, part) for part in name.split("."))


def _draw(
    scores: NDArray[np.float64],
    temperature: float,
    top_k: int | None,
    random: np.random.Generator,
) -> NDArray[np.int32]:
    """A token for each row of scores (N, vocabulary)."""
    if temperature == 0:
        return scores.argmax(1).astype(np.int32)
    if top_k is not None and top_k < scores.shape[1]:
        kth = np.partition(scores, -top_k, 1)[:, -top_k, None]
        scores = np.where(scores < kth, -np.inf, scores)
    # The largest sum with Gumbel noise is a draw from the softmax.
    return (scores / temperature + random.gumbel(size=scores.shape)).argmax(1).astype(np.int32)

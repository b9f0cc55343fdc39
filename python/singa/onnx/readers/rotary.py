"""Reader of rotary position embedding."""

from __future__ import annotations

from typing import Any

from ... import autograd
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .movement import reshaped
from .registry import reads


@reads("RotaryEmbedding", 23, states=(1, 2))
def rotary_embedding(node: Node) -> Compute:
    """Pairs of features of (B, H, N, D), or of (B, N, H · D), turned by angles."""
    interleaved = bool(node.attributes.get("interleaved", 0))
    heads, turned = (node.attributes.get(name, 0) for name in ("num_heads", "rotary_embedding_dim"))
    if turned % 2 or min(heads, turned) < 0:
        raise Refused(f"rotary_embedding_dim {turned} and num_heads {heads}")

    def compute(
        run: Any, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        shape = tuple(x.shape)
        if len(shape) == 3:
            if heads < 1 or shape[2] % heads:
                raise ValueError(f"[{node.op}] {heads} heads do not divide x {shape}")
            x = reshaped(x, (*shape[:2], heads, shape[2] // heads))
            x = autograd.transpose(x, (0, 2, 1, 3))
        width = turned or x.shape[-1]
        if 2 * cos.shape[-1] != width:
            raise ValueError(
                f"[{node.op}] cos_cache {tuple(cos.shape)} must have {width // 2} columns"
            )
        cos, sin = cos.detach(), sin.detach()
        if positions is None:
            y = autograd.RotaryEmbedding(interleaved)(x, cos, sin)[0]
        else:
            y = autograd.rotary_embedding(x, cos, sin, positions, interleaved=interleaved)
        if len(shape) == 3:
            y = reshaped(autograd.transpose(y, (0, 2, 1, 3)), shape)
        return y

    return compute

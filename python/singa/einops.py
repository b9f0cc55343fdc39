"""Makes the functions of einops take tensors: `import singa.einops`, once in a program.

    import singa.einops
    from einops import rearrange, reduce

    patches = rearrange(x, "n c (h p) (w q) -> n (h w) (p q c)", p=4, q=4)

einops finds its backends among the classes that derive from AbstractBackend, so this module defines
one. All results are on the tape. `einops.layers` has no layers for singa. Raises ImportError where
the package einops is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from einops._backends import AbstractBackend

from . import autograd, tensor
from .dtypes import is_float
from .tensor import Tensor

__all__ = ["SingaBackend"]


class SingaBackend(AbstractBackend):
    """The operations that einops consists of, on tensors."""

    framework_name = "singa"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Whether the argument is a Tensor."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        """A copy of an array as a tensor."""
        return tensor.from_numpy(x)

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        """A copy of a tensor as an array."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """The integers from `start` to before `stop`."""
        return autograd.arange(start, stop)

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        """Joins tensors of one shape along a new first axis."""
        return autograd.cat([x.unsqueeze(0) for x in tensors], 0)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """Inserts an axis of length 1."""
        return x.unsqueeze(new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """Repeats the whole tensor along each axis."""
        return autograd.tile(x, repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Joins tensors along an axis."""
        return autograd.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Whether the elements are floats."""
        return is_float(x.dtype)

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        """Sums of products by Einstein's convention."""
        return tensor.einsum(pattern, *x)

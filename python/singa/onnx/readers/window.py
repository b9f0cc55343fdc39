"""Windows of convolution and pooling: attributes and padding, along one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...layer.window import same_padding
from ...networks.errors import Refused
from ...networks.graph import Node
from ...tensor import Tensor


class Window:
    """The attributes of a window over one to three axes."""

    def __init__(self, node: Node) -> None:
        attributes = node.attributes
        self.node = node
        self.kernel: Any | None = attributes.get("kernel_shape")
        self.strides: Any | None = attributes.get("strides")
        self.dilations: Any | None = attributes.get("dilations")
        self.pads: Any | None = attributes.get("pads")
        self.auto_pad: Any = attributes.get("auto_pad", "NOTSET")
        if self.auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
            raise Refused(f"auto_pad {self.auto_pad!r}")
        rank = node.rank(0)
        if rank is not None and not 3 <= rank <= 5:
            raise Refused(f"windows over {rank - 2} axes; singa has 1 to 3")

    def over(
        self, x: Tensor, kernel: Sequence[int] | None = None
    ) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(number of axes, kernel, strides, dilations, padding) of the windows of x.

        kernel  that of a weight, which the node need not give

        Raises ValueError unless x has one to three spatial axes, and for another kernel than the
        node's.
        """
        axes = len(x.shape) - 2
        if not 1 <= axes <= 3:
            raise ValueError(
                f"[{self.node.op}] x has shape {tuple(x.shape)}; singa takes 3 to 5 axes"
            )
        if kernel is None:
            kernel = self.of(self.kernel, axes, 1)
        elif self.kernel is not None and tuple(self.kernel) != tuple(kernel):
            raise ValueError(
                f"[{self.node.op}] kernel_shape {list(self.kernel)} for a weight of {tuple(kernel)}"
            )
        return (axes, tuple(kernel), *self.geometry(x.shape[2:], kernel))

    def geometry(
        self, size: Sequence[int], kernel: Sequence[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """(strides, dilations, padding) for an image of this size."""
        strides = self.of(self.strides, len(size), 1)
        dilations = self.of(self.dilations, len(size), 1)
        return strides, dilations, self._padding(size, kernel, strides, dilations)

    def of(self, values: Sequence[int] | None, axes: int, default: int) -> tuple[int, ...]:
        """An attribute for each axis."""
        if values is None:
            return (default,) * axes
        if len(values) != axes:
            raise ValueError(f"[{self.node.op}] {list(values)} for {axes} axes")
        return tuple(values)

    def _padding(
        self, size: Sequence[int], kernel: Sequence[int], strides: Any, dilations: Any
    ) -> tuple[int, ...]:
        """Padding of an image of this size: before each axis, then after each."""
        if self.auto_pad == "VALID":
            return (0,) * (2 * len(size))
        if self.auto_pad == "NOTSET":
            return self.of(self.pads, 2 * len(size), 0)
        return same_padding(self.auto_pad, size, kernel, strides, dilations)

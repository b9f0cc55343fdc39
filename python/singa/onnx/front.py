"""What ONNX's operators mean: the front end of graphs from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..networks.front_end import FrontEnd
from ..networks.graph import Graph, Node
from . import values
from .fusion import OnnxFusion
from .readers import control
from .readers.evaluated import choose

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def _of_shape(node: Node) -> Callable[[Sequence[int]], Array] | None:
    if node.domain:
        return None
    if node.op == "Shape":
        return lambda shape: values.shape_of(node, shape)
    if node.op == "Size":
        return lambda shape: np.array(int(np.prod(shape, dtype=np.int64)), np.int64)
    return None


def _branch(node: Node, constants: Mapping[str, Array]) -> Graph | None:
    """The branch of an If whose condition is known."""
    if node.domain or node.op != "If" or not node.inputs:
        return None
    condition = constants.get(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    return control.branch(node, bool(condition.reshape(-1)[0]))


ONNX = FrontEnd(
    name="onnx",
    function="onnx.load",
    title="ONNX",
    choose=choose,
    on_host=values.computation,
    of_shape=_of_shape,
    branch=_branch,
    fusion=OnnxFusion,
)

"""SINGA's names for ONNX import and export; `singa.onnx` is singa's own interface.

It needs two packages: pip install onnx ml_dtypes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..onnx.backend import (
    OnnxNode,
    SingaBackend,
    SingaFrontend,
    SingaRep,
    get_op,
    prepare,
    run_node,
    supports_device,
    to_onnx,
    values,
)
from ..onnx.module import ImportedModel, read_graph
from ..tensor import Tensor

__all__ = [
    "OnnxNode",
    "SONNXModel",
    "SingaBackend",
    "SingaFrontend",
    "SingaRep",
    "get_op",
    "load",
    "prepare",
    "run_node",
    "save",
    "supports_device",
    "to_onnx",
]


class SONNXModel(ImportedModel):
    """A model made from an ONNX model; a subclass defines `train_one_batch`.

    onnx_model  a ModelProto, or the path of a file
    device      where the parameters lie (default: the default device)

    `forward` returns a list of outputs, as in SINGA. Raises what `singa.onnx.load` raises.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> net = sonnx.SONNXModel(sonnx.to_onnx([x], [autograd.relu(x)]))
    >>> net.forward(x)
    [Tensor([0., 2.], dtype=float32)]
    """

    def __init__(self, onnx_model: Any, device: Any = None) -> None:
        super().__init__(read_graph(onnx_model), device)

    def forward(
        self, *input: Tensor, aux_output: Sequence[str] = (), last_layers: int | None = None
    ) -> list[Tensor]:
        """A list of the outputs, then of the values called `aux_output`.

        With `last_layers`, only the nodes up to this one run, and its outputs take the place of the
        graph's: k runs the first k + 1 nodes, -2 runs all, and -3 all but the last one.
        """
        return values(self, input, last_layers, aux_output)


def load(path: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Reads a file as a ModelProto, as onnx.load.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> sonnx.save(sonnx.to_onnx([x], [autograd.relu(x)]), "net.onnx")
    >>> sonnx.load("net.onnx").graph.node[0].op_type
    'Relu'
    """
    import onnx

    return onnx.load(os.fspath(path), **kwargs)


def save(proto: Any, path: str | os.PathLike[str], **kwargs: Any) -> None:
    """Writes a ModelProto, as onnx.save.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> sonnx.save(sonnx.to_onnx([x], [autograd.relu(x)]), "net.onnx")
    >>> sonnx.load("net.onnx").graph.node[0].op_type
    'Relu'
    """
    import onnx

    onnx.save(proto, os.fspath(path), **kwargs)

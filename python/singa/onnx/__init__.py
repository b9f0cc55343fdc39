"""ONNX: networks come in, train, and go out.

    net = singa.onnx.load("resnet18.onnx")
    net.replace_head(10)
    net.set_optimizer(opt.SGD(lr=0.01))
    net.compile([x], is_train=True, use_graph=True)
    out, loss = net(x, y)

docs/onnx.md describes it. It needs two packages: pip install onnx ml_dtypes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..networks.errors import InvalidModelError, Problem, UnsupportedError
from ..raw import words
from . import readers as _readers  # noqa: F401 - fills the table
from .errors import ExportError
from .module import ImportedModel, load
from .quantizing import QuantizedModel
from .save import save

__all__ = [
    "ExportError",
    "ImportedModel",
    "InvalidModelError",
    "Problem",
    "QuantizedModel",
    "UnsupportedError",
    "load",
    "save",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)

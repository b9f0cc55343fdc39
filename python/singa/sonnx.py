"""ONNX import and export: SINGA's names, until they are there. Each raises NotImplementedError."""

from __future__ import annotations

from typing import Any, NoReturn

from . import model
from .tensor import Tensor

__all__ = ["SONNXModel", "prepare", "run_node", "to_onnx"]


class SONNXModel(model.Model):
    """A model made from an ONNX one. Not there yet: making one raises NotImplementedError."""

    def __init__(self, onnx_model: Any) -> None:
        _not_there("SONNXModel")


def prepare(model: Any, device: Any = "CPU", **kwargs: Any) -> Any:
    """Would turn an ONNX model into one that runs. Raises NotImplementedError."""
    _not_there("prepare")


def run_node(node: Any, inputs: Any, device: Any = "CPU", **kwargs: Any) -> Any:
    """Would run one ONNX node. Raises NotImplementedError."""
    _not_there("run_node")


def to_onnx(inputs: list[Tensor], y: list[Tensor], model_name: str = "sonnx") -> Any:
    """Would write what computed y from the inputs as an ONNX model. Raises NotImplementedError."""
    _not_there("to_onnx")


def _not_there(what: str) -> NoReturn:
    raise NotImplementedError(
        f"[sonnx.{what}] ONNX is not there yet; Model.load_torch reads PyTorch's weights, and "
        "Model.save_states writes .npz and .safetensors files that other programs read"
    )

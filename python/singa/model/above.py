"""What modules above this one do for models."""

import importlib
from typing import Any

#: Methods of Model that modules above this one implement, by a function of the same name. There are
#: no other calls upward.
OF_ABOVE = {
    "quantize": "singa.onnx.quantizing",
    "plot": "singa.report.network",
    "save": "singa.training.model_file",
    "_texts_of_use": "singa.training.model_file",
    "_take_use": "singa.training.model_file",
    "fit": "singa.training.fitting",
    "evaluate": "singa.training.fitting",
    "predict": "singa.training.fitting",
}


def of_above(method: str) -> Any:
    """The function that implements a method of Model."""
    return getattr(importlib.import_module(OF_ABOVE[method]), method)

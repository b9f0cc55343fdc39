"""Networks of PyTorch: `singa.from_torch`.

`export` makes a graph of a module, `operators` has the function of singa for each of PyTorch's
operators, `front` says so to the executor of `singa.networks`, and `module` is the Model.
"""

from __future__ import annotations

from ..networks.errors import Problem, UnsupportedError
from .module import TorchModel, from_torch

__all__ = ["Problem", "TorchModel", "UnsupportedError", "from_torch"]

"""Networks of PyTorch: `singa.from_torch` and `singa.accelerate`.

`export` makes a graph of a module, `operators` has the function of singa for each of PyTorch's
operators, `front` says so to the executor of `singa.networks`, `module` is the Model, and `saved`
makes it of a file. `accelerate` runs a graph behind PyTorch's own tape, and `signature` says when a
module needs another graph. `runs` has one forward and its backward, which `replays` records.
"""

from __future__ import annotations

from ..networks.errors import Problem, UnsupportedError
from .module import TorchModel, from_torch

__all__ = ["Problem", "TorchModel", "UnsupportedError", "from_torch"]

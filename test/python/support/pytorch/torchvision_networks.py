"""torchvision's networks and transforms, also where its C++ library does not fit the installed
PyTorch.

They need none of its operators, but it does not load without them.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import pytest


def networks(torch: Any) -> Any:
    """The module torchvision.models. Skips the test if it cannot be imported."""
    return module(torch, "models")


def module(torch: Any, name: str) -> Any:
    """The module torchvision.<name>. Skips the test if it cannot be imported."""
    problem = ""
    for _ in range(10):
        try:
            found = importlib.import_module(f"torchvision.{name}")
        except ImportError as error:
            pytest.skip(f"torchvision: {error}")
        except RuntimeError as error:
            problem = str(error)
            missing = re.search(r"operator (torchvision::\w+) does not exist", problem)
            if missing is None:
                break
            torch.library.define(missing[1], "(Tensor x) -> Tensor")
            for loaded in [each for each in sys.modules if each.startswith("torchvision")]:
                del sys.modules[loaded]
        else:
            return found
    pytest.skip(f"torchvision: {problem}")

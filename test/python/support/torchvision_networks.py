"""torchvision's networks, also where its C++ library does not fit the installed PyTorch.

They need none of its operators, but it does not load without them.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest


def networks(torch: Any) -> Any:
    """The module torchvision.models. Skips the test if it cannot be imported."""
    problem = ""
    for _ in range(10):
        try:
            from torchvision import models
        except ImportError as error:
            pytest.skip(f"torchvision: {error}")
        except RuntimeError as error:
            problem = str(error)
            missing = re.search(r"operator (torchvision::\w+) does not exist", problem)
            if missing is None:
                break
            torch.library.define(missing[1], "(Tensor x) -> Tensor")
            for name in [name for name in sys.modules if name.startswith("torchvision")]:
                del sys.modules[name]
        else:
            return models
    pytest.skip(f"torchvision: {problem}")

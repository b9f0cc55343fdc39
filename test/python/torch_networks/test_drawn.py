"""Random modules beside PyTorch, in float64. `scripts/torch_zoo.py --drawn` compares more."""

from __future__ import annotations

from types import ModuleType

import drawn_modules
import pytest
import torch_oracle


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_drawn_module(torch: ModuleType, seed: int) -> None:
    module, inputs = drawn_modules.drawn(torch, seed)
    torch_oracle.check(torch, module, *inputs, wide=True, apart=seed == 0)

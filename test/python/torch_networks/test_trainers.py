"""Trainers of other libraries around an accelerated module, beside the module in PyTorch.

`scripts/torch_trainers.py` runs more of them, and timm's script.
"""

from __future__ import annotations

import functools
import importlib.util
from types import ModuleType

import pytest
import singa

pytestmark = pytest.mark.cpu("PyTorch computes with memory of the CPU")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lightning", "resnet", "gpt2"])
def test_losses_are_pytorchs(torch: ModuleType, name: str) -> None:
    for package in ("torchvision", "lightning" if name == "lightning" else "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import torch_trainers

    train = torch_trainers.with_lightning
    if name != "lightning":
        train = functools.partial(torch_trainers.with_transformers, name=name)
    nets = []

    def accelerated(module: object) -> object:
        nets.append(singa.accelerate(module))
        return nets[0]

    wanted = train(lambda module: module, epochs=1)
    found = train(accelerated, epochs=1)
    # Rounding that moves an input of a ReLU across 0 moves a loss by up to 1e-4.
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-4)
    assert nets[0]._runner.replays.replayed >= 3

"""The table of layers: values and gradients of PyTorch's modules, and replays of recorded steps."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import singa
from like_torch import Around, check_like_torch
from ops.layers import LAYERS, LayerCase
from singa import tensor


def _values(case: LayerCase, seed: int = 3) -> np.ndarray:
    """Far from zero, too."""
    return np.random.default_rng(seed).normal(0.5, 2.0, case.shape).astype(np.float32)


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch's, about its own speed
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "case", [case for case in LAYERS if case.theirs], ids=lambda case: case.name
)
def test_like_torch(case: LayerCase, dtype: str, torch: ModuleType) -> None:
    assert case.theirs is not None
    theirs = case.theirs(torch.nn)
    check_like_torch(torch, case.make(), theirs, [_values(case)], dtype, infers=True)


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_replays_the_executed_bits(case: LayerCase) -> None:
    results = []
    for use_graph in (False, True):
        singa.seed(5)
        net = Around(case.make())
        net.compile([tensor.from_numpy(_values(case))], is_train=False, use_graph=use_graph)
        batches = [tensor.from_numpy(_values(case, seed)) for seed in range(4)]
        results.append([net(batch).numpy() for batch in batches])
    for executed, replayed in zip(*results, strict=True):
        limit = 1e-5 if case.folds else 0
        np.testing.assert_allclose(executed, replayed, rtol=limit, atol=limit)

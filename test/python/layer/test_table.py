"""The table of layers: values and gradients of PyTorch's modules, and replays of recorded steps."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import singa
from ops.layers import LAYERS, LayerCase
from singa import autograd, layer, model, tensor
from singa.layer.torch_weights import _places


class Around(model.Model):
    """A model of one layer, whose weights load_torch can name."""

    def __init__(self, inner: layer.Layer) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.inner(x)


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
    theirs = case.theirs(torch.nn).to(torch.float64)
    rng = np.random.default_rng(3)
    for parameter in theirs.parameters():
        values = rng.normal(0.3, 0.5, parameter.shape).astype(np.float32)
        parameter.data.copy_(torch.from_numpy(values))
    x = tensor.Tensor(data=_values(case), dtype=dtype, stores_grad=True)
    net = Around(case.make())
    net.compile([x], is_train=True, use_graph=False)
    state = {f"inner.{key}": value for key, value in theirs.state_dict().items()}
    if state:
        net.load_torch(state)
    y = net.forward(x)
    their_x = torch.tensor(_values(case).astype(np.float64), requires_grad=True)
    their_y = theirs(their_x)
    dy = rng.normal(size=y.shape).astype(np.float32)
    their_y.backward(torch.from_numpy(dy.astype(np.float64)))
    limit = {"float32": 2e-5, "float64": 1e-12}[dtype]
    gradients = autograd.gradients(y, dy.astype(dtype))
    pairs = [(y, their_y.detach()), (gradients[x], their_x.grad)]
    parameters = dict(theirs.named_parameters())
    assert len(net.get_params()) == len(parameters)
    for name, (own, turned) in _places(net).items() if state else ():
        grad = parameters[name.removeprefix("inner.")].grad
        pairs.append((gradients[own], grad.T if turned else grad))
    for got, want in pairs:
        scale = max(1.0, float(want.abs().max()))
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=0, atol=limit * scale)


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

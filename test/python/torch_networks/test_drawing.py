"""Random numbers of modules: how they are distributed, when they are drawn, and their gradients."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import opt

ROWS, COLUMNS = 400, 500


def _of(torch: Any, function: Any) -> Any:
    class Drawing(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return function(x)

    return Drawing().eval()


#: What is drawn for x of ones, the mean, the standard deviation, and limits of the values.
DRAWN: dict[str, tuple[Any, float, float, tuple[float, float]]] = {
    "rand": (lambda t, x: t.rand(x.shape), 0.5, 12**-0.5, (0, 1)),
    "rand_like": (lambda t, x: t.rand_like(x), 0.5, 12**-0.5, (0, 1)),
    "uniform_": (lambda t, x: t.empty_like(x).uniform_(-1, 3), 1.0, 4 * 12**-0.5, (-1, 3)),
    "randn": (lambda t, x: t.randn(*x.shape), 0.0, 1.0, (-8, 8)),
    "randn_like": (lambda t, x: t.randn_like(x), 0.0, 1.0, (-8, 8)),
    "normal_": (lambda t, x: t.empty_like(x).normal_(2.0, 3.0), 2.0, 3.0, (-22, 26)),
    "normal": (lambda t, x: t.normal(x, 2 * x), 1.0, 2.0, (-15, 17)),
    "exponential_": (lambda t, x: t.empty_like(x).exponential_(2.0), 0.5, 0.5, (0, 20)),
    "bernoulli": (lambda t, x: t.bernoulli(x * 0.3), 0.3, 0.21**0.5, (0, 1)),
    "randint": (lambda t, x: t.randint(2, 6, x.shape) + 0 * x, 3.5, 1.25**0.5, (2, 5)),
    "randint_like": (lambda t, x: t.randint_like(x, 4), 1.5, 1.25**0.5, (0, 3)),
    "rrelu": (
        lambda t, x: t.nn.functional.rrelu(-x, 0.2, 0.4, training=True),
        *(-0.3, 0.2 * 12**-0.5, (-0.401, -0.199)),
    ),
    "Normal": (
        lambda t, x: t.distributions.Normal(x, 2 * x, validate_args=False).rsample(),
        *(1.0, 2.0, (-15, 17)),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_distributions(torch: ModuleType, name: str) -> None:
    draw, mean, deviation, (low, high) = DRAWN[name]
    x = np.ones((ROWS, COLUMNS), np.float32)
    net = singa.from_torch(_of(torch, lambda x: draw(torch, x)), x)
    singa.seed(3)
    first, second = (net(x).numpy() for _ in range(2))
    assert first.shape == x.shape
    assert first.dtype == np.float32
    assert first.min() >= low
    assert first.max() <= high
    count = x.size
    assert abs(first.mean() - mean) < 6 * deviation / count**0.5
    assert abs(first.std() - deviation) < 6 * 3 * deviation / count**0.5
    assert not np.array_equal(first, second)
    singa.seed(3)
    np.testing.assert_array_equal(net(x).numpy(), first)


def test_an_order(torch: ModuleType) -> None:
    net = singa.from_torch(_of(torch, lambda x: x[torch.randperm(6)]), np.ones((6, 2), np.float32))
    x = np.repeat(np.arange(6, dtype=np.float32)[:, None], 2, 1)
    found = [net(x).numpy()[:, 0].tolist() for _ in range(8)]
    assert all(sorted(each) == list(range(6)) for each in found)
    assert len({*map(tuple, found)}) > 4


def test_making_a_network_draws_nothing(torch: ModuleType) -> None:
    x = np.ones((3, 4), np.float32)
    device = singa.device.get_default_device()
    before, torchs = device.random_state(), torch.get_rng_state()
    singa.from_torch(_of(torch, torch.randn_like), x)
    assert device.random_state() == before
    assert torch.equal(torch.get_rng_state(), torchs)


def _coder(torch: Any) -> Any:
    class Coder(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Its second half has noise between."""

        def __init__(self) -> None:
            super().__init__()
            self.to_code = torch.nn.Linear(5, 6)
            self.from_code = torch.nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            mean, scale = self.to_code(x).chunk(2, 1)
            noise = torch.randn_like(mean)
            return self.from_code(mean + scale.exp() * noise), noise

    return Coder()


def _loss(out: Any, y: Any) -> Any:
    return ((out[0] - y) ** 2).mean()


@pytest.mark.parametrize("use_graph", [False, True])
def test_gradients_go_around_the_noise(torch: ModuleType, use_graph: bool) -> None:
    torch.manual_seed(0)
    module = _coder(torch)
    x = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    net = singa.from_torch(module, x, loss=_loss)
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True, use_graph=use_graph)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    seen = set()
    for _ in range(5):
        (out, noise), _ = net(x, x)
        seen.add(noise.numpy().tobytes())
        mean, scale = module.to_code(torch.from_numpy(x)).chunk(2, 1)
        wanted = module.from_code(mean + scale.exp() * torch.from_numpy(noise.numpy()))
        np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(wanted, torch.from_numpy(x)).backward()
        optimizer.step()
    assert len(seen) == 5
    for name, value in module.state_dict().items():
        found = net.state_dict()[name]
        torch.testing.assert_close(found, value, rtol=1e-4, atol=1e-5)


@pytest.mark.cpu("PyTorch computes with memory of the CPU")
def test_accelerated_noise(torch: ModuleType) -> None:
    module = _coder(torch)
    net = singa.accelerate(module)
    x = torch.randn(8, 5)
    drawn = []
    for _ in range(2):
        singa.seed(4)
        drawn.append([net(x) for _ in range(4)])
        for out, noise in drawn[-1]:
            net.zero_grad()
            mean, scale = module.to_code(x).chunk(2, 1)
            wanted = module.from_code(mean + scale.exp() * noise)
            torch.testing.assert_close(out, wanted)
            ours = torch.autograd.grad((out**2).sum(), list(net.parameters()))
            theirs = torch.autograd.grad((wanted**2).sum(), list(net.parameters()))
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    for one, other in zip(*drawn, strict=True):
        assert torch.equal(one[1], other[1])
    assert len({each[1].numpy().tobytes() for each in drawn[0]}) == 4

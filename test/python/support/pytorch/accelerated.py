"""Accelerated modules of PyTorch, and the same modules in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import singa


def network(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 5),
    )


_PAIRS: dict[Any, tuple[Any, Any, Any]] = {}


def pair(torch: Any, make: Callable[[Any], Any] = network, fresh: bool = False) -> tuple[Any, Any]:
    """An accelerated module, and the same in PyTorch. Unless they must be `fresh`, earlier ones are
    reset, which have their graphs."""
    if fresh or make not in _PAIRS:
        plain = make(torch)
        pair = singa.accelerate(copy.deepcopy(plain)), plain
        _PAIRS.setdefault(make, (*pair, copy.deepcopy(plain.state_dict())))
        return pair
    *pair, start = _PAIRS[make]
    for each in pair:
        each.float().requires_grad_(True).train().zero_grad()
        each.load_state_dict(start)
    return pair[0], pair[1]


def batch(torch: Any, rows: int = 4, seed: int = 0) -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 3, 8, 8, generator=random)
    return x, torch.randint(0, 5, (rows,), generator=random)


def same(torch: Any, found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def same_states(torch: Any, net: Any, plain: Any, tolerance: float = 1e-5) -> None:
    wanted = plain.state_dict()
    assert list(net.state_dict()) == list(wanted)
    for name, value in net.state_dict().items():
        same(torch, value, wanted[name], tolerance)


def loss(torch: Any, net: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(net(x), y)


def same_gradients(torch: Any, net: Any, plain: Any, tolerance: float = 1e-5) -> None:
    for (name, p), q in zip(net.named_parameters(), plain.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            same(torch, p.grad, q.grad, tolerance)

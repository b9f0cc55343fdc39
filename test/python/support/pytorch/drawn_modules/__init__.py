"""Random modules of PyTorch, out of layers, functions, views and writes in place.

    module, inputs = drawn(torch, seed)

A module keeps a list of values, at first its inputs. Each step makes one more of some of them, and
three are the result. Steps whose results are not finite, too small or too large are drawn again.
"""

from __future__ import annotations

from typing import Any

from . import functions, layers, movement, reduction, writes  # noqa: F401 - they fill the list
from .draw import KINDS, Draw, Kind, Step, UnfitError
from .layers import convolution, linear


def drawn(torch: Any, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A module in training, and its inputs."""
    torch.manual_seed(seed)
    d = Draw(torch, seed)
    rows, channels, side = d.integer(2, 4), d.one(3, 4, 6, 8), d.integer(5, 8)
    inputs = (
        torch.randn(rows, channels, side, side + d.one(0, 0, 1)),
        torch.randn(rows, d.integer(3, 6), d.one(4, 6, 8)),
    )
    wide = [x.double() for x in inputs]
    d.values = [*wide]
    steps: list[Step] = []
    for make in (convolution, linear, *[None] * d.integer(5, 12)):
        steps.append(_fitting(d, make))
    # Values 2 and 3 have parameters.
    results = [len(d.values) - 1, d.integer(2, len(d.values) - 1), d.one(2, 3)]

    class Drawn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(layer.to(inputs[0].dtype) for layer in d.layers)

        def forward(self, *given: Any) -> Any:
            values = [*given]
            for step in steps:
                values.append(step(self, values))
            return [values[i] for i in results]

    return Drawn().train(), inputs


def _fitting(d: Draw, make: Kind | None) -> Step:
    """A step whose result is as it should be, which joins the values."""
    for _ in range(200):
        kind = make or d.random.choice(KINDS)
        count, versions = len(d.layers), [x._version for x in d.values]
        try:
            step = kind(d)
            for layer in d.layers[count:]:
                layer.double()
            with d.torch.no_grad():
                y = step(d, d.values)
            changed = versions != [x._version for x in d.values]
            if not changed and _is_good(d, y) and _has_gradient(d, step, y):
                d.values.append(y)
                return step
        except (UnfitError, RuntimeError, ValueError, IndexError, AssertionError):
            pass
        del d.layers[count:]
    raise AssertionError("no step fits")


def _is_good(d: Draw, y: Any) -> bool:
    """Whether a value is of a usable shape and size, with the batch in front."""
    if not y.is_floating_point() or not 2 <= y.ndim <= 4 or not 2 <= y.numel() <= 6000:
        return False
    if y.shape[0] != d.values[0].shape[0] or not bool(y.isfinite().all()):
        return False
    largest = float(y.abs().max())
    return 1e-2 < largest < 30 and float(y.std()) > 1e-3


def _has_gradient(d: Draw, step: Step, y: Any) -> bool:
    """Whether PyTorch can differentiate a step, with gradients that are neither infinite nor
    large."""
    values = [x.detach().requires_grad_() for x in d.values]
    loss = step(d, values).square().mean()
    if not loss.requires_grad:
        return True
    loss.backward()
    grads = [x.grad for x in values if x.grad is not None]
    return all(bool(g.isfinite().all()) and float(g.abs().max()) < 100 for g in grads)

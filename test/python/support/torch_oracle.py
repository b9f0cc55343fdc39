"""Comparison of networks of `from_torch` with PyTorch in float64 and float32."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import singa
from numpy.typing import NDArray
from singa import autograd, opt, tensor

Array = NDArray[Any]

#: Below this, relative to the largest element, an error is that of one rounding.
_FLOOR = 2.0**-21


def error(found: Array, wanted: Array) -> float:
    """The largest difference, relative to the largest element."""
    size = float(np.abs(wanted).max()) if wanted.size else 0.0
    difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    return float(difference.max()) / size if size else float(difference.max(initial=0.0))


def _compare(what: str, found: Any, narrow: Any, wide: Any, factor: float) -> None:
    """Asserts that singa's error is at most `factor` times PyTorch's own in float32."""
    assert found.shape == tuple(wide.shape), what
    wanted = wide.detach().numpy()
    bound = factor * max(error(narrow.detach().numpy(), wanted), _FLOOR)
    assert error(found, wanted) <= bound, (what, error(found, wanted), bound)


def _flat(outputs: Any) -> list[Any]:
    values = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(outputs, tuple | list | Mapping):
        return [each for value in values for each in _flat(value)]
    return [outputs]


def _double(module: Any) -> Any:
    return copy.deepcopy(module).double()


def _wide(torch: Any, x: Any) -> Any:
    return x.double() if x.is_floating_point() else x


class _Weighted:
    """A loss: a weighted sum of the outputs and of their squares."""

    def __init__(self) -> None:
        self.weights: list[Array] = []

    def fit(self, outputs: Any) -> None:
        """Draws weights for such outputs."""
        random = np.random.default_rng(0)
        self.weights = [random.standard_normal(tuple(y.shape)) for y in _flat(outputs)]

    def of_torch(self, torch: Any, outputs: Any) -> Any:
        total = 0
        for w, y in zip(self.weights, _flat(outputs), strict=True):
            total = total + (torch.from_numpy(w).to(y.dtype) * y * (1 + 0.1 * y)).mean()
        return total

    def of_singa(self, outputs: Any, y: Any) -> Any:
        total = None
        for w, each in zip(self.weights, _flat(outputs), strict=True):
            t = tensor.from_numpy(w.astype(np.float32))
            part = (t * each * (1 + 0.1 * each)).mean()
            total = part if total is None else total + part
        return total


def check(torch: Any, module: Any, *inputs: Any, steps: bool = True) -> Any:
    """Compares outputs in inference and training, gradients, and weights after three steps of SGD,
    executed and recorded. Returns the network."""
    arrays = [x.numpy() for x in inputs]
    wides = [_wide(torch, x) for x in inputs]
    narrow, wide = copy.deepcopy(module), _double(module)
    loss = _Weighted()
    net = singa.from_torch(module, inputs, loss=loss.of_singa)
    start = {name: value.numpy().copy() for name, value in net.get_states().items()}
    ran = []
    for each in (narrow, wide):
        each.eval()
    with torch.no_grad():
        outputs = narrow(*inputs), wide(*wides)
    for found, a, b in zip(_flat(net(*arrays)), *map(_flat, outputs), strict=True):
        _compare("inference", found.numpy(), a, b, 4)
    net.graph(True)
    for _ in range(3):  # the last one is a replay
        ran = _flat(net(*arrays))
    for found, a, b in zip(ran, *map(_flat, outputs), strict=True):
        _compare("recorded inference", found.numpy(), a, b, 8)  # batch norm is folded
    net.graph(False)
    with torch.no_grad():
        outputs = narrow(*(x[:1] for x in inputs)), wide(*(x[:1] for x in wides))
    found = _flat(net(*(x[:1] for x in arrays)))
    for y, a, b in zip(found, *map(_flat, outputs), strict=True):
        _compare("a batch of 1", y.numpy(), a, b, 4)

    for each, mode in ((narrow, module.training), (wide, module.training)):
        _set_modes(each, module) if mode else each.train()
    outputs = narrow(*inputs), wide(*wides)
    loss.fit(outputs[1])
    for y in outputs:
        loss.of_torch(torch, y).backward()
    net.train()
    tensors = [tensor.from_numpy(x) for x in arrays]
    found = net.forward(*tensors)
    for y, a, b in zip(_flat(found), *map(_flat, outputs), strict=True):
        _compare("training", y.numpy(), a, b, 4)
    gradients = {id(p): g for p, g in autograd.backward(loss.of_singa(found, None))}
    autograd.training = False
    wanted = dict(wide.named_parameters())
    own = dict(narrow.named_parameters())
    scale = max(float(p.grad.abs().max()) for p in wanted.values() if p.grad is not None)
    params = net.get_params()
    assert params.keys() == {name for name, p in wanted.items() if p.requires_grad}
    for name, p in params.items():
        if wanted[name].grad is None:
            assert id(p) not in gradients, name
        elif float(wanted[name].grad.abs().max()) > 1e-7 * scale:
            found = gradients[id(p)].numpy()
            _compare(f"gradient of {name}", found, own[name].grad, wanted[name].grad, 4)
    if steps:
        _check_steps(torch, module, net, start, (inputs, wides), loss)
    return net


def _set_modes(copied: Any, module: Any) -> None:
    for part, like in zip(copied.modules(), module.modules(), strict=True):
        part.training = like.training


def _check_steps(
    torch: Any,
    module: Any,
    net: Any,
    start: dict[str, Array],
    inputs: tuple[Any, Any],
    loss: _Weighted,
) -> None:
    trained = []
    for each, given in zip((copy.deepcopy(module), _double(module)), inputs, strict=True):
        if not each.training:
            each.train()
        sgd = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], 1e-3)
        for _ in range(5):
            sgd.zero_grad()
            loss.of_torch(torch, each(*given)).backward()
            sgd.step()
        trained.append(each.state_dict())
    states = []
    arrays = [x.numpy() for x in inputs[0]]
    for use_graph in (False, True):
        net.set_states(start)
        net.set_optimizer(opt.SGD(lr=1e-3))
        net.compile([tensor.from_numpy(x) for x in arrays], is_train=True, use_graph=use_graph)
        for _ in range(5):
            net(*arrays, np.zeros(1, np.float32))
        states.append(net.state_dict())
    assert states[0].keys() == trained[1].keys()
    for name, value in states[0].items():
        assert value.dtype == trained[0][name].dtype, name
        assert torch.equal(value, states[1][name]), f"{name}: recorded steps differ"
        if value.is_floating_point():
            _compare(f"{name} after steps", value.numpy(), trained[0][name], trained[1][name], 16)
        else:
            assert torch.equal(value, trained[1][name]), name

"""Comparison of networks of `from_torch` with PyTorch in float64 and float32."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Finding:
    """A comparison with PyTorch in float64.

    what    what was compared
    error   of singa
    own     of PyTorch in float32
    factor  how many times `own` singa's error may be
    """

    what: str
    error: float
    own: float
    factor: float

    @property
    def ratio(self) -> float:
        """How many times the largest error that is right this one is."""
        return self.error / (self.factor * max(self.own, _FLOOR))


def _compare(what: str, found: Any, narrow: Any, wide: Any, factor: float) -> Finding:
    assert found.shape == tuple(wide.shape), what
    wanted = wide.detach().numpy()
    own = error(narrow.detach().numpy(), wanted)
    return Finding(what, error(found, wanted), own, factor)


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


class Comparison:
    """A module beside its network of `from_torch`, on some inputs.

    Each method yields findings; `check` asserts all of them.
    """

    def __init__(self, torch: Any, module: Any, *inputs: Any, **options: Any) -> None:
        self.torch, self.module = torch, module
        self.loss = _Weighted()
        self.net = singa.from_torch(module, inputs, loss=self.loss.of_singa, **options)
        self.start = {name: x.numpy().copy() for name, x in self.net.get_states().items()}
        self.inputs = inputs, tuple(_wide(torch, x) for x in inputs)
        self.arrays = [x.numpy() for x in inputs]

    def inference(self) -> Iterator[Finding]:
        """Outputs in inference, executed and recorded, and those of a batch of 1."""
        pair = [copy.deepcopy(self.module).eval(), _double(self.module).eval()]
        with self.torch.no_grad():
            outputs = [each(*x) for each, x in zip(pair, self.inputs, strict=True)]
        yield from _of_outputs("inference", self.net(*self.arrays), outputs, 4)
        self.net.graph(True)
        for _ in range(2):
            self.net(*self.arrays)
        found = self.net(*self.arrays)  # a replay, in which batch norm is folded
        yield from _of_outputs("recorded inference", found, outputs, 8)
        self.net.graph(False)
        if not self.net.has_open_batch:
            return
        with self.torch.no_grad():
            outputs = [each(*(t[:1] for t in x)) for each, x in zip(pair, self.inputs, strict=True)]
        found = self.net(*(x[:1] for x in self.arrays))
        yield from _of_outputs("a batch of 1", found, outputs, 4)

    def training(self) -> Iterator[Finding]:
        """Outputs in training, and the gradients of all parameters."""
        net, pair = self.net, self._in_training()
        outputs = [each(*x) for each, x in zip(pair, self.inputs, strict=True)]
        self.loss.fit(outputs[1])
        for y in outputs:
            self.loss.of_torch(self.torch, y).backward()
        net.train()
        found = net.forward(*map(tensor.from_numpy, self.arrays))
        yield from _of_outputs("training", found, outputs, 4)
        gradients = {id(p): g for p, g in autograd.backward(self.loss.of_singa(found, None))}
        autograd.training = False
        own, wanted = (dict(each.named_parameters()) for each in pair)
        scale = max(float(p.grad.abs().max()) for p in wanted.values() if p.grad is not None)
        params = net.get_params()
        assert params.keys() == {name for name, p in wanted.items() if p.requires_grad}
        for name, p in params.items():
            if wanted[name].grad is None:
                assert id(p) not in gradients, name
            elif float(wanted[name].grad.abs().max()) > 1e-7 * scale:
                grads = (gradients[id(p)].numpy(), own[name].grad, wanted[name].grad)
                yield _compare(f"gradient of {name}", *grads, 4)

    def steps(self, count: int = 5) -> Iterator[Finding]:
        """Weights and statistics after steps of SGD. Asserts that recorded steps have the bits of
        executed ones."""
        trained = []
        for each, given in zip(self._in_training(), self.inputs, strict=True):
            sgd = self.torch.optim.SGD([p for p in each.parameters() if p.requires_grad], 1e-3)
            for _ in range(count):
                sgd.zero_grad()
                self.loss.of_torch(self.torch, each(*given)).backward()
                sgd.step()
            trained.append(each.state_dict())
        states = []
        for use_graph in (False, True):
            self.net.set_states(self.start)
            self.net.set_optimizer(opt.SGD(lr=1e-3))
            self.net.compile(
                [tensor.from_numpy(x) for x in self.arrays], is_train=True, use_graph=use_graph
            )
            for _ in range(count):
                self.net(*self.arrays, np.zeros(1, np.float32))
            states.append(self.net.state_dict())
        assert states[0].keys() == trained[1].keys()
        for name, value in states[0].items():
            assert value.dtype == trained[0][name].dtype, name
            assert self.torch.equal(value, states[1][name]), f"{name}: recorded steps differ"
            if value.is_floating_point():
                pair = trained[0][name], trained[1][name]
                yield _compare(f"{name} after steps", value.numpy(), *pair, 16)
            else:
                assert self.torch.equal(value, trained[1][name]), name

    def _in_training(self) -> list[Any]:
        """The module in float32 and in float64, in training: parts of a module in training stay as
        they are."""
        pair = [copy.deepcopy(self.module), _double(self.module)]
        return [each if self.module.training else each.train() for each in pair]


def _of_outputs(what: str, found: Any, outputs: list[Any], factor: float) -> Iterator[Finding]:
    for y, a, b in zip(_flat(found), *map(_flat, outputs), strict=True):
        yield _compare(what, y.numpy(), a, b, factor)


def check(torch: Any, module: Any, *inputs: Any, steps: bool = True) -> Any:
    """Asserts that outputs in inference and training, gradients, and weights after steps of SGD are
    right, executed and recorded. Returns the network."""
    compared = Comparison(torch, module, *inputs)
    parts = [compared.inference, compared.training, *([compared.steps] if steps else [])]
    for part in parts:
        for each in part():
            assert each.ratio <= 1, each
    return compared.net

"""Comparison of networks of `from_torch` with PyTorch.

In float32, an error against PyTorch in float64 is measured by that of PyTorch in float32; in
float64, by what one rounding of the inputs changes in PyTorch's results, which the network may
amplify. Errors there are so small that a comparison decides whether a graph is right.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import singa
from numpy.typing import NDArray
from singa import autograd, opt, tensor

Array = NDArray[Any]
#: What the right run of PyTorch gives, by name, and a function that gives the errors of the others.
_Results = tuple[Mapping[str, Any], Callable[[], dict[str, float]]]

#: Below this, relative to the largest element, an error is that of one rounding.
_FLOOR = 2.0**-21
#: The same in float64: far above one rounding, and far below an error of float32. A module in
#: which PyTorch itself has numbers of float32 has the floor of float32.
_WIDE_FLOOR = 2.0**-32
#: In float64, a weight that steps of a gradient of 0 have made of 0 is less.
_NOISE = 2.0**-40
#: A learning rate of about 1e-3 that float32 holds exactly.
_RATE = 2.0**-10


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
    own     of PyTorch in singa's type, the largest of its runs; 0 where the floor is enough
    factor  how many times `own` singa's error may be
    floor   what counts as `own` if that is less
    """

    what: str
    error: float
    own: float
    factor: float
    floor: float = _FLOOR

    @property
    def ratio(self) -> float:
        """How many times the largest error that is right this one is; infinite for NaN."""
        ratio = self.error / (self.factor * max(self.own, self.floor))
        return ratio if ratio == ratio else float("inf")


def _has_float32(net: Any) -> bool:
    """Whether a graph has values of float32, or operators whose gradients PyTorch computes with
    numbers of float32."""
    nodes = [node for exported in net._exported.values() for node in exported.graph.nodes]
    return any(
        node.op in ("hardsigmoid", "celu") or any(t.type == "float32" for t in node.output_types)
        for node in nodes
    )


def _flat(outputs: Any) -> list[Any]:
    values = outputs.values() if isinstance(outputs, Mapping) else outputs
    if isinstance(outputs, tuple | list | Mapping):
        return [each for value in values for each in _flat(value)]
    return [outputs]


def _wide(x: Any) -> Any:
    return x.double() if x.is_floating_point() else x


def _tensor(x: Any) -> Any:
    """An input for singa: an array, or a tensor of float64, to which arrays are not converted."""
    array = x.numpy()
    wide = array.dtype == np.float64
    return tensor.from_numpy(array, dtype="float64") if wide else tensor.from_numpy(array)


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
            t = tensor.from_numpy(w, dtype=each.dtype.name)
            part = (t * each * (1 + 0.1 * each)).mean()
            total = part if total is None else total + part
        return total


class Comparison:
    """A module beside its network of `from_torch`, on some inputs.

    wide   whether singa computes in float64
    forms  how many runs of PyTorch measure its error: in float32, after the first one, one with
           images in channels_last, and others whose inputs were changed by one rounding, as are all
           in float64
    apart  whether PyTorch takes each step of SGD from singa's weights, so that what rounding has
           changed is not amplified by the steps behind it

    Each method yields findings; `check` asserts all of them.
    """

    def __init__(
        self,
        torch: Any,
        module: Any,
        *inputs: Any,
        wide: bool = False,
        forms: int = 1,
        apart: bool = False,
        **options: Any,
    ) -> None:
        self.torch = torch
        self.module = copy.deepcopy(module).double() if wide else module
        self.inputs = tuple(map(_wide, inputs)) if wide else inputs
        self.wide, self.forms, self.apart = wide, max(forms, 2) if wide else forms, apart
        self.loss = _Weighted()
        self.net = singa.from_torch(self.module, self.inputs, loss=self.loss.of_singa, **options)
        self.floor = _WIDE_FLOOR if wide and not _has_float32(self.net) else _FLOOR
        # These arrays are the module's own, which no run changes: networks may be large.
        self.start = {name: x.numpy() for name, x in self.module.state_dict().items()}
        for name, x in self.net.get_states().items():
            assert np.array_equal(x.numpy(), self.start[name]), f"{name} differs at first"
        self.given = [_tensor(x) for x in self.inputs]

    def inference(self) -> Iterator[Finding]:
        """Outputs in inference, executed and recorded, and those of a batch of 1."""
        self._begin()
        outputs = self._results(False, lambda module, x: _named("inference", module(*x)))
        yield from self._compare(_named("inference", self.net(*self.given)), outputs, 4)
        self.net.graph(True)
        for _ in range(2):
            self.net(*self.given)
        found = _named("inference", self.net(*self.given))  # a replay, where batch norm is folded
        yield from self._compare(found, outputs, 8, "recorded ")
        self.net.graph(False)
        if not self.net.has_open_batch:
            return
        one = self._results(False, lambda module, x: _named("one", module(*(t[:1] for t in x))))
        found = _named("one", self.net(*(_tensor(x[:1]) for x in self.inputs)))
        yield from self._compare(found, one, 4, "a batch of ")

    def training(self) -> Iterator[Finding]:
        """Outputs in training, and the gradients of all parameters."""
        self._begin()
        net, params = self.net, self.net.get_params()
        trained = {name for name, p in self.module.named_parameters() if p.requires_grad}
        assert params.keys() == trained

        def results(module: Any, x: Any) -> dict[str, Any]:
            y = module(*x)
            self.loss.fit(y)
            self.loss.of_torch(self.torch, y).backward()
            grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
            return _named("training", y) | grads

        wanted, own = self._results(True, results)
        net.train()
        y = net.forward(*self.given)
        found = _named("training", y)
        yield from self._compare(found, (wanted, own), 4)
        gradients = {id(p): g for p, g in autograd.backward(self.loss.of_singa(y, None))}
        autograd.training = False
        scale = max(float(wanted[name].abs().max()) for name in params if name in wanted)
        for name, p in params.items():
            if name not in wanted:
                assert id(p) not in gradients, f"{name} has a gradient"
            elif float(wanted[name].abs().max()) > 1e-7 * scale:
                assert id(p) in gradients, f"{name} has no gradient"
                found = {name: gradients[id(p)]}
                yield from self._compare(found, (wanted, own), 4, "gradient of ")

    def steps(self, count: int = 5) -> Iterator[Finding]:
        """Weights and statistics after steps of SGD. Asserts that recorded steps have the bits of
        executed ones."""
        states = self._states(count, False)
        for name, value in self._states(count, True)[-1].items():
            same = self.torch.equal(value, states[-1][name])
            assert same, f"{name}: recorded steps differ"
        if not self.apart:
            yield from self._after(None, count, states[-1])
            return
        for before, after in itertools.pairwise([None, *states]):
            yield from self._after(before, 1, after)

    def _begin(self) -> None:
        """The network as it was at first."""
        self.net.set_states(self.start)
        self.net.graph(False)
        self.net.eval()

    def _states(self, count: int, use_graph: bool) -> list[Any]:
        """Weights and statistics of singa after each step, or if none is compared apart, after the
        last one."""
        self._begin()
        self.net.set_optimizer(opt.SGD(lr=_RATE))
        self.net.compile(self.given, is_train=True, use_graph=use_graph)
        states = []
        for i in range(count):
            self.net(*self.given, np.zeros(1, np.float32))
            if i == count - 1 or (self.apart and not use_graph):
                states.append(self.net.state_dict())
        return states

    def _after(self, before: Any, count: int, after: Any) -> Iterator[Finding]:
        """What singa has after steps beside what PyTorch has, from the first state if `before` is
        None."""

        def results(module: Any, x: Any) -> dict[str, Any]:
            if before is not None:
                module.load_state_dict(before)
            sgd = self.torch.optim.SGD([p for p in module.parameters() if p.requires_grad], _RATE)
            for _ in range(count):
                sgd.zero_grad()
                self.loss.of_torch(self.torch, module(*x)).backward()
                sgd.step()
            return dict(module.state_dict())

        wanted, own = self._results(True, results)
        assert after.keys() == wanted.keys()
        kinds = {name: value.dtype for name, value in self.module.state_dict().items()}
        for name, value in after.items():
            assert value.dtype == kinds[name], name
            if self.wide and float(wanted[name].abs().max()) < _NOISE:
                continue
            if value.is_floating_point():
                for each in self._compare({name: value}, (wanted, own), 16):
                    yield replace(each, what=f"{name} after steps")
            else:
                assert self.torch.equal(value, wanted[name]), name

    def _results(self, train: bool, of_run: Callable[[Any, Any], dict[str, Any]]) -> _Results:
        """What the right run of PyTorch gives, by name, and the largest errors of the others."""

        def found(i: int) -> dict[str, Any]:
            with self.torch.set_grad_enabled(train):
                return {name: x.detach() for name, x in of_run(*self._run(i, train)).items()}

        wanted = found(-1)

        @functools.cache
        def own() -> dict[str, float]:
            errors: dict[str, float] = {}
            # One after the other, since modules may be large.
            for i in range(self.forms):
                for name, x in found(i).items():
                    errors[name] = max(
                        errors.get(name, 0.0), error(x.numpy(), wanted[name].numpy())
                    )
            return errors

        return wanted, own

    def _compare(
        self,
        found: Mapping[str, Any],
        results: _Results,
        factor: float,
        prefix: str = "",
    ) -> Iterator[Finding]:
        wanted, own = results
        for name, each in found.items():
            array, right, what = each.numpy(), wanted[name].numpy(), f"{prefix}{name}"
            assert array.shape == right.shape, f"{what}: {array.shape}, wanted {right.shape}"
            finding = Finding(what, error(array, right), 0.0, factor, self.floor)
            if finding.ratio > 1:
                finding = replace(finding, own=own().get(name, 0.0))
            yield finding

    def _run(self, i: int, train: bool) -> tuple[Any, Any]:
        """The module and the inputs of a run of PyTorch: of the right one, in float64, if `i` is
        -1, else of one that measures errors. Parts of a module in training stay as they are."""
        module = copy.deepcopy(self.module)
        if i < 0:
            module.double()
        elif i == 1 and not self.wide:
            module.to(memory_format=self.torch.channels_last)
        if not train:
            module.eval()
        elif not self.module.training:
            module.train()
        return module, tuple(map(_wide, self.inputs)) if i < 0 else self._form(i)

    def _form(self, i: int) -> tuple[Any, ...]:
        """The inputs of the run i."""
        torch = self.torch
        if i == 0 and not self.wide:
            return self.inputs
        if i == 1 and not self.wide:
            kind = torch.channels_last
            return tuple(
                x.contiguous(memory_format=kind) if x.ndim == 4 else x for x in self.inputs
            )
        drawn = torch.Generator().manual_seed(i)

        def changed(x: Any) -> Any:
            if not x.is_floating_point():
                return x
            step = torch.finfo(x.dtype).eps
            up = torch.rand(x.shape, generator=drawn) < 0.5
            return torch.where(up, x * (1 + step), x * (1 - step))

        return tuple(map(changed, self.inputs))


def _named(what: str, outputs: Any) -> dict[str, Any]:
    flat = _flat(outputs)
    names = [what] if len(flat) == 1 else [f"{what}, output {i}" for i in range(len(flat))]
    return dict(zip(names, flat, strict=True))


def check(torch: Any, module: Any, *inputs: Any, steps: bool = True, **options: Any) -> Any:
    """Asserts that outputs in inference and training, gradients, and weights after steps of SGD are
    right, executed and recorded. `options` are those of Comparison. Returns the network."""
    compared = Comparison(torch, module, *inputs, **options)
    parts = [compared.inference, compared.training, *([compared.steps] if steps else [])]
    for part in parts:
        for each in part():
            assert each.ratio <= 1, each
    return compared.net

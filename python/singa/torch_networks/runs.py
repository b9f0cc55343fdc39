"""Calls of an accelerated module: one forward of a graph, and its backward."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from .. import autograd
from .. import singa_wrap as _c
from ..graph.audits import Use
from ..networks.errors import UnsupportedError
from ..networks.network import Network
from ..tape.grad_mode import set_training, training
from ..tape.operator import Operator
from ..tape.tensor import Tensor, wrap
from .export import Exported
from .refusals import unsupported
from .replays import Replays, Step, Waiting, restored


class Graph(NamedTuple):
    """A module's graph.

    spec      the form of its results
    places    for each of these: the number of an output, or what else it is
    types     the element types that outputs of numbers without fractions have
    kept      what must live as long as the graph's key
    steps     what `Replays` knows of its kinds of calls
    use       its calls, for audits
    """

    exported: Exported
    network: Network
    training: bool
    spec: Any
    places: list[tuple[bool, Any]]
    types: list[Any]
    kept: list[Any]
    steps: dict[Any, Step]
    use: Use

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether it is right for inputs of these lengths."""
        lengths: dict[str, int] = {}
        graph = self.exported.graph
        return all(
            len(shape) == x.ndim
            and all(
                lengths.setdefault(wanted, n) == n if isinstance(wanted, str) else wanted == n
                for wanted, n in zip(shape, x.shape, strict=True)
            )
            for x, shape in zip(
                inputs, [graph.types[name].shape or () for name in graph.inputs], strict=True
            )
        )


class _Ends(Operator):
    """Has backward begin at several results: its own result has no elements that matter."""

    def __init__(self, gradients: Sequence[_c.Tensor]) -> None:
        super().__init__()
        self.gradients = gradients

    def forward(self, *xs: _c.Tensor) -> _c.Tensor:
        return _c.Full((), 0.0, xs[0].device(), _c.kFloat32)

    def backward(self, dy: _c.Tensor) -> Any:
        return tuple(self.gradients)


class Run:
    """One forward of a module, and its backward.

    inputs   the tensors among the arguments
    raws     these, then the parameters and buffers, each of them once
    wanted   for each input, then each trained parameter: whether it needs a gradient
    names    of these parameters
    waiting  the replay that goes on in backward
    apart    for each result: whether no gradient goes back through it
    """

    def __init__(
        self,
        torch: Any,
        graph: Graph,
        replays: Replays,
        inputs: Sequence[Any],
        values: dict[str, _c.Tensor],
        buffers: Sequence[str],
    ) -> None:
        self.torch, self.graph, self.replays = torch, graph, replays
        self.inputs = [imported("an input", x) for x in inputs]
        # A parameter with two names is one tensor.
        numbers: dict[int, int] = {}
        self.raws: list[_c.Tensor] = [*self.inputs]
        for raw in values.values():
            if numbers.setdefault(id(raw), len(self.raws)) == len(self.raws):
                self.raws.append(raw)
        self.numbers = {name: numbers[id(raw)] for name, raw in values.items()}
        self.buffers = [values[name] for name in buffers]
        self.autocast = _autocast(torch)
        self.wanted: list[bool] = []
        self.names: list[str] = []
        self.step: Step | None = None
        self.waiting: Waiting | None = None
        self.apart: list[bool] = []
        self.leaves: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.position: Any = None
        self.done = False

    def kind(self) -> Any:
        """What tells its recorded step from others of the same graph."""
        place = None if self.wanted else tuple(map(id, self.raws[len(self.inputs) :]))
        return tuple(_c.KindsOf(self.inputs)), tuple(self.wanted), self.autocast, place

    def forward(self) -> list[Any]:
        """The results, as tensors of PyTorch."""
        self.position = self.raws[0].device().random_state()
        raws = self.replays.forward(self)
        if raws is None:
            self.outputs = self.results(self.raws)
            self.apart = [not x.requires_grad for x in self.outputs]
            if self.step is not None:
                self.step.apart = self.apart
            raws = [x.data.Clone() for x in self.outputs]
            if not self.wanted:
                self.outputs, self.leaves = [], []
        return [
            _integers(self.torch.from_dlpack(wrap(raw, False)), kind)
            for raw, kind in zip(raws, self.graph.types, strict=False)
        ]

    def results(self, raws: Sequence[_c.Tensor]) -> list[Tensor]:
        """Computes the results, with `raws` for the tensors of that name. Sets `leaves`."""
        graph = self.graph.exported.graph
        count = len(self.inputs)
        flags = [*self.wanted[:count]] or [False] * count
        flags += [False] * (len(raws) - count)
        for name, wanted in zip(self.names, self.wanted[count:], strict=True):
            flags[self.numbers[name]] = wanted
        tensors = [_leaf(raw, wanted) for raw, wanted in zip(raws, flags, strict=True)]
        by_name = {name: tensors[i] for name, i in self.numbers.items()}
        self.leaves = [*tensors[:count], *[by_name[name] for name in self.names]]
        before = training()
        set_training(self.graph.training)
        mode = autograd.enable_grad() if self.wanted else autograd.no_grad()
        try:
            with mode, _autocast_of(self.autocast):
                results = self.graph.network.run(
                    dict(zip(graph.inputs, tensors, strict=False)),
                    {f"inner.{name}": value for name, value in by_name.items()},
                    graph.outputs,
                )
        except UnsupportedError as error:
            raise unsupported(error.problems, "accelerate") from None
        finally:
            set_training(before)
        written = self.graph.exported.written
        count = len(results) - len(written)
        for name, result in zip(written, results[count:], strict=True):
            by_name[name.removeprefix("inner.")].data.CopyFrom(result.data)
        return results[:count]

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of inputs and parameters for those of the results."""
        if self.done:
            raise NotImplementedError(
                "[accelerate] a second backward through one forward: retain_graph=True is not "
                "supported. Add the losses, or call the module again"
            )
        if self.torch.is_grad_enabled():
            raise NotImplementedError(
                "[accelerate] create_graph=True: there are no second derivatives of an accelerated "
                "module. Take the module of PyTorch for this loss"
            )
        self.done = True
        ends = [None if dy is None else imported("a gradient", dy.contiguous()) for dy in gradients]
        used = tuple([dy is not None for dy in ends])
        waiting, self.waiting = self.waiting, None
        if waiting is None:
            found = self.gradients(self.outputs, ends)
        elif waiting.used == used:
            found = waiting.gradients(ends)
        else:
            waiting.end()
            found = self.gradients(self._again(), ends)
        if self.step is not None:
            self.step.used = used
        result = [None if g is None else shared(self.torch, g) for g in found]
        self.leaves, self.outputs, self.inputs, self.raws, self.buffers = [], [], [], [], []
        return result

    def gradients(
        self, outputs: Sequence[Tensor], ends: Sequence[_c.Tensor | None]
    ) -> list[_c.Tensor | None]:
        """The gradients of the leaves for those of the results."""
        pairs = [
            (y, dy)
            for y, dy in zip(outputs, ends, strict=True)
            if dy is not None and y.creator is not None
        ]
        found: dict[int, _c.Tensor] = {}
        before = training()
        set_training(self.graph.training)
        try:
            if len(pairs) == 1:
                y, dy = pairs[0][0], wrap(pairs[0][1], False)
            elif pairs:
                with autograd.enable_grad():
                    y, dy = _Ends([dy for _, dy in pairs])(*[y for y, _ in pairs])[0], None
            if pairs:
                found = {id(x): g.data for x, g in autograd.backward(y, dy)}
        finally:
            set_training(before)
        return [
            found.get(id(x)) if wanted else None
            for x, wanted in zip(self.leaves, self.wanted, strict=True)
        ]

    def _again(self) -> list[Tensor]:
        """The results, computed once more as in `forward`, for a backward that begins at others
        than those of the recorded steps. Buffers and random numbers stay as they are now."""
        with restored(self):
            self.raws[0].device().set_random_state(self.position)
            return self.results(self.raws)


def _leaf(raw: _c.Tensor, wanted: bool) -> Tensor:
    """A tensor of which the tape stores the gradient, or a constant."""
    x = wrap(raw, wanted)
    x.stores_grad = wanted
    return x


def imported(name: str, x: Any) -> _c.Tensor:
    """A tensor that shares the memory of one of PyTorch's."""
    try:
        return _c.from_dlpack(x.detach().__dlpack__())
    except TypeError as error:
        raise TypeError(f"[accelerate] {name}: {error}") from None


def shared(torch: Any, raw: _c.Tensor) -> Any:
    """A tensor of PyTorch that shares the memory of one of singa's. A capsule is quicker than an
    object with `__dlpack__`, and there may be hundreds of gradients."""
    return torch.from_dlpack(_c.Exporter(raw).dlpack())


def _integers(x: Any, kind: Any) -> Any:
    """Numbers without fractions in the module's own type, which singa may hold in another."""
    return x if kind is None or x.is_floating_point() else x.to(kind)


def _autocast(torch: Any) -> str:
    """The type of PyTorch's autocast; "" if it is off."""
    if not torch.is_autocast_enabled("cpu"):
        return ""
    return str(torch.get_autocast_dtype("cpu")).removeprefix("torch.")


def _autocast_of(kind: str) -> AbstractContextManager[Any]:
    return autograd.autocast(kind) if kind else nullcontext()


@functools.cache
def function_class(torch: Any) -> Any:
    """The operator of PyTorch's tape."""

    class Accelerated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, run: Run, *tracked: Any) -> Any:
            outputs = run.forward()
            ctx.run = run
            ctx.save_for_backward(*tracked)  # for PyTorch's own check of changes in place
            ctx.set_materialize_grads(False)
            apart = [*run.apart] or [False] * len(outputs)
            ctx.mark_non_differentiable(
                *[
                    x
                    for x, is_apart in zip(outputs, apart, strict=True)
                    if is_apart or not x.is_floating_point()
                ]
            )
            return tuple(outputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            _ = ctx.saved_tensors
            return None, *ctx.run.backward(gradients)

    return Accelerated

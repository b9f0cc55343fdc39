"""What a forward pass computes, as a list of applications of operators.

The tape would not do: it leaves out operators without gradient, such as comparisons, and what
leads to no parameter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import autograd
from .. import singa_wrap as _c
from ..layer.names import LayerNames
from ..tape import operator as tape
from ..tape import reading
from ..tape.grad_mode import training
from ..tape.operator import Operator
from ..tensor import Tensor
from .errors import ExportError

if TYPE_CHECKING:
    from ..networks.graph import Graph


@dataclass(frozen=True)
class GraphRun:
    """Stands for an operator: a run of an imported graph, which is written as the file has it.

    arguments  names of the inputs, and then of the parameters and states
    wanted     names of the outputs
    """

    graph: Graph
    arguments: tuple[str, ...]
    wanted: tuple[str, ...]


@dataclass
class Application:
    """One application of an operator, and the layer in which it ran."""

    op: Operator | GraphRun
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layer: str = ""

    def __post_init__(self) -> None:
        # Raw tensors at that time: a tensor may get other data later.
        self.raw_inputs: tuple[Any, ...] = tuple(x.data for x in self.inputs)
        self.raw_outputs: tuple[Any, ...] = tuple(y.data for y in self.outputs)
        # Positions, which a function returns beside the operator's output.
        self.raw_indices: Any | None = (
            self.op.indices if isinstance(self.op, autograd.TopK) else None
        )

    def outline(self, outlined: Callable[..., Any]) -> None:
        """Replaces tensors by their outlines."""
        self.inputs = tuple(map(outlined, self.inputs, self.raw_inputs))
        self.outputs = tuple(map(outlined, self.outputs, self.raw_outputs))
        self.raw_inputs = tuple(map(outlined, self.raw_inputs))
        self.raw_outputs = tuple(map(outlined, self.raw_outputs))
        self.raw_indices = outlined(self.raw_indices)
        for name, value in _tensors_of(self.op).items():
            if outlined(value) is not value:
                setattr(self.op, name, outlined(value))

    @property
    def title(self) -> str:
        """The operator, as errors call it."""
        imported = isinstance(self.op, GraphRun)
        return "the imported graph" if imported else type(self.op).__name__


class Outline:
    """Stands for a raw tensor whose elements are not needed: what is left of it is its shape."""

    def __init__(self, raw: Any) -> None:
        self._shape, self._type = raw.shape(), raw.data_type()

    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return tuple(self._shape)

    def data_type(self) -> int:
        """The element type."""
        return self._type


class TensorOutline:
    """Stands for a Tensor with such data."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.shape: tuple[int, ...] = tuple(data.shape())


#: The traces that follow a forward pass now.
traces: list[Trace] = []


class Trace:
    """The applications of one forward pass, in order, its outputs, and the raw tensors whose
    elements Python read in it."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.inputs: list[Tensor] = list(inputs)
        self.applications: list[Application] = []
        self.outputs: list[Tensor] = []
        self.reads: list[Any] = []
        self.writes_in_place = False  # by an augmented assignment
        self._thread = threading.get_ident()
        self._in_graph = False

    def _follow(self, op: Operator, xs: Sequence[Tensor], ys: Sequence[Tensor]) -> None:
        if threading.get_ident() == self._thread and not self._in_graph:
            self.applications.append(Application(op, tuple(xs), tuple(ys), _c.CurrentLayer()))
            if isinstance(op, autograd.ConstantOfShape):  # reads its input itself
                del self.reads[-1:]

    def _note_read(self, t: Tensor) -> None:
        if threading.get_ident() == self._thread and not self._in_graph:
            self.reads.append(t.data)

    def run_graph(
        self,
        graph: Graph,
        given: Mapping[str, Any],
        wanted: Sequence[str],
        run: Callable[[], list[Any]],
    ) -> list[Any]:
        """Follows a run of an imported graph as one application.

        given  inputs, and then parameters and states, by name
        run    computes the values `wanted`

        Raises ExportError for an input or output that is no tensor, such as a sequence or texts.
        """
        if threading.get_ident() != self._thread or self._in_graph:
            return run()
        self._in_graph = True
        try:
            results = run()
        finally:
            self._in_graph = False
        for name, value in (*given.items(), *zip(wanted, results, strict=True)):
            if not isinstance(value, Tensor):
                raise ExportError(f"[onnx.save] value {name!r} of the imported graph is no tensor")
        op = GraphRun(graph, tuple(given), tuple(wanted))
        inputs, layer = tuple(given.values()), _c.CurrentLayer()
        self.applications.append(Application(op, inputs, tuple(results), layer))
        return results

    def record(self, forward: Callable[..., Any]) -> None:
        """Runs `forward` on the inputs in inference mode, without the tape."""
        self._thread = threading.get_ident()
        before = training()
        autograd.training = False
        LayerNames.start(self)
        tape.followers.append(self._follow)
        tape.tracers.append(self)
        reading.read_followers.append(self._note_read)
        traces.append(self)
        try:
            with autograd.no_grad():
                result = forward(*self.inputs)
        finally:
            traces.remove(self)
            reading.read_followers.remove(self._note_read)
            tape.tracers.remove(self)
            tape.followers.remove(self._follow)
            LayerNames.stop(self)
            autograd.training = before
        self.outputs = _tensors(result)

    def drop_elements(self) -> None:
        """Frees the memory of what depends on the inputs. Shapes stay, and which is which."""
        given = {id(x.data) for x in self.inputs}
        blocks = {x.data.block_id() for x in self.inputs}
        raws: dict[int, tuple[Any, Outline]] = {}
        for application in self.applications:
            read = (*application.raw_inputs, *operands(application.op))
            if any(raw.block_id() in blocks for raw in read):
                for raw in (*application.raw_outputs, application.raw_indices):
                    if raw is not None and id(raw) not in given:
                        blocks.add(raw.block_id())
                        raws[id(raw)] = raw, Outline(raw)
        tensors_: dict[int, tuple[Any, TensorOutline]] = {}

        def outlined(t: Any, raw: Any = None) -> Any:
            """The outline of a tensor, or of a raw one, if its elements are dropped."""
            if not isinstance(t, Tensor):
                return raws[id(t)][1] if id(t) in raws else t
            raw = t.data if raw is None else raw
            if id(raw) not in raws:
                return t
            kept = tensors_.setdefault(id(t), (t, TensorOutline(raws[id(raw)][1])))
            return kept[1]

        for application in self.applications:
            application.outline(outlined)
        self.outputs = [outlined(y) for y in self.outputs]


def _tensors(result: Any) -> list[Tensor]:
    """What a forward pass returned, as a list."""
    outputs = list(result) if isinstance(result, list | tuple) else [result]
    for y in outputs:
        if not isinstance(y, Tensor):
            raise TypeError(f"[onnx.save] forward returned a {type(y).__name__}, not a Tensor")
    return outputs


def executed(forward: Callable[..., Any], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What a forward pass computes in inference mode, when nobody follows it. The inputs stay."""
    before = training()
    autograd.training = False
    try:
        with autograd.no_grad():
            return _tensors(forward(*[x.deepcopy() for x in inputs]))
    finally:
        autograd.training = before


def _tensors_of(op: Any) -> dict[str, Any]:
    """Tensors that an operator has as attributes."""
    return {
        name: value for name, value in vars(op).items() if isinstance(value, Tensor | _c.Tensor)
    }


def operands(op: Any) -> list[Any]:
    """The raw tensors that an operator has as attributes."""
    return [getattr(value, "data", value) for value in _tensors_of(op).values()]


def traced(forward: Callable[..., Any], inputs: Sequence[Tensor]) -> Trace:
    """The trace of one forward pass in inference mode."""
    trace = Trace(inputs)
    trace.record(forward)
    return trace


def of_tape(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Trace:
    """The trace of results that are on the tape: its operators run once more.

    Raises ValueError where the tape does not have the whole computation: it keeps no values of
    constants, and no operators without gradient.
    """
    found = [y.creator for y in outputs if not y.is_dummy()]
    seen: set[Operator] = set()
    while found:
        op = found.pop()
        if not op.src:
            raise ValueError(
                f"[to_onnx] the tape does not lead beyond {op.name}: it was walked before, or it "
                "has no gradient. singa.onnx.save(model, path, inputs) exports any forward pass"
            )
        seen.add(op)
        makers = (creator for creator, _, _, _ in op.src if not isinstance(creator, tape.Dummy))
        found += [maker for maker in makers if maker not in seen]
    order = sorted(seen, key=lambda op: op._position)
    made: dict[tuple[Operator, int], Tensor] = {}

    def given(op: Operator, source: tuple[Any, ...]) -> Tensor:
        creator, index, x, _ = source
        if not isinstance(creator, tape.Dummy):
            return made[creator, index]
        x = creator.tensor if x is None else x
        if x is None or not (x.stores_grad or any(x is each for each in inputs)):
            raise ValueError(
                f"[to_onnx] an input of {op.name} is neither among the inputs nor a parameter, so "
                "it may depend on the inputs. singa.onnx.save(model, path, inputs) exports any "
                "forward pass"
            )
        return x

    def forward(*_: Tensor) -> list[Tensor]:
        for op in order:
            _c.SetCurrentLayer(op._layer)
            results = op._again()(*(given(op, source) for source in op.src))
            made.update(((op, i), y) for i, y in enumerate(results))
        return [y if y.is_dummy() else made[y.creator, y._index] for y in outputs]

    return traced(forward, inputs)

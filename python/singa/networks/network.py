"""Running a graph.

`Network` compiles a graph: it computes what depends on constants only, looks up a reader for every
other node, and reports all nodes that cannot be read. A `FrontEnd` says what operators mean.
`Execution` is one run of it. A value is an array while the host knows it, and a Tensor otherwise; a
sequence is a list of values. Shapes are known to the host, so arithmetic with them is, too. Such
values are kept as `HostValues` for each signature (shapes and types) of the inputs: later runs with
this signature take them from there, and the device gets the same tensors each time, as the replay
of a recorded step requires.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import tensor
from ..dtypes import DType
from ..layer.observers import observers
from ..tape.step_recording import is_recording_step
from ..tape.tensor import is_computed
from ..tensor import Tensor
from .element_types import FLOATS, HELD, UNSIGNED, is_singas, name_of
from .errors import InvalidModelError, Problem, Refused, UnsupportedError
from .front_end import FrontEnd, Reader
from .graph import Graph, Node, ValueType, renamed, subgraphs
from .tensors import as_array, as_tensor, same_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

#: Most signatures of inputs whose values are kept.
_MOST_SIGNATURES = 32
_HOST, _EITHER, _TENSOR = 0, 1, 2


class Marker:
    """Stands for a node where layers are observed: in summaries, reports, and names."""

    has_parts = False

    def __init__(self, step: CompiledNode) -> None:
        self.name: str = step.node.name
        self.parameters: list[Tensor] = []

    def _own_params(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters among the node's inputs, as a layer has them."""
        return ((str(p.name), p) for p in self.parameters)

    def sublayers(self) -> Iterator[Any]:
        """None, since a node is computed as a whole."""
        return iter(())


@functools.cache
def _marker_of(op: str) -> type[Marker]:
    """The class of Markers that has the operator's name, which summaries show."""
    return type(op, (Marker,), {})


class CompiledNode:
    """A node that runs, with the function that computes it."""

    def __init__(
        self, front: FrontEnd, node: Node, reader: Reader | None, compute: Callable[..., Any]
    ) -> None:
        self.node = node
        self.reader = reader
        self.compute = compute
        self.on_host = front.on_host(node)
        self.of_shape = front.of_shape(node)
        self.last_uses: tuple[str, ...] = ()  # values that nothing needs after this step
        self.marker: Marker = _marker_of(front.shown(node.op))(self)
        host = reader.host if reader is not None else ()
        either: bool | tuple[int, ...] = reader.either if reader is not None else False

        evaluated = reader is not None and reader.evaluated
        self.cuts_gradient: bool = (
            reader is not None
            and evaluated
            and not reader.gradient
            and any(value.type in FLOATS for value in node.output_types)
        )

        def kind(i: int) -> int:
            if i in host or evaluated:
                return _HOST
            as_it_comes = either if isinstance(either, bool) else i in either
            return _EITHER if as_it_comes else _TENSOR

        self.kinds: tuple[int, ...] = tuple(kind(i) for i in range(len(node.inputs)))
        self.takes_sequences: bool = reader is not None and reader.sequences

    def run(self, run: Execution, arguments: list[Any]) -> Sequence[Any]:
        """The outputs for these inputs: None where one is not given."""
        sequences = any([isinstance(x, list) for x in arguments])
        if sequences and not self.takes_sequences:
            raise Refused("an input is a sequence")
        if self.of_shape:
            return (self.of_shape(arguments[0].shape),)
        if self.on_host and not sequences and not any([isinstance(x, Tensor) for x in arguments]):
            return self.on_host(arguments)
        for i, x in enumerate(arguments):
            if x is None:
                continue
            kind = self.kinds[i]
            if kind == _TENSOR:
                if isinstance(x, np.ndarray):
                    arguments[i] = run.tensor(x)
            elif kind == _HOST:
                if self.cuts_gradient and isinstance(x, Tensor) and is_computed(x):
                    raise Refused("the host computes it, so no gradient flows through it")
                arguments[i] = run.host(x)
        if self.reader is not None and self.reader.data:
            run.depends_on_data()
        results = self.compute(run, *arguments)
        return results if isinstance(results, tuple) else (results,)


class CompiledGraph:
    """A compiled graph or subgraph."""

    def __init__(self, graph: Graph, front: FrontEnd) -> None:
        self.graph, self.front = graph, front
        self.constants: dict[str, Array] = {}
        self.steps: list[CompiledNode] = []
        self.single: list[CompiledNode] = []  # the same steps before any were merged

    def finish(self) -> None:
        """Merges steps, and finds the last use of each value that is computed here."""
        self.single = self.steps
        make = functools.partial(CompiledNode, self.front)
        self.steps = self.front.fusion(self.steps, self.graph, self.constants, make).run()
        kept = {*self.graph.outputs}
        made = {name for step in self.steps for name in step.node.outputs}
        for step in reversed(self.steps):
            used = {name for name in step.node.inputs if name}
            for inner in subgraphs(step.node):
                used |= inner.free_names()
            used |= {name for name in step.node.outputs if name}
            step.last_uses = tuple(sorted((used & made) - kept))
            kept |= used


class HostValues:
    """What the host knows for one signature of the inputs."""

    def __init__(self) -> None:
        self.reusable = True  # nothing depends on values of tensors
        self.finished = False
        self.values: dict[str, Array] = {}
        self.steps: list[CompiledNode] = []  # those that remain to be run
        self.tensors: dict[int, tuple[Array, Tensor]] = {}  # by id(array)
        self.made: dict[Any, Array] = {}  # of readers


class Execution:
    """One execution of a network: what readers may ask for."""

    def __init__(self, network: Network, host_values: HostValues, device: Any) -> None:
        self.network = network
        self.host_values = host_values
        self.device = device
        self._environments: list[dict[str, Any]] = []

    def tensor(self, array: Array) -> Tensor:
        """The tensor of a value that the host knows: the same object for the same array."""
        key = id(array)
        shared = self.network.tensors.get((self.device.id(), key))
        if shared is not None:
            return shared[1]
        kept = self.host_values.tensors.get(key)
        if kept is None:
            kept = array, as_tensor(array, self.device)
            # A tensor that is made while a step is recorded belongs to that step.
            if not is_recording_step():
                if key in self.network.constant_ids:
                    self.network.tensors[self.device.id(), key] = kept
                else:
                    self.host_values.tensors[key] = kept
        return kept[1]

    def as_tensor(self, value: Any) -> Tensor:
        """A value as a tensor."""
        return value if isinstance(value, Tensor) else self.tensor(value)

    def number(self, value: float, like: Tensor) -> Tensor:
        """A constant tensor without axes, of the type of `like`."""
        key = ("number", value, int(like.dtype))
        kind = np.float32 if like.dtype == DType.bfloat16 else like.dtype.name
        number = self.tensor(self.made(key, lambda: np.array(value, kind)))
        return same_type(number, like)

    def host(self, value: Any) -> Any:
        """A value as an array, or a list of arrays. Reading a tensor ends `host_values`."""
        if isinstance(value, Tensor):
            self.depends_on_data()
            return as_array(value)
        return [self.host(x) for x in value] if isinstance(value, list) else value

    def made(self, key: Any, make: Callable[[], Array]) -> Array:
        """An array that a reader makes of shapes: made once for each signature of the inputs.

        `key` begins with the node, and has everything on which the array depends.
        """
        kept = self.host_values.made.get(key)
        if kept is None:
            kept = make()
            kept.flags.writeable = False
            self.host_values.made[key] = kept
        return kept

    def depends_on_data(self) -> None:
        """Notes that what the host knows depends on values of tensors."""
        self.host_values.reusable = False

    def call(self, graph: Graph, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs of a subgraph, which sees the values around it."""
        compiled = self.network.graphs[id(graph)]
        environment = {**self._environments[-1], **compiled.constants, **inputs}
        self.execute(compiled.steps, environment, True)
        return [environment[name] for name in graph.outputs]

    def execute(
        self, steps: Sequence[CompiledNode], environment: dict[str, Any], forget: bool
    ) -> None:
        """Runs steps. With `forget`, values are dropped after their last use."""
        self._environments.append(environment)
        try:
            for step in steps:
                node = step.node
                arguments = [environment[name] if name else None for name in node.inputs]
                results = self._observed(step, arguments) if observers else None
                if results is None:
                    results = self._run(step, arguments)
                for name, result in zip(node.outputs, results, strict=False):
                    if name:
                        environment[name] = result
                if forget:
                    for name in step.last_uses:
                        environment.pop(name, None)
        finally:
            self._environments.pop()

    def _run(self, step: CompiledNode, arguments: list[Any]) -> Sequence[Any]:
        try:
            return step.run(self, arguments)
        except Refused as refusal:
            problem = step.node.refused(str(refusal))
            raise UnsupportedError(
                [problem], self.network.front.function, self.network.front.noun
            ) from None
        except Exception as error:
            if not getattr(error, "_singa_node", None):
                error._singa_node = step.node.name  # type: ignore[attr-defined]
                title = self.network.front.title
                where = step.node.attributes.get("where")
                at = f", called at {where}" if where else ""
                error.add_note(f"in {title} node {step.node.name!r} ({step.node.operator}){at}")
            raise

    def _observed(self, step: CompiledNode, arguments: list[Any]) -> Sequence[Any]:
        present: list[Any] = list(observers)
        step.marker.parameters = [x for x in arguments if isinstance(x, Tensor) and x.stores_grad]
        for observer in present:
            observer.enter(step.marker)
        output = None
        try:
            results = self._run(step, arguments)
            tensors = [x for x in results if isinstance(x, Tensor)]
            output = tensors[0] if len(tensors) == 1 else tensors
            return results
        finally:
            for observer in reversed(present):
                observer.leave(step.marker, output)


class Network:
    """A compiled graph.

    front  what the operators of the graph mean

    Raises UnsupportedError with all nodes that cannot be computed.
    """

    def __init__(self, graph: Graph, front: FrontEnd) -> None:
        self.graph, self.front = graph, front
        self.graphs: dict[int, CompiledGraph] = {}
        self.tensors: dict[tuple[int, int], tuple[Array, Tensor]] = {}
        self._by_signature: OrderedDict[Any, HostValues] = OrderedDict()
        #: Inputs that come in tensors of another type, and their own one.
        self.unsigned: dict[str, str] = {
            name: kind for name in graph.inputs if (kind := _type_of(graph, name)) in UNSIGNED
        }
        compiler = _Compiler(self.graphs, front)
        self.main: CompiledGraph = compiler.compiled(graph, {})
        if compiler.problems:
            raise UnsupportedError(compiler.problems, front.function, front.noun)
        self.constant_ids: set[int] = {
            id(array) for compiled in self.graphs.values() for array in compiled.constants.values()
        }

    def run(
        self, inputs: Mapping[str, Any], parameters: Mapping[str, Tensor], wanted: Sequence[str]
    ) -> list[Any]:
        """The values `wanted` for these inputs and parameters: tensors, and lists of tensors.

        Raises InvalidModelError for a name that is not a value of the graph.
        """
        tensors = [x for x in (*inputs.values(), *parameters.values()) if isinstance(x, Tensor)]
        if self.unsigned:
            inputs = {name: self._as_unsigned(name, x) for name, x in inputs.items()}
        device = tensors[0].device if tensors else tensor.Tensor((1,)).device
        only_outputs = set(wanted) <= set(self.graph.outputs)
        kept = self._values_for(inputs, only_outputs)
        if not all(isinstance(x, Tensor) for x in _leaves(inputs.values())):
            kept.reusable = False  # the host knows elements that another run may not have
        run = Execution(self, kept, device)
        environment: dict[str, Any] = {**self.main.constants, **parameters, **inputs}
        if kept.finished:
            environment.update(kept.values)
        all_steps = self.main.steps if only_outputs else self.main.single
        steps = kept.steps if kept.finished else all_steps
        known = None if kept.finished else _Known(environment)
        run.execute(steps, environment if known is None else known, only_outputs)
        if known is not None and kept.reusable and not is_recording_step():
            kept.values = known.arrays
            kept.steps = [step for step in all_steps if not known.arrays.keys() >= _made(step.node)]
            kept.finished = True
            environment = known
        if not kept.reusable:
            kept.tensors.clear()
            kept.made.clear()
        values_ = environment if known is None else known
        missing = [name for name in wanted if name not in values_]
        if missing:
            raise InvalidModelError(
                f"[{self.front.name}] the graph has no values {', '.join(missing)}"
            )
        return [_as_result(run, values_[name]) for name in wanted]

    def _as_unsigned(self, name: str, x: Any) -> Any:
        """An input, as an array if it is of a type in `UNSIGNED`. Raises ValueError for numbers
        that the type does not hold."""
        kind = self.unsigned.get(name)
        if kind is None or not isinstance(x, Tensor):
            return x
        array = as_array(x)
        found = array.astype(kind)
        if (array < 0).any() or (found != array).any():
            raise ValueError(
                f"[{self.front.name}] input {name!r} has type {kind}, got {array.min()} to "
                f"{array.max()}"
            )
        return found

    def knows_values_for(self, inputs: Mapping[str, Tensor]) -> bool:
        """Whether the host knows all that it has to for inputs of these shapes and types."""
        kept = self._by_signature.get((True, _signature(inputs)))
        return kept is not None and kept.finished

    def _values_for(self, inputs: Mapping[str, Any], only_outputs: bool) -> HostValues:
        signature = (only_outputs, _signature(inputs))
        kept = self._by_signature.get(signature)
        if kept is None or not kept.reusable:
            kept = self._by_signature[signature] = HostValues()
            while len(self._by_signature) > _MOST_SIGNATURES:
                self._by_signature.popitem(last=False)
        return kept


def _type_of(graph: Graph, name: str) -> str:
    return graph.types.get(name, ValueType()).type or ""


def _signature(inputs: Mapping[Any, Any]) -> Any:
    return tuple(
        _signature(dict(enumerate(x)))
        if isinstance(x, list)
        else (x.device.id(), tuple(x.shape), int(x.dtype))
        if isinstance(x, Tensor)
        else (x.shape, x.dtype)
        for x in inputs.values()
    )


def _leaves(inputs: Iterable[Any]) -> Iterator[Any]:
    """The tensors and arrays among values, also those in sequences."""
    for x in inputs:
        yield from _leaves(x) if isinstance(x, list) else (x,)


def _made(node: Node) -> set[str]:
    return {name for name in node.outputs if name}


def _as_result(run: Execution, value: Any) -> Any:
    """A value as a tensor, of int32 for the types of `HELD`; an array where singa has no tensors of
    its type; lists of them."""
    if isinstance(value, list):
        return [_as_result(run, x) for x in value]
    if not isinstance(value, np.ndarray):
        return value
    name = name_of(value)
    return run.tensor(value) if is_singas(name) or name in HELD else value


class _Known(dict[str, Any]):
    """An environment that remembers arrays that steps assign."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        super().__init__(start)
        self.arrays: dict[str, Array] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if isinstance(value, np.ndarray):
            self.arrays[name] = value


class _Compiler:
    """Compiles a graph and its subgraphs, and collects problems."""

    def __init__(self, graphs: dict[int, CompiledGraph], front: FrontEnd) -> None:
        self.graphs, self.front = graphs, front
        self.problems: list[Problem] = []

    def compiled(self, graph: Graph, known: Mapping[str, Array]) -> CompiledGraph:
        """`known` are constants: initializers, and those of the graphs around."""
        compiled = self.graphs[id(graph)] = CompiledGraph(graph, self.front)
        compiled.constants = {**known, **graph.constants}
        hidden = [name for name in graph.inputs if name in compiled.constants]
        for name in hidden:  # an input of a subgraph
            del compiled.constants[name]
        self._nodes(compiled, graph.nodes)
        compiled.finish()
        return compiled

    def _nodes(self, compiled: CompiledGraph, nodes: Sequence[Node]) -> None:
        for node in nodes:
            branch = self.front.branch(node, compiled.constants)
            if branch is not None:
                self._splice(compiled, node, branch)
                continue
            given = [compiled.constants.get(name) for name in node.inputs]
            all_known = all(
                not name or array is not None
                for name, array in zip(node.inputs, given, strict=True)
            )
            on_host = self.front.on_host(node) if all_known else None
            if on_host is not None:
                results = on_host(given)
                for name, result in zip(node.outputs, results, strict=False):
                    if name:
                        compiled.constants[name] = result
                continue
            step = self._step(node, compiled)
            if step is not None:
                compiled.steps.append(step)

    def _splice(self, compiled: CompiledGraph, node: Node, branch: Graph) -> None:
        """Puts the nodes of a branch in the place of an If. Branches of several Ifs may have values
        of the same names."""
        made = [
            *branch.constants,
            *(name for node in branch.nodes for name in node.outputs if name),
        ]
        nodes = [*compiled.graph.nodes, *(step.node for step in compiled.steps)]
        taken = {*compiled.constants, *(name for each in nodes for name in each.outputs)}
        branch = renamed(branch, {n: f"{node.name}/{n}" for n in made if n in taken})
        compiled.constants.update(branch.constants)
        self._nodes(compiled, branch.nodes)
        for inner, outer in zip(branch.outputs, node.outputs, strict=True):
            alias = Node(
                f"{node.name}/{outer}", "Identity", "", 1, (inner,), (outer,), {}, (ValueType(),)
            )
            self._nodes(compiled, [alias])

    def _step(self, node: Node, compiled: CompiledGraph) -> CompiledNode | None:
        """The step of a node; None if it is refused, which is noted as a problem."""
        try:
            return self._read(node, compiled)
        except Refused as refusal:
            self.problems.append(node.refused(str(refusal)))
            return None

    def _read(self, node: Node, compiled: CompiledGraph) -> CompiledNode:
        if node.problem:
            raise Refused(node.problem)
        if self.front.of_shape(node):
            return CompiledNode(self.front, node, None, _never)
        reader = self.front.choose(node)
        for inner in subgraphs(node):
            self.compiled(inner, compiled.constants)
        return CompiledNode(self.front, node, reader, reader.make(node))


def _never(*arguments: Any) -> Any:
    raise AssertionError("CompiledNode.run computes shapes itself")

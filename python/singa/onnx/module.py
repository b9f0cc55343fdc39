"""An imported network as a Model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import autograd, initializer
from ..device import get_default_device
from ..dtypes import DType, is_float
from ..networks.element_types import FLOATS, HELD, UNSIGNED, is_singas, name_of, numpy_type
from ..networks.errors import InvalidModelError
from ..networks.graph import Graph, Initializer, Node, ValueType, subgraphs
from ..networks.model import NetworkModel
from ..networks.network import Network
from ..networks.tensors import as_tensor, as_value
from ..raw.arrays import kind_of
from ..raw.calls import says_what_to_write
from ..raw.check import integer, one_of
from ..tape import autocast
from ..tape.behaviour import behaviour
from ..tape.grad_mode import training
from ..tensor import Tensor
from .data_types import NUMBERS
from .front import ONNX
from .parsing import read
from .readers.registry import find, is_readable
from .trace import traces
from .values import computation

if TYPE_CHECKING:
    import os

    from onnx import ModelProto

    from ..opt import Optimizer

_PARAMETER, _STATE, _CONSTANT = "parameter", "state", "constant"


@says_what_to_write("onnx.load")
def load(
    source: str | os.PathLike[str] | bytes | ModelProto,
    device: Any = None,
    *,
    dtype: Any = None,
    allow_symlinks: bool = False,
) -> ImportedModel:
    """Loads an ONNX model as a network that can be trained.

    source          path of a file, its bytes, or a ModelProto
    device          where the parameters lie (default: the default device)
    dtype           "float64", "float16" or "bfloat16": converts all float32 values of the model
    allow_symlinks  external data may lie behind symbolic links, as in the caches of model hubs.
                    They are followed wherever they lead, so the folder has to be trusted.

    The model starts in inference mode. It has the `class_names` and the `transform` that `save`
    wrote into the file. Raises OSError if the file cannot be read, InvalidModelError if it is
    damaged or contradictory, and UnsupportedError with a list of all nodes that singa cannot
    compute.

    >>> net = models.Sequential(layer.Linear(2))
    >>> x = tensor.ones((1, 4))
    >>> net.compile([x])
    >>> singa.onnx.save(net, "net.onnx", [x], dynamic_axes={"x": {0: "batch"}})
    >>> loaded = singa.onnx.load("net.onnx")
    >>> loaded.eval()
    >>> loaded(tensor.ones((3, 4))).shape
    (3, 2)
    """
    graph = read_graph(source, dtype, allow_symlinks)
    net = ImportedModel(graph, device)
    try:
        net._take_use(graph.metadata)
    except ValueError as error:
        raise InvalidModelError(f"[onnx.load] {error}") from error
    return net


def read_graph(source: Any, dtype: Any = None, allow_symlinks: bool = False) -> Graph:
    """The graph of a model; the arguments are those of `load`."""
    graph = read(source, is_readable, allow_symlinks)
    if dtype is not None:
        wanted = dtype if isinstance(dtype, str) else DType(dtype).name
        one_of("onnx.load", "dtype", wanted, sorted(FLOATS))
        if wanted != "float32":
            _convert(graph, wanted)
    return graph


class ImportedModel(NetworkModel):
    """A network that came from an ONNX file.

    Parameters have their ONNX names: `net.get_params()["conv1.weight"]`. A call in inference mode
    returns the output, or a tuple of several. `train_one_batch(x, y)` trains on `loss(output, y)`,
    which is softmax cross-entropy unless `loss` is replaced; a subclass may define its own.
    `train()` and `eval()` decide whether dropout drops and batch norm uses statistics of the batch,
    whatever the file says. Inputs must have the types that the file declares. Under `autocast` a
    float32 network also takes the 16-bit outputs of other layers; it converts them to float32.

    graph   what `read_graph` returned
    device  where the parameters lie (default: the default device)

    input_names, output_names: names in the file, in the order of arguments and results. `notes` is
    a list of remarks on the file.

    >>> net = models.Sequential(layer.Linear(2))
    >>> x = tensor.ones((1, 4))
    >>> net.compile([x])
    >>> singa.onnx.save(net, "net.onnx", [x])
    >>> loaded = singa.onnx.load("net.onnx")
    >>> isinstance(loaded, singa.onnx.ImportedModel), len(loaded.get_params())
    (True, 2)
    """

    transient: ClassVar[tuple[str, ...]] = (*NetworkModel.transient, "_network")
    not_settings: ClassVar[tuple[str, ...]] = ("_network", "_graph", "notes")
    _network: Network | None

    def __init__(self, graph: Graph, device: Any = None) -> None:
        super().__init__()
        device = get_default_device() if device is None else device
        roles = roles_of(graph)
        self._graph = replace(graph, initializers={}, constants=dict(graph.constants))
        self.input_names: tuple[str, ...] = tuple(graph.inputs)
        self.output_names: tuple[str, ...] = tuple(graph.outputs)
        for name, initializer_ in graph.initializers.items():
            if roles[name] == _CONSTANT:
                self._graph.constants[name] = _frozen(initializer_.read())
        self._network = Network(self._graph, ONNX)  # raises before parameters take memory
        for name, role in roles.items():
            if role != _CONSTANT:
                self._add(name, graph, role, device)
        self.notes: list[str] = notes_on(graph)
        self._initialized = True
        self.training = False  # not that of autograd, which the caller has set

    # Parameters.

    def _add(self, name: str, graph: Graph, role: str, device: Any) -> None:
        array = graph.initializers[name].read()
        if role == _STATE and name_of(array) in ("float16", "bfloat16"):
            array = array.astype(np.float32)  # running statistics are not kept in 16 bits
        self._put(name, as_tensor(array, device), role == _PARAMETER)

    def replace_head(
        self, num_outputs: int, fill: Callable[[Tensor], Any] = initializer.glorot_normal
    ) -> tuple[str, ...]:
        """Gives the last fully connected layer, or 1x1 convolution, `num_outputs` outputs.

        Its weight is filled by `fill`, its biases with 0. Returns their names. Raises ValueError if
        the first output does not come from such a layer, apart from softmax and reshapes.
        """
        integer("replace_head", "num_outputs", num_outputs, 1)
        weight, axis, biases = _head(self._graph, self._keys)
        old = self.__dict__[self._keys[weight]]
        shape = list(old.shape)
        before, shape[axis] = shape[axis], num_outputs
        new = Tensor(shape, old.device, old.dtype)
        fill(new)
        self._put(weight, new, True)
        behind = 1 - len(shape) if axis == 0 and len(shape) > 2 else -1
        for bias in biases:
            old = self.__dict__[self._keys[bias]]
            lengths = list(old.shape)
            fitting = [i for i, n in enumerate(lengths) if n == before]
            if fitting:
                lengths[fitting[0] if len(fitting) == 1 else behind] = num_outputs
            self._put(bias, Tensor(lengths, old.device, old.dtype), True)
        self._network = None
        self._step_graphs = None
        return (weight, *biases)

    # Steps.

    def network(self) -> Network:
        """The compiled graph."""
        if self._network is None:
            self._network = Network(self._graph, ONNX)
        return self._network

    def forward(self, *inputs: Tensor) -> Any:
        """The output for these inputs, or a tuple of several.

        Inputs are in the order of `input_names`. Raises TypeError and ValueError for inputs that
        the file does not describe.
        """
        outputs = self.values(inputs, self.output_names)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def values(self, inputs: Any, names: Sequence[str]) -> list[Any]:
        """The values `names` of the graph for these inputs: outputs, or results of any node.

        inputs  one tensor, or a list of them in the order of `input_names`, in which a sequence is
                a list of tensors
        """
        given = self._checked_inputs(inputs if isinstance(inputs, list | tuple) else [inputs])
        parameters = self._values_by_name()
        if not traces:
            return self.network().run(given, parameters, names)

        def run() -> list[Any]:
            return self.network().run(given, parameters, names)

        return traces[-1].run_graph(self._graph, {**given, **parameters}, names, run)

    def loss(self, out: Any, y: Tensor) -> Tensor:
        """Softmax cross-entropy of the first output for targets y."""
        first = out[0] if isinstance(out, tuple) else out
        return autograd.softmax_cross_entropy(first, y)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        for note in self.notes:
            warnings.warn(f"[onnx] {note}", stacklevel=2)
        super().set_optimizer(optimizer)

    def _prepare(self, inputs: Sequence[Any], train: bool) -> None:
        given = inputs[: len(self.input_names)]
        if len(given) < len(self.input_names) or not all(isinstance(x, Tensor) for x in given):
            return
        try:
            checked = self._checked_inputs(given)
        except (TypeError, ValueError):
            return  # forward raises it
        network = self.network()
        if not network.unsigned and not network.knows_values_for(checked):
            before = training()
            autograd.training = False
            try:
                with autograd.no_grad():
                    ImportedModel.forward(self, *given)
            finally:
                autograd.training = before

    def _examples(self, function: str) -> list[Any]:
        if self._inputs:
            return super()._examples(function)
        error = None
        for length in LENGTHS:
            self._inputs = _declared_inputs(self._graph, length)
            try:
                inputs = super()._examples(function)
                with autograd.no_grad():
                    ImportedModel.forward(self, *inputs)
                return inputs
            except Exception as reason:  # operators refuse sizes with errors of many kinds
                error = error or reason
        self._inputs = []
        raise RuntimeError(
            f"[{function}] call compile() first: no size was found with which the network runs"
        ) from error

    def _checked_inputs(self, inputs: Sequence[Any]) -> dict[str, Any]:
        names = self.input_names
        if len(inputs) != len(names):
            raise ValueError(
                f"[{self.title}] expected {len(names)} inputs ({', '.join(names)}), got "
                f"{len(inputs)}"
            )
        return {
            name: _checked_input(name, x, self._graph.types.get(name, ValueType()))
            for name, x in zip(names, inputs, strict=True)
        }


def _checked_input(name: str, x: Any, declared: ValueType) -> Any:
    if declared.kind == "sequence":
        if not isinstance(x, list | tuple) or not all(isinstance(t, Tensor) for t in x):
            raise TypeError(f"[onnx] input {name!r} must be a list of Tensors")
        return list(x)
    on_host = declared.type is not None and not is_singas(declared.type)
    if on_host and not isinstance(x, Tensor):
        x = as_value(np.asarray(x), None)
    elif not isinstance(x, Tensor):
        raise TypeError(f"[onnx] input {name!r} must be a Tensor, got {kind_of(x)}")
    if declared.shape is not None:
        first = 1 if behaviour.converts_inputs else 0
        fits = len(declared.shape) == len(x.shape) and all(
            not isinstance(wanted, int) or wanted == n
            for wanted, n in zip(declared.shape[first:], x.shape[first:], strict=True)
        )
        if not fits:
            wanted = ", ".join("?" if n is None else str(n) for n in declared.shape)
            raise ValueError(f"[onnx] input {name!r} has shape ({wanted}), got {tuple(x.shape)}")
    given = x.dtype.name if isinstance(x, Tensor) else name_of(x)
    if declared.type in (None, given) or (declared.type in HELD and given == "int32"):
        return x
    if declared.type in UNSIGNED and isinstance(x, Tensor) and given in ("int32", "int64"):
        return x
    if on_host:
        raise TypeError(f"[onnx] input {name!r} is an array of {declared.type}, got {given}")
    lowered = declared.type in FLOATS and DType[declared.type] in autocast.go_together(x.dtype)
    if not (behaviour.converts_inputs or lowered) and (
        is_float(x.dtype) or declared.type in FLOATS
    ):
        raise TypeError(f"[onnx] input {name!r} has type {declared.type}, got {x.dtype}")
    return autograd.cast(x, DType[declared.type])  # usually an integer of another width


#: Lengths that are tried for axes that a file leaves open: images and sequences need some length.
LENGTHS = (1, 2, 16, 32, 64, 128, 224, 256, 640)


def _declared_inputs(graph: Graph, length: int) -> list[Any]:
    """Shapes and types of the inputs for `summary`: `length` where any length is allowed, but 1 for
    the first axis."""
    result: list[Any] = []
    for name in graph.inputs:
        declared = graph.types.get(name, ValueType())
        if declared.shape is None or declared.type is None or not is_singas(declared.type):
            return []
        pairs = zip(declared.shape, [1, *[length] * len(declared.shape)], strict=False)
        shape = tuple(n if isinstance(n, int) else free for n, free in pairs)
        result.append((shape, DType[declared.type]))
    return result


def _frozen(array: Any) -> Any:
    array = array.view()
    array.flags.writeable = False
    return array


# What an initializer is.


def roles_of(graph: Graph) -> dict[str, str]:
    """For each initializer, whether it is a parameter, a running statistic, or a constant.

    Parameters are tensors of floats. Constants are those of other types, those that the host needs
    as arrays or computes such arrays from, single numbers that are not the weight or bias of a
    layer, and those with an infinity, which are masks.
    """
    uses: dict[str, set[str]] = {}
    weights = graph.initializers

    def visit(nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        makers = {name: node for node in nodes for name in node.outputs if name}
        for node in reversed(nodes):
            for inner in subgraphs(node):
                visit(inner.nodes, inner.outputs)
            reader = find(node.domain, node.op, node.version)
            results = [name for name in node.outputs if name]
            of_host = computation(node) is not None and all(
                uses.get(name) == {"host"} and name not in outputs for name in results
            )
            for i, name in enumerate(node.inputs):
                if of_host or (reader is not None and i in reader.host):
                    kind = "host"
                elif reader is not None and i in reader.states:
                    kind = "state"
                elif reader is not None and i in reader.weights:
                    kind = "weight"
                else:
                    kind = "weight" if _is_bias(node, i, makers, weights) else "tensor"
                uses.setdefault(name, set()).add(kind)

    visit(graph.nodes, graph.outputs)
    return {name: _role(each, uses.get(name, set())) for name, each in weights.items()}


#: Layers that may have their bias in an Add behind them, with the axis of outputs of their weight.
_AXES = {"MatMul": -1, "Gemm": -1, "Conv": 0}


def _is_bias(
    node: Node, i: int, makers: Mapping[str, Node], weights: Mapping[str, Initializer]
) -> bool:
    """Whether input `i` of a node is the bias of a layer: one number for each of its outputs."""
    if node.op != "Add" or node.domain or len(node.inputs) != 2:
        return False
    bias, layer = weights.get(node.inputs[i]), makers.get(node.inputs[1 - i])
    if bias is None or layer is None or layer.domain or layer.op not in _AXES or layer.has(2):
        return False
    weight = weights.get(layer.inputs[1])
    if weight is None or len(weight.shape) < 2 or not bias.shape:
        return False
    axis = 0 if layer.attributes.get("transB") else _AXES[layer.op]
    return math.prod(bias.shape) == weight.shape[axis]


def _role(stored: Initializer, uses: set[str]) -> str:
    if stored.type not in FLOATS:
        return _CONSTANT
    if "state" in uses:
        return _STATE
    if not uses - {"host"}:
        return _CONSTANT
    if math.prod(stored.shape) <= 1 and "weight" not in uses:
        return _CONSTANT
    if "weight" in uses or math.prod(stored.shape) > 1 << 24:
        return _PARAMETER
    finite = np.isfinite(stored.read().astype(np.float32, copy=False)).all()
    return _PARAMETER if finite else _CONSTANT


# The head.

_SHAPE_ONLY = (
    *("Identity", "Softmax", "LogSoftmax", "Sigmoid", "Dropout"),
    *("Flatten", "Squeeze", "Transpose"),
)


def _head(graph: Graph, parameters: Mapping[str, str]) -> tuple[str, int, list[str]]:
    """(weight, its axis of outputs, biases) of the last layer."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    name = graph.outputs[0]
    biases: list[str] = []

    def source(inputs: Sequence[str]) -> list[str]:
        """Names of values without Identity."""
        found = []
        for each in inputs:
            while each in makers and makers[each].op == "Identity":
                each = makers[each].inputs[0]
            found.append(each)
        return found

    for _ in range(len(graph.nodes) + 1):
        node = makers.get(name)
        if node is None:
            break
        inputs = source(node.inputs)
        if node.op in _SHAPE_ONLY:
            name = inputs[0]
        elif node.op in _AXES and inputs[1] in parameters:
            axis = 0 if node.attributes.get("transB") else _AXES[node.op]
            return inputs[1], axis, [*(n for n in inputs[2:3] if n in parameters), *biases]
        elif node.op == "Add" and not biases:
            biases = [n for n in inputs if n in parameters]
            if len(biases) != 1:
                break
            name = next(n for n in inputs if n != biases[0])
        else:
            break
    last = makers.get(name)
    raise ValueError(
        f"[replace_head] output {graph.outputs[0]!r} comes from "
        f"{f'a {last.op}' if last else 'an input'}, not from a fully connected layer"
    )


# Other float types.


def _convert(graph: Graph, wanted: str) -> None:
    """Converts float32 to another type everywhere in a graph."""
    target = numpy_type(wanted)

    def array(value: Any) -> Any:
        return _frozen(value.astype(target)) if name_of(value) == "float32" else value

    def converted(read: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: array(read())

    for initializer_ in graph.initializers.values():
        if initializer_.type == "float32":
            initializer_.type = wanted
            initializer_.read = converted(initializer_.read)
    graph.constants = {name: array(value) for name, value in graph.constants.items()}
    graph.types = {name: _converted_type(value, wanted) for name, value in graph.types.items()}
    for node in graph.nodes:
        if node.op == "ConstantOfShape" and not node.domain:  # zeros of float32 by default
            node.attributes.setdefault("value", np.zeros(1, np.float32))
        node.input_types = tuple(_converted_type(value, wanted) for value in node.input_types)
        node.output_types = tuple(_converted_type(value, wanted) for value in node.output_types)
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                _convert(value, wanted)
            elif isinstance(value, np.ndarray):
                node.attributes[name] = array(value)
            elif name in ("to", "dtype", "output_dtype") and value == NUMBERS["float32"]:
                node.attributes[name] = NUMBERS[wanted]


def _converted_type(value: ValueType, wanted: str) -> ValueType:
    return replace(value, type=wanted) if value.type == "float32" else value


# Remarks.


def notes_on(graph: Graph) -> list[str]:
    """Remarks on a file: whether batch norm may have been folded into its convolutions."""
    operators = {node.op for node in graph.nodes}
    convolutions = [node for node in graph.nodes if node.op == "Conv"]
    norms = {name for name in operators if name.endswith("Normalization") and name != "LRN"}
    with_bias = [node for node in convolutions if node.has(2)]
    if norms or len(convolutions) < 4 or len(with_bias) < len(convolutions):
        return []
    if not graph.producer.startswith("pytorch"):
        return []
    return [
        "all convolutions have a bias and there is no batch norm: the exporter may have folded it. "
        "To train with batch norm, export with torch.onnx.export(model.train(), args, path, "
        "dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)"
    ]

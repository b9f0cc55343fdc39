"""ONNX's backend interface, with the names and results of SINGA's sonnx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import autograd
from ..device import create_cpu_device, create_cuda_gpu
from ..networks.errors import InvalidModelError, UnsupportedError
from ..networks.tensors import as_array, as_value
from ..raw.check import one_of
from ..tape.behaviour import behaviour
from ..tensor import Tensor
from .data_types import NUMBERS
from .exporting import OPSET, export
from .module import ImportedModel, read_graph
from .specification import typed
from .trace import of_tape

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class SingaRep:
    """A model that is ready to run; `prepare` makes it.

    net       the network
    model     the ModelProto
    is_graph  whether `run` gives tensors with SINGA's behaviour, too (default: False)

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> rep = sonnx.prepare(sonnx.to_onnx([x], [autograd.relu(x)]))
    >>> rep.run([x])
    [Tensor([0., 2.], dtype=float32)]
    """

    def __init__(self, model: Any, net: ImportedModel) -> None:
        self.model: Any = model
        self.net: ImportedModel = net
        self.is_graph = False

    @property
    def states(self) -> dict[str, Tensor]:
        """Parameters and running statistics by name."""
        return self.net.get_states()

    @property
    def layers(self) -> list[tuple[OnnxNode, Callable[..., list[Tensor]]]]:
        """Each node, and the function of tensors that it is (`get_op`). Constants are left out."""
        import onnx

        model = self.model
        if not isinstance(model, onnx.ModelProto):
            model = onnx.load(model, load_external_data=False)
        version = next((i.version for i in model.opset_import if not i.domain), None)
        nodes = [OnnxNode(node) for node in model.graph.node if node.op_type != "Constant"]
        return [(node, get_op(node, version)) for node in nodes]

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for a list of tensors or arrays. They are copied to the device of the network
        if they are elsewhere.

        The outputs are tensors. With SINGA's behaviour (`singa.compat`) those of arrays are arrays,
        of the types that the model declares, unless `is_graph` is set.

        last_layers  runs only the nodes up to this one, and returns its outputs; see `values`
        aux_output   names of further values to return, after the outputs
        """
        single = isinstance(inputs, Tensor | np.ndarray)
        given = [inputs] if single else list(inputs)
        device = next((t.device for t in self.states.values()), None)
        if device is None:  # a network without parameters runs where its inputs are
            device = next((x.device for x in given if isinstance(x, Tensor)), Tensor((1,)).device)
        tensors = [_on(device, x) for x in given]
        names = _names(self.net, kwargs.get("last_layers"), kwargs.get("aux_output", ()))
        found = self.net.values(tensors, names)
        arrays = not any(isinstance(x, Tensor) for x in given)
        if not (behaviour.converts_inputs and arrays) or self.is_graph:
            return found
        types = {k: v.type for k, v in self.net._graph.types.items() if k in self.net.output_names}
        declared = [types.get(name) for name in names]
        return [_array(y, kind) for y, kind in zip(found, declared, strict=True)]


def _array(y: Any, declared: str | None) -> Any:
    """A value as an array, of the declared type where there is one."""
    from onnx import helper

    if isinstance(y, list | tuple):
        return [_array(part, declared) for part in y]
    if not isinstance(y, Tensor):
        return y
    array = as_array(y)
    if declared is None:
        return array
    return array.astype(helper.tensor_dtype_to_np_dtype(NUMBERS[declared]), copy=False)


def _on(device: Any, x: Any) -> Any:
    """A tensor or an array as a value on `device`."""
    if not isinstance(x, Tensor):
        return as_value(np.asarray(x), device)
    return x if x.device.id() == device.id() else x.clone().to_device(device)


def values(
    net: ImportedModel, inputs: Sequence[Tensor], last_layers: int | None, aux_output: Sequence[str]
) -> list[Tensor]:
    """Outputs of a network as SINGA's `last_layers` and `aux_output` select them (`_names`)."""
    return net.values(inputs, _names(net, last_layers, aux_output))


def _names(net: ImportedModel, last_layers: int | None, aux_output: Sequence[str]) -> list[str]:
    """Names of the values that SINGA's `last_layers` and `aux_output` select.

    `last_layers` is the number of the last of the n nodes that runs, from 0. A negative number is
    (last_layers + 1) modulo n, as SINGA computes it: -2 is the last node, -3 the one before, and -1
    the first. The outputs of the last node of all are those of the graph.
    """
    names = list(net.output_names)
    nodes = net._graph.nodes
    if last_layers is not None:
        last = last_layers if last_layers >= 0 else (last_layers + 1) % max(len(nodes), 1)
        if last >= len(nodes):
            raise ValueError(f"[sonnx] last_layers is {last_layers}; there are {len(nodes)} nodes")
        if last != len(nodes) - 1:
            names = [name for name in nodes[last].outputs if name]
    return [*names, *aux_output]


def prepare(model: ModelProto | str, device: Any = "CPU", **kwargs: Any) -> SingaRep:
    """Makes a model ready to run.

    model   a ModelProto, or the path of a file
    device  "CPU", "CUDA", or a device of singa

    SINGA's other arguments (init_inputs, keep_initializers_as_inputs) are accepted and not needed.
    Raises what `singa.onnx.load` raises.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> model = sonnx.to_onnx([x], [autograd.relu(x)])
    >>> sonnx.prepare(model).run([x])
    [Tensor([0., 2.], dtype=float32)]
    """
    return SingaRep(model, ImportedModel(read_graph(model), _device(device)))


def _device(device: Any) -> Any:
    if isinstance(device, str):
        if device.startswith("CUDA"):
            return create_cuda_gpu()
        one_of("sonnx.prepare", "device", device, ["CPU", "CUDA"])
        return create_cpu_device()
    return device


def supports_device(device: str) -> bool:
    """Whether `prepare` takes a device of this name.

    >>> from singa import sonnx
    >>> sonnx.supports_device("CPU"), sonnx.supports_device("TPU")
    (True, False)
    """
    return device == "CPU"


class OnnxNode:
    """A node of a graph: name, op_type, attrs (by name), inputs and outputs.

    >>> import onnx
    >>> from singa import sonnx
    >>> node = sonnx.OnnxNode(onnx.helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5))
    >>> node.op_type, node.attrs
    ('LeakyRelu', {'alpha': 0.5})
    """

    def __init__(self, node: NodeProto) -> None:
        from onnx import helper

        self.proto = node
        self.name: str = node.name or "_".join(node.output)
        self.op_type: str = node.op_type
        self.attrs: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.inputs: list[str] = list(node.input)
        self.outputs: list[str] = list(node.output)

    def getattr(self, key: str, default: Any = None) -> Any:
        """An attribute, or `default`."""
        return self.attrs.get(key, default)


def get_op(
    node: NodeProto | OnnxNode, opset_version: int | None = None
) -> Callable[..., list[Tensor]]:
    """The function of tensors that a node is: one argument for each input that is given.

    >>> import onnx
    >>> from singa import sonnx
    >>> relu = sonnx.get_op(onnx.helper.make_node("Relu", ["x"], ["y"]))
    >>> relu(tensor.Tensor(data=[-1.0, 2.0]))
    [Tensor([0., 2.], dtype=float32)]
    """
    import onnx
    from onnx import helper

    proto = node.proto if isinstance(node, OnnxNode) else node
    version = onnx.defs.onnx_opset_version() if opset_version is None else opset_version
    names = [name for name in proto.input if name]

    def function(*inputs: Tensor) -> list[Tensor]:
        if len(inputs) != len(names):
            raise ValueError(f"[{proto.op_type}] expected {len(names)} inputs, got {len(inputs)}")
        infos = [
            helper.make_tensor_value_info(name, NUMBERS[x.dtype.name], x.shape)
            for name, x in zip(names, inputs, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "node", infos, outputs)
        imports = [helper.make_opsetid("", version)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=onnx.IR_VERSION)
        model = typed(model)  # the outputs need types
        net = ImportedModel(read_graph(model), inputs[0].device if inputs else None)
        return net.values(inputs, net.output_names)

    return function


def run_node(
    node: NodeProto | OnnxNode,
    inputs: Sequence[Any] | Mapping[str, Any],
    device: Any = "CPU",
    outputs_info: Any = None,
    opset_version: int | None = None,
    **kwargs: Any,
) -> list[Tensor]:
    """Runs one node on tensors or arrays, in order or by name, and returns its outputs.

    >>> import onnx
    >>> from singa import sonnx
    >>> node = onnx.helper.make_node("Relu", ["x"], ["y"])
    >>> sonnx.run_node(node, [np.array([-1.0, 2.0], np.float32)])
    [Tensor([0., 2.], dtype=float32)]
    """
    if isinstance(inputs, Mapping):
        names = node.inputs if isinstance(node, OnnxNode) else node.input
        inputs = [inputs[name] for name in names if name]
    place = _device(device)
    tensors = [x if isinstance(x, Tensor) else as_value(np.asarray(x), place) for x in inputs]
    return get_op(node, opset_version)(*tensors)


def to_onnx(inputs: Sequence[Any], y: Sequence[Tensor], model_name: str = "sonnx") -> ModelProto:
    """The computation of `y` from `inputs`, which is on the tape, as a ModelProto.

    Numbers and tuples among the inputs, such as the limits of `clip`, and running statistics of
    batch norm are no inputs of the graph, which holds their values. Turn `autograd.training` on
    before the forward pass. Raises ValueError where the tape does not have the whole computation;
    `singa.onnx.save` follows any forward pass.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> model = sonnx.to_onnx([x], [autograd.relu(x)])
    >>> [node.op_type for node in model.graph.node]
    ['Relu']
    """
    given = [inputs] if isinstance(inputs, Tensor) else inputs
    inputs = [x for x in given if isinstance(x, Tensor)]
    outputs = [y] if isinstance(y, Tensor) else list(y)
    trace = of_tape(inputs, outputs)
    kept = [
        statistic
        for application in trace.applications
        if isinstance(application.op, autograd._BatchNorm2d)
        for statistic in (application.op.running_mean, application.op.running_var)
        if statistic is not None
    ]
    inputs = [x for x in inputs if not any(x.data.SharesMemory(raw) for raw in kept)]
    trace.inputs = inputs
    states: dict[str, Tensor] = {}
    for application in trace.applications:
        for x in application.inputs:
            if x.stores_grad and not any(x is other for other in (*states.values(), *inputs)):
                name = x.name or f"parameter_{len(states)}"
                states[name if name not in states else f"{name}_{len(states)}"] = x
    names: list[str] = []
    for i, x in enumerate(inputs):
        name = x.name or f"input_{i}"
        names.append(f"{name}_{i}" if name in names or name in states else name)
    return export([trace], names, None, states, opset=OPSET, title=model_name)


#: The operators of ONNX that SINGA's own backend reads; singa reads more.
_SINGAS_OPERATORS = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh AveragePool BatchNormalization Cast Ceil Clip "
    "Concat ConstantOfShape Conv Cos Cosh DepthToSpace Div Dropout Elu Equal Erf Expand Flatten "
    "Floor Gather Gemm GlobalAveragePool Greater HardSigmoid Identity LeakyRelu Less Log MatMul "
    "Max MaxPool Mean Min Mul Neg NonZero Not OneHot Or PRelu Pad Pow Reciprocal ReduceMean "
    "ReduceSum Relu Reshape ScatterElements Selu Shape Sigmoid Sign Sin Sinh Slice Softmax "
    "Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh Tile Transpose Unsqueeze "
    "Upsample Where Xor"
)
#: Their classes in `autograd`, where the names differ.
_SINGAS_CLASSES = {
    "AveragePool": "layer.Pooling2d",
    "BatchNormalization": "layer.BatchNorm2d",
    "Conv": "layer.Conv2d",
    "Gemm": "layer.Gemm",
    "MatMul": "Matmul",
    "MaxPool": "layer.Pooling2d",
    "Neg": "Negative",
    "Relu": "ReLU",
    "Selu": "SeLU",
    "Softmax": "SoftMax",
    "Softplus": "SoftPlus",
    "Softsign": "SoftSign",
    "Upsample": "UpSample",
}


class SingaBackend:
    """SINGA's name of the functions that import.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> sonnx.SingaBackend.run_model(sonnx.to_onnx([x], [autograd.relu(x)]), [x])
    [Tensor([0., 2.], dtype=float32)]
    """

    #: The versions of SINGA's own backend. singa reads newer files, too.
    _opset_version = 11
    _ir_version = 6
    #: The class that computes each operator, as SINGA's tests read it.
    _rename_operators: ClassVar[dict[str, str]] = {
        name: _SINGAS_CLASSES.get(name, name) for name in _SINGAS_OPERATORS.split()
    }

    prepare = staticmethod(prepare)
    run_node = staticmethod(run_node)
    supports_device = staticmethod(supports_device)

    @staticmethod
    def run_model(model: Any, inputs: Any, device: Any = "CPU", **kwargs: Any) -> list[Any]:
        """Prepares a model and runs it once."""
        return prepare(model, device, **kwargs).run(inputs)

    @staticmethod
    def is_compatible(model: Any, device: Any = "CPU", **kwargs: Any) -> bool:
        """Whether singa can compute all nodes of a model."""
        try:
            prepare(model, device)
        except (InvalidModelError, UnsupportedError):
            return False
        return True


class SingaFrontend:
    """SINGA's name of the functions that export.

    >>> from singa import sonnx
    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[-1.0, 2.0])
    >>> sonnx.SingaFrontend.singa_to_onnx_model([x], [autograd.relu(x)]).graph.node[0].op_type
    'Relu'
    """

    singa_to_onnx_model = staticmethod(to_onnx)

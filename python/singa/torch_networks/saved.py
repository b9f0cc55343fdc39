"""Networks of `from_torch` as JSON values and arrays, from which they are made again.

    network, arrays = describe(net)
    net = build(network, arrays, device)     # without PyTorch

Rows of the table of operators are found by name, and arguments are numbers, texts, lists and places
of values, so `build` executes nothing of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType
from ..networks.element_types import name_of, numpy_type
from ..networks.graph import Graph, Node, ValueType
from ..networks.tensors import as_tensor
from . import guards
from .arguments import Value
from .export import Exported
from .front import NUMBERS
from .module import TorchModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ..tensor import Tensor

    Arrays = dict[str, NDArray[Any]]
    Types = dict[str, ValueType]

_MODES = {"inference": False, "training": True}
#: Names of constants in a file begin so; no name of a `state_dict()` does.
_CONSTANT = ".constant."


def describe(net: TorchModel) -> tuple[dict[str, Any], Arrays]:
    """The description of a network, but for its loss, and the arrays that belong to it."""
    arrays: Arrays = {}
    states: dict[str, Any] = {}
    first: dict[int, str] = {}
    for name, value in net._values_by_name().items():
        one = first.setdefault(id(value), name)
        states[name] = {"type": value.dtype.name, "trained": bool(value.stores_grad)}
        if one == name:
            arrays[name] = value.numpy()
        else:
            states[name] = {"same": one}
    constants = _Constants(arrays)
    graphs = {
        mode: _described(net._exported[training], constants) for mode, training in _MODES.items()
    }
    network = {"kind": "torch", "module": net.module_name, "states": states, "graphs": graphs}
    return network, arrays


def build(
    network: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    loss: Callable[[Any, Tensor], Tensor],
    device: Any,
) -> TorchModel:
    """The network of a description. Raises ValueError, TypeError, LookupError or
    UnsupportedError for anything else."""
    states = network["states"]
    kept = _state_types(states, arrays)
    graphs = {
        training: _built(network["graphs"][mode], arrays, kept) for mode, training in _MODES.items()
    }
    net = TorchModel(_text(network["module"]), graphs, loss)
    for name, state in states.items():
        if "same" in state:
            other = net._values_by_name()[state["same"]]
            net._put(name, other, other.stores_grad)
        else:
            kind = numpy_type(DType[state["type"]].name)
            net._put(name, as_tensor(arrays[name].astype(kind), device), bool(state["trained"]))
    net.training = False
    return net


def _state_types(states: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Types:
    types: Types = {}
    for name, state in states.items():
        if "same" in state:
            types[name] = types[state["same"]]
        else:
            types[name] = ValueType(DType[state["type"]].name, arrays[name].shape)
    return types


class _Constants:
    """Adds constants to arrays, each of them once."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.known: dict[Any, str] = {}

    def name(self, array: NDArray[Any]) -> str:
        key = name_of(array), array.shape, array.tobytes()
        name = self.known.setdefault(key, f"{_CONSTANT}{len(self.known)}")
        wide = name_of(array) == "bfloat16"
        self.arrays[name] = array.astype(np.float32) if wide else array
        return name


# Graphs. A value's type is [element type, lengths], and null if it is a number.


def _described(exported: Exported, constants: _Constants) -> dict[str, Any]:
    graph = exported.graph
    types: dict[str, Any] = {}
    for node in graph.nodes:
        for names, each in ((node.inputs, node.input_types), (node.outputs, node.output_types)):
            types |= {name: _described_type(t) for name, t in zip(names, each, strict=True)}
    return {
        "inputs": {name: _described_type(graph.types[name]) for name in graph.inputs},
        "outputs": graph.outputs,
        "form": exported.outputs,
        "written": exported.written,
        "guards": exported.guards,
        "constants": {
            name: {"type": name_of(array), "array": constants.name(array)}
            for name, array in graph.constants.items()
        },
        "types": types,
        "nodes": [_described_node(node) for node in graph.nodes],
    }


def _described_type(t: ValueType) -> Any:
    return None if t.shape is None else [t.type, list(t.shape)]


def _described_node(node: Node) -> dict[str, Any]:
    attributes = node.attributes
    described = {
        "name": node.name,
        "op": node.op,
        "inputs": node.inputs,
        "outputs": node.outputs,
        "arguments": _described_template(attributes["arguments"]),
        "options": {k: _described_template(x) for k, x in attributes["options"].items()},
    }
    if node.domain:
        described["of_numbers"] = True
    if attributes.get("forced"):
        described["forced"] = True
    return described


def _described_template(x: Any) -> Any:
    if isinstance(x, Value):
        return {"number" if x.number else "input": x.index}
    return [_described_template(each) for each in x] if isinstance(x, list) else x


def _built(
    described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], states: Types
) -> Exported:
    types = {_text(name): _built_type(t) for name, t in described["types"].items()}
    inputs = {_text(name): _built_type(t) for name, t in described["inputs"].items()}
    if any(t.shape is None or t.type not in DType.__members__ for t in inputs.values()):
        raise ValueError("an input has no shape, or a type that singa does not have")
    constants = {}
    held = {**inputs, **states}
    for name, each in described["constants"].items():
        array = arrays[each["array"]].astype(numpy_type(each["type"]))
        array.flags.writeable = False
        constants[_text(name)] = array
        held[name] = ValueType(each["type"], array.shape)
    for name, wanted in types.items():
        if held.get(name, wanted) != wanted:
            raise ValueError(f"{name!r} is {_shown(held[name])}, and not {_shown(wanted)}")
    nodes = [_built_node(node, types) for node in described["nodes"]]
    known = {*inputs, *constants, *states}
    for node in nodes:
        if missing := {*node.inputs} - known:
            raise ValueError(f"{node.name!r} reads {sorted(missing)}, which nothing makes")
        if again := {*node.outputs} & known:
            raise ValueError(f"{node.name!r} makes {sorted(again)} again")
        known.update(node.outputs)
    written = {_text(name): _text(value) for name, value in described["written"].items()}
    outputs = [_text(name) for name in described["outputs"]]
    if missing := {*outputs, *written.values()} - known | ({*written} - {*states}):
        raise ValueError(f"nothing makes {sorted(missing)}")
    if outputs[len(outputs) - len(written) :] != list(written.values()):
        raise ValueError("the values that a run writes are not its last results")
    for name, value in written.items():
        result = types.get(value) or held[value]
        if result != states[name]:
            raise ValueError(f"{name!r} is {_shown(states[name])}, a run writes {_shown(result)}")
    read = {name for node in nodes for name in node.inputs} | {*outputs}
    for node in nodes:
        node.used = tuple(name in read for name in node.outputs)
    graph = Graph("", list(inputs), outputs, nodes, constants, types=inputs, producer="PyTorch")
    form = _built_form(described["form"], len(outputs) - len(written))
    for guard in described["guards"]:
        guards.holds(guard, [[2] * len(t.shape or ()) for t in inputs.values()])
    return Exported(graph, written, form, [*described["guards"]])


def _shown(t: ValueType) -> str:
    lengths = "?" if t.shape is None else ", ".join(map(str, t.shape))
    return f"{t.type} ({lengths})"


def _built_type(described: Any) -> ValueType:
    if described is None:
        return ValueType()
    kind, shape = described
    if not isinstance(kind, str) or not all(isinstance(n, int | str) for n in shape):
        raise TypeError(f"a value has the type {described!r:.80}")
    return ValueType(kind, tuple(shape))


def _built_node(described: Mapping[str, Any], types: Mapping[str, ValueType]) -> Node:
    inputs, outputs = (tuple(map(_text, described[key])) for key in ("inputs", "outputs"))
    options = {
        _text(name): _built_template(x, len(inputs)) for name, x in described["options"].items()
    }
    arguments = _built_template(described["arguments"], len(inputs))
    attributes: dict[str, Any] = {"arguments": [*arguments], "options": options}
    if described.get("forced"):
        attributes["forced"] = True
    return Node(
        _text(described["name"]),
        _text(described["op"]),
        NUMBERS if described.get("of_numbers") else "",
        0,
        inputs,
        outputs,
        attributes,
        tuple(types[name] for name in inputs),
        tuple(types[name] for name in outputs),
    )


def _built_template(x: Any, count: int) -> Any:
    if isinstance(x, dict):
        ((kind, index),) = x.items()
        if kind not in ("input", "number") or index not in range(count):
            raise ValueError(f"an argument is {x!r:.80}")
        return Value(int(index), kind == "number")
    return [_built_template(each, count) for each in x] if isinstance(x, list) else x


def _built_form(x: Any, count: int) -> Any:
    if isinstance(x, dict):
        return {name: _built_form(each, count) for name, each in x.items()}
    if isinstance(x, list):
        return [_built_form(each, count) for each in x]
    if x not in range(count):
        raise ValueError(f"the result {x!r:.80} is not one of {count}")
    return int(x)


def _text(x: Any) -> str:
    if not isinstance(x, str):
        raise TypeError(f"{x!r:.80} is no text")
    return x

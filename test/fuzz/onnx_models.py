"""Target for ONNX files: they are loaded, and run where their inputs are small."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import singa.onnx
from readers import _File
from singa import autograd, layer, tensor
from singa.networks.element_types import is_singas
from targets import Finding
from worker import _status

_SUPPORT = Path(__file__).resolve().parents[1] / "python" / "support"
_MOST_ELEMENTS = 10_000
#: Bytes that loading may take: a constant that the host computes has at most 2^27 elements.
_MOST_BYTES = 5 << 28
_SECRET = np.full(64, 12345.678, np.float32)


class OnnxModels(_File):
    """Whatever a file says, loading and running it give a result or a declared exception, and no
    byte of another folder. Loading takes a limited memory; running takes what the results need."""

    format = "protobuf"
    memory = 0
    name = "model.onnx"
    # MemoryError: a file may ask for a large result.
    declared = (
        ValueError,
        TypeError,
        NotImplementedError,
        IndexError,
        ZeroDivisionError,
        MemoryError,
    )
    names_file = False

    def __init__(self) -> None:
        super().__init__()
        _SECRET.tofile(self.folder.parent / "secret.bin")
        np.linspace(-1, 1, 64, dtype=np.float32).tofile(self.folder / "data.bin")

    def seeds(self) -> list[bytes]:
        sys.path += [str(_SUPPORT / name) for name in ("onnx_models", "arrays")]
        return [model.SerializeToString() for model in _seeds()]

    def read(self) -> str:
        before = _status("VmRSS")
        net = singa.onnx.load(self.path)
        if _status("VmHWM") - before > _MOST_BYTES:
            raise Finding(f"loading takes more than {_MOST_BYTES >> 20} MiB")
        for name, t in net.get_states().items():
            if t.size() and (t.numpy().astype(np.float32) == _SECRET[0]).any():
                raise Finding(f"{name} has the data of another folder")
        inputs = []
        for name in net.input_names:
            value = net._graph.types[name]
            shape = [n if isinstance(n, int) else 2 for n in value.shape or ()]
            kind = value.type or "float32"
            if not is_singas(kind) or math.prod(shape) > _MOST_ELEMENTS:
                return "loaded"
            inputs.append(tensor.from_numpy(np.ones(shape, np.float32), dtype=kind))
        net.forward(*inputs)
        net.forward(*inputs)
        return "run"


def _seeds() -> list[Any]:
    from onnx import TensorProto, helper
    from onnx_files import info, network, node
    from singa.onnx.save import to_model

    def saved(net: layer.Layer, *shapes: tuple[int, ...]) -> Any:
        inputs = [tensor.from_numpy(np.ones(shape, np.float32)) for shape in shapes]
        with autograd.no_grad():
            net.forward(*inputs)
            return to_model(net, inputs, dynamic_axes=None)

    conv = layer.Sequential(
        layer.Conv2d(2, 3, padding=1), layer.BatchNorm2d(), layer.ReLU(), layer.MaxPool2d(2),
        layer.LayerNorm2d(2), layer.Flatten(), layer.Linear(3), layer.GELU(), layer.SoftMax(),
    )  # fmt: skip
    encoder = layer.TransformerEncoderLayer(4, 2, 8, activation="gelu")
    found = [
        saved(conv, (2, 2, 4, 4)),
        saved(encoder, (1, 3, 4)),
        saved(layer.CudnnRNN(2, bidirectional=True), (1, 3, 2)),
    ]
    chain = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axes", "m"),
        node("Concat", "m minus", "t", axis=0),
        node("Reshape", "x t", "r"),
        node("Slice", "r a b", "l"),
        node("Expand", "l e", "w"),
        node("Tile", "w one2", "u"),
        node("Pad", "u p", "v"),
        node("TopK", "v k", "values places"),
        node("ScatterElements", "v places values", "q", axis=1, reduction="add"),
        node("Einsum", "q q", "y", equation="ij,kj->ik"),
    ]
    numbers = {
        "zero": 0, "axes": [0], "minus": [-1], "a": [0], "b": [2], "e": [2, 4], "one2": [1, 2],
        "p": [0, 1, 0, 1], "k": [3],
    }  # fmt: skip
    weights = {name: np.array(value, np.int64) for name, value in numbers.items()}
    found.append(network(chain, [info("x", [2, 2, 2])], [info("y", [None, None])], weights))
    body = helper.make_graph(
        [node("Add", "v step", "w"), node("Identity", "w", "out"), node("Identity", "keep", "go")],
        "body",
        [info("i", [], "int64"), info("keep", [], "bool"), info("v", [2])],
        [info("go", [], "bool"), info("w", [2]), info("out", [2])],
    )
    branches = {
        f"{name}_branch": helper.make_graph([node(op, "x", name)], name, [], [info(name, [2])])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    control = [
        node("Loop", "count - x", "last all", body=body),
        node("If", "flag", "chosen", **branches),
        node("Add", "last chosen", "sum"),
        node("GridSample", "image grid", "sampled"),
        node("ReduceSum", "sampled", "total", keepdims=0),
        node("Add", "sum total", "y"),
    ]
    found.append(
        network(
            control,
            [info("x", [2]), info("flag", [], "bool")],
            [info("y", [2])],
            {
                "count": np.array(3, np.int64),
                "step": np.ones(2, np.float32),
                "image": np.ones((1, 1, 2, 2), np.float32),
                "grid": np.zeros((1, 2, 2, 2), np.float32),
            },
        )
    )
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data.bin", "offset": "16", "length": "16"}.items():
        weight.external_data.add(key=key, value=value)
    external = network([node("Add", "x w", "y")], [info("x", [4])], [info("y", [4])])
    external.graph.initializer.append(weight)
    imports = [helper.make_opsetid("", 21)]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], imports)
    call = helper.make_node("Twice", ["x"], ["y"], domain="own")
    found.append(external)
    found.append(
        network(
            [call],
            [info("x", [4])],
            [info("y", [4])],
            imports=[helper.make_opsetid("own", 1)],
            functions=[twice],
        )
    )
    found.append(_quantized())
    return found


def _quantized() -> Any:
    """Operators of quantised files, ONNX's own and ONNX Runtime's."""
    from onnx import helper
    from onnx_files import info, network, node

    ours = {"domain": "com.microsoft"}
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("ConvInteger", "q w z zero", "c", pads=[1, 1, 1, 1]),
        node("QLinearConv", "q s z w ws wz s z bias", "d"),
        node("QLinearAdd", "d s z d s z s z", "e", **ours),
        node("QLinearConcat", "s z e s z d s z", "f", axis=1, **ours),
        node("Reshape", "f shape", "r"),
        node("QLinearMatMul", "r s z m ws1 wz1 s z", "t"),
        node("MatMulInteger", "r m z wz1", "i"),
        node("QGemm", "t s z m2 ws1 wz1", "g", transB=1, **ours),
        node("QuantizeLinear", "g s1 z16", "h", **ours),
        node("DequantizeLinear", "h s1 z16", "k", **ours),
        node("Reshape", "k steps", "l"),
        node("DynamicQuantizeLSTM", "l W R - - - - - S Z S Z", "y", hidden_size=1, **ours),
    ]
    kinds: dict[str, Any] = {
        "w": np.ones((2, 1, 1, 1), np.int8), "zero": np.int8(0), "ws": np.ones(2, np.float32),
        "wz": np.zeros(2, np.int8), "bias": np.ones(2, np.int32), "shape": np.array([4, 8]),
        "m": np.ones((8, 3), np.int8), "m2": np.ones((4, 3), np.int8), "ws1": np.float32(0.5),
        "wz1": np.int8(1), "s1": np.float32(0.1), "z16": np.uint16(7), "steps": np.array([2, 4, 2]),
        "W": np.ones((1, 2, 4), np.int8), "R": np.ones((1, 1, 4), np.int8),
        "S": np.ones(1, np.float32), "Z": np.zeros(1, np.int8),
    }  # fmt: skip
    weights = {name: np.asarray(value) for name, value in kinds.items()}
    imports = [helper.make_opsetid("com.microsoft", 1)]
    y, c, i = info("y", [None] * 4), info("c", [None] * 4, "int32"), info("i", [4, 3], "int32")
    return network(nodes, [info("x", [1, 1, 2, 4])], [y, c, i], weights, imports=imports)

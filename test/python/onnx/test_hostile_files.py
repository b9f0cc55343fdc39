"""Files that are damaged, contradict the specification, or reach for other files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx import TensorProto, helper
from onnx_files import info, network, node
from singa import tensor
from singa.onnx import InvalidModelError, UnsupportedError
from singa.onnx.specification import inferred


def _external(folder: Path, location: str, size: int = 4, **entries: str) -> Path:
    """A model whose weight w (size) lies in a file at `location`."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=value)
    model = network([node("Add", "x w", "y")], [info("x", [size])], [info("y", [size])])
    model.graph.initializer.append(weight)
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of data, beside a secret."""
    inside = tmp_path / "model"
    inside.mkdir()
    np.arange(8, dtype=np.float32).tofile(inside / "data.bin")
    np.arange(8, dtype=np.float32).tofile(tmp_path / "secret.bin")
    return inside


def test_external_data_is_read(folder: Path) -> None:
    net = singa.onnx.load(_external(folder, "data.bin", offset="8", length="16"))
    np.testing.assert_array_equal(net.get_params()["w"].numpy(), [2, 3, 4, 5])
    (folder / "deeper").mkdir()
    (folder / "data.bin").rename(folder / "deeper" / "data.bin")
    for location in ("deeper/data.bin", "./deeper/data.bin", "deeper/.//data.bin"):
        net = singa.onnx.load(_external(folder, location))
        np.testing.assert_array_equal(net.get_params()["w"].numpy(), [0, 1, 2, 3])


@pytest.mark.parametrize("where", ["a node", "a branch", "a branch's initializer", "a function"])
def test_external_data_of_nodes(folder: Path, where: str) -> None:
    """As onnx writes it with convert_attribute=True. It stays in the folder, too."""

    def model(location: str) -> Path:
        path = _external(folder, location)
        made = onnx.load(path, load_external_data=False)
        constant = helper.make_node("Constant", [], ["w"], value=made.graph.initializer.pop())
        add = made.graph.node.pop()
        if where == "a node":
            made.graph.node.extend([constant, add])
        elif where == "a function":
            opset, mine = helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)
            function = helper.make_function("mine", "F", ["x"], ["y"], [constant, add], [opset])
            made.functions.append(function)
            made.opset_import.append(mine)
            made.graph.node.append(helper.make_node("F", ["x"], ["y"], domain="mine"))
        else:
            outputs = [info("y", [4])]
            inside = [constant.attribute[0].t] if "initializer" in where else []
            nodes = [add] if inside else [constant, add]
            branch = helper.make_graph(nodes, "inner", [], outputs, inside)
            other = helper.make_graph([node("Neg", "x", "z")], "inner", [], [info("z", [4])])
            made.graph.input.append(info("c", [], "bool"))
            made.graph.node.append(node("If", "c", "y", then_branch=branch, else_branch=other))
        path.write_bytes(made.SerializeToString())
        return path

    net = singa.onnx.load(model("data.bin"))
    given = [tensor.from_numpy(np.ones(4, np.float32)), tensor.from_numpy(np.array(True))]
    y = net(*given[: len(net.input_names)])
    np.testing.assert_array_equal(y.numpy(), [1, 2, 3, 4])
    with pytest.raises(InvalidModelError, match="must be a file inside the model's folder"):
        singa.onnx.load(model("../secret.bin"))


def test_a_relative_path_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of "net.onnx" is the current one, not an empty name."""
    _external(folder, "data.bin")
    monkeypatch.chdir(folder)
    assert singa.onnx.load("net.onnx").get_params()["w"].shape == (4,)


@pytest.mark.parametrize(
    "location",
    [
        *("../secret.bin", "/etc/passwd", "", ".", "./", "a/../../secret.bin", "./../secret.bin"),
        *("//data.bin", "..\\secret.bin", "data.bin\0", "data.bin/", "data.bin/.", "missing.bin"),
    ],
)
def test_external_data_stays_in_the_folder(folder: Path, location: str) -> None:
    with pytest.raises(InvalidModelError, match="tensor 'w'"):
        singa.onnx.load(_external(folder, location))


def test_symbolic_links(folder: Path) -> None:
    """A link, of the file or of a folder on the way, needs the caller's word."""
    (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    (folder / "out").symlink_to(folder.parent)
    for location in ("link.bin", "out/secret.bin"):
        path = _external(folder, location)
        with pytest.raises(InvalidModelError, match="allow_symlinks=True"):
            singa.onnx.load(path)
        net = singa.onnx.load(path, allow_symlinks=True)
        np.testing.assert_array_equal(net.get_params()["w"].numpy(), [0, 1, 2, 3])


def test_what_is_no_file(folder: Path) -> None:
    (folder / "deeper").mkdir()
    os.mkfifo(folder / "pipe")
    for location in ("deeper", "pipe"):
        with pytest.raises(InvalidModelError, match="tensor 'w'"):
            singa.onnx.load(_external(folder, location))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "20"},
        {"offset": "-1"},
        {"length": "12"},
        {"length": "99"},
        {"offset": "1e3"},
        {"offset": "9" * 30},
        {"offset": "4294967296"},
    ],
)
def test_offset_and_length(folder: Path, entries: dict[str, str]) -> None:
    """Bytes outside the file, and a length that does not fit the shape."""
    with pytest.raises(InvalidModelError, match="tensor 'w'"):
        singa.onnx.load(_external(folder, "data.bin", **entries))


def test_external_data_without_a_folder(folder: Path) -> None:
    """Bytes of a model do not say where its data lie."""
    data = _external(folder, "data.bin").read_bytes()
    with pytest.raises(InvalidModelError, match="must be loaded from its file"):
        singa.onnx.load(data)


def _model() -> Any:
    return network(
        [node("Add", "x w", "a"), node("Relu", "a", "y")],
        [info("x", [4])],
        [info("y", [4])],
        {"w": np.arange(4, dtype=np.float32)},
    )


def _cycle(model: Any) -> None:
    model.graph.node[0].input[0] = "y"


def _missing(model: Any) -> None:
    model.graph.node[0].input[1] = "nowhere"


def _twice(model: Any) -> None:
    model.graph.node[1].output[0] = "a"


def _short(model: Any) -> None:
    model.graph.initializer[0].raw_data = b"\0" * 15


def _huge(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def _negative(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [-4]


def _wrong_type(model: Any) -> None:
    model.graph.initializer[0].data_type = TensorProto.INT64
    model.graph.initializer[0].raw_data = b"\0" * 32


def _no_opset(model: Any) -> None:
    del model.opset_import[:]


def _future(model: Any) -> None:
    model.opset_import[0].version = 999


def _unknown(model: Any) -> None:
    model.graph.node[1].op_type = "Nonsense"


def _bad_attribute(model: Any) -> None:
    model.graph.node[1].attribute.append(helper.make_attribute("alpha", 1.0))


def _same_names(model: Any) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _no_output(model: Any) -> None:
    model.graph.output[0].name = "nowhere"


@pytest.mark.parametrize(
    "change",
    [
        *(_cycle, _missing, _twice, _short, _huge, _negative, _wrong_type, _no_opset, _future),
        *(_unknown, _bad_attribute, _same_names, _no_output),
    ],
)
def test_contradictions(change: Callable[[Any], None]) -> None:
    model = _model()
    change(model)
    with pytest.raises((InvalidModelError, UnsupportedError)):
        singa.onnx.load(model.SerializeToString())


def test_truncated_and_foreign_files(tmp_path: Path) -> None:
    data = _model().SerializeToString()
    for length in range(len(data)):
        with pytest.raises((InvalidModelError, UnsupportedError)):
            singa.onnx.load(data[:length])
    for other in (b"", b"\x89PNG\r\n\x1a\n", b"\0" * 100, os.urandom(100)):
        with pytest.raises(InvalidModelError):
            singa.onnx.load(other)
    with pytest.raises(FileNotFoundError):
        singa.onnx.load(tmp_path / "missing.onnx")


def test_mutated_files() -> None:
    """Changed bytes give an error of the declared kinds, or a model that runs or says why not."""
    random = np.random.default_rng(0)
    data = np.frombuffer(_model().SerializeToString(), np.uint8)
    x = tensor.from_numpy(np.zeros(4, np.float32))
    for _ in range(1000):
        changed = data.copy()
        at = random.integers(0, len(data), random.integers(1, 4))
        changed[at] = random.integers(0, 256, len(at))
        try:
            net = singa.onnx.load(changed.tobytes())
            net.forward(x)
        except (ValueError, TypeError, NotImplementedError):
            pass


def test_constants_are_bounded() -> None:
    for op, value in [("ConstantOfShape", [1 << 30, 1 << 30]), ("Expand", [1 << 40])]:
        inputs = "shape" if op == "ConstantOfShape" else "one shape"
        nodes = [node(op, inputs, "c"), node("Shape", "c", "s"), node("Add", "x s", "y")]
        model = network(
            nodes,
            [info("x", [1], "int64")],
            [info("y", ["n"], "int64")],
            {"shape": np.array(value), "one": np.ones(1, np.float32)},
        )
        with pytest.raises(InvalidModelError, match="makes a constant of shape"):
            singa.onnx.load(model)


@pytest.mark.parametrize("declared", [False, True], ids=["made", "declared"])
def test_numbers_of_shapes_are_bounded(declared: bool) -> None:
    """onnx infers a dimension for each element of a vector: 2^30 of them would take all memory."""
    many = (1 << 20) + 1

    def found(length: int) -> Any:
        nodes = [
            *([] if declared else [node("ConstantOfShape", "length", "v")]),
            node("Cast", "v", "c", to=TensorProto.INT64),
            node("Shape", "x", "s"),
            node("Add", "s one", "t"),
            node("Expand", "x t", "y"),
        ]
        inputs = [info("x", [1, 1]), *([info("v", [length])] if declared else [])]
        constants = {"length": np.array([length]), "one": np.ones(1, np.int64)}
        model = inferred(network(nodes, inputs, [info("y"), info("c", kind="int64")], constants))
        return {value.name: value.type for value in (*model.graph.output, *model.graph.value_info)}

    for length, wanted in ((many - 4, [2, 2]), (many, [0, 0])):
        types = found(length)
        assert [d.dim_value for d in types["y"].tensor_type.shape.dim] == wanted
        assert [d.dim_value for d in types["c"].tensor_type.shape.dim] == [length]


def test_a_slice_that_claims_many_ends() -> None:
    """Found by the fuzzer: its inference took minutes."""
    ends = TensorProto(name="e", data_type=TensorProto.INT64, dims=[1 << 30], raw_data=b"\0" * 8)
    model = network([node("Slice", "x s e", "y")], [info("x", [4])], [info("y", ["n"])])
    model.graph.initializer.extend([helper.make_tensor("s", TensorProto.INT64, [1], [0]), ends])
    with pytest.raises(InvalidModelError):
        singa.onnx.load(model)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (node("GatherND", "x i", "y", batch_dims=-(1 << 24)), "batch_dims is -16777216"),
        (node("Split", "x", "y", num_outputs=1 << 30), "num_outputs is 1073741824"),
    ],
)
def test_attributes_that_inference_does_not_check(wrong: Any, text: str) -> None:
    """It reads outside a shape, and infers each of 2^30 pieces."""
    model = network([wrong], [info("x", [4]), info("i", [1], "int64")], [info("y")])
    with pytest.raises(InvalidModelError, match=text):
        singa.onnx.load(model)


def test_functions_that_explode() -> None:
    """Thirty functions that call each other twice each would be a billion nodes."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    functions = [helper.make_function("mine", "F0", ["a"], ["b"], [node("Neg", "a", "b")], imports)]
    for i in range(1, 30):
        calls = [
            helper.make_node(f"F{i - 1}", ["a"], ["t"], domain="mine"),
            helper.make_node(f"F{i - 1}", ["t"], ["b"], domain="mine"),
        ]
        functions.append(helper.make_function("mine", f"F{i}", ["a"], ["b"], calls, imports))
    main = helper.make_node("F29", ["x"], ["y"], domain="mine")
    inputs, outputs = [info("x", [2])], [info("y", [2])]
    model = network([main], inputs, outputs, imports=imports[1:], functions=functions)
    with pytest.raises(InvalidModelError, match="its functions make 536870912 nodes"):
        singa.onnx.load(model)
    loop = helper.make_node("F0", ["a"], ["b"], domain="mine")
    functions = [helper.make_function("mine", "F0", ["a"], ["b"], [loop], imports)]
    main = helper.make_node("F0", ["x"], ["y"], domain="mine")
    model = network([main], inputs, outputs, imports=imports[1:], functions=functions)
    with pytest.raises(InvalidModelError):
        singa.onnx.load(model)

"""Corners of operators that the test cases of the onnx package leave out."""

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from onnx_runtime import runtime_outputs
from singa import autograd, tensor
from singa.onnx.save import to_model

_RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("auto", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [[5, 6], [6, 5], [7, 7], [4, 4]])
def test_output_shape_of_a_transposed_convolution(
    torch: ModuleType, shape: list[int], auto: str
) -> None:
    """Of an odd total padding the larger half lies at the start, but for SAME_UPPER."""
    x = _RANDOM.standard_normal((1, 2, 3, 3)).astype(np.float32)
    w = _RANDOM.standard_normal((2, 1, 3, 3)).astype(np.float32)
    call = node("ConvTranspose", "x w", "y", strides=[2, 2], output_shape=shape, auto_pad=auto)
    model = network([call], [info("x", x.shape)], [info("y", [None] * 4)], {"w": w})
    y = singa.onnx.load(model)(tensor.from_numpy(x)).numpy()
    whole = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), stride=2).numpy()
    total = [n - m for n, m in zip(whole.shape[2:], shape, strict=True)]
    top, left = (n // 2 if auto == "SAME_UPPER" else n - n // 2 for n in total)
    wanted = whole[:, :, top : top + shape[0], left : left + shape[1]]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def _sliced(length: int, start: int, end: int, step: int) -> list[int]:
    """The elements that ONNX's text asks for."""
    start, end = (n + length if n < 0 else n for n in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), length), min(max(end, 0), length), step))
    last = max(length - 1, 0)
    places = range(min(max(start, 0), last), min(max(end, -1), length - 1), step)
    return list(places) if length else []


@pytest.mark.parametrize("known", [False, True])
def test_starts_and_ends_of_slices_are_clamped(known: bool) -> None:
    """Also where the step is negative, on the host and on the device."""
    starts, ends = (-9, -3, -2, -1, 0, 2, 5), (-9, -4, -1, 0, 3, 9)
    for length, step in itertools.product((0, 1, 3), (1, 2, -1, -2)):
        x = np.arange(10, 10 + length)
        nodes, wanted, tensors = [], [], {"axes": np.array([0]), "steps": np.array([step])}
        for i, (start, end) in enumerate(itertools.product(starts, ends)):
            tensors |= {f"s{i}": np.array([start]), f"e{i}": np.array([end])}
            nodes.append(node("Slice", f"x s{i} e{i} axes steps", f"y{i}"))
            wanted.append([10 + n for n in _sliced(length, start, end, step)])
        outputs = [info(f"y{i}", [None], "int64") for i in range(len(wanted))]
        inputs = [info("q", [1]) if known else info("x", [length], "int64")]
        if known:
            tensors["x"] = x
            nodes.append(node("Identity", "q", "z"))
        model = network(nodes, inputs, outputs, tensors)
        given = tensor.from_numpy(np.ones(1, np.float32))
        if not known:
            given = tensor.from_numpy(x, dtype="int64")
        found = singa.onnx.load(model)(given)
        assert [y.numpy().tolist() for y in found] == wanted, (length, step)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("call", "rows"),
    [
        (node("Add", "x z", "y"), 2),
        (node("Concat", "x z", "y", axis=0), 4),
        (node("ScatterElements", "z places x", "y", axis=0), 2),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_zeros_by_default_have_the_type_that_is_asked_for(call: Any, rows: int, dtype: str) -> None:
    """ConstantOfShape without a value makes float32."""
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "z"), call]
    places = {"places": np.array([[0, 0, 0], [1, 1, 1]])}
    model = network(nodes, [info("x", [2, 3])], [info("y", [rows, 3])], places)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = singa.onnx.load(model, dtype=dtype)(autograd.cast(tensor.from_numpy(x), dtype))
    assert y.dtype.name == dtype
    wanted = np.concatenate([x, 0 * x])[:rows]
    np.testing.assert_array_equal(autograd.cast(y, "float32").numpy(), wanted)


_PLACES = np.array([[2, 0], [1, 1]])
_TABLE = np.arange(12).reshape(3, 4)

#: Operator, attributes, inputs, and the result.
_MIXED: list[tuple[str, dict[str, Any], list[Any], Any]] = [
    (
        "OneHot",
        {},
        [np.array([0, 2]), np.array([4]), np.array([0, 1])],
        np.eye(4, dtype=int)[[0, 2]],
    ),
    ("OneHot", {}, [np.array([0, 2]), np.array(4), np.array([0, 1])], np.eye(4, dtype=int)[[0, 2]]),
    ("CumSum", {}, [_TABLE, np.array([1])], _TABLE.cumsum(1)),
    ("CumSum", {"reverse": 1}, [_TABLE, np.array(-2)], _TABLE[::-1].cumsum(0)[::-1]),
    ("GatherElements", {"axis": 0}, [_TABLE, _PLACES], [[8, 1], [4, 5]]),
    ("GatherElements", {"axis": -1}, [_TABLE, _PLACES - 4], [[2, 0], [5, 5]]),
    ("Trilu", {"upper": 0}, [_TABLE, np.array([1])], np.tril(_TABLE, 1)),
    ("Unique", {"sorted": 0}, [np.array([7, 3, 7, 5])], [7, 3, 5]),
    ("Unique", {"sorted": 1}, [np.array([7, 3, 7, 5])], [3, 5, 7]),
]


@pytest.mark.parametrize(
    ("op", "attributes", "arrays", "wanted"),
    _MIXED,
    ids=[f"{m[0]}{i}" for i, m in enumerate(_MIXED)],
)
def test_constants_and_inputs_give_the_same(
    op: str, attributes: dict[str, Any], arrays: list[Any], wanted: Any
) -> None:
    """Each input as a constant and as an input of the network: the host and the device compute."""
    names = [f"i{i}" for i in range(len(arrays))]
    by_name = dict(zip(names, arrays, strict=True))
    for mask in itertools.product((False, True), repeat=len(arrays)):
        known = {n: a for (n, a), m in zip(by_name.items(), mask, strict=True) if m}
        given = {n: a for n, a in by_name.items() if n not in known}
        model = network(
            [node(op, " ".join(names), "y", **attributes), node("Identity", "q", "z")],
            [*(info(n, a.shape, "int64") for n, a in given.items()), info("q", [1])],
            [info("y", [None] * np.ndim(wanted), "int64"), info("z", [1])],
            known,
        )
        inputs = [tensor.from_numpy(a, dtype="int64") for a in given.values()]
        inputs.append(tensor.from_numpy(np.ones(1, np.float32)))
        y, _ = singa.onnx.load(model)(*inputs)
        np.testing.assert_array_equal(y.numpy(), wanted, err_msg=f"{op} {mask}")


def test_all_results_of_unique_in_the_order_of_the_input() -> None:
    """Values, the first place of each, the number of each element's value, and counts."""
    call = node("Unique", "x", "y first inverse counts", sorted=0)
    outputs = [info(n, [None], "int64") for n in ("y", "first", "inverse", "counts")]
    net = singa.onnx.load(network([call], [info("x", [4], "int64")], outputs))
    found = net(tensor.from_numpy(np.array([7, 3, 7, 5]), dtype="int64"))
    assert [y.numpy().tolist() for y in found] == [[7, 3, 5], [0, 1, 3], [0, 1, 0, 2], [2, 1, 1]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_window_in_another_type(dtype: str) -> None:
    """Its definition has cosines of constants, in a version without bfloat16."""
    nodes = [node("HannWindow", "n", "w"), node("Mul", "w x", "y")]
    model = network(nodes, [info("x", [5])], [info("y", [5])], {"n": np.array(5)}, opset=17)
    x = autograd.cast(tensor.from_numpy(np.ones(5, np.float32)), dtype)
    y = singa.onnx.load(model, dtype=dtype)(x)
    assert y.dtype.name == dtype
    wanted = np.sin(np.pi * np.arange(5) / 5) ** 2
    bound = {"bfloat16": 3e-2, "float16": 2e-3, "float64": 1e-6}[dtype]
    np.testing.assert_allclose(autograd.cast(y, "float32").numpy(), wanted, atol=bound)


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
@pytest.mark.parametrize("use_graph", [False, True])
def test_unsigned_inputs(kind: str, use_graph: bool) -> None:
    """singa has no tensors of them: they come as arrays, or in tensors of int32 and int64, and the
    file that singa writes has their type."""
    nodes = [node("Cast", "x", "i", to=7), node("Gather", "w i", "y")]
    w = _RANDOM.standard_normal((9, 2)).astype(np.float32)
    model = network(nodes, [info("x", ["n"], kind)], [info("y", ["n", 2])], {"w": w})
    net = singa.onnx.load(model)
    net.compile([np.zeros(2, kind)], is_train=False, use_graph=use_graph)
    for indices in ([3, 1], [8, 0], [2, 2]):
        for x in (np.array(indices, kind), tensor.from_numpy(np.array(indices), dtype="int64")):
            np.testing.assert_array_equal(net(x).numpy(), w[indices])
    with pytest.raises(ValueError, match=f"input 'x' has type {kind}, got -1 to 2"):
        net(np.array([-1, 2]))
    proto = to_model(net, [np.array([1, 2], kind)])
    (y,) = runtime_outputs(proto, [np.array([5], kind)])
    np.testing.assert_array_equal(y, w[[5]])
    np.testing.assert_array_equal(singa.onnx.load(proto)(np.array([5], kind)).numpy(), w[[5]])

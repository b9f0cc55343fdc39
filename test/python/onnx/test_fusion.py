"""Nodes that are computed together: the same numbers, and only where they are the same."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_files import info, network, node
from singa import autograd, tensor

_RANDOM = np.random.default_rng(0)
B, H, N, M, D, E = 2, 3, 4, 5, 6, 7
Q, K, V = (_RANDOM.standard_normal(s) for s in ((B, H, N, D), (B, H, M, D), (B, H, M, E)))
BOOLS = _RANDOM.random((N, M)) < 0.6
BOOLS[:, 1] = True
CAUSAL = np.arange(M) <= np.arange(N)[:, None] + 1


def _attention(
    masks: Sequence[tuple[str, str]] = (),
    weights: dict[str, Any] | None = None,
    scale: Any = "q",
    guard: bool = False,
    kind: str = "float64",
    inputs: Sequence[Any] = (),
    axis: int = -1,
) -> Any:
    """A ModelProto. masks are (operator, name); scale lies on "q", on "both", on the product, or
    divides "q"."""
    limits = {
        "inf": -np.inf, "least": np.finfo(kind).min, "zero": 0.0,
        "scale": D**-0.5, "root": D**-0.25, "divisor": D**0.5,
    }  # fmt: skip
    constants = {name: np.array(value, kind) for name, value in limits.items()}
    nodes = [node("Transpose", "k", "t", perm=[0, 1, 3, 2])]
    if scale == "both":
        nodes += [node("Mul", "q root", "qs"), node("Mul", "root t", "ts")]
        nodes += [node("MatMul", "qs ts", "s0")]
    elif scale == "product":
        nodes += [node("MatMul", "q t", "p"), node("Mul", "p scale", "s0")]
    elif scale == "divided":
        nodes += [node("Div", "q divisor", "qs"), node("MatMul", "qs t", "s0")]
    elif scale is None:
        nodes += [node("MatMul", "q t", "s0")]
    else:
        nodes += [node("Mul", "q scale", "qs"), node("MatMul", "qs t", "s0")]
    last = "s0"
    for i, (op, name) in enumerate(masks, 1):
        given = f"{name} {last} inf" if op == "Where" else f"{last} {name}"
        nodes.append(node(op, given, f"s{i}"))
        last = f"s{i}"
    if guard:
        nodes += [node("Less", f"{last} least", "hidden")]
        nodes += [node("Where", f"hidden least {last}", "seen")]
        last = "seen"
    nodes.append(node("Softmax", last, "w", axis=axis))
    if guard:
        nodes.append(node("Where", "hidden zero w", "w2"))
    nodes.append(node("MatMul", "w2 v" if guard else "w v", "y"))
    shapes = [info(name, ["b", "h", "n", "d"], kind) for name in "qkv"]
    stored = {name: a if a.dtype == bool else a.astype(kind) for name, a in (weights or {}).items()}
    outputs = [info("y", [None] * 4, kind)]
    return network(nodes, [*shapes, *inputs], outputs, {**constants, **stored})


def _steps(net: Any) -> list[str]:
    return [step.node.op for step in net.network().main.steps]


def _expected(masks: Sequence[Any] = (), scale: float = D**-0.5, guard: bool = False) -> Any:
    scores = scale * Q @ K.transpose(0, 1, 3, 2)
    for mask in masks:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
    if guard:
        weights = np.nan_to_num(weights)
    return weights @ V


def _run(net: Any, *more: Any, kind: str = "float64") -> Any:
    arrays = [Q, K, V, *more]
    xs = [tensor.from_numpy(a, dtype="bool" if a.dtype == bool else kind) for a in arrays]
    return net(*xs).numpy()


def _close(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("scale", ["q", "both", "divided", None])
def test_attention(scale: Any) -> None:
    """Wherever the scale lies, and without one."""
    net = singa.onnx.load(_attention(scale=scale))
    assert _steps(net) == ["Transpose", "Attention"]
    _close(_run(net), _expected(scale=D**-0.5 if scale else 1.0))


def test_a_scale_of_the_product_stays() -> None:
    """Its bits would differ."""
    net = singa.onnx.load(_attention(scale="product"))
    assert "Attention" not in _steps(net)
    _close(_run(net), _expected())


_ADDED = np.where(BOOLS, _RANDOM.standard_normal((N, M)), -np.inf)
_MASKS: dict[str, tuple[list[tuple[str, str]], dict[str, Any]]] = {
    "bool": ([("Where", "m")], {"m": BOOLS}),
    "causal": ([("Where", "m")], {"m": CAUSAL}),
    "added": ([("Add", "m")], {"m": _ADDED}),
    "added, causal": ([("Add", "m")], {"m": np.where(CAUSAL, 0.0, -np.inf)}),
    "of keys": ([("Where", "m")], {"m": BOOLS.all(0)}),
    "of heads": ([("Add", "m")], {"m": np.where(_RANDOM.random((H, N, 1)) < 0.5, 0.25, 1.5)}),
}


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("name", _MASKS)
def test_masks(name: str, guard: bool) -> None:
    """Constant masks, with or without the nodes that make zeros of queries without keys."""
    masks, values = _MASKS[name]
    # A file's float tensors are parameters unless they have an infinity.
    if name == "of heads":
        values = {"m": np.concatenate([values["m"], np.full((H, N, M - 1), -np.inf)], -1)}
    net = singa.onnx.load(_attention(masks, values, guard=guard))
    assert _steps(net) == ["Transpose", "Attention"]
    _close(_run(net), _expected(list(values.values()), guard=guard))


def test_two_masks() -> None:
    """A causal mask and another one are one attention where queries without keys give zeros."""
    masks = [("Where", "m"), ("Where", "c")]
    few = BOOLS.copy()
    few[0] = False
    few[0, M - 1] = True  # which the causal mask excludes
    wanted = _expected([few, CAUSAL], guard=True)
    assert not wanted[:, :, 0].any()
    values = {"m": few, "c": CAUSAL}
    net = singa.onnx.load(_attention(masks, values, guard=True))
    assert _steps(net) == ["Transpose", "Attention"]
    _close(_run(net), wanted)
    _close(_run(singa.onnx.load(_attention(masks, values))), _expected([few, CAUSAL]))  # with NaN


@pytest.mark.parametrize("op", ["Where", "Add"])
def test_a_query_without_keys_stays_nan(op: str) -> None:
    """Where the file does not say otherwise."""
    few = BOOLS.copy()
    few[2] = False
    mask = few if op == "Where" else np.where(few, 0.0, -np.inf)
    net = singa.onnx.load(_attention([(op, "m")], {"m": mask}))
    found = _run(net)
    assert np.isnan(found[:, :, 2]).all()
    _close(found, _expected([few]))
    net = singa.onnx.load(_attention([(op, "m")], {"m": mask}, guard=True))
    _close(_run(net), _expected([few], guard=True))


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("op", ["Where", "Add"])
def test_masks_that_are_inputs(op: str, guard: bool) -> None:
    """Their elements are not known, so without the guard they might hide all keys of a query."""
    given = info("m", ["n", "m"], "bool" if op == "Where" else "float64")
    net = singa.onnx.load(_attention([(op, "m")], guard=guard, inputs=[given]))
    mask = BOOLS if op == "Where" else _ADDED
    _close(_run(net, mask), _expected([mask], guard=guard))
    hidden = np.zeros_like(BOOLS) if op == "Where" else np.full((N, M), -np.inf)
    found = _run(net, hidden)
    assert np.isnan(found).all() if not guard else not found.any()


@pytest.mark.parametrize("guard", [False, True])
def test_a_learned_bias_has_a_gradient(guard: bool) -> None:
    """It might hide all keys, so without the guard the nodes stay apart."""
    bias = _RANDOM.standard_normal((H, N, M))
    net = singa.onnx.load(_attention([("Add", "bias")], {"bias": bias}, guard=guard))
    assert ("Attention" in _steps(net)) == guard
    _close(_run(net), _expected([bias]))
    xs = [tensor.from_numpy(a, dtype="float64") for a in (Q, K, V)]

    def of_bias(b: Any) -> Any:
        (y,) = net.network().run(dict(zip("qkv", xs, strict=True)), {"bias": b}, ["y"])
        return y

    assert autograd.gradcheck(of_bias, tensor.from_numpy(bias, dtype="float64"))


def test_what_is_not_attention() -> None:
    """Another axis of the softmax, scores that are read elsewhere, three axes."""
    assert "Attention" not in _steps(singa.onnx.load(_attention(axis=2)))
    model = _attention()
    model.graph.output.append(info("s0", [None] * 4, "float64"))
    assert "Attention" not in _steps(singa.onnx.load(model))
    nodes = [
        node("Transpose", "k", "t", perm=[0, 2, 1]),
        node("MatMul", "q t", "s"),
        node("Softmax", "s", "w"),
        node("MatMul", "w v", "y"),
    ]
    shapes = [info(name, ["h", "n", "d"], "float64") for name in "qkv"]
    net = singa.onnx.load(network(nodes, shapes, [info("y", [None] * 3, "float64")]))
    xs = [tensor.from_numpy(a[0], dtype="float64") for a in (Q, K, V)]
    _close(net(*xs).numpy(), _expected(scale=1.0)[0])


def test_other_lengths_and_gradients() -> None:
    """Calls with other lengths, and gradients against finite differences."""
    net = singa.onnx.load(_attention([("Where", "m")], {"m": CAUSAL}))
    inputs = [tensor.from_numpy(a[:1, :1], dtype="float64") for a in (Q, K, V)]
    assert autograd.gradcheck(net.forward, inputs)
    net = singa.onnx.load(_attention())
    short = [tensor.from_numpy(a[:, :, :2], dtype="float64") for a in (Q, K, V)]
    assert net(*short).shape == (B, H, 2, E)
    _close(_run(net), _expected())


def _channel_norm(bias: bool, rank: int = 4, perm: Sequence[int] | None = None) -> Any:
    order = [0, *range(2, rank), 1]
    back = [0, rank - 1, *range(1, rank - 1)] if perm is None else list(perm)
    weights = {"w": _RANDOM.standard_normal(6), "b": _RANDOM.standard_normal(6)}
    if not bias:
        del weights["b"]
    nodes = [
        node("Transpose", "x", "a", perm=order),
        node("LayerNormalization", "a w b" if bias else "a w", "n", epsilon=1e-3),
        node("Transpose", "n", "y", perm=back),
    ]
    shape = ["n", 6, *"hwd"[: rank - 2]]
    outputs = [info("y", [None] * rank, "float64")]
    return network(nodes, [info("x", shape, "float64")], outputs, weights), weights


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_layer_norm_over_channels(bias: bool, rank: int) -> None:
    """Between two transpositions, as ConvNeXt has it."""
    model, weights = _channel_norm(bias, rank)
    net = singa.onnx.load(model)
    assert _steps(net) == ["Transpose+LayerNormalization+Transpose"]
    x = _RANDOM.standard_normal((2, 6, *(3, 4, 5)[: rank - 2]))
    wide = (1, 6, *(1,) * (rank - 2))
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    wanted = wanted * weights["w"].reshape(wide)
    if bias:
        wanted = wanted + weights["b"].reshape(wide)
    given = tensor.from_numpy(x, dtype="float64")
    _close(net(given).numpy(), wanted)
    if rank == 4:
        net.freeze()
        assert autograd.gradcheck(net.forward, given)


def test_other_transpositions_stay() -> None:
    model, _ = _channel_norm(True, 4, perm=[0, 3, 2, 1])
    net = singa.onnx.load(model)
    assert _steps(net) == ["Transpose", "LayerNormalization", "Transpose"]
    assert net(tensor.Tensor((2, 6, 3, 4), dtype=tensor.float64)).shape == (2, 6, 4, 3)


_IMAGES = _RANDOM.standard_normal((2, 3, 4, 5))
_AFFINE = {name: _RANDOM.uniform(0.5, 1.5, 3) for name in ("scale", "bias", "mean", "var")}


def _shuffles(*steps: tuple[Sequence[int], Sequence[int]], last: Sequence[int]) -> Any:
    """Reshape, Transpose, Reshape, Transpose, ..., and Reshape to `last`."""
    nodes, shapes, name = [], {}, "x"
    for i, (shape, perm) in enumerate(steps):
        shapes[f"s{i}"] = np.array(shape, np.int64)
        nodes.append(node("Reshape", f"{name} s{i}", f"r{i}"))
        nodes.append(node("Transpose", f"r{i}", f"t{i}", perm=list(perm)))
        name = f"t{i}"
    shapes["last"] = np.array(last, np.int64)
    nodes.append(node("Reshape", f"{name} last", "y"))
    outputs = [info("y", [None] * len(last), "float64")]
    return network(nodes, [info("x", ["n", 12, 2, 3], "float64")], outputs, shapes)


_SWAP = [0, 2, 1, 3, 4]
_SHUFFLES: dict[str, tuple[Any, Any, int]] = {
    "a shuffle": ([([-1, 3, 4, 2, 3], _SWAP)], [-1, 12, 2, 3], 1),
    "pixels as one axis": ([([0, 3, 4, 6], _SWAP[:4])], [0, 12, 2, 3], 1),
    "another shape at the end": ([([-1, 3, 4, 2, 3], _SWAP)], [-1, 4, 3, 6], 1),
    "rows among the groups": ([([-1, 3, 8, 3], _SWAP[:4])], [-1, 12, 2, 3], 1),
    "another permutation": ([([-1, 3, 4, 2, 3], [0, 1, 2, 4, 3])], [-1, 12, 2, 3], 3),
    "two that meet in one Reshape": (
        [([2, 3, 4, 6], _SWAP[:4]), ([2, 2, 6, 6], _SWAP[:4])],
        [2, 12, 2, 3],
        3,
    ),
}


@pytest.mark.parametrize("name", _SHUFFLES)
def test_channel_shuffles(name: str) -> None:
    steps, last, count = _SHUFFLES[name]
    net = singa.onnx.load(_shuffles(*steps, last=last))
    assert len(_steps(net)) == count
    x = _RANDOM.standard_normal((2, 12, 2, 3))
    wanted = x
    for shape, perm in steps:
        wanted = wanted.reshape([n or 2 for n in shape]).transpose(perm)
    given = tensor.from_numpy(x, dtype="float64")
    np.testing.assert_array_equal(net(given).numpy(), wanted.reshape([n or 2 for n in last]))
    assert autograd.gradcheck(net.forward, given)


def test_a_shape_is_no_image_to_shuffle() -> None:
    """The host computes it, so that steps are recorded."""
    nodes = [
        node("Shape", "x", "s"),
        node("Reshape", "s apart", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1]),
        node("Reshape", "t together", "wanted"),
        node("Reshape", "x wanted", "y"),
    ]
    shapes = {"apart": np.array([1, 2, 2]), "together": np.array([4])}
    inputs = [info("x", [2, 12, 2, 3], "float64")]
    net = singa.onnx.load(network(nodes, inputs, [info("y", [None] * 4, "float64")], shapes))
    assert _steps(net).count("Reshape") != 1
    assert net(tensor.Tensor((2, 12, 2, 3), dtype=tensor.float64)).shape == (2, 2, 12, 3)


def _normalised() -> Any:
    column = {name: a[:, None, None] for name, a in _AFFINE.items()}
    deviation = (_IMAGES - column["mean"]) / np.sqrt(column["var"] + 1e-5)
    return 3 * (deviation * column["scale"] + column["bias"])


@pytest.mark.parametrize(
    ("nodes", "function"),
    [
        ([("Relu", "n", {})], lambda v: np.maximum(v, 0)),
        ([("Clip", "n zero six", {})], lambda v: np.clip(v, 0, 6)),
        ([("HardSwish", "n", {})], lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
        (
            [("HardSigmoid", "n", {"alpha": 1 / 6}), ("Mul", "n a0", {})],
            lambda v: v * np.clip(v / 6 + 0.5, 0, 1),
        ),
        ([("Sigmoid", "n", {}), ("Mul", "a0 n", {})], lambda v: v / (1 + np.exp(-v))),
    ],
    ids=["relu", "relu6", "HardSwish", "hardswish of two", "silu"],
)
@pytest.mark.parametrize("read_twice", [False, True])
def test_an_activation_behind_batch_norm(nodes: Any, function: Any, read_twice: bool) -> None:
    """One step, unless something else reads the normalised values."""
    made = [node("BatchNormalization", "x scale bias mean var", "n")]
    for i, (op, inputs, attributes) in enumerate(nodes):
        name = "y" if i + 1 == len(nodes) else f"a{i}"
        made.append(node(op, inputs, name, **attributes))
    outputs = [info("y", [None] * 4, "float64")]
    if read_twice:
        outputs.append(info("n", [None] * 4, "float64"))
    constants = {"zero": np.array(0.0), "six": np.array(6.0)}
    affine = {**_AFFINE, "scale": 3 * _AFFINE["scale"], "bias": 3 * _AFFINE["bias"]}
    x = info("x", ["b", 3, "h", "w"], "float64")
    net = singa.onnx.load(network(made, [x], outputs, {**constants, **affine}))
    whole, behind = ("+".join(each.op_type for each in made[i:]) for i in (0, 1))
    assert _steps(net) == (["BatchNormalization", behind] if read_twice else [whole])
    found = net(tensor.from_numpy(_IMAGES, dtype="float64"))
    y = found[0] if read_twice else found
    _close(y.numpy(), function(_normalised()))


def test_other_limits_stay_apart() -> None:
    made = [
        node("BatchNormalization", "x scale bias mean var", "n"),
        node("Clip", "n zero six", "y"),
    ]
    constants = {"zero": np.array(0.0), "six": np.array(7.0)}
    x, y = info("x", ["b", 3, "h", "w"], "float64"), info("y", [None] * 4, "float64")
    net = singa.onnx.load(network(made, [x], [y], {**constants, **_AFFINE}))
    assert _steps(net) == ["BatchNormalization", "Clip"]


def test_weights_with_several_names() -> None:
    """Identity of parameters, as PyTorch's exporter writes for equal ones, stands in no one's way;
    its values can be asked for. The head is found behind it, too."""
    nodes = [
        node("Identity", "b", "c"),
        node("Identity", "c", "d"),
        node("MatMul", "x w", "m"),
        node("Add", "c m", "h"),
        node("Identity", "h", "i"),
        node("Identity", "w", "v"),
        node("Gemm", "i v d", "y"),
    ]
    weights = {"w": _RANDOM.standard_normal((4, 4)), "b": _RANDOM.standard_normal(4)}
    ends = info("x", ["n", 4], "float64"), info("y", ["n", None], "float64")
    net = singa.onnx.load(network(nodes, ends[:1], ends[1:], weights))
    assert _steps(net) == ["MatMul+Add", "Gemm"]
    x = _RANDOM.standard_normal((3, 4))
    given = tensor.from_numpy(x, dtype="float64")
    hidden = x @ weights["w"] + weights["b"]
    found = net.values([given], ["y", "i", "d"])
    wanted = hidden @ weights["w"] + weights["b"], hidden, weights["b"]
    for y, array in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y.numpy(), array, rtol=1e-13)
    np.testing.assert_allclose(net(given).numpy(), wanted[0], rtol=1e-13)
    alone = [*nodes[:2], nodes[2], node("Add", "m d", "y")]
    net = singa.onnx.load(network(alone, ends[:1], ends[1:], weights))
    assert net.replace_head(7) == ("w", "b")
    assert net(given).shape == (3, 7)


def test_a_sum_along_another_axis_stays() -> None:
    """Old versions name the axis of the second operand."""
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y", broadcast=1, axis=0)]
    weights = {"w": _RANDOM.standard_normal((4, 4)), "b": _RANDOM.standard_normal(4)}
    ends = info("x", [4, 4], "float64"), info("y", [4, 4], "float64")
    net = singa.onnx.load(network(nodes, ends[:1], ends[1:], weights, opset=6))
    x = _RANDOM.standard_normal((4, 4))
    found = net(tensor.from_numpy(x, dtype="float64")).numpy()
    np.testing.assert_allclose(found, x @ weights["w"] + weights["b"][:, None], rtol=1e-13)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_numbers_with_axes_add_them_to_the_result(shape: tuple[int, ...]) -> None:
    """Gelu of a single number, which the nodes make a tensor of the axes of their constants."""
    nodes = [
        *(node("Div", "x root", "d"), node("Erf", "d", "e"), node("Add", "e one", "a")),
        *(node("Mul", "x a", "m"), node("Mul", "m half", "y")),
    ]
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    constants = {name: np.full(shape, value) for name, value in numbers.items()}
    ends = info("x", [], "float64"), info("y", shape, "float64")
    net = singa.onnx.load(network(nodes, ends[:1], ends[1:], constants))
    y = net(tensor.from_numpy(np.array(1.0), dtype="float64")).numpy()
    assert y.shape == shape
    np.testing.assert_allclose(y, 0.8413447460685429, rtol=1e-12)


def test_integers_that_the_host_multiplies_stay() -> None:
    nodes = [node("MatMul", "a b", "m"), node("Add", "m c", "y")]
    inputs = [info("a", ["n", 4], "int32"), info("b", [4, 4], "int32"), info("c", [4], "int32")]
    net = singa.onnx.load(network(nodes, inputs, [info("y", ["n", 4], "int32")]))
    a, b, c = (_RANDOM.integers(-(2**12), 2**12, s, np.int32) for s in ((3, 4), (4, 4), (4,)))
    found = net(*(tensor.from_numpy(x, dtype="int32") for x in (a, b, c))).numpy()
    np.testing.assert_array_equal(found, a @ b + c)

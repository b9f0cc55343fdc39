"""Classical models, ai.onnx.ml, which onnx's reference evaluator computes on the host.

The files in `classical` are compared with the library that made them, and a grid of single nodes
with ONNX Runtime.
"""

import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed")
import onnx_nodes
import singa.onnx
from onnx_files import info, network, node
from singa import __main__ as command_line
from singa import autograd, sonnx, tensor

pytestmark = pytest.mark.cpu("the host computes")

_FOLDER = Path(__file__).with_name("classical")
_NAMES = sorted(path.stem for path in _FOLDER.glob("*.onnx"))


def test_there_are_files_of_two_libraries() -> None:
    """At least 20."""
    assert len(_NAMES) >= 20
    assert sum(name.startswith("light_") for name in _NAMES) == 3


@pytest.mark.parametrize("name", _NAMES)
def test_a_file_gives_what_its_library_computes(name: str) -> None:
    """Labels are equal, numbers of float32 nearly."""
    path = _FOLDER / f"{name}.onnx"
    arrays = dict(np.load(path.with_suffix(".npz")))
    net = singa.onnx.load(path)
    inputs = [arrays.pop(each) for each in net.input_names]
    found = net.values(
        [x.astype(object) if x.dtype.kind == "U" else tensor.from_numpy(x) for x in inputs],
        net.output_names,
    )
    assert len(found) == len(arrays)
    for y, wanted in zip(found, arrays.values(), strict=True):
        if isinstance(y, list):  # of ZipMap: a dict for each row
            y = np.array([list(row.values()) for row in y])
        y = y if isinstance(y, np.ndarray) else y.numpy()
        if wanted.dtype.kind == "U":
            assert y.tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(y.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)


# A grid of nodes.

_RANDOM = np.random.default_rng(0)
_FLOATS = _RANDOM.standard_normal((6, 4)).astype(np.float32)
_WITH_NAN = np.where(np.arange(24).reshape(6, 4) % 7, _FLOATS, np.nan).astype(np.float32)
_INTEGERS = _RANDOM.integers(0, 4, (6, 4))
_TEXTS = np.array(["a", "b", "c"], object)
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_CLASSES: list[list[Any]] = [[0, 1], [3, 7, 9], ["a", "b"], ["a", "b", "c"], [1]]

#: Operator, inputs, number of outputs, attributes.
Call = tuple[str, list[Any], int, dict[str, Any]]


def _numbers(count: int, seed: int = 1) -> list[float]:
    return np.random.default_rng(seed).standard_normal(count).tolist()


def _simple() -> Iterator[Call]:
    for x in (_FLOATS, _FLOATS.astype(np.float64), _INTEGERS, _INTEGERS.astype(np.int32)):
        for places in (np.array([0, 2]), np.array([[0, 2]])):
            yield "ArrayFeatureExtractor", [x, places], 1, {}
        yield "Binarizer", [x], 1, {"threshold": 0.5}
        yield "Scaler", [x], 1, {"offset": [0.5, 1, 2, 3], "scale": [2.0, 1, 0.1, 3]}
        yield "Scaler", [x], 1, {"offset": [0.5], "scale": [2.0]}
        for norm in ("MAX", "L1", "L2"):
            yield "Normalizer", [x], 1, {"norm": norm}
        yield "FeatureVectorizer", [x, x], 1, {"inputdimensions": [4, 2]}
    yield "Imputer", [_WITH_NAN], 1, {"imputed_value_floats": [1.0, 2, 3, 4]} | _REPLACED
    yield "Imputer", [_INTEGERS], 1, {"imputed_value_int64s": [1], "replaced_value_int64": 2}
    kinds = {"strings": (_TEXTS, ["a", "b"]), "int64s": (np.array([1, 2, 3]), [1, 2])}
    kinds["floats"] = (np.array([1, np.nan, 3], np.float32), [1.0, float("nan")])
    for (source, (x, keys)), target in itertools.product(kinds.items(), kinds):
        values = {"strings": ["q", "w"], "int64s": [5, 6], "floats": [0.5, 1.5]}[target]
        yield "LabelEncoder", [x], 1, {f"keys_{source}": keys, f"values_{target}": values}
    for x in (np.array([1, 2, 9]), np.array([[1], [2]])):
        yield "OneHotEncoder", [x], 1, {"cats_int64s": [1, 2, 3]}
    for zeros in (0, 1):
        yield "OneHotEncoder", [_TEXTS], 1, {"cats_strings": ["a", "b"], "zeros": zeros}


_REPLACED = {"replaced_value_float": float("nan")}


def _linear() -> Iterator[Call]:
    for x, transform in itertools.product((_FLOATS, _INTEGERS), _TRANSFORMS):
        then = {"post_transform": transform}
        yield "LinearRegressor", [x], 1, {"coefficients": _numbers(4), "targets": 1} | then
        two = {"coefficients": _numbers(8), "intercepts": [0.1, 0.2], "targets": 2}
        yield "LinearRegressor", [x], 1, two | then
        for classes, one, several in itertools.product(_CLASSES, (0, 1), (0, 1)):
            rows = 1 if one else len(classes)
            weights = {"coefficients": _numbers(4 * rows), "intercepts": _numbers(rows, 2)}
            labels = {f"classlabels_{'ints' if classes[0] != 'a' else 'strings'}": classes}
            yield "LinearClassifier", [x], 2, weights | labels | then | {"multi_class": several}


def _machines() -> Iterator[Call]:
    kinds = ("LINEAR", "POLY", "RBF", "SIGMOID")
    for kind, transform in itertools.product(kinds, _TRANSFORMS):
        shared = {"kernel_type": kind, "kernel_params": [0.5, 0.1, 3.0]}
        shared |= {"post_transform": transform, "support_vectors": _numbers(20, 3)}
        for one in (0, 1):
            numbers = {"coefficients": _numbers(5), "n_supports": 5, "rho": [0.2], "one_class": one}
            yield "SVMRegressor", [_FLOATS], 1, shared | numbers
        for classes, probable, positive in itertools.product(_CLASSES[:4], (0, 1), (0, 1)):
            count = len(classes)
            pairs = count * (count - 1) // 2
            weights = np.array(_numbers(5 * (count - 1)))
            given: dict[str, Any] = {
                "coefficients": (abs(weights) if positive else weights).tolist()
            }
            given |= {
                "rho": _numbers(pairs),
                "vectors_per_class": [2, 3] if count == 2 else [2, 2, 1],
            }
            if probable:
                given |= {"prob_a": [-0.5] * pairs, "prob_b": _numbers(pairs)}
            labels = {f"classlabels_{'ints' if classes[0] != 'a' else 'strings'}": classes}
            yield "SVMClassifier", [_FLOATS], 2, shared | given | labels


def _grown(kind: str, mode: str, scores: int, positive: bool) -> dict[str, Any]:
    """Three trees of seven nodes. Each leaf has `scores` weights, or a random one of -scores."""
    random = np.random.default_rng(0)
    nodes: dict[str, list[Any]] = {}
    for tree, i in itertools.product(range(3), range(7)):
        leaf = i >= 3
        row = {
            "treeids": tree,
            "nodeids": i,
            "featureids": 0 if leaf else int(random.integers(0, 4)),
            "modes": "LEAF" if leaf else mode,
            "values": 0.0 if leaf else random.standard_normal(),
            "truenodeids": 0 if leaf else 2 * i + 1,
            "falsenodeids": 0 if leaf else 2 * i + 2,
            "missing_value_tracks_true": int(random.integers(0, 2)),
        }
        for name, value in row.items():
            nodes.setdefault(f"nodes_{name}", []).append(value)
        targets = range(scores) if scores > 0 else [int(random.integers(0, -scores))]
        for target in targets if leaf else ():
            weight = random.uniform() if positive else random.standard_normal()
            found = {"treeids": tree, "nodeids": i, "ids": target, "weights": weight}
            for name, value in found.items():
                nodes.setdefault(f"{kind}_{name}", []).append(value)
    return nodes


def _trees() -> Iterator[Call]:
    inputs = (_FLOATS, _WITH_NAN, _FLOATS.astype(np.float64), _INTEGERS)
    for x, mode in itertools.product(inputs, ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")):
        one = _grown("target", f"BRANCH_{mode}", 1, False) | {"n_targets": 1}
        yield "TreeEnsembleRegressor", [x], 1, one
    several = itertools.product(("SUM", "AVERAGE", "MIN", "MAX"), (1, 2, -2), (0, 1), _TRANSFORMS)
    for together, scores, base, transform in several:
        given = {"aggregate_function": together, "post_transform": transform}
        given |= {"n_targets": abs(scores)} | ({"base_values": [0.5] * abs(scores)} if base else {})
        grown = _grown("target", "BRANCH_LEQ", scores, False)
        yield "TreeEnsembleRegressor", [_WITH_NAN], 1, grown | given
    for classes, transform, positive in itertools.product(_CLASSES, _TRANSFORMS, (False, True)):
        count = len(classes)
        labels = {f"classlabels_{'int64s' if classes[0] != 'a' else 'strings'}": classes}
        for scores, base in itertools.product(
            {1, count, -count}, ([], [0.5] * count, [0.5], [-0.7])
        ):
            given = {"post_transform": transform} | ({"base_values": base} if base else {})
            grown = _grown("class", "BRANCH_LEQ", scores, positive)
            yield "TreeEnsembleClassifier", [_WITH_NAN], 2, grown | given | labels


@functools.cache
def _grid() -> list[Call]:
    return [*_simple(), *_linear(), *_machines(), *_trees()]


def _outcomes(step: int) -> dict[str, int]:
    """How many calls of the grid are right, refused, or refused by ONNX Runtime."""
    found: dict[str, int] = {}
    for i, (op, arrays, outputs, attributes) in enumerate(_grid()):
        if i % step:
            continue
        call = onnx_nodes.Call(op, arrays, outputs, attributes, domain="ai.onnx.ml", version=3)
        kind, why = onnx_nodes.beside_runtime(call)
        plain = {name: value for name, value in attributes.items() if isinstance(value, str)}
        assert kind != onnx_nodes.WRONG, f"{op} {plain}: {why}"
        found[kind] = found.get(kind, 0) + 1
    return found


def test_some_nodes_give_what_onnx_runtime_gives() -> None:
    """Every seventh node of the grid."""
    found = _outcomes(7)
    assert found[onnx_nodes.RIGHT] >= 30


@pytest.mark.slow
def test_all_nodes_give_what_onnx_runtime_gives() -> None:
    """None is wrong; 250 are right."""
    found = _outcomes(1)
    assert found[onnx_nodes.RIGHT] >= 250


def test_trees_that_do_not_end_are_refused() -> None:
    """A node with itself as child, and a root that is a child."""
    for place in (1, 0):
        grown = _grown("target", "BRANCH_LEQ", 1, False) | {"n_targets": 1}
        grown["nodes_truenodeids"][1] = place
        call = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **grown)
        model = network([call], [info("x", [2, 4])], [info("y", [2, 1])], imports=_imports())
        with pytest.raises(singa.onnx.UnsupportedError, match="several parents"):
            singa.onnx.load(model)


def _imports() -> list[Any]:
    from onnx import helper

    return [helper.make_opsetid("ai.onnx.ml", 3)]


def test_training_does_not_lose_a_gradient_in_silence() -> None:
    """A scaler behind a layer cuts the gradient off, and trees have none."""
    weights = {"w": np.ones((4, 4), np.float32)}
    for op, given in (("Scaler", {"offset": [0.0], "scale": [2.0]}), ("Binarizer", {})):
        calls = [node("MatMul", "x w", "h"), node(op, "h", "y", domain="ai.onnx.ml", **given)]
        model = network(
            calls, [info("x", [2, 4])], [info("y", [2, 4])], weights, imports=_imports()
        )
        net = singa.onnx.load(model)
        x = tensor.from_numpy(_FLOATS[:2].copy())
        h = _FLOATS[:2].sum(1, keepdims=True).repeat(4, 1)
        wanted = 2 * h if op == "Scaler" else (h > 0).astype(np.float32)
        np.testing.assert_allclose(net(x).numpy(), wanted, rtol=1e-6)
        autograd.training = True
        try:
            with pytest.raises(singa.onnx.UnsupportedError, match="no gradient flows through it"):
                net.values([x], ["y"])
        finally:
            autograd.training = False


def test_another_float_type() -> None:
    """A scaler gives float32, whatever its input is; a network that was converted goes on in its
    type."""
    given = {"offset": [0.5], "scale": [2.0]}
    calls = [node("Scaler", "x", "h", domain="ai.onnx.ml", **given), node("Add", "h x", "y")]
    model = network(calls, [info("x", [6, 4])], [info("y", [6, 4])], imports=_imports())
    x = tensor.from_numpy(_FLOATS, dtype="float64")
    y = singa.onnx.load(model, dtype="float64")(x)
    assert y.dtype.name == "float64"
    np.testing.assert_allclose(y.numpy(), 3.0 * _FLOATS - 1.0, atol=1e-6)


def test_texts_in_the_names_of_singa() -> None:
    """`sonnx` takes arrays of texts, and gives them."""
    path = _FOLDER / "encoded_texts.onnx"
    arrays = np.load(path.with_suffix(".npz"))
    (y,) = sonnx.prepare(str(path)).run([arrays["t"]])
    np.testing.assert_array_equal(y.numpy(), arrays["y0"])


def test_the_command_says_what_the_host_computes(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside each operator."""
    assert command_line.main(["onnx", str(_FOLDER / "logistic_with_zip_map.onnx")]) == 0
    lines = capsys.readouterr().out.splitlines()
    marked = {line.split()[0] for line in lines if line.endswith("on the host, without a gradient")}
    assert marked == {f"ai.onnx.ml.{op}" for op in ("LinearClassifier", "ZipMap")}

"""Export of what follows from sizes and values: as nodes that compute it, or an error."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from onnx_runtime import runtime_outputs
from singa import autograd, layer, model, tensor
from singa.onnx import checking
from singa.onnx.lengths import Formula, Lengths, Source
from singa.onnx.save import to_model

Tensor = tensor.Tensor


def _tensor(array: Any) -> Tensor:
    return tensor.from_numpy(np.asarray(array), dtype=np.asarray(array).dtype.name)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return _tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class _Net(model.Model):
    """A function of tensors as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function
        self.eval()

    def forward(self, *xs: Tensor) -> Any:
        return self._function(*xs)


def _causal(x: Tensor) -> Tensor:
    n = x.shape[1]
    mask = _tensor(np.triu(np.full((n, n), -np.inf, np.float32), 1))
    scores = autograd.add(autograd.matmul(x, autograd.transpose(x, (0, 2, 1))), mask)
    return autograd.matmul(autograd.softmax(scores, -1), x)


def _window(x: Tensor) -> Tensor:
    n = x.shape[1]
    mask = _tensor(np.tril(np.ones((1, n, n)), 2) > 0)
    scores = autograd.matmul(x, autograd.transpose(x, (0, 2, 1)))
    return autograd.where(scores, autograd.mul(scores, scores), mask)


def _positions(x: Tensor) -> Tensor:
    table = _tensor(np.random.default_rng(1).standard_normal((64, 4)).astype(np.float32))
    table.requires_grad = False
    steps = _tensor(np.arange(x.shape[1]))
    return autograd.add(x, autograd.embedding(steps, table))


def _rows(x: Tensor) -> Tensor:
    return autograd.mul(x, _tensor(np.arange(x.shape[1], dtype=np.float32)[:, None]))


def _reshaped(x: Tensor) -> Tensor:
    n, s, c = x.shape
    return autograd.reshape(autograd.cat([x, x], 1), (n, c, 2 * s))


#: Networks of x (n, s, 4) with numbers, arrays and tensors that follow s.
_OF_LENGTH: dict[str, Callable[[Tensor], Any]] = {
    "last step, a list": lambda x: autograd.gather(x, 1, [x.shape[1] - 1]),
    "last step, a tensor": lambda x: autograd.gather(x, 1, _tensor(np.array([x.shape[1] - 1]))),
    "last step, a slice": lambda x: x[:, x.shape[1] - 1],
    "all but the last": lambda x: x[:, : x.shape[1] - 1],
    "reversed": lambda x: autograd.gather(x, 1, _tensor(np.arange(x.shape[1])[::-1].copy())),
    "every other step": lambda x: x[:, : x.shape[1] // 2],
    "second half, rounded up": lambda x: x[:, (x.shape[1] + 1) // 2 :],
    "a causal mask": _causal,
    "a mask below another diagonal": _window,
    "positions in a table": _positions,
    "a ramp": _rows,
    "by the length": lambda x: autograd.mul(x, _tensor(np.float32(x.shape[1]))),
    "by its reciprocal": lambda x: autograd.mul(x, _tensor(np.float32(1 / x.shape[1]))),
    "by its root": lambda x: autograd.mul(x, _tensor(np.float32(x.shape[1] ** -0.5))),
    "zeros": lambda x: autograd.cat([x, _tensor(np.zeros(x.shape, np.float32))], 2),
    "a shape": _reshaped,
    "repeats": lambda x: autograd.tile(autograd.reduce_sum(x, 1, 1), (1, x.shape[1], 1)),
    "largest": lambda x: autograd.topk(x, x.shape[1] // 2, 1)[0],
    "the first steps": lambda x: autograd.where(
        x, autograd.mul(x, x), np.arange(x.shape[1])[:, None] < 3
    ),
    "the first half": lambda x: autograd.mul(
        autograd.reduce_sum(x, 2, 0), _tensor(np.arange(x.shape[1]) < x.shape[1] // 2)
    ),
    "the last step is changed": lambda x: autograd.scatter_nd(
        x, [[0, x.shape[1] - 1]], np.full((1, 4), 7, np.float32)
    ),
    "classes": lambda x: autograd.onehot(-1, _tensor(np.array([0, 2])), x.shape[1], [0.0, 1.0]),
    "a triangle": lambda x: autograd.triu(x, x.shape[1] - 4),
    "only a constant": lambda x: (x, _tensor(np.arange(x.shape[1]))),
}


@pytest.mark.parametrize("name", _OF_LENGTH)
def test_what_follows_from_a_length(name: str) -> None:
    """ONNX Runtime computes the same as singa for lengths that no trace had."""
    net = _Net(_OF_LENGTH[name])
    axes = {"x": {0: "n", 1: "s"}}
    proto = to_model(net, [_random(2, 6, 4)], dynamic_axes=axes, input_names=["x"])
    onnx.checker.check_model(proto, full_check=True)
    for shape in ((2, 6, 4), (1, 5, 4), (3, 9, 4), (2, 13, 4)):
        x = _random(*shape, seed=2)
        expected = net(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = runtime_outputs(proto, [x.numpy()])
        for y, wanted in zip(found, expected, strict=True):
            assert y.dtype == wanted.numpy().dtype
            np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-5, atol=1e-5)


def _tables(x: Tensor) -> Tensor:
    table = np.random.default_rng(1).standard_normal((64, 4)).astype(np.float32)
    return autograd.add(x, _tensor(table[: x.shape[1]]))


def _other_layer(x: Tensor) -> Tensor:
    return autograd.relu(x) if x.shape[1] % 2 else autograd.tanh(x)


_REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "rows of an array": (
        _tables,
        r"an input of Add is a constant of shape \(6, 4\) .* where axis 's' has 7 and not 6",
    ),
    "a remainder": (lambda x: x[:, : x.shape[1] % 4 + 1], "ends of an index is 3, and 4 where"),
    "an attribute": (
        lambda x: autograd.leakyrelu(x, 1 / x.shape[1]),
        "a of LeakyRelu is 0.16.*, and 0.14.* where axis 's' has 7 and not 6",
    ),
    "another operator": (
        _other_layer,
        "takes another way: Tanh .* comes next, and ReLU .* where axis 's' has 7 and not 6",
    ),
    "a rank": (
        lambda x: autograd.squeeze(x[:, : x.shape[1] - 5]),
        r"results of Squeeze .*have \[2\] axes, and \[3\] where axis 's' has 7 and not 6",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_has_no_formula_is_refused_by_name(name: str) -> None:
    function, message = _REFUSED[name]
    with pytest.raises(singa.onnx.ExportError, match=message):
        to_model(
            _Net(function), [_random(2, 6, 4)], dynamic_axes={"x": {1: "s"}}, input_names=["x"]
        )


def _first(c: Tensor) -> int:
    return int(c.numpy().reshape(-1)[0])


#: Networks whose numbers are elements of an integer input: the function, the example, and another.
_OF_ELEMENTS: dict[str, tuple[Callable[[Tensor, Tensor], Any], list[int], list[int]]] = {
    "slice": (lambda x, c: x[:, _first(c) :], [1], [3]),
    "top k": (lambda x, c: autograd.topk(x, _first(c), 1)[0], [2], [4]),
    "reshape": (lambda x, c: autograd.reshape(x, c.numpy().tolist()), [3, 8], [4, 6]),
    "tile": (lambda x, c: autograd.tile(x, c.numpy().tolist()), [1, 2], [3, 2]),
    "gather": (lambda x, c: autograd.gather(x, 1, c.numpy().tolist()), [1, 4], [0, 5]),
}


@pytest.mark.parametrize("name", _OF_ELEMENTS)
def test_elements_of_an_input_as_numbers(name: str) -> None:
    function, example, other = _OF_ELEMENTS[name]
    net, x = _Net(function), _random(4, 6)
    proto = to_model(net, [x, _tensor(example)], input_names=["x", "c"])
    onnx.checker.check_model(proto, full_check=True)
    for values in (example, other):
        c = _tensor(values)
        (y,) = runtime_outputs(proto, [x.numpy(), c.numpy()])
        np.testing.assert_array_equal(y, net(x, c).numpy())


_INTEGERS = np.array([0, 1, 2, 3, 4, 0, 1, 2, 0, 1])
_DIFFERS = "output 'output' is a constant .* where input 'x' has other values"
_COUNTED = "output 'output' is .* where input 'x' has other values"


def _imported() -> Any:
    net, x = _Net(autograd.relu), _random(2, 4)
    return singa.onnx.load(to_model(net, [x], input_names=["x"]))


_HOST_READS: dict[str, tuple[Callable[..., Any], list[Tensor], str]] = {
    "an attribute": (
        lambda x, c: autograd.leakyrelu(x, float(c)),
        [_random(3, 4), _tensor(np.float32(0.1))],
        "a of LeakyRelu is 0.1.* where input 'c' has other values",
    ),
    "a branch": (
        lambda x, c: autograd.relu(x) if bool(c) else autograd.tanh(x),
        [_random(3, 4), _tensor(np.array(True))],
        "takes another way: ReLU .* comes next, and Tanh .* where input 'c' has other values",
    ),
    "iterations": (
        lambda x, c: autograd.relu(x) if _first(c) == 1 else autograd.relu(autograd.tanh(x)),
        [_random(3, 4), _tensor(np.array([1]))],
        "takes another way: ReLU .* comes next, and Tanh .* where input 'c' has other values",
    ),
    "a number of a computed tensor": (
        lambda x: autograd.clip(x, None, float(autograd.reduce_mean(x, None, 0))),
        [_random(3, 4)],
        "b of Clip is .* where input 'x' has other values",
    ),
    "an array": (
        lambda x: autograd.add(x, _tensor(np.sin(x.numpy()))),
        [_random(3, 4)],
        "an input of Add is a constant .* where input 'x' has other values",
    ),
    "a condition": (
        lambda x: autograd.where(x, autograd.relu(x), _tensor(x.numpy() > 0.5)),
        [_random(3, 4)],
        "Where is a constant .* where input 'x' has other values",
    ),
    "an output": (
        lambda x: (autograd.relu(x), _tensor(x.numpy() * 2)),
        [_random(3, 4)],
        "output 'output_1' is a constant .* where input 'x' has other values",
    ),
    "an output without an operator": (
        lambda x: _tensor(np.sort(x.numpy())),
        [_random(8)],
        "output 'output' is a constant .* where input 'x' has other values",
    ),
    "an output behind an imported graph": (
        lambda x: _tensor(_imported()(x).numpy()),
        [_random(2, 4)],
        "output 'output' is a constant .* where input 'x' has other values",
    ),
    **{
        f"{title} of {kind}": (function, [example], message)
        for kind, example in (("integers", _tensor(_INTEGERS)), ("floats", _random(8)))
        for title, function, message in (
            ("places in unique", lambda x: autograd.unique(x, True)[1], _DIFFERS),
            ("counts of unique", lambda x: autograd.unique(x, False, True)[1], _COUNTED),
        )
    },
    "places in unique, in a sum": (
        lambda x: autograd.add(autograd.unique(x, True)[1], x),
        [_tensor(_INTEGERS)],
        "an input of Add is a constant .* where input 'x' has other values",
    ),
    "counts": (lambda x: autograd.bincount(x, minlength=5), [_tensor(_INTEGERS)], _DIFFERS),
    "twice the counts": (
        lambda x: autograd.mul(autograd.bincount(x, minlength=5), 2),
        [_tensor(_INTEGERS)],
        "an input of Scalar is a constant .* where input 'x' has other values",
    ),
    "the same for all values that are tried": (
        lambda x: autograd.mul(_tensor(np.float32(x.numpy() > 99)), 2.0),
        [_random(3)],
        "output 'output' would be the same for all values of the inputs: the forward pass reads "
        "elements of input 'x'",
    ),
}


@pytest.mark.parametrize("name", _HOST_READS)
def test_what_the_host_reads_is_refused_by_name(name: str) -> None:
    function, inputs, message = _HOST_READS[name]
    with pytest.raises(singa.onnx.ExportError, match=message):
        to_model(_Net(function), inputs, input_names=["x", "c"][: len(inputs)])


_SEEN: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "numpy": (lambda x: x.numpy(), "input 'x'"),
    "an array": (lambda x: np.asarray(x), "input 'x'"),
    "a capsule": (lambda x: np.from_dlpack(x), "input 'x'"),
    "item": (lambda x: autograd.reduce_mean(x, None, 0).item(), "a computed tensor of shape"),
    "a number": (lambda x: float(autograd.reduce_mean(x, None, 0)), "a computed tensor of shape"),
    "a truth value": (lambda x: bool(x[0, 0] > 1e9), "a computed tensor of shape"),
    "an average": (lambda x: tensor.average(x), "input 'x'"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.cpu("DLPack shares memory of the CPU")] * (name == "a capsule")
        )
        for name in _SEEN
    ],
)
def test_a_read_that_changed_nothing_is_reported(name: str) -> None:
    """A branch that no traced value takes cannot be seen, but what it looks at can."""
    read, what = _SEEN[name]

    def forward(x: Tensor) -> Tensor:
        return autograd.tanh(x) if np.max(read(x)) > 1e9 else autograd.relu(x)

    with pytest.warns(UserWarning, match=f"the forward pass reads elements of {what}"):
        to_model(_Net(forward), [_random(3, 4)], input_names=["x"])


def test_reading_a_parameter_is_no_reason_for_a_warning() -> None:
    class Net(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.fc = layer.Linear(3)
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            y = self.fc(x)
            return autograd.mul(y, float(np.abs(self.fc.W.numpy()).max()))

    net, x = Net(), _random(2, 4)
    (y,) = runtime_outputs(to_model(net, [x]), [x.numpy()])
    np.testing.assert_allclose(y, net(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_mask_in_the_type_of_a_number_follows_the_input() -> None:
    """Operands that are converted for a result of another type are no constants."""
    net = _Net(lambda x: (x > 0) * 255)
    proto = to_model(net, [_tensor(np.arange(-2, 3, dtype=np.int32))], input_names=["x"])
    other = np.arange(2, -3, -1, dtype=np.int32)
    (y,) = runtime_outputs(proto, [other])
    np.testing.assert_array_equal(y, np.where(other > 0, 255, 0))


@pytest.mark.parametrize("kind", ["kept", "new", "kept, also without a view"])
def test_constants_that_are_views(kind: str) -> None:
    """A constant that was reshaped has the memory of the result, and is still a constant."""

    class Net(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.c = _random(3)
            self.c.requires_grad = self.c.stores_grad = False
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            c = _random(3) if kind == "new" else self.c
            x = autograd.mul(x, c) if "without" in kind else x
            return autograd.add(x, autograd.reshape(c, (1, 3)))

    net, x = Net(), _random(2, 3, seed=1)
    (y,) = runtime_outputs(to_model(net, [x]), [x.numpy()])
    np.testing.assert_array_equal(y, net(x).numpy())


def test_a_number_beside_a_dynamic_axis() -> None:
    net = _Net(lambda x, c: autograd.mul(x, c))
    inputs = [_random(2, 3), _tensor(np.float32(2))]
    proto = to_model(net, inputs, dynamic_axes={"x": {0: "n"}}, input_names=["x", "c"])
    assert len(proto.graph.input[1].type.tensor_type.shape.dim) == 0
    x = _random(5, 3, seed=1).numpy()
    (y,) = runtime_outputs(proto, [x, np.array(3, np.float32)])
    np.testing.assert_array_equal(y, 3 * x)


def test_an_axis_that_takes_multiples_only() -> None:
    """Lengths that the network does not take are left out of the traces."""

    def halves(x: Tensor) -> Tensor:
        if x.shape[1] % 2:
            raise ValueError("an odd length")
        return autograd.add(x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :])

    net = _Net(halves)
    proto = to_model(net, [_random(2, 6)], dynamic_axes={"x": [1]}, input_names=["x"])
    x = _random(2, 10)
    (y,) = runtime_outputs(proto, [x.numpy()])
    np.testing.assert_array_equal(y, net(x).numpy())
    fixed = _Net(lambda x: autograd.reshape(x, (3, 4)))
    with pytest.raises(singa.onnx.ExportError, match="fails where axis 'x_dim_0' has 4 and not 2"):
        to_model(fixed, [_random(2, 6)], dynamic_axes={"x": [0]}, input_names=["x"])


def test_formulas() -> None:
    """Numbers that several formulas give have none."""
    lengths = Lengths()
    h, w = Source("x", 2), Source("x", 3)
    lengths.add((4, 5, 8, 4, 4), h, primary=True)
    lengths.add((6, 6, 6, 7, 12), w, primary=True)
    assert lengths.find((4, 5, 8, 4, 4)) == Formula((h,))
    assert lengths.find((9, 11, 17, 9, 9)) == Formula((h,), 2, 1)
    assert lengths.find((48, 60, 96, 56, 96)) == Formula((h, w), 2)
    assert lengths.find((3, 3, 3, 3, 6)) == Formula((w,), 1, 0, 2)
    assert lengths.find((1, 1, 1, 1, 2)) is None  # w // 6, w // 7, ...: 14 // 6 is 2, 14 // 7, too
    assert lengths.find((16, 25, 64, 16, 16)) is None


# The check in ONNX Runtime.


def _save(path: Path, function: Callable[..., Any], **options: Any) -> None:
    axes = {"x": {1: "s"}}
    options = {"dynamic_axes": axes, "input_names": ["x"], **options}
    singa.onnx.save(_Net(function), path, [_random(2, 6)], **options)


def test_a_file_that_computes_something_else_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check has a length that no trace has."""
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"

    def late(x: Tensor) -> Tensor:  # another operator, from a length on that no trace reaches
        return autograd.tanh(x) if x.shape[1] in (9, 30) else autograd.relu(x)

    with pytest.raises(singa.onnx.ExportError, match="with s = 9, ONNX Runtime computes another"):
        _save(path, late)
    assert not path.exists()
    _save(path, late, check=False)
    assert path.exists()
    monkeypatch.setattr(checking, "is_installed", lambda: False)
    _save(path, late)
    with pytest.raises(ImportError, match="check=True needs ONNX Runtime"):
        _save(path, late, check=True)


def test_what_cannot_be_checked_is_written_with_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"

    def picky(x: Tensor) -> Tensor:
        if x.shape[1] not in (6, 7, 12):
            raise ValueError("no such length")
        return autograd.relu(x)

    with pytest.warns(UserWarning, match="checked with the lengths of the example only"):
        _save(path, picky)
    x = _random(2, 6).as_type("bfloat16")
    with pytest.warns(UserWarning, match="not checked with ONNX Runtime: "):
        singa.onnx.save(_Net(autograd.relu), path, [x], input_names=["x"])
    with pytest.warns(UserWarning, match="not checked with ONNX Runtime: it is in training form"):
        _save(path, autograd.relu, training=True, check=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _save(path, autograd.relu, training=True)
        _save(path, autograd.relu, dynamic_axes=None)


def test_the_difference_that_is_allowed() -> None:
    def compare(y: Any, wanted: Any) -> None:
        checking.compare(["y"], [np.asarray(y)], [np.asarray(wanted)], "with the example")

    compare(np.float32([1, np.nan, np.inf]), np.float32([1 + 1e-6, np.nan, np.inf]))
    compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    for y, wanted, why in (
        (np.float32([1, np.nan]), np.float32([1, 2]), "NaN in ONNX Runtime only"),
        (np.float32([np.inf]), np.float32([-np.inf]), "different signs"),
        (np.float32([1, 2]), np.float32([1, 2.1]), "largest difference 0.05"),
        (np.int64([1, 2]), np.int64([1, 3]), "0.5 of the elements differ"),
        (np.float32([1]), np.float32(1), r"shape \(\), ONNX Runtime has \(1,\)"),
    ):
        with pytest.raises(singa.onnx.ExportError, match=why):
            compare(y, wanted)


def test_constants_of_a_model_that_reads_may_be_outputs() -> None:
    """They are there before the forward pass, so what it reads says nothing about them."""
    anchors = _random(5)
    net = _Net(lambda x: (autograd.relu(x) if np.isfinite(x.numpy()).all() else x, anchors))
    with pytest.warns(UserWarning, match="reads elements of input 'x'"):
        proto = to_model(net, [_random(3)], input_names=["x"])
    np.testing.assert_array_equal(runtime_outputs(proto, [_random(3).numpy()])[1], anchors.numpy())


def test_outputs_as_small_as_rounding(tmp_path: Path) -> None:
    """ONNX Runtime's sigmoid has errors of 1e-7, however small its results are. What singa reads
    from the file decides."""
    pytest.importorskip("onnxruntime")
    path, x = tmp_path / "net.onnx", _random(3, 4)
    singa.onnx.save(_Net(lambda x: autograd.sigmoid(x - 16.0)), path, [x])
    assert path.exists()

    def late(x: Tensor) -> Tensor:  # another factor, from a length on that no trace reaches
        return autograd.mul(x, 2e-8 if x.shape[1] in (9, 30) else 1e-8)

    def imprecise(*args: Any) -> list[Any]:
        return [runtime(*args)[0] + np.float32(1e-7)]

    runtime = checking.runtime_outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "runtime_outputs", imprecise)
        _save(path, lambda x: autograd.mul(x, 1e-8))
        with pytest.raises(singa.onnx.ExportError, match="with s = 9, ONNX Runtime computes"):
            _save(path, late)


def test_swapped_arguments(tmp_path: Path) -> None:
    message = "the first argument is a layer or model, the second one a path: got str and Linear"
    with pytest.raises(TypeError, match=message):
        singa.onnx.save("net.onnx", layer.Linear(3), [_random(2, 3)])  # type: ignore[arg-type]


def test_a_random_forward_pass_is_refused_as_such(tmp_path: Path) -> None:
    """And not for what differs between its traces."""
    random = np.random.default_rng(0)
    x = tensor.from_numpy(np.ones((2, 3), np.float32))
    for noise in (lambda y: y * random.uniform(1, 2), lambda y: y + _random_like(y, random)):
        net = _Net(noise)
        with pytest.raises(singa.onnx.ExportError, match="other numbers when it runs again"):
            singa.onnx.save(net, tmp_path / "net.onnx", [x], dynamic_axes={"input": {0: "n"}})


def _random_like(y: Any, random: np.random.Generator) -> Any:
    return tensor.from_numpy(random.standard_normal(y.shape).astype(np.float32))

"""Export: layers, operators and networks, checked by onnx, ONNX Runtime and import."""

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
import singa.onnx
from network_table import ALL_NETWORKS
from onnx_runtime import runtime_outputs
from ops.layers import LAYERS, LayerCase
from ops.table import CASES, Case
from singa import autograd, compat, layer, model, models, singa_wrap, tensor
from singa.onnx.save import to_model
from singa.onnx.writers.registry import READ, WRITERS, unread

Tensor = tensor.Tensor


def _tensor(shape: Sequence[int], seed: int = 0, dtype: str = "float32") -> Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return tensor.from_numpy(array, dtype=dtype)


class _Function(layer.Layer):
    """A function of tensors as a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *xs: Tensor) -> Any:
        return self._function(*xs)


def _outputs(result: Any) -> list[np.ndarray[Any, Any]]:
    results = result if isinstance(result, list | tuple) else [result]
    return [y.numpy() for y in results]


def _check(
    net: layer.Layer,
    inputs: Sequence[Tensor],
    bound: float = 2e-6,
    exact: bool = True,
    others: Sequence[Sequence[Tensor]] = (),
    **options: Any,
) -> Any:
    """Exports a network, and compares its outputs with ONNX Runtime's and, bit for bit, with those
    after import; for `others` as well, which need dynamic axes."""
    with autograd.no_grad():
        net.forward(*inputs)
        proto = to_model(net, inputs, **options)
        onnx.checker.check_model(proto, full_check=True)
        onnx.shape_inference.infer_shapes(proto, strict_mode=True)
        back = singa.onnx.load(proto.SerializeToString())
        assert back.get_states().keys() == net.get_states().keys()
        for xs in (inputs, *others):
            expected = _outputs(net.forward(*xs))
            found = runtime_outputs(proto, [x.numpy() for x in xs])
            for y, wanted in zip(found, expected, strict=True):
                assert y.shape == wanted.shape
                assert y.dtype == wanted.dtype
                largest = max(np.abs(wanted).max(initial=0), 1e-30)
                assert np.abs(y.astype(float) - wanted).max(initial=0) <= bound * largest
            for y, wanted in zip(_outputs(back(*xs)), expected, strict=True):
                if exact:
                    np.testing.assert_array_equal(y, wanted)
                else:
                    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)
    return proto


@pytest.mark.parametrize(
    "case", [case for case in LAYERS if case.written], ids=lambda case: case.name
)
def test_a_layer_comes_back_bit_for_bit(case: LayerCase) -> None:
    """Each layer, for any batch size: ONNX Runtime's numbers, and after import the same bits."""
    longer = list(case.shape)
    longer[case.batch_axis] += 3
    _check(
        case.make(),
        [_tensor(case.shape)],
        exact=case.exact,
        others=[[_tensor(longer, 1)]],
        dynamic_axes={"x": {case.batch_axis: "batch"}},
        input_names=["x"],
    )


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 20, 21, 23])
def test_every_opset(opset: int) -> None:
    """Operators that newer versions have are composed of others in older ones."""
    singa.seed(0)  # rows of little variance would magnify differences
    net = layer.Sequential(
        layer.Conv2d(8, 3, padding=1),
        layer.BatchNorm2d(),
        layer.Hardswish(),
        layer.GroupNorm(2, 8),
        layer.GELU(),
        layer.LayerNorm2d(8),
        layer.Mish(),
        layer.LayerNorm(8),
        layer.RMSNorm(8),
    )
    proto = _check(net, [_tensor((2, 6, 8, 8))], bound=2e-5, exact=False, opset=opset)
    assert proto.opset_import[0].version == opset


_NOT_WRITTEN = {
    *("SoftMaxCrossEntropy", "CrossEntropy", "BinaryCrossEntropy", "MeanSquareError"),
    "RankingLoss",
    *("ShiftLeft", "ShiftRight"),  # ONNX shifts integers without a sign alone
    *("Erfinv", "Gcd", "Lcm", "Lgamma", "Polygamma"),
    "MaxPoolWithIndices",  # whose indices count from the first image in ONNX
    "_SyncBatchNorm2d",  # statistics of several ranks; in inference it is a _BatchNorm2d
}


def test_every_operator_has_a_writer() -> None:
    covered = {cls.__name__ for cls in WRITERS}
    assert {name for case in CASES for name in case.covers} - covered == _NOT_WRITTEN


def test_every_writer_reads_all_arguments_of_its_operator() -> None:
    """An argument that a writer does not know would be left out of the file in silence."""
    assert {cls.__name__: found for cls in WRITERS if (found := unread(cls))} == {}


def test_an_argument_that_the_writer_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(READ, autograd.Elu, frozenset())
    with pytest.raises(singa.onnx.ExportError, match="Elu does not know its argument alpha"):
        to_model(_Function(autograd.elu), [_tensor((2, 3))])


def _writable(case: Case) -> bool:
    return not set(case.covers) & _NOT_WRITTEN and case.name != "dropout"


_WRITABLE = pytest.mark.parametrize(
    "case", [c for c in CASES if _writable(c)], ids=lambda case: case.name
)


def _check_case(case: Case, **options: Any) -> None:
    inputs = [
        tensor.from_numpy(a, dtype=a.dtype.name) if i in case.constants
        else tensor.from_numpy(a.astype(np.float32))
        for i, a in enumerate(case.inputs)
    ]  # fmt: skip
    names = [f"x{i}" for i in range(len(inputs))]
    net = _Function(case.apply)
    _check(net, inputs, bound=2e-5, exact=False, input_names=names, **options)


#: By case: why opset 13 cannot express it.
_NEWER = {
    "interpolate, antialiased": "Interpolate: antialias needs opset 18",
    **{
        f"{name}, {how}": f"{operator}: reduction '{how}' needs opset {opset}"
        for name, operator in (("scatter_elements", "ScatterElements"), ("scatter_nd", "ScatterND"))
        for how, opset in (("add", 16), ("mul", 16), ("max", 18), ("min", 18))
    },
    **{
        f"{name} {k}": "Triangle: triangles need opset 14"
        for name in ("triu from", "tril to")
        for k in (-1, 0, 2)
    },
    **{f"bitwise_{name}": "functions of bits need opset 18" for name in ("and", "or", "xor")},
    "pad, wrap": "Pad: mode 'wrap' needs opset 19",
}


@pytest.mark.parametrize("options", [{}, {"opset": 13}], ids=["newest", "oldest"])
@_WRITABLE
def test_an_operator_of_the_table(case: Case, options: dict[str, int]) -> None:
    """The same numbers, or a refusal that names the operator and the opset that it needs."""
    if options and case.name in _NEWER:
        with pytest.raises(singa.onnx.ExportError, match=re.escape(_NEWER[case.name])):
            _check_case(case, **options)
    else:
        _check_case(case, **options)


def _attend(x: Tensor) -> Any:
    return autograd.scaled_dot_product_attention(x, x, x, is_causal=True)


def _windows(images: Tensor) -> Any:
    """A mask that repeats along the batch, for the two windows of each image."""
    x = images.reshape((-1, 3, 4, 5))
    return autograd.scaled_dot_product_attention(x, x, x, _tensor((2, 3, 4, 4), 1))


class _Rows(layer.Layer):
    """A network without a fixed size of images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        n, c, h, w = y.shape
        rows = autograd.transpose(autograd.reshape(y, (n, c, h * w)), (0, 2, 1))
        return autograd.reduce_mean(rows, 1, 0)


#: name: (function, the shape of the example, and others)
_DYNAMIC: dict[str, tuple[Callable[..., Any], Sequence[int], *tuple[Sequence[int], ...]]] = {
    "roll": (lambda x: autograd.roll(x, (1, -2), (0, 1)), (3, 5), (4, 5)),
    "roll flattened": (lambda x: autograd.roll(x, -3), (3, 5), (6, 5)),
    "glu": (lambda x: autograd.glu(x, 1), (3, 4), (5, 4)),
    "sort": (lambda x: autograd.sort(x, 0)[0], (3, 4), (5, 4)),
    "positions": (lambda x: autograd.argsort(x, 0), (3, 4), (5, 4)),
    "resize by scales": (
        lambda x: autograd.interpolate(x, scale_factor=1.5, mode="bilinear"),
        *((2, 3, 4, 6), (3, 3, 4, 6)),
    ),
    "resize to twice the size": (
        lambda x: autograd.interpolate(x, scale_factor=2.0),
        *((2, 3, 4, 6), (3, 3, 4, 6)),
    ),
    "resize to twice the size, linear": (
        lambda x: autograd.interpolate(x, scale_factor=2.0, mode="bilinear"),
        *((1, 2, 4, 6), (2, 2, 7, 5)),
    ),
    "resize to a size": (
        lambda x: autograd.interpolate(x, (2 * x.shape[2], x.shape[3] + 3), mode="bilinear"),
        *((1, 2, 4, 6), (2, 2, 7, 5)),
    ),
    "adaptive maxima": (
        lambda x: autograd.adaptive_max_pool(x, (3, 2)),
        *((2, 3, 7, 6), (4, 3, 7, 6)),
    ),
    "adaptive means": (lambda x: autograd.adaptive_avg_pool(x, (3, 2)), (2, 3, 7, 6), (4, 3, 7, 6)),
    "adaptive means of equal windows": (
        lambda x: autograd.adaptive_avg_pool(x, (3, 2)),
        *((2, 3, 6, 6), (4, 3, 6, 6)),
    ),
    "attention": (_attend, (2, 3, 4, 5), (1, 3, 4, 5)),
    "attention of any length": (_attend, (2, 3, 4, 5), (1, 3, 7, 5)),
    "attention in windows": (_windows, (2, 2, 3, 4, 5), (1, 2, 3, 4, 5), (3, 2, 3, 4, 5)),
    "rows of images": (_Rows(), (2, 3, 8, 12), (1, 3, 16, 10)),
}


@pytest.mark.parametrize("name", _DYNAMIC)
def test_dynamic_axes(name: str) -> None:
    """Those in which the shapes differ. Nodes of these operators hold lengths."""
    function, shape, *others = _DYNAMIC[name]
    axes = [i for i, lengths in enumerate(zip(shape, *others, strict=True)) if len({*lengths}) > 1]
    _check(
        _Function(function),
        [_tensor(shape)],
        bound=2e-5,
        exact=False,
        others=[[_tensor(other, seed)] for seed, other in enumerate(others, 1)],
        dynamic_axes={"x": {axis: f"n{axis}" for axis in axes}},
        input_names=["x"],
    )


@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_a_query_without_keys(kind: str) -> None:
    mask = np.array([[True, False], [False, False], [False, True]])
    if kind == "float32":
        mask = np.where(mask, 0.5, -np.inf).astype(np.float32)
    q, k, v = _tensor((1, 2, 3, 4)), _tensor((1, 2, 2, 4), 1), _tensor((1, 2, 2, 5), 2)
    net = _Function(autograd.scaled_dot_product_attention)
    inputs = [q, k, v, tensor.from_numpy(mask, dtype=kind)]
    _check(net, inputs, bound=2e-5, exact=False)
    assert not net.forward(*inputs).numpy()[:, :, 1].any()


def test_positions_beside_the_values() -> None:
    def both(x: Tensor) -> Any:
        values, positions = autograd.topk(x, 2, 1, largest=False)
        return values, positions, autograd.gather_elements(x * 2.0, positions, 1)

    _check(_Function(both), [_tensor((3, 5))])


def test_indices_below_the_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in SINGA, Gather takes those of a list modulo the length, which ONNX does not."""
    monkeypatch.setattr(compat, "enabled", True)
    _check(_Function(lambda x: autograd.gather(x, 1, [-7, 0, 4])), [_tensor((2, 5))])


def test_attention_of_16_bits_and_sums_of_integers() -> None:
    heads = [_tensor((1, 2, 3, 4), i, "float16") for i in range(3)]
    _check(
        _Function(autograd.scaled_dot_product_attention), heads, bound=2e-3, exact=False, opset=21
    )
    counts = tensor.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3), dtype="int32")
    _check(_Function(lambda x: autograd.cumsum(x, 1, reverse=True)), [counts])


_INTEGERS: dict[str, Callable[[Tensor], Any]] = {
    "a mask times an integer": lambda x: (x > 0) * 255,
    "a mask times floats": lambda x: (x > 0) * (x * 0.5),
    "a mask beside an integer": lambda x: (x > 0) == 2,
    "logic": lambda x: autograd._or(x > 2, autograd._not(x)),
    "//": lambda x: x // 3,
    "// by a negative number": lambda x: -7 // (x * 2 + 1),
    "// of a float": lambda x: x // 0.1,
    "%": lambda x: x % -3,
    "% of a float": lambda x: 5.5 % (x + 0.5),
    "a large number": lambda x: x.as_type("int64") * ((1 << 60) + 1) - ((1 << 53) + 1),
    "a comparison with a large number": lambda x: x < (1 << 40),
    "where": lambda x: autograd.where(x, 0.5, x > 1),
    "cat": lambda x: autograd.cat([x, x * 0.5, x > 0], 0),
    "clip": lambda x: autograd.clip(x, -1.5, 2),
}


@pytest.mark.parametrize("name", _INTEGERS)
def test_arithmetic_of_integers(name: str) -> None:
    _check(_Function(_INTEGERS[name]), [tensor.from_numpy(np.arange(-4, 8, dtype=np.int32))])


def test_angles_of_zeros_and_infinities() -> None:
    ends = np.float32([0.0, -0.0, 2.0, -3.0, np.inf, -np.inf])
    y, x = (tensor.from_numpy(each) for each in np.meshgrid(ends, ends))
    _check(_Function(autograd.atan2), [y, x])


def test_relu6_is_flat_at_its_limits_after_import(training: None) -> None:
    """A Clip to [0, 6] is one that ReLU6 was written as; other limits pass the gradient."""
    values = np.array([-1.0, 0.0, 3.0, 6.0, 7.0], np.float32)
    for function, slopes in [
        (autograd.relu6, [0, 0, 1, 0, 0]),
        (lambda x: autograd.clip(x, 0.0, 7.0), [0, 1, 1, 1, 1]),
    ]:
        x = Tensor(data=values, stores_grad=True)
        net = singa.onnx.load(_check(_Function(function), [x]).SerializeToString())
        ((_, dx),) = autograd.backward(net.forward(x), np.ones_like(values))
        assert dx.numpy().tolist() == slopes


@pytest.mark.parametrize(("p", "ceil"), [(2, False), (2.5, False), (3, True)])
def test_norms_of_windows(p: float, ceil: bool) -> None:
    """LpPool has whole powers only, and other windows at the end."""

    def pooled(x: Tensor) -> Tensor:
        handle = singa_wrap.PoolingHandle(x.data, [3], [2], [0], False, ceil)
        return autograd.lp_pool(handle, x, p)

    _check(_Function(pooled), [_tensor((2, 3, 8))], bound=2e-5, exact=p == 2)


# The others take several minutes.
_SMALL = ["lenet", "resnet20_cifar"]
_LARGE = {"convnext_cifar", "gpt_small", "mobilenet_v3_small", "vit_tiny_cifar"}
if ALL_NETWORKS:
    _LARGE = set(models.names()) - {*_SMALL}


@pytest.mark.parametrize(
    "name", [*_SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(_LARGE))]
)
def test_a_network_of_models(name: str) -> None:
    net = models.create(name)

    def batch(count: int) -> Tensor:
        shape = (count, *net.image_shape)
        if name.startswith("gpt"):
            tokens = np.random.default_rng(count).integers(0, net.num_classes, shape, np.int32)
            return tensor.from_numpy(tokens)
        return _tensor(shape, count)

    x = batch(2)
    net.compile([x], is_train=False)
    for key, t in net.get_states().items():
        if key.endswith("running_var"):
            t.uniform(0.5, 1.5)
    options = {"dynamic_axes": {"x": [0]}, "input_names": ["x"]}
    # With Winograd's method a deep network differs by up to 3e-6.
    _check(net, [x], bound=5e-6, others=[[batch(3)]], **options)
    strict = singa.is_strict()
    singa.set_strict(True)
    try:
        _check(net, [x], **options)
    finally:
        singa.set_strict(strict)


#: Networks whose last layers, or tables of positions, fix the size of images.
_OF_ONE_SIZE = {"alexnet", "lenet", "swin_tiny", "vgg16", "vgg16_cifar", "vgg19"}
_OF_ONE_SIZE |= {"vit_small_16", "vit_tiny_16", "vit_tiny_cifar"}
_RESIZED = {"lenet", "resnet20_cifar"}
if ALL_NETWORKS:
    _RESIZED = set(models.names()) - {"gpt_small"}


@pytest.mark.parametrize("name", sorted(_RESIZED))
def test_other_sizes_of_models(name: str, tmp_path: Path) -> None:
    """`save` compares with ONNX Runtime at another height and width, or for another batch."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    net = models.create(name)
    side = {"swin_tiny": 224}.get(name, 96 if "inception" in name else 64)
    channels, height, _ = net.image_shape
    size = min(side, height)
    x = _tensor((1, channels, size, size))
    net.compile([x], is_train=False)
    path, axes = tmp_path / "net.onnx", {0: "n", 2: "height", 3: "width"}
    if name in _OF_ONE_SIZE:
        with pytest.raises(singa.onnx.ExportError, match="axis 'height' has"):
            singa.onnx.save(net, path, [x], dynamic_axes={"x": axes}, input_names=["x"])
        axes = {0: "n"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one says that the file was not checked at another size
        singa.onnx.save(net, path, [x], dynamic_axes={"x": axes}, input_names=["x"])
    assert path.exists()


def test_what_a_dynamic_axis_cannot_express_is_refused() -> None:
    """A length that does not follow the axis in a simple way would be a wrong constant."""

    def odd(x: Tensor) -> Tensor:
        return autograd.slice(x, [0], [x.shape[0] % 3 + 1], [1])

    with pytest.raises(singa.onnx.ExportError, match=r"ends of a slice is 1, and 2 .* 'n'"):
        to_model(_Function(odd), [_tensor((3, 8))], dynamic_axes={"x": {0: "n"}}, input_names=["x"])


def test_a_value_that_left_the_tape_is_refused() -> None:
    """What is computed of a tensor's elements by other means would stay as it is."""

    def hidden(x: Tensor) -> Tensor:
        y = autograd.relu(x)
        y.data = y.data.SliceAxis(0, 0, 1)
        return autograd.add(x, y)

    with pytest.raises(singa.onnx.ExportError, match="without an operator"):
        to_model(_Function(hidden), [_tensor((3, 8))], input_names=["x"])


def test_external_data(tmp_path: Path) -> None:
    net = layer.Linear(64)
    x = _tensor((2, 32))
    net(x)
    path = tmp_path / "net.onnx"
    singa.onnx.save(net, path, [x], external_data=True)
    assert path.stat().st_size < 4096
    assert (tmp_path / "net.onnx.data").stat().st_size >= 64 * 32 * 4
    np.testing.assert_array_equal(singa.onnx.load(path)(x).numpy(), net(x).numpy())


def test_a_device_gets_no_file_of_weights_beside_it() -> None:
    net, x = layer.Linear(4), _tensor((2, 3))
    net(x)
    singa.onnx.save(net, "/dev/null", [x])
    with pytest.raises(ValueError, match="/dev/null is no regular file"):
        singa.onnx.save(net, "/dev/null", [x], external_data=True)


def test_training_form() -> None:
    net = layer.Sequential(layer.Conv2d(4, 3), layer.BatchNorm2d(), layer.Dropout(0.5))
    x = _tensor((2, 3, 8, 8))
    net(x)
    proto = to_model(net, [x], training=True)
    onnx.checker.check_model(proto, full_check=True)
    nodes = {node.op_type: node for node in proto.graph.node}
    assert any(a.name == "training_mode" and a.i for a in nodes["BatchNormalization"].attribute)
    back = singa.onnx.load(proto.SerializeToString())
    with autograd.no_grad():
        np.testing.assert_array_equal(back(x).numpy(), net(x).numpy())
        before = back.get_states()["1.running_mean"].numpy()
        autograd.training = True
        dropped = back.forward(x).numpy()
        autograd.training = False
    assert np.mean(dropped == 0) > 0.2
    assert (back.get_states()["1.running_mean"].numpy() != before).any()


def test_arguments() -> None:
    net, x = layer.Linear(2), _tensor((2, 3))
    for options, error, words in [
        ({"opset": 12}, ValueError, r"opset must lie in \[13, "),
        ({"opset": 21, "ir_version": 9}, ValueError, "ir_version must lie in"),
        ({"input_names": ["a", "b"]}, ValueError, "1 inputs need as many names"),
        ({"output_names": ["a", "b"]}, ValueError, "1 outputs need as many names"),
        ({"dynamic_axes": {"y": [0]}}, ValueError, "dynamic_axes names 'y'"),
        ({"dynamic_axes": {"x": [2]}}, ValueError, "input 'x' has no axis 2"),
    ]:
        with pytest.raises(error, match=words):
            to_model(net, [x], **options)  # type: ignore[arg-type]
    for inputs in ([], 3, [x, "y"]):
        with pytest.raises(TypeError, match="list of tensors or arrays"):
            to_model(net, inputs)  # type: ignore[arg-type]


def test_example_inputs_may_be_arrays() -> None:
    """As those of a model's calls: batches of a DataLoader are arrays."""
    array = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
    net = models.Sequential(layer.Linear(2))
    net.compile([array])
    net.eval()
    singa.onnx.save(net, "net.onnx", [array])
    (found,) = runtime_outputs(onnx.load("net.onnx"), [array])
    weights = {name: w.numpy() for name, w in net.get_params().items()}
    (w,) = (value for value in weights.values() if value.ndim == 2)
    (b,) = (value for value in weights.values() if value.ndim == 1)
    expected = array @ (w if w.shape[0] == 3 else w.T) + b
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    singa.onnx.save(net, "single.onnx", array)
    assert Path("single.onnx").read_bytes() == Path("net.onnx").read_bytes()


def test_a_user_s_operator_is_refused_by_name() -> None:
    class Double(autograd.Operator):
        def forward(self, x: Any) -> Any:
            return x

    class Net(model.Model):
        def forward(self, x: Tensor) -> Tensor:
            return Double()(x)[0]

    with pytest.raises(singa.onnx.ExportError, match="operator Double"):
        to_model(Net(), [_tensor((2, 3))])

"""The types of parameters: nobody's weights change because of an input."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import singa
from ops.layers import LAYERS, LayerCase
from singa import autograd, layer, model, models, opt, tensor
from singa.models.convnext import ConvNeXtBlock
from singa.models.gpt import PositionEmbedding
from singa.models.swin import WindowAttention
from singa.tensor import Tensor

FLOATS = [tensor.float16, tensor.bfloat16, tensor.float32, tensor.float64]
SEQUENCE = (2, 5, 4)


class Around(model.Model):
    """A model of one layer, whose loss is the mean of squares."""

    def __init__(self, inner: Any, call: Callable[[Any, Tensor], Any] | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.call = call

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x) if self.call is None else self.call(self.inner, x)
        return y[0] if isinstance(y, list | tuple) else y

    def train_one_batch(self, x: Tensor) -> Tensor:
        y = self.forward(x).as_type("float32")
        loss = (y * y).mean()
        self.optimizer(loss)
        return loss


def _itself(attention: Any, x: Tensor) -> Any:
    return attention(x, x, x)


def _by_steps(rnn: Any, x: Tensor) -> Any:
    """The last state of an RNN or LSTM; its first state is float32."""
    h = tensor.zeros((x.shape[0], rnn.hidden_size))
    state = h if isinstance(rnn, layer.RNN) else (h, h)
    return rnn([x[:, i] for i in range(x.shape[1])], state)[1]


#: (name, layer, shape of x, how it is called)
CASES: list[tuple[str, Callable[[], Any], tuple[int, ...], Any]] = [
    ("GRU", lambda: layer.GRU(4, 3, 2, batch_first=True, bidirectional=True), SEQUENCE, None),
    ("GRU, reset before", lambda: layer.GRU(4, 3, linear_before_reset=False), SEQUENCE, None),
    ("RNN", lambda: layer.RNN(4, 3), SEQUENCE, _by_steps),
    ("LSTM", lambda: layer.LSTM(4, 3), SEQUENCE, _by_steps),
    ("RNNCell", lambda: layer.RNNCell(4, 3), (2, 4), None),
    ("LSTMCell", lambda: layer.LSTMCell(4, 3), (2, 4), None),
    ("GRUCell", lambda: layer.GRUCell(4, 3), (2, 4), None),
    ("MultiHeadAttention", lambda: layer.MultiHeadAttention(4, 2), SEQUENCE, _itself),
    (
        "MultiHeadAttention, kdim",
        lambda: layer.MultiHeadAttention(6, 2, kdim=4, vdim=4),
        SEQUENCE,
        lambda attention, x: attention(autograd.cat([x, x], 2)[:, :, :6], x, x),
    ),
    ("TransformerEncoderLayer", lambda: layer.TransformerEncoderLayer(4, 2, 8), SEQUENCE, None),
    ("SeparableConv2d", lambda: layer.SeparableConv2d(4, 3), (2, 4, 9, 8), None),
    ("PositionEmbedding", lambda: PositionEmbedding(7), SEQUENCE, None),
    ("ConvNeXtBlock", lambda: ConvNeXtBlock(4, 0.0), (2, 4, 8, 8), None),
    ("WindowAttention", lambda: WindowAttention(4, 2, 2, 1), (2, 4, 4, 4), None),
]


def _input(shape: tuple[int, ...], dtype: Any = "float32") -> Tensor:
    values = np.random.default_rng(3).normal(0.5, 1.0, shape).astype(np.float32)
    return tensor.from_numpy(values).as_type(dtype)


def _has_parameters(case: LayerCase) -> bool:
    made = case.make()
    layers = [made, *made.sublayers()]
    return any(each.input_types != "any" and getattr(each, "affine", True) for each in layers)


CASES += [(case.name, case.make, case.shape, None) for case in LAYERS if _has_parameters(case)]


def _weights(net: model.Model) -> dict[str, tuple[Any, np.ndarray]]:
    found = net.get_states().items()
    return {name: (t.dtype, t.numpy()) for name, t in found if "running" not in name}


def _assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, (dtype, values) in expected.items():
        assert found[name][0] == dtype, name
        np.testing.assert_array_equal(found[name][1], values, err_msg=name)


def _has_norms_only(net: model.Model) -> bool:
    names = [type(each).input_types for each in net.sublayers() if each.get_params()]
    return "own" not in names


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_input_of_another_type_changes_nothing(case: Any, graph: bool) -> None:
    _, make, shape, call = case
    net = Around(make(), call)
    x = _input(shape)
    net.set_optimizer(opt.SGD(0.0))
    net.compile([x], is_train=False, use_graph=graph)
    net(x), net(x)
    before = _weights(net)
    for dtype in ("float16", "bfloat16", "float64"):
        for training in (False, True):
            net.train(training)
            if _has_norms_only(net) and dtype != "float64":
                net(x.as_type(dtype))
            else:
                with pytest.raises(TypeError, match=rf"the input is {dtype}, but the parameters"):
                    net(x.as_type(dtype))
            _assert_same(_weights(net), before)
    net.eval()
    assert net(x).dtype == tensor.float32


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_under_autocast_any_layer_takes_16_bits(case: Any) -> None:
    """As behind a Linear. All parameters are float32."""
    _, make, shape, call = case
    inner = make()
    given = call or (lambda each, x: each(x))
    net = Around(inner, lambda each, x: given(each, x.as_type("bfloat16")))
    net.set_optimizer(opt.SGD(1e-3))
    net.compile([_input(shape)], use_graph=True, dtype="bfloat16")
    for _ in range(4):
        assert np.isfinite(float(net(_input(shape))))
    assert {t.dtype for t in net.get_states().values()} == {tensor.float32}


@pytest.mark.parametrize("lowered", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["GRU", "lstm", "gru", "tanh"])
def test_recurrent_networks_compute_in_16_bits_under_autocast(kind: str, lowered: str) -> None:
    """As PyTorch's: input, states and weights are rounded; the gradient of W is float32."""
    rnn: Any = (
        layer.GRU(4, 3, batch_first=True) if kind == "GRU" else layer.CudnnRNN(3, rnn_mode=kind)
    )
    x, results = _input(SEQUENCE), []
    rnn(x)
    with autograd.enable_grad():
        for given in (x, x.as_type(lowered)):
            with autograd.autocast(lowered):
                y = rnn(given)
            results.append(y[0] if kind == "GRU" else y)
        gradient = autograd.gradients(results[0], tensor.ones(results[0].shape, dtype=lowered))
    assert {y.dtype for y in results} == {tensor.as_dtype(lowered)}
    assert gradient[rnn.W].dtype == rnn.W.dtype == tensor.float32
    rnn.to_type(lowered)
    exact = rnn(x.as_type(lowered))
    results.append(exact[0] if kind == "GRU" else exact)
    for y in results[1:]:
        np.testing.assert_array_equal(y.numpy(), results[0].numpy())


@pytest.mark.parametrize("lowered", ["bfloat16", "float16"])
def test_autocast_of_a_network_that_runs_step_by_step(lowered: str) -> None:
    """As GPUs run it. Each operation rounds, so the results nearly agree."""
    gru = layer.GRU(4, 3, linear_before_reset=False)
    x, h = _input(SEQUENCE), tensor.zeros((1, 5, 3))
    y, last = gru(x, h)
    with autograd.autocast(lowered):
        for given in (x, x.as_type(lowered)):
            found, state = gru._step_by_step(given, h)
            assert {found.dtype, state.dtype} == {tensor.as_dtype(lowered)}
            np.testing.assert_allclose(found.numpy(), y.numpy(), rtol=0, atol=2e-2)
            np.testing.assert_allclose(state.numpy(), last.numpy(), rtol=0, atol=2e-2)
    assert gru.W.dtype == tensor.float32


def test_the_message_names_the_ways() -> None:
    net = models.Sequential(layer.Linear(3))
    net.compile([_input((2, 4))], is_train=False)
    with pytest.raises(TypeError) as caught:
        net(_input((2, 4), "float16"))
    for words in (
        *("[Linear 0] the input is float16, but the parameters are float32", "autograd.autocast"),
        *("x.as_type('float32')", "net.to_type('float16')", "compile(dtype=...)"),
    ):
        assert words in str(caught.value)
    with pytest.raises(TypeError, match="the input is float64"):
        layer.Layer.__call__(net[0], x=_input((2, 4), "float64"))


def test_a_parameter_that_was_replaced_or_converted_counts() -> None:
    linear, x = layer.Linear(3), _input((2, 4))
    linear(x)
    linear.W.to_type("float64")
    with pytest.raises(TypeError, match="the input is float32, but the parameters are float64"):
        linear(x)
    linear.b = tensor.Tensor((3,), dtype="float64", stores_grad=True)
    assert linear(x.as_type("float64")).dtype == tensor.float64


def test_the_first_tensor_of_a_list_decides() -> None:
    rnn, x, h = layer.RNN(4, 3), _input((2, 4)), _input((2, 3))
    rnn([x], h)
    with pytest.raises(TypeError, match="the input is float64"):
        rnn([x.as_type("float64")], h)


def test_autocast_leaves_the_parameters() -> None:
    linear, x = layer.Linear(3), _input((2, 4))
    linear(x)
    with autograd.autocast("bfloat16"):
        assert linear(x).dtype == linear(x.as_type("bfloat16")).dtype == tensor.bfloat16
        with pytest.raises(TypeError, match="the input is float16, but the parameters are float32"):
            linear(x.as_type("float16"))
    with pytest.raises(TypeError, match="the input is bfloat16"):
        linear(x.as_type("bfloat16"))
    assert linear.W.dtype == linear.b.dtype == tensor.float32


def test_a_hook_may_convert_the_input() -> None:
    linear, x = layer.Linear(3), _input((2, 4))
    y = linear(x)
    with linear.register_forward_pre_hook(lambda each, args: args[0].as_type("float32")):
        np.testing.assert_array_equal(linear(x.as_type("float64")).numpy(), y.numpy())


class Own(model.Model):
    """Has a parameter of its own, of a type that has nothing to do with the inputs."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.p = Tensor(data=np.array([1 / 3]), dtype=dtype, stores_grad=True)

    def forward(self, tick: Tensor) -> Tensor:
        return (self.p * self.p).sum()

    def train_one_batch(self, tick: Tensor) -> Tensor:
        loss = self.forward(tick)
        self.optimizer(loss)
        return loss


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_models_own_parameters_keep_their_type(dtype: str, graph: bool) -> None:
    net, tick = Own(dtype), tensor.zeros((1,))
    net.set_optimizer(opt.SGD(0.25))
    net.compile([tick], use_graph=graph)
    assert net.p.dtype == tensor.as_dtype(dtype)
    expected = np.array([1 / 3], dtype)
    np.testing.assert_array_equal(net.p.numpy(), expected)
    for kind in ("float32", "float64", "float16", "float32", "float32"):
        net(tick.as_type(kind))
        expected = expected / 2  # exact
        np.testing.assert_array_equal(net.p.numpy(), expected)
    assert net.p.dtype == tensor.as_dtype(dtype)


@pytest.mark.parametrize("graph", [False, True])
def test_operators_decide_about_the_layers_of_scripts(graph: bool) -> None:
    class Scale(layer.Layer):
        def initialize(self, x: Tensor) -> None:
            self.factor = Tensor(data=np.full(x.shape[1], 0.3), dtype="float64", stores_grad=True)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.factor

    net = Around(Scale())
    net.compile([_input((2, 4))], is_train=False, use_graph=graph)
    for dtype in ("float32", "float16", "float64"):
        assert net(_input((2, 4), dtype)).dtype == tensor.float64
    np.testing.assert_array_equal(net.inner.factor.numpy(), np.full(4, 0.3))


@pytest.mark.parametrize("dtype", FLOATS)
def test_new_parameters_take_the_type_of_the_first_input(dtype: Any) -> None:
    net = models.Sequential(
        layer.Conv2d(4, 1), layer.BatchNorm2d(), layer.Flatten(), layer.Linear(2)
    )
    net.compile([_input((2, 3, 2, 2), dtype)], is_train=False)
    wide = tensor.float64 if dtype == tensor.float64 else tensor.float32
    for name, t in net.get_states().items():
        assert t.dtype == (wide if name.startswith("1.") else dtype), name
    assert net(_input((2, 3, 2, 2), dtype)).dtype == dtype


@pytest.mark.parametrize("graph", [False, True])
def test_a_network_from_a_file_computes_in_its_types(graph: bool) -> None:
    """Also behind a layer that gives 16 bits under autocast."""
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    import singa.onnx

    x, y = _input((4, 5)), tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))
    singa.onnx.save(_classifier(False), "net.onnx", [x])

    class Behind(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.loaded = layer.Linear(5), singa.onnx.load("net.onnx")
            self.loss = layer.SoftMaxCrossEntropy()

        def forward(self, x: Tensor) -> Tensor:
            return self.loaded.forward(self.first(x))

    net = Behind()
    net.set_optimizer(opt.SGD(0.1))
    net.compile([x], use_graph=graph, dtype="bfloat16")
    losses = [float(net(x, y)[1]) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert {t.dtype for t in net.get_states().values()} == {tensor.float32}
    before = _weights(net)
    for dtype in ("float16", "float64"):
        with pytest.raises(TypeError, match=f"has type float32, got {dtype}"):
            net.loaded(x.as_type(dtype))
        with pytest.raises(TypeError, match=r"\[to_type\] .* use onnx.load\(dtype=...\)"):
            net.to_type(dtype)
    _assert_same(_weights(net), before)


# --- to_type


def _classifier(graph: bool, dtype: str = "float32") -> model.Model:
    singa.seed(5)
    net = models.Sequential(
        layer.Linear(6), layer.LayerNorm(6), layer.Linear(3), loss=layer.SoftMaxCrossEntropy()
    )
    net.set_optimizer(opt.SGD(0.1, momentum=0.9))
    net.compile([_input((4, 5), dtype)], use_graph=graph)
    return net


@pytest.mark.parametrize("graph", [False, True])
def test_to_type_converts_values_and_training_goes_on(graph: bool) -> None:
    x, y = _input((4, 5)), tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))
    net = _classifier(graph)
    for _ in range(4):
        net(x, y)
    before = _weights(net)
    assert net.to_type("float64") is net
    for name, (dtype, values) in _weights(net).items():
        assert dtype == tensor.float64
        np.testing.assert_array_equal(values, before[name][1].astype(np.float64))
    fresh = _classifier(graph, "float64")
    fresh.set_states(net.get_states())
    for each in (net, fresh):
        each.set_optimizer(opt.SGD(0.1, momentum=0.9))
    for _ in range(4):
        losses = [each(x.as_type("float64"), y)[1] for each in (net, fresh)]
        assert losses[0].dtype == tensor.float64
        np.testing.assert_array_equal(losses[0].numpy(), losses[1].numpy())
    _assert_same(_weights(net), _weights(fresh))


@pytest.mark.parametrize("graph", [False, True])
def test_an_optimizer_of_the_old_type_is_refused(graph: bool) -> None:
    x, y = _input((4, 5)), tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))
    net = _classifier(graph)
    net(x, y)
    net.to_type("float64")
    with pytest.raises(TypeError, match="state must be float64"):
        net(x.as_type("float64"), y)


def test_averages_follow_a_conversion() -> None:
    net = _classifier(False)
    average = opt.EMA(net, 0.5)
    average.update()
    net.to_type("float64")
    before = {name: t.numpy() for name, t in net.get_params().items()}
    for t in net.get_params().values():
        t += 1e-9  # float32 would lose it
    average.update()
    for name, t in average.get_states()["averages"].items():
        assert t.dtype == tensor.float64
        np.testing.assert_allclose(t.numpy() - before[name], 5e-10, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_keep_32_bits(dtype: str) -> None:
    net = models.Sequential(layer.Conv2d(4, 1, bias=False), layer.BatchNorm2d())
    net.compile([_input((2, 3, 2, 2))], is_train=False)
    net.to_type(dtype)
    types = {name: t.dtype for name, t in net.get_states().items()}
    assert types.pop("0.W") == tensor.as_dtype(dtype)
    assert set(types.values()) == {tensor.float32}
    assert net(_input((2, 3, 2, 2), dtype)).dtype == tensor.as_dtype(dtype)


def test_to_type_converts_what_exists() -> None:
    """Other parameters take the type of their first input; integers stay."""

    class Counted(layer.Layer):
        state_names = ("count",)

        def initialize(self, x: Tensor) -> None:
            self.count = Tensor((1,), dtype=tensor.int32, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return x

    net = models.Sequential(layer.Linear(3), Counted(), layer.Linear(2))
    with pytest.raises(ValueError, match=r"\[to_type\] Sequential has no parameters yet"):
        net.to_type("float64")
    net[1](net[0](_input((2, 4))))
    net.to_type("float64")
    net.eval()
    net(_input((2, 4), "float64"))
    types = {name: t.dtype.name for name, t in net.get_states().items()}
    assert types.pop("1.count") == "int32"
    assert set(types.values()) == {"float64"}
    with pytest.raises(TypeError, match=r"\[to_type\] expected a float type, got int32"):
        net.to_type("int32")
    assert layer.ReLU().to_type("float64") is not None


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_converted_network_is_summarised_and_saved(dtype: str) -> None:
    net = _classifier(False).to_type(dtype)
    net.eval()
    assert net.summary().params == sum(p.size() for p in net.get_params().values())
    net.save("net.singa")
    loaded = singa.load("net.singa")
    _assert_same(_weights(loaded), _weights(net))
    x = _input((4, 5), dtype)
    np.testing.assert_array_equal(loaded(x).numpy(), net(x).numpy())


# --- SINGA's behaviour


@pytest.fixture
def singas_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa.compat.enabled", True)


@pytest.mark.usefixtures("singas_way")
@pytest.mark.parametrize("graph", [False, True])
def test_in_singas_way_parameters_follow_the_input(graph: bool) -> None:
    net = models.Sequential(layer.Linear(3), layer.ReLU(), layer.Linear(2))
    x = _input((2, 4))
    net.compile([x], is_train=False, use_graph=graph)
    y = net(x).numpy()
    for dtype in ("float16", "float32", "float64"):
        out = net(x.as_type(dtype))
        assert {out.dtype, *(t.dtype for t in net.get_params().values())} == {
            tensor.as_dtype(dtype)
        }
        np.testing.assert_allclose(out.numpy(), y, rtol=0, atol=1e-2)
    own = Own("float64")
    own.compile([tensor.zeros((1,))], is_train=False, use_graph=graph)
    assert own.p.dtype == tensor.float64


@pytest.mark.parametrize("switch", [False, True])
def test_dtype_check(switch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("singa.compat.enabled", switch)
    x, w = tensor.ones((2,), dtype="float16"), Tensor(data=np.float32([1 / 3]))
    linear = layer.Linear(1)
    if switch:
        linear.dtype_check(x, w)
        assert w.dtype == tensor.float16
    else:
        with pytest.raises(TypeError, match="the input is float16, but the parameters are float32"):
            linear.dtype_check(x, w)
        assert w.numpy()[0] == np.float32(1 / 3)
        with autograd.autocast("float16"):
            linear.dtype_check(x, w)
        assert w.dtype == tensor.float32

"""singa.detect_anomaly names the operation that makes a NaN or an infinity, and its layer."""

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, singa_wrap, tensor
from singa.tape import operator as tape

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
Y = np.array([0, 1, 2, 0])


def of(values, dtype="float32", parameter=False):
    t = tensor.from_numpy(np.asarray(values, np.float64), dtype=dtype)
    t.stores_grad = parameter
    return t


class Net(model.Model):
    """A function between two layers."""

    def __init__(self, between):
        super().__init__()
        self.first, self.last, self.between = layer.Linear(4), layer.Linear(3), between
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.last(self.between(self.first(x)))


class InLayer(layer.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def trained(between, steps=0, lr=0.1, **kwargs):
    net = Net(between)
    net.set_optimizer(opt.SGD(lr=lr))
    singa.seed(0)
    net.compile([X], **kwargs)
    return net, [float(net(X, Y)[1]) for _ in range(steps)]


@pytest.mark.parametrize("use_graph", [False, True])
def test_forward_names_the_first_operation_and_its_layer(use_graph):
    negative = InLayer(lambda x: autograd.exp(autograd.log(autograd.negative(autograd.exp(x)))))
    net, _ = trained(negative, use_graph=use_graph)
    with pytest.raises(FloatingPointError, match=r"Log in layer between made .* 16 NaN") as caught:
        singa.detect_anomaly()(net)(X, Y)
    assert "(4, 4)" in str(caught.value)


@pytest.mark.parametrize("use_graph", [False, True])
def test_backward_names_the_first_operation_and_its_layer(use_graph):
    flat = InLayer(lambda x: autograd.sqrt(autograd.mul(x, tensor.zeros(x.shape))))
    net, _ = trained(flat, use_graph=use_graph)
    with (
        pytest.raises(
            FloatingPointError, match=r"backward of Sqrt in layer between made .*infinity"
        ),
        singa.detect_anomaly(),
    ):
        net(X, Y)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_types_and_numbers(dtype):
    x = of([[-1.0, 0.0, 2.0]], dtype)
    with pytest.raises(FloatingPointError) as caught, singa.detect_anomaly():
        autograd.log(x)
    message = str(caught.value)
    assert "Log made a result with 1 NaN, 1 infinity, values from 0.69" in message
    assert f"in {dtype} (1, 3), from values from -1 to 2" in message


def test_a_blocked_result():
    x = of(np.ones((2, 16, 8, 8)))
    w = of(np.full((16, 16, 3, 3), 3e38))
    handle = singa_wrap.ConvHandle(x.data, [3, 3], [1, 1], [1, 1], 16, 16, False)
    # Of sums of infinity with either sign, which Winograd's method forms, NaN.
    found = pytest.raises(FloatingPointError, match=r"Conv2d made .* (NaN|infinity)")
    with found, singa.detect_anomaly():
        autograd.conv2d(handle, x, w)


def test_a_constant_infinity_is_none_but_a_nan_of_it_is():
    scores = of([[1.0, 2.0], [3.0, 4.0]], parameter=True)
    mask = of([[0.0, -np.inf], [0.0, 0.0]])
    hopeless = of([[-np.inf, -np.inf], [0.0, 0.0]])
    with autograd.enable_grad(), singa.detect_anomaly():
        kept = autograd.softmax(autograd.add(scores, mask))
        autograd.gradients(autograd.reduce_sum(kept))
        with pytest.raises(FloatingPointError, match=r"SoftMax made .*2 NaN"):
            autograd.softmax(autograd.add(scores, hopeless))


def test_values_whose_sum_overflows_are_no_anomaly():
    with singa.detect_anomaly():
        autograd.relu(of(np.full(100, 3e38)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_parameter_is_named(value):
    net, _ = trained(autograd.relu)
    net.last.W.set_value(value)
    net.eval()
    with (
        pytest.raises(FloatingPointError, match=r"Linear in layer last got a parameter last\.W"),
        singa.detect_anomaly(),
    ):
        net(X)


def test_a_broken_image_is_nobodys_fault():
    net, _ = trained(autograd.relu)
    net.eval()
    with singa.detect_anomaly():
        assert np.isnan(net(np.full_like(X, np.nan)).numpy()).all()


def test_a_sum_of_gradients_that_overflows():
    w = of([0.1], parameter=True)
    with autograd.enable_grad(), singa.detect_anomaly():
        y = autograd.mul(w, of([1.0]))
        loss = autograd.add(autograd.mul(y, of([2e38])), autograd.mul(y, of([3e38])))
        with pytest.raises(FloatingPointError, match=r"backward of Mul got a gradient .* a sum"):
            autograd.gradients(loss)


def test_an_operator_of_the_users():
    class Reciprocal(autograd.Operator):
        def forward(self, x):
            self.x = x
            return singa_wrap.PowFloat(x, -1.0)

        def backward(self, dy):
            zero = singa_wrap.Binary(singa_wrap.BinaryOp_kSub, self.x, self.x)
            return singa_wrap.Binary(singa_wrap.BinaryOp_kDiv, dy, zero)

    w = of([1.0, 2.0], parameter=True)
    with autograd.enable_grad(), singa.detect_anomaly():
        loss = autograd.reduce_sum(Reciprocal()(w)[0])
        with pytest.raises(FloatingPointError, match=r"backward of Reciprocal made .*2 infinity"):
            autograd.gradients(loss)


def test_results_stay_and_nothing_is_left_behind():
    _, expected = trained(autograd.relu, 6, use_graph=True)
    net, losses = trained(autograd.relu, 2, use_graph=True)
    with singa.detect_anomaly(), singa.detect_anomaly():
        losses += [float(net(X, Y)[1]) for _ in range(2)]
    losses += [float(net(X, Y)[1]) for _ in range(2)]
    assert losses == expected
    assert not tape.followers
    assert not tape.backward_followers
    assert tape.current_layer is None

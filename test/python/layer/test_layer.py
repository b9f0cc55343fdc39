"""Layers: values against PyTorch's modules."""

import numpy as np
import pytest
import singa
from arrays import array, image
from singa import autograd, layer, models, opt, tensor


def test_conv2d_in_singas_older_form():
    conv = layer.Conv2d(3, 8, 5, 2, 1)
    y = conv(image(2, 3, 9, 9))
    assert conv.W.shape == (8, 3, 5, 5)
    assert y.shape == (2, 8, 4, 4)
    with pytest.raises(ValueError, match=r"in_channels is 3, got input \(2, 4, 9, 9\)"):
        layer.Conv2d(3, 8, 5)(image(2, 4, 9, 9))


def test_conv2d_activation():
    x = image(2, 3, 5, 5)
    singa.seed(3)
    plain = layer.Conv2d(4, 3)
    y = plain(x).numpy()
    singa.seed(3)
    np.testing.assert_array_equal(layer.Conv2d(4, 3, activation="RELU")(x).numpy(), y.clip(0))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [(6, 7), (9, 5)])
def test_same_padding_follows_the_input(torch, mode, size):
    conv = layer.Conv2d(2, (4, 3), stride=(2, 1), pad_mode=mode)
    for height, width in (size, (8, 8), size):
        x = array(1, 3, height, width)
        y = conv(tensor.from_numpy(x))
        assert y.shape == (1, 2, -(-height // 2), width)
        rows = max((-(-height // 2) - 1) * 2 + 4 - height, 0)
        top = rows // 2 if mode == "SAME_UPPER" else rows - rows // 2
        padded = np.pad(x, ((0, 0), (0, 0), (top, rows - top), (1, 1)))
        expected = torch.nn.functional.conv2d(
            torch.from_numpy(padded),
            torch.from_numpy(conv.W.numpy()),
            torch.from_numpy(conv.b.numpy()),
            stride=(2, 1),
        )
        np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_four_paddings_in_singas_order(torch):
    conv = layer.Conv2d(2, 3, padding=(1, 0, 2, 1))  # top, bottom, left, right
    x = array(1, 3, 6, 6)
    y = conv(tensor.from_numpy(x))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (2, 1)))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(padded), *(torch.from_numpy(t.numpy()) for t in (conv.W, conv.b))
    )
    np.testing.assert_allclose(y.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_linear_in_singas_older_form():
    linear = layer.Linear(4, 3, False)
    assert linear(image(2, 4)).shape == (2, 3)
    assert linear.b is None
    with pytest.raises(ValueError, match=r"in_features is 4, got input \(2, 5\)"):
        layer.Linear(4, 3)(image(2, 5))


def test_batchnorm_with_residual_and_relu_like_torch(torch, training):
    ours, theirs = layer.BatchNorm2d(momentum=0.1), torch.nn.BatchNorm2d(20)
    x, z, dy = (array(4, 20, 6, 5) for _ in range(3))
    tx, tz = (torch.tensor(a, requires_grad=True) for a in (x, z))
    sx, sz = (tensor.Tensor(data=a, stores_grad=True) for a in (x, z))
    ty, y = torch.relu(theirs(tx) + tz), ours(sx, add=sz, relu=True)
    truths = torch.autograd.grad(ty, (tx, tz, theirs.weight, theirs.bias), torch.from_numpy(dy))
    gradients = autograd.gradients(y, dy)
    near = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), **near)
    for t, truth in zip((sx, sz, ours.scale, ours.bias), truths, strict=True):
        np.testing.assert_allclose(gradients[t].numpy(), truth.numpy(), **near)


def test_sequential_computes_batchnorm_and_relu_at_once(training):
    bn, relu, conv = layer.BatchNorm2d(), layer.ReLU(), layer.Conv2d(4, 3)
    x = tensor.Tensor(data=array(5, 4, 8, 8), stores_grad=True)
    net = layer.Sequential(bn, relu, conv, relu, layer.BatchNorm2d(), relu, relu)
    net(x)
    dy = array(5, 4, 6, 6)

    def run(forward):
        bn.running_mean.set_value(0.0)
        bn.running_var.set_value(1.0)
        y = forward(x)
        gradients = autograd.gradients(y, dy)
        assert len(gradients) == 7
        return [y.numpy(), *(t.numpy() for t in bn.get_states().values()), gradients[x].numpy()]

    def one_by_one(x):
        for each in net:
            x = each(x)
        return x

    for got, truth in zip(run(net), run(one_by_one), strict=True):
        np.testing.assert_array_equal(got, truth)
    assert type(layer.Sequential(bn, relu)(x).creator).__name__ == "_BatchNorm2d"


@pytest.mark.parametrize("function", ["ReLU6", "Hardswish", "SiLU"])
def test_batchnorm_and_activations_at_once_like_torch(torch, training, function):
    ours = layer.BatchNorm2d(momentum=0.1)
    theirs = torch.nn.Sequential(torch.nn.BatchNorm2d(20), getattr(torch.nn, function)())
    x, dy = array(4, 20, 6, 5), array(4, 20, 6, 5)
    ours(tensor.from_numpy(x))
    scale, bias = 1 + 3 * np.abs(array(20)), array(20)
    for values, mine, other in (
        (scale, ours.scale, theirs[0].weight),
        (bias, ours.bias, theirs[0].bias),
    ):
        mine.copy_from_numpy(values)
        other.data = torch.from_numpy(values)
    for layout in (lambda t: t, autograd.to_blocked):
        mine = tensor.Tensor(data=x, stores_grad=True)
        tx = torch.tensor(x, requires_grad=True)
        y, ty = ours(layout(mine), activation=function.lower()), theirs(tx)
        assert type(y.creator).__name__ == "_BatchNorm2d"
        truths = torch.autograd.grad(
            ty, (tx, theirs[0].weight, theirs[0].bias), torch.from_numpy(dy)
        )
        gradients = autograd.gradients(y, dy)
        near = {"rtol": 1e-4, "atol": 1e-4}
        np.testing.assert_allclose(y.numpy(), ty.detach().numpy(), **near)
        for t, truth in zip((mine, ours.scale, ours.bias), truths, strict=True):
            np.testing.assert_allclose(gradients[t].numpy(), truth.numpy(), **near)


def test_sequential_is_fused_in_recorded_steps():
    net = models.Sequential(
        layer.Conv2d(4, 3), layer.BatchNorm2d(), layer.ReLU6(), loss=autograd.mse_loss
    )
    x, y = image(2, 3, 6, 6), image(2, 4, 4, 4)
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True, use_graph=True)
    for _ in range(3):
        net(x, y)
    with singa.profile() as profile:
        net(x, y)
    names = {record.op for record in profile.records}
    assert "BatchNormForwardTraining" in names
    assert not {"Clip", "ClipBackward"} & names


def test_batchnorm_refuses_activations(training):
    bn, x = layer.BatchNorm2d(), tensor.Tensor(data=array(2, 3, 4, 4))
    for arguments in ({"activation": "gelu"}, {"activation": "silu", "relu": True}):
        with pytest.raises(ValueError, match="activation must be"):
            bn(x, **arguments)
    with pytest.raises(ValueError, match="behind an addition must be ReLU"):
        bn(x, add=x, activation="silu")


def test_batchnorm_fixed_scale(training):
    bn, x = layer.BatchNorm2d(fix_scale=True), tensor.Tensor(data=array(4, 3, 2, 2))
    grads = autograd.gradients(autograd.reduce_sum(bn(x), keepdims=0))
    assert [t.name for t in grads.tensors()] == ["bias"]
    np.testing.assert_array_equal(bn.scale.numpy(), np.ones(3))


def test_one_handle_for_all_batch_sizes():
    conv, pool, bn = layer.Conv2d(4, 3), layer.MaxPool2d(2), layer.BatchNorm2d()
    handles = None
    for batch in (8, 3, 1, 8):
        y = pool(bn(conv(image(batch, 3, 8, 8))))
        assert y.shape == (batch, 4, 3, 3)
        handles = handles or (conv.handle, pool.handle, bn.handle)
        assert (conv.handle, pool.handle, bn.handle) == handles


def test_one_pooling_layer_serves_any_number_of_channels():
    pool = layer.MaxPool2d(2)
    for channels in (3, 5, 3):
        x = array(2, channels, 4, 4)
        expected = x.reshape(2, channels, 2, 2, 2, 2).max((3, 5))
        np.testing.assert_array_equal(pool(tensor.from_numpy(x)).numpy(), expected)


def test_embedding(torch):
    ours, theirs = layer.Embedding(7, 3), torch.nn.Embedding(7, 3)
    indices = tensor.from_numpy(np.array([[1, 2], [6, 1]], np.int32))
    ours(indices)
    ours.from_pretrained(tensor.from_numpy(theirs.weight.detach().numpy()))
    expected = theirs(torch.tensor([[1, 2], [6, 1]])).detach().numpy()
    np.testing.assert_array_equal(ours(indices).numpy(), expected)
    assert not ours.W.requires_grad
    fresh = layer.Embedding(7, 3)
    fresh.from_pretrained(ours.W, freeze=False)
    np.testing.assert_array_equal(fresh(indices).numpy(), expected)
    assert fresh.W.requires_grad


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn(torch, nonlinearity):
    steps, h0 = [array(2, 3) for _ in range(4)], array(2, 5)
    ours = layer.RNN(3, 5, nonlinearity=nonlinearity)
    out, last = ours([tensor.from_numpy(x) for x in steps], tensor.from_numpy(h0))
    theirs = torch.nn.RNN(3, 5, nonlinearity=nonlinearity)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(torch.from_numpy(ours.Wx.numpy().T))
        theirs.weight_hh_l0.copy_(torch.from_numpy(ours.Wh.numpy().T))
        theirs.bias_ih_l0.copy_(torch.from_numpy(ours.b.numpy()))
        theirs.bias_hh_l0.zero_()
        y, _ = theirs(torch.from_numpy(np.stack(steps)), torch.from_numpy(h0[None]))
    for got, expected in zip(out, y.numpy(), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(last.numpy(), out[-1].numpy())


def test_lstm(torch):
    steps, h0, c0 = [array(2, 3) for _ in range(4)], array(2, 5), array(2, 5)
    ours = layer.LSTM(3, 5)
    xs, state = (
        [tensor.from_numpy(x) for x in steps],
        (tensor.from_numpy(h0), tensor.from_numpy(c0)),
    )
    ours(xs, state)
    for param in ours.get_params().values():
        param.copy_from_numpy(array(*param.shape))
    out, h, c = ours(xs, state)
    theirs = torch.nn.LSTM(3, 5)

    def joined(name):  # PyTorch's order of gates is i, f, g, o
        parts = [getattr(ours, f"{name}_{gate}").numpy() for gate in "ifgo"]
        return torch.from_numpy(np.concatenate([part.T for part in parts]))

    with torch.no_grad():
        theirs.weight_ih_l0.copy_(joined("Wx"))
        theirs.weight_hh_l0.copy_(joined("Wh"))
        theirs.bias_ih_l0.copy_(joined("Bx"))
        theirs.bias_hh_l0.copy_(joined("Bh"))
        y, (_, cy) = theirs(
            torch.from_numpy(np.stack(steps)),
            (torch.from_numpy(h0[None]), torch.from_numpy(c0[None])),
        )
    np.testing.assert_allclose(np.stack([t.numpy() for t in out]), y.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(c.numpy(), cy[0].numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(h.numpy(), out[-1].numpy())
    assert len(ours.get_params()) == 16


def test_cudnn_rnn_last_output_and_mask():
    singa.seed(5)
    x = image(3, 6, 2)
    whole = layer.CudnnRNN(4)
    y = whole(x).numpy()
    last = layer.CudnnRNN(4, return_sequences=False)
    last(x)
    last.W.copy_from(whole.W)
    np.testing.assert_array_equal(last(x).numpy(), y[:, -1])
    lengths = np.array([6, 2, 4], np.int32)
    masked = layer.CudnnRNN(4, use_mask=True, return_sequences=False)
    masked(x, seq_lengths=tensor.from_numpy(lengths))
    masked.W.copy_from(whole.W)
    got = masked(x, seq_lengths=tensor.from_numpy(lengths)).numpy()
    np.testing.assert_allclose(got, y[np.arange(3), lengths - 1], rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="seq_lengths"):
        masked(x)


def test_a_recurrent_layer_learns():
    singa.seed(2)
    x, target = image(8, 5, 3), image(8, 4)
    net = layer.CudnnRNN(4, rnn_mode="gru", return_sequences=False)
    optimizer = opt.Adam(lr=0.02)
    autograd.training = True
    try:
        losses = []
        for _ in range(30):
            loss = autograd.mse_loss(net(x), target)
            optimizer(loss)
            losses.append(float(loss))
    finally:
        autograd.training = False
    assert losses[-1] < 0.7 * losses[0]


def test_simple_layers():
    x, other = array(3, 4), array(3, 4)
    tx, to = tensor.from_numpy(x), tensor.from_numpy(other)
    exp = np.exp(x - x.max(1, keepdims=True))
    probabilities = exp / exp.sum(1, keepdims=True)
    labels = np.array([1, 0, 3], np.int32)
    cases = [
        (layer.ReLU()(tx), x.clip(0)),
        (layer.Sigmoid()(tx), 1 / (1 + np.exp(-x))),
        (layer.Add()(tx, to), x + other),
        (layer.Flatten()(image(2, 3, 4)).shape, (2, 12)),
        (layer.SoftMax()(tx), probabilities),
        (
            layer.SoftMaxCrossEntropy()(tx, tensor.from_numpy(labels)),
            -np.log(probabilities[np.arange(3), labels]).mean(),
        ),
        (layer.MeanSquareError()(tx, to), ((x - other) ** 2).mean()),
        (layer.Cat(1)([tx, to]), np.concatenate([x, other], 1)),
        (layer.Reshape()(tx, (2, 6)), x.reshape(2, 6)),
        (layer.Dropout(0.5)(tx), x),
    ]
    for got, expected in cases:
        got = got.numpy().reshape(np.shape(expected)) if isinstance(got, tensor.Tensor) else got
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_dropout_in_training(training):
    singa.seed(0)
    y = layer.Dropout(0.25)(tensor.from_numpy(np.ones((100, 100), np.float32))).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert (y == 0).mean() == pytest.approx(0.25, abs=0.02)


def test_sequential():
    net = layer.Sequential(layer.Linear(3), layer.ReLU())
    assert len(net) == 2
    assert isinstance(net[1], layer.ReLU)
    assert net(image(2, 4)).shape == (2, 3)


# --- wrong use


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: layer.Conv2d(3, "3"), TypeError, "kernel_size must be an int or two"),
        (lambda: layer.Conv2d(3, (3, 3, 3)), TypeError, "kernel_size"),
        (lambda: layer.Conv2d(3, 3, stride=1.5), TypeError, "stride"),
        (lambda: layer.Conv2d(3, 3, padding=(1, 2, 3)), TypeError, "padding"),
        (lambda: layer.Conv2d(3, 3, pad_mode="VALID"), ValueError, "pad_mode must be 'NOTSET', "),
        (lambda: layer.Conv2d(3, 3, activation="TANH"), ValueError, "activation"),
        (
            lambda: layer.Conv2d(3, 3, colour="red"),
            TypeError,
            "has no argument 'colour'",
        ),
        (lambda: layer.Conv2d(3, 3, stride=0)(image(1, 2, 5, 5)), ValueError, "stride"),
        (lambda: layer.Conv2d(3, 3, padding=-1)(image(1, 2, 5, 5)), ValueError, "pad"),
        (lambda: layer.Conv2d(3, 7)(image(1, 2, 5, 5)), ValueError, "kernel"),
        (
            lambda: layer.Conv2d(3, 3, group=2)(image(1, 4, 5, 5)),
            ValueError,
            "group 2 must divide",
        ),
        (lambda: layer.Conv2d(4, 3, group=0)(image(1, 4, 5, 5)), ValueError, "group 0"),
        (lambda: layer.Conv2d(4, 3)(image(4, 5, 5)), ValueError, "expected .batch, channels"),
        (lambda: layer.Conv2d(4, 3)(array(1, 4, 5, 5)), TypeError, "expects tensors, got ndarray"),
        (lambda: layer.BatchNorm2d(momentum=1.5), ValueError, "momentum must lie in"),
        (
            lambda: layer.BatchNorm2d(4)(image(1, 3, 5, 5)),
            ValueError,
            r"expected \(batch, 4, ...\)",
        ),
        (lambda: layer.BatchNorm2d()(image(3)), ValueError, "expected"),
        (lambda: layer.Dropout(1.0), ValueError, "ratio"),
        (lambda: layer.Embedding(3, 4, "zeros"), ValueError, "initializer must be .*'zeros'"),
        (lambda: layer.RNN(3, 4, nonlinearity="selu"), ValueError, "nonlinearity must be .*'selu'"),
        (lambda: layer.RNN(3, 4)([], image(2, 4)), TypeError, "list of inputs"),
        (lambda: layer.CudnnRNN(4, rnn_mode="rnn"), ValueError, "rnn_mode must be .*'rnn'"),
        (lambda: layer.CudnnRNN(4, num_layers=0), ValueError, "num_layers"),
        (lambda: layer.CudnnRNN(4)(image(2, 3)), ValueError, "expected three axes"),
        (lambda: layer.Sequential(layer.ReLU(), 3), TypeError, "expected layers, got int"),
        (lambda: layer.Layer()(image(1)), NotImplementedError, r"does not define forward"),
    ],
)
def test_wrong_use(make, error, message):
    with pytest.raises(error, match=message):
        make()

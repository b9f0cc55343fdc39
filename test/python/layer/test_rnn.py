"""GRU beside torch.nn.GRU, and PyTorch's weights in recurrent layers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from bits import check_replays
from like_torch import Around, loaded
from singa import autograd, layer, model, tensor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True, "bias": False},
        {"num_layers": 2, "bidirectional": True},
        {"num_layers": 3, "batch_first": True, "bidirectional": True},
    ],
    ids=str,
)
def test_gru_is_pytorchs(torch: ModuleType, options: dict[str, Any], dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 4, 3)).astype(dtype)
    theirs = torch.nn.GRU(3, 6, **options).to(getattr(torch, dtype))
    ours = layer.GRU(3, 6, **options)
    tx = tensor.Tensor(data=x, dtype=dtype, stores_grad=True)
    net = loaded(ours, theirs, tx)
    batch = 5 if options.get("batch_first") else 4
    states = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    h0 = rng.standard_normal((states, batch, 6)).astype(dtype)
    th = tensor.Tensor(data=h0, dtype=dtype, stores_grad=True)
    px, ph = torch.tensor(x).requires_grad_(), torch.tensor(h0).requires_grad_()
    limit = {"float32": 2e-5, "float64": 1e-12}[dtype]
    autograd.training = True
    try:
        y, h = ours(tx, th)
        py, phn = theirs(px, ph)
        np.testing.assert_allclose(y.numpy(), py.detach().numpy(), rtol=0, atol=limit)
        np.testing.assert_allclose(h.numpy(), phn.detach().numpy(), rtol=0, atol=limit)
        dy = rng.standard_normal(y.shape).astype(dtype)
        gradients = autograd.gradients(y, dy)
    finally:
        autograd.training = False
    py.backward(torch.tensor(dy))
    for own, other in ((tx, px), (th, ph)):
        np.testing.assert_allclose(
            gradients[own].numpy(), other.grad.numpy(), rtol=0, atol=16 * limit
        )
    dw = gradients[net.get_params()["inner.W"]].numpy()
    truth = dict(theirs.named_parameters())
    for name, (at, shape) in ours.weight_places().items():
        part = dw[at : at + int(np.prod(shape))].reshape(shape)
        np.testing.assert_allclose(part, truth[name].grad.numpy(), rtol=0, atol=64 * limit)


def _reset_before(x: np.ndarray, w: dict[str, np.ndarray], h: np.ndarray) -> np.ndarray:
    """One layer of a GRU that resets h before the product, in NumPy."""

    def sigmoid(a: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-a))

    n = h.shape[1]
    out = []
    for step in x:
        given = step @ w["weight_ih_l0"].T + w["bias_ih_l0"]
        wh, bh = w["weight_hh_l0"], w["bias_hh_l0"]
        r = sigmoid(given[:, :n] + h @ wh[:n].T + bh[:n])
        z = sigmoid(given[:, n : 2 * n] + h @ wh[n : 2 * n].T + bh[n : 2 * n])
        new = np.tanh(given[:, 2 * n :] + (r * h) @ wh[2 * n :].T + bh[2 * n :])
        h = (1 - z) * new + z * h
        out.append(h)
    return np.stack(out)


def test_reset_before_the_product() -> None:
    rng = np.random.default_rng(2)
    x, h0 = rng.standard_normal((4, 2, 3)), rng.standard_normal((1, 2, 5))
    gru = layer.GRU(3, 5, linear_before_reset=False)
    tx, th = tensor.Tensor(data=x, dtype="float64"), tensor.Tensor(data=h0, dtype="float64")
    y, h = gru(tx, th)
    weights = {name: view.numpy() for name, view in gru.weight_views().items()}
    np.testing.assert_allclose(y.numpy(), _reset_before(x, weights, h0[0]), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(h.numpy()[0], y.numpy()[-1])

    def run(x: tensor.Tensor, h: tensor.Tensor, w: tensor.Tensor) -> tensor.Tensor:
        vars(gru)["W"] = w
        return gru(x, h)[0]

    assert autograd.gradcheck(run, [tx, th, gru.W])


@pytest.mark.parametrize(("dtype", "limit"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.usefixtures("training")
def test_reset_before_the_product_is_the_same_step_by_step(
    dtype: str, limit: float, both: bool
) -> None:
    """Results and gradients of the kernel beside those of single operators."""
    rng = np.random.default_rng(6)
    gru = layer.GRU(3, 5, num_layers=2, bidirectional=both, linear_before_reset=False)
    x, h, dy = (
        tensor.Tensor(data=rng.standard_normal(shape), dtype=dtype, stores_grad=True)
        for shape in ((6, 4, 3), (2 * (1 + both), 4, 5), (6, 4, 5 * (1 + both)))
    )
    found = []
    for function in (gru, gru._step_by_step):
        y, last = function(x, h)
        gradients = autograd.gradients(y, dy.detach())
        found.append([y, last, *(gradients[t] for t in (x, h, gru.W))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=limit)


def test_both_forms_agree_where_nothing_is_reset() -> None:
    """With W_hn = 0 and b_hn = 0 the reset gate has no effect."""
    x = tensor.Tensor(data=np.random.default_rng(3).standard_normal((5, 2, 3)), dtype="float64")
    options: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
    one, two = layer.GRU(3, 4, **options), layer.GRU(3, 4, linear_before_reset=False, **options)
    one(x)
    for name, view in one.weight_views().items():
        if "hh" in name:
            view.data.SliceAxis(0, 8, 12).Fill(0.0)
    two(x)
    two.W.copy_from(one.W)
    for a, b in zip(one(x), two(x), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("mode", ["lstm", "gru", "tanh", "relu"])
def test_cudnn_rnn_loads_pytorchs_weights(
    torch: ModuleType, mode: str, bidirectional: bool
) -> None:
    """In one vector: all weights, then all biases, ordered by layer and direction."""
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode)
    options = {"num_layers": 2, "batch_first": True, "bidirectional": bidirectional}
    theirs = kind(3, 4, **options) if kind else torch.nn.RNN(3, 4, nonlinearity=mode, **options)
    x = np.random.default_rng(4).standard_normal((2, 5, 3)).astype(np.float32)
    net = loaded(layer.CudnnRNN(4, rnn_mode=mode, **options), theirs, tensor.from_numpy(x))
    net.eval()
    truth = theirs(torch.tensor(x))[0].detach().numpy()
    np.testing.assert_allclose(net(tensor.from_numpy(x)).numpy(), truth, rtol=0, atol=2e-5)
    parameters = sorted(theirs.named_parameters(), key=lambda named: named[0].startswith("bias"))
    flat = [value.detach().numpy().ravel() for _, value in parameters]
    np.testing.assert_array_equal(net.inner.W.numpy(), np.concatenate(flat))


def test_training_replays_the_executed_bits() -> None:
    class Net(model.Model):
        def __init__(self) -> None:
            super().__init__()
            self.gru = layer.GRU(3, 6, num_layers=2, batch_first=True)
            self.slow = layer.GRU(6, 4, batch_first=True, linear_before_reset=False)
            self.stack = layer.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
            self.head = layer.Linear(4)
            self.loss = layer.CrossEntropyLoss()

        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            y, h = self.slow(self.gru(x)[0])
            return self.head(autograd.cat([self.stack(y)[0][:, -1], autograd.squeeze(h, 0)], 1))

    rng = np.random.default_rng(5)
    batches = [
        (rng.standard_normal((6, 5, 3), np.float32), rng.integers(0, 4, 6).astype(np.int32))
        for _ in range(5)
    ]
    check_replays(Net, batches)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 9, 45])
@pytest.mark.parametrize("mode", ["lstm", "gru", "tanh", "relu"])
@pytest.mark.usefixtures("training")
def test_wide_networks_are_pytorchs(torch: ModuleType, mode: str, batch: int, threads: int) -> None:
    """Results and gradients in float32 beside PyTorch's in float64."""
    torch.manual_seed(7)  # with some weights rounding decides on which side of 0 a ReLU's sum lies
    rng = np.random.default_rng(7)
    x, dy = rng.standard_normal((6, batch, 90)), rng.standard_normal((6, batch, 2 * 100))
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode)
    options = {"num_layers": 2, "bidirectional": True}
    theirs = (
        kind(90, 100, **options) if kind else torch.nn.RNN(90, 100, nonlinearity=mode, **options)
    )
    tx = tensor.Tensor(data=x, dtype="float32", stores_grad=True)
    inner = layer.CudnnRNN(100, rnn_mode=mode, batch_first=False, **options)
    net = loaded(inner, theirs, tx)
    before = singa.get_num_threads()
    singa.set_num_threads(threads)
    try:
        y = inner(tx)
        gradients = autograd.gradients(y, dy.astype(np.float32))
    finally:
        singa.set_num_threads(before)
    px = torch.tensor(x).requires_grad_()
    truth = theirs.double()(px)[0]
    truth.backward(torch.tensor(dy))
    found = {"y": (y.numpy(), truth.detach()), "x": (gradients[tx].numpy(), px.grad)}
    dw = gradients[net.get_params()["inner.W"]].numpy()
    parameters = dict(theirs.named_parameters())
    for name, (at, shape) in inner.weight_places().items():
        part = dw[at : at + int(np.prod(shape))].reshape(shape)
        found[name] = (part, parameters[name].grad)
    for name, (ours, other) in found.items():
        limit = 1e-5 * max(1, other.abs().max().item())
        np.testing.assert_allclose(ours, other.numpy(), rtol=0, atol=limit, err_msg=name)


@pytest.mark.cpu("the layout of weights is that of the CPU's kernel")
def test_inference_prepares_the_weights_once() -> None:
    rng = np.random.default_rng(8)
    x, short = (
        tensor.from_numpy(rng.standard_normal((batch, 5, 20), np.float32)) for batch in (4, 1)
    )
    net = Around(layer.CudnnRNN(40, num_layers=2))
    net.compile([x], is_train=False, use_graph=False)

    def agree() -> None:
        for inputs in (x, short):
            net.graph(False)
            executed = net(inputs).numpy()
            net.graph(True)
            for _ in range(4):
                np.testing.assert_array_equal(net(inputs).numpy(), executed)

    agree()
    weights = net.inner.W
    prepared = net.memory_plan()["by_kind"]["prepared weights"]
    assert weights.memsize() <= prepared < 1.5 * weights.memsize()  # for both sizes of batches
    singa.layout_report()
    net(x)
    assert singa.layout_report(record=False) == []
    weights.copy_from_numpy(weights.numpy() * np.float32(1.5))
    agree()


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"\[GRU\] expected three axes and 3 features"):
        layer.GRU(3, 4)(tensor.Tensor((2, 5, 4)))
    with pytest.raises(ValueError, match=r"\[GRU\] input_size"):
        layer.GRU(0, 4)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [layer.RNN, layer.LSTM])
def test_a_tensor_of_sequences_is_a_list_of_steps(kind, batch_first):
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
    net = kind(3, 4, batch_first=batch_first)
    given = tensor.from_numpy(x.transpose(1, 0, 2).copy() if batch_first else x)
    output, last = net(given)
    steps = [tensor.from_numpy(step) for step in x]
    zero = tensor.zeros((2, 4))
    states, *ends = net(steps, zero if kind is layer.RNN else (zero, zero))
    expected = np.stack([state.numpy() for state in states], 1 if batch_first else 0)
    np.testing.assert_array_equal(output.numpy(), expected)
    for got, end in zip([last] if kind is layer.RNN else last, ends, strict=True):
        assert got.shape == (1, 2, 4)
        np.testing.assert_array_equal(got.numpy()[0], end.numpy())
    again, _ = net(given, last)  # states with PyTorch's axis
    states, *_ = net(steps, ends[0] if kind is layer.RNN else tuple(ends))
    last_step = again.numpy()[:, -1] if batch_first else again.numpy()[-1]
    np.testing.assert_array_equal(last_step, states[-1].numpy())


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2},
        {"bidirectional": True, "batch_first": True},
        {"num_layers": 3, "bidirectional": True, "batch_first": True},
        {"bias": False},
        {"num_layers": 2, "nonlinearity": "relu"},
        {"num_layers": 2, "dropout": 0.5},  # of which inference has none
    ],
    ids=str,
)
def test_several_layers_are_pytorchs(torch: ModuleType, kind: str, options: dict[str, Any]) -> None:
    if kind == "LSTM" and "nonlinearity" in options:
        with pytest.raises(ValueError, match="nonlinearity must be 'tanh', got 'relu'"):
            layer.LSTM(3, 6, **options)
        return
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 4, 3))
    theirs = getattr(torch.nn, kind)(3, 6, **options).double().eval()
    ours = getattr(layer, kind)(3, 6, **options)
    tx = tensor.Tensor(data=x, dtype="float64", stores_grad=True)
    net = loaded(ours, theirs, tx)
    net.eval()
    batch = 5 if options.get("batch_first") else 4
    count = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    states = rng.standard_normal((2, count, batch, 6))
    own = [tensor.Tensor(data=each, dtype="float64") for each in states]
    px = torch.tensor(x).requires_grad_()
    other = [torch.tensor(each) for each in states]
    dy = rng.standard_normal((*x.shape[:2], 6 * (1 + options.get("bidirectional", False))))
    with autograd.enable_grad():
        ours.dropout = 0.0
        y, last = ours(tx, tuple(own) if kind == "LSTM" else own[0])
        gradients = autograd.gradients(y, dy)
        ours.dropout = options.get("dropout", 0.0)
    py, plast = theirs(px, tuple(other) if kind == "LSTM" else other[0])
    py.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.numpy(), py.detach().numpy(), rtol=0, atol=1e-12)
    pairs = zip(last, plast, strict=True) if kind == "LSTM" else [(last, plast)]
    for mine, its in pairs:
        np.testing.assert_allclose(mine.numpy(), its.detach().numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(gradients[tx].numpy(), px.grad.numpy(), rtol=0, atol=1e-11)
    again, _ = ours(tx)  # states are 0 by default
    first, _ = theirs(px)
    np.testing.assert_allclose(again.numpy(), first.detach().numpy(), rtol=0, atol=1e-12)


def test_several_layers_need_a_tensor() -> None:
    lstm = layer.LSTM(3, 4, num_layers=2)
    with pytest.raises(TypeError, match="need a tensor of sequences"):
        lstm([tensor.ones((2, 3))] * 5)
    with pytest.raises(ValueError, match="expected 3 features"):
        lstm(tensor.ones((5, 2, 4)))
    rnn = layer.RNN(3, 4, bidirectional=True)
    assert rnn(tensor.ones((5, 2, 3)))[0].shape == (5, 2, 8)
    rnn.batch_first = True
    assert rnn(tensor.ones((5, 2, 3)))[1].shape == (2, 5, 4)

"""Functions and operators that compute as SINGA does while its behaviour is on, and as before
otherwise."""

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, compat, layer, opt, singa_wrap, sonnx, tensor
from singa.tensor import Tensor

RANDOM = np.random.default_rng(0)
CUBE = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)


@pytest.fixture
def singas_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "enabled", True)


def parameter(array: Any) -> Tensor:
    return Tensor(data=np.asarray(array, np.float32), stores_grad=True)


def of(array: Any) -> Tensor:
    return Tensor(data=np.asarray(array, np.float32))


def rows_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    """Softmax over all axes from `axis` on, in float64."""
    rows = x.astype(np.float64).reshape(math.prod(x.shape[:axis]), -1)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return (powers / powers.sum(1, keepdims=True)).reshape(x.shape)


# Softmax.


@pytest.mark.usefixtures("singas_way", "training")
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_softmax_sums_over_all_axes_from_one_on(axis: int) -> None:
    x = parameter(CUBE)
    y = rows_softmax(CUBE, axis % 3)
    np.testing.assert_allclose(autograd.softmax(x, axis).numpy(), y, rtol=1e-5)
    (result,) = autograd.SoftMax(axis)(x)
    np.testing.assert_allclose(result.numpy(), y, rtol=1e-5)
    dy = RANDOM.standard_normal(CUBE.shape)
    rest = tuple(range(axis % 3, 3))
    dx = y * (dy - (dy * y).sum(rest, keepdims=True))
    np.testing.assert_allclose(autograd.gradients(result, of(dy))[x].numpy(), dx, atol=1e-6)


@pytest.mark.usefixtures("singas_way")
def test_softmax_of_layers_and_tensors() -> None:
    scores = of(RANDOM.standard_normal((2, 1000, 1, 1)))
    wanted = rows_softmax(scores.numpy(), 1)
    np.testing.assert_allclose(tensor.softmax(scores).numpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(layer.SoftMax()(scores).numpy(), wanted, rtol=1e-5)
    out = tensor.zeros(scores.shape)
    assert tensor.softmax(scores, out) is out
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5)
    along = layer.Softmax(2)(of(CUBE)).numpy()  # which SINGA does not have
    np.testing.assert_allclose(along.sum(2), np.ones((2, 3)), rtol=1e-5)
    vector = of([1.0, 2.0])
    np.testing.assert_allclose(tensor.softmax(vector).numpy(), rows_softmax(vector.numpy(), 0))


def test_softmax_by_default() -> None:
    x = of(CUBE)
    powers = np.exp(CUBE.astype(np.float64))
    for axis in (0, 1, 2):
        wanted = powers / powers.sum(axis, keepdims=True)
        np.testing.assert_allclose(autograd.softmax(x, axis).numpy(), wanted, rtol=1e-5)
    rows = of(CUBE[0])
    wanted = powers[0] / powers[0].sum(-1, keepdims=True)
    np.testing.assert_allclose(tensor.softmax(rows).numpy(), wanted, rtol=1e-5)


@pytest.mark.usefixtures("singas_way")
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_in_files(axis: int) -> None:
    """ONNX's softmax stays along one axis, and SINGA's goes out as what it computes."""
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    from singa.onnx.save import to_model

    helper = onnx.helper
    infos = [helper.make_tensor_value_info(name, 1, CUBE.shape) for name in "xy"]
    node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
    graph = helper.make_graph([node], "softmax", infos[:1], infos[1:])
    opset = [helper.make_opsetid("", 21)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=10)
    powers = np.exp(CUBE.astype(np.float64))
    wanted = powers / powers.sum(axis, keepdims=True)
    (along,) = sonnx.prepare(proto).run([of(CUBE)])
    np.testing.assert_allclose(along.numpy(), wanted, rtol=1e-5)

    class Net(layer.Layer):
        def forward(self, x: Tensor) -> Tensor:
            return autograd.softmax(x, axis)

    proto = to_model(Net(), [of(CUBE)])
    (found,) = reference.ReferenceEvaluator(proto).run(None, {"x": CUBE})
    np.testing.assert_allclose(found, rows_softmax(CUBE, axis), rtol=1e-5)


# Losses.


@pytest.mark.usefixtures("singas_way", "training")
@pytest.mark.parametrize("slope", [1.0, 2.5])
def test_binary_cross_entropy_keeps_away_from_zero(torch: ModuleType, slope: float) -> None:
    p = np.array([[0.0, 1.0, 0.3], [0.5, 0.9, 1e-4]], np.float32)
    t = np.array([[0.0, 1.0, 1.0], [0.2, 0.0, 1.0]], np.float32)
    x, target = parameter(p), parameter(t)
    theirs, targets = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in (p, t))
    logs = targets * torch.log(theirs + 1e-4) + (1 - targets) * torch.log(1.0001 - theirs)
    loss = -logs.sum() / 2
    (slope * loss).backward()
    ours = autograd.binary_cross_entropy(x, target)
    np.testing.assert_allclose(ours.numpy(), [loss.item()], rtol=1e-5)
    found = autograd.gradients(ours, of([slope]))
    # 1.0001 - 1 has an error of 1e-3 in float32.
    np.testing.assert_allclose(found[x].numpy(), theirs.grad, rtol=2e-3)
    np.testing.assert_allclose(found[target].numpy(), targets.grad, rtol=2e-3)


@pytest.mark.usefixtures("singas_way", "training")
def test_mean_square_error_spreads_its_target(torch: ModuleType) -> None:
    a, b = CUBE[0], CUBE[0, :, :1]
    x, t = parameter(a), parameter(b)
    theirs, targets = (torch.tensor(v, requires_grad=True) for v in (a, b))
    loss = ((theirs - targets) ** 2).mean()
    loss.backward()
    ours = autograd.mse_loss(x, t)
    np.testing.assert_allclose(ours.numpy(), [loss.item()], rtol=1e-6)
    found = autograd.gradients(ours)
    np.testing.assert_allclose(found[x].numpy(), theirs.grad, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[t].numpy(), targets.grad, rtol=1e-5, atol=1e-7)
    with pytest.raises(AssertionError, match=r"\(3, 4\)"):
        autograd.mse_loss(x, of(np.ones((3, 2))))


@pytest.mark.usefixtures("singas_way", "training")
def test_ranking_loss_divides_by_rows(torch: ModuleType) -> None:
    a, b = CUBE[0], CUBE[1]
    pos, neg = parameter(a), parameter(b)
    theirs, others = (torch.tensor(v, requires_grad=True) for v in (a, b))
    loss = (0.3 - (theirs - others)).clamp(min=0).sum() / 3
    loss.backward()
    ours = autograd.ranking_loss(pos, neg, 0.3)
    np.testing.assert_allclose(ours.numpy(), [loss.item()], rtol=1e-6)
    found = autograd.gradients(ours)
    np.testing.assert_allclose(found[pos].numpy(), theirs.grad, rtol=1e-6)
    np.testing.assert_allclose(found[neg].numpy(), others.grad, rtol=1e-6)


def test_losses_by_default() -> None:
    x, t = of(CUBE[0]), of(CUBE[1])
    margins = np.maximum(0, 0.2 - (CUBE[0] - CUBE[1]))
    np.testing.assert_allclose(autograd.ranking_loss(x, t).numpy(), [margins.mean()], rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(3, 1\)"):
        autograd.mse_loss(x, of(CUBE[1, :, :1]))
    loss = autograd.binary_cross_entropy(of([[0.0]]), of([[1.0]]))
    np.testing.assert_allclose(loss.numpy(), [100.0])


# Shapes and indices.


@pytest.mark.usefixtures("singas_way", "training")
@pytest.mark.parametrize("axes", [[2, 4, 5], [7], [-9], [0, 0], [3, 1], [-1], [1, 9, 0]])
def test_unsqueeze_inserts_as_lists_do(axes: list[int]) -> None:
    x = parameter(CUBE[0])
    shape = list(x.shape)
    for axis in axes:
        shape.insert(axis, 1)
    y = autograd.unsqueeze(x, axes)
    assert y.shape == tuple(shape)
    np.testing.assert_array_equal(autograd.gradients(y, tensor.ones(y.shape))[x].numpy(), 1.0)


@pytest.mark.usefixtures("singas_way", "training")
def test_unsqueeze_leaves_vectors() -> None:
    """By the list [0] alone."""
    x = parameter([1.0, 2.0])
    y = autograd.unsqueeze(x, [0])
    assert y.numpy().tolist() == [1.0, 2.0]
    assert autograd.gradients(y, of([3.0, 4.0]))[x].numpy().tolist() == [3.0, 4.0]
    for axis, shape in [(0, (1, 2)), ((0,), (1, 2)), ([1], (2, 1)), ([0, 1], (1, 1, 2))]:
        assert autograd.unsqueeze(x, axis).shape == shape
    assert autograd.unsqueeze(of([[1.0]]), [0]).shape == (1, 1, 1)


def test_unsqueeze_by_default() -> None:
    assert autograd.unsqueeze(of([1.0, 2.0]), [0]).shape == (1, 2)
    with pytest.raises(ValueError, match="axis 5 is outside"):
        autograd.unsqueeze(of(CUBE[0]), [2, 4, 5])


@pytest.mark.usefixtures("singas_way", "training")
def test_gather_takes_indices_modulo_the_length() -> None:
    x = parameter([0.0, 1.0, 2.0])
    y = autograd.gather(x, 0, [0, 4, -5, 3])
    assert y.numpy().tolist() == [0, 1, 1, 0]
    found = autograd.gradients(y, of([1.0, 2.0, 3.0, 4.0]))
    assert found[x].numpy().tolist() == [5, 5, 0]


def test_gather_by_default() -> None:
    with pytest.raises(IndexError, match="index 3"):
        autograd.gather(of([0.0, 1.0, 2.0]), 0, [0, 1, 3]).numpy()


def test_sums_keep_their_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = of(CUBE[0])
    assert (tensor.sum_columns(matrix).shape, tensor.sum_rows(matrix).shape) == ((3,), (4,))
    monkeypatch.setattr(compat, "enabled", True)
    columns, rows = tensor.sum_columns(matrix).numpy(), tensor.sum_rows(matrix).numpy()
    np.testing.assert_allclose(columns, CUBE[0].sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows, CUBE[0].sum(0, keepdims=True), rtol=1e-5, atol=1e-6)


# The tape and raw tensors.


class Doubled(autograd.Operator):
    """An operator as scripts write it: the gradient of a loss is a number."""

    def forward(self, x: Any) -> Any:
        return singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, x, x)

    def backward(self, dy: Any) -> Any:
        self.given = dy
        dx = tensor.from_numpy(np.full(1, 2.0, np.float32)).data
        dx *= float(dy) if isinstance(dy, float) else dy
        return dx


@pytest.mark.usefixtures("training")
@pytest.mark.parametrize("dy", [None, 3.0, 2])
def test_the_gradient_of_a_loss_is_a_number(
    monkeypatch: pytest.MonkeyPatch, dy: float | None
) -> None:
    x, op = parameter([1.5]), Doubled()
    loss = op(x)[0]
    wanted = 2.0 * (1.0 if dy is None else dy)
    monkeypatch.setattr(compat, "enabled", True)
    assert autograd.gradients(loss, dy)[x].numpy().tolist() == [wanted]
    assert op.given == wanted / 2
    assert isinstance(op.given, float)
    autograd.gradients(autograd.mul(loss, of([2.0])), dy)
    assert isinstance(op.given, singa_wrap.Tensor)  # an operator in the middle gets a tensor
    monkeypatch.setattr(compat, "enabled", False)
    assert autograd.gradients(loss, dy)[x].numpy().tolist() == [wanted]
    assert isinstance(op.given, singa_wrap.Tensor)


def test_layers_under_the_names_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    names = "AvgPool1d AvgPool2d BatchNorm2d Conv2d LSTM MaxPool1d MaxPool2d Pooling2d RNN_Base"
    for name in (*names.split(), "SeparableConv2d"):
        assert getattr(autograd, name) is getattr(layer, name)
    for name in ("Linear", "RNN"):  # which are operators of ours
        assert issubclass(getattr(autograd, name), autograd.Operator)
    monkeypatch.setattr(compat, "enabled", True)
    assert autograd.Linear is layer.Linear
    assert autograd.RNN is layer.RNN


@pytest.mark.usefixtures("singas_way", "training")
def test_a_network_of_autograds_layers_trains() -> None:
    singa.seed(1)
    conv, norm = autograd.Conv2d(1, 4, 3, padding=1, bias=False), autograd.BatchNorm2d(4)
    pool, fc = autograd.MaxPool2d(3, 1, padding=1), autograd.Linear(4 * 6 * 6, 3)
    x, t = of(np.random.default_rng(1).random((8, 1, 6, 6))), tensor.from_numpy(np.arange(8) % 3)
    sgd, losses = opt.SGD(lr=0.05), []
    for _ in range(10):
        y = pool(autograd.relu(norm(conv(x))))
        loss = autograd.softmax_cross_entropy(fc(autograd.flatten(y)), t)
        for p, gp in autograd.backward(loss):
            sgd.update(p, gp)
        sgd.step()
        losses.append(tensor.to_numpy(loss)[0])
    assert losses[-1] < losses[0] / 2


def test_autograd_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        autograd.no_such_name  # noqa: B018


def test_a_raw_tensor_of_a_raw_tensor() -> None:
    t = of(CUBE)
    copy = singa_wrap.Tensor(t.data)
    assert copy.shape() == CUBE.shape
    assert copy.SharesMemory(t.data)
    t *= 2.0
    np.testing.assert_array_equal(tensor.from_raw_tensor(copy).numpy(), 2 * CUBE)
    view = t[:, 1:, ::2]
    shared = tensor.from_raw_tensor(singa_wrap.Tensor(view.data))
    np.testing.assert_array_equal(shared.numpy(), 2 * CUBE[:, 1:, ::2])

"""Functions of singa_wrap that SINGA's own Python code calls, and that scripts copy from it."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from singa import autograd, device, opt, tensor
from singa import singa_wrap as singa

pytestmark = pytest.mark.usefixtures("training")

RANDOM = np.random.default_rng(5)


def raw(values: Any, dtype: Any = np.float32) -> Any:
    return tensor.from_numpy(np.array(values, dtype)).data


def back(t: Any) -> NDArray[Any]:
    return tensor.to_numpy(tensor.from_raw_tensor(t))


def normal(*shape: int) -> NDArray[np.float32]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_axpy_takes_a_tensor_as_alpha() -> None:
    """Optimizers that are copied from SINGA call it this way."""
    x, y = normal(2, 3), normal(2, 3)
    for alpha in (raw([0.5]), raw(0.5), raw([[0.5]]), 0.5):
        sum_ = raw(y)
        singa.Axpy(alpha, raw(x), sum_)
        np.testing.assert_allclose(back(sum_), y + 0.5 * x, rtol=1e-6)
    scalar = raw(1.0)
    singa.Axpy(raw([2.0]), raw(3.0), scalar)
    assert (scalar.shape(), scalar.Item()) == ((), 7.0)
    half = tensor.from_numpy(np.ones(3, np.float32)).as_type("bfloat16").data
    singa.Axpy(raw([0.5]), raw([1, 2, 3]), half)
    assert back(half).tolist() == [1.5, 2.0, 2.5]
    assert tensor.axpy(tensor.ones((1,)), tensor.ones((2,)), tensor.ones((2,))).numpy().sum() == 4
    for call, wrong in [
        (lambda: singa.Axpy(raw([1.0, 2.0]), raw(x), raw(y)), r"alpha .*one element.*\(2,\)"),
        (lambda: singa.Axpy(None, raw(x), raw(y)), "alpha is an empty tensor"),
        (lambda: singa.Axpy(raw([1.0]), raw(x[0]), raw(y)), r"x \(3,\).*y \(2, 3\)"),
    ]:
        with pytest.raises(ValueError, match=r"^\[Axpy\] " + wrong):
            call()
    with pytest.raises(TypeError, match=r"^\[Axpy\] alpha must be a number"):
        singa.Axpy("a", raw(x), raw(y))
    with pytest.raises(TypeError, match="int32"):
        singa.Axpy(raw([0.5]), raw([1, 2], np.int32), raw([1, 2], np.int32))


class Momentum(opt.Optimizer):
    """SINGA's SGD with momentum, with its raw functions."""

    def __init__(self, lr: float, momentum: float) -> None:
        super().__init__(lr)
        self.momentum = opt.Constant(momentum)
        self.mom_value = self.momentum(self.step_counter)
        self.moments: dict[str, tensor.Tensor] = {}

    def apply(self, param_name: str, param_value: Any, param_grad: Any) -> None:
        self.device_check(param_value, self.step_counter, self.lr_value, self.mom_value)
        if param_name not in self.moments:
            self.moments[param_name] = tensor.zeros_like(param_value)
        buf = self.moments[param_name]
        buf *= self.mom_value
        alpha = 1.0 - 0.0 * self.mom_value
        singa.Axpy(alpha.data, param_grad.data, buf.data)
        minus_lr = 0.0 - self.lr_value
        singa.Axpy(minus_lr.data, buf.data, param_value.data)


def test_an_optimizer_copied_from_singa() -> None:
    ours, theirs = [
        tensor.Tensor(data=np.ones((3, 2), np.float32), stores_grad=True, name="w")
        for _ in range(2)
    ]
    x, t = tensor.from_numpy(normal(8, 3)), tensor.from_numpy(normal(8, 2))
    copied, built_in = Momentum(0.1, 0.9), opt.SGD(lr=0.1, momentum=0.9)
    for _ in range(4):
        for w, optimizer in ((ours, copied), (theirs, built_in)):
            optimizer(autograd.mse_loss(autograd.matmul(x, w), t))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5)
    assert not np.allclose(ours.numpy(), 1.0)


def test_sums() -> None:
    x = normal(3, 4)
    total = singa.SumAll(raw(x))
    assert total.shape() == (1,)
    total /= -2  # as in SINGA's losses
    assert total.GetFloatValue(1)[0] == pytest.approx(x.sum() / -2, rel=1e-5)
    assert singa.SumAsFloat(raw(x)) == pytest.approx(x.sum(), rel=1e-5)
    rows, columns = tensor.Tensor((1, 4)), tensor.Tensor((3, 1))
    singa.SumRows(raw(x), rows.data)
    singa.SumColumns(raw(x), columns.data)
    np.testing.assert_allclose(rows.numpy(), x.sum(0, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(columns.numpy(), x.sum(1, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match=r"\[SumRows\] v must hold 4 elements"):
        singa.SumRows(raw(x), columns.data)
    with pytest.raises(TypeError, match=r"\[SumRows\] v must be a Tensor, got list"):
        singa.SumRows(raw(x), [])
    with pytest.raises(TypeError, match=r"\[MultWithRet\] c must be a Tensor, got bytes"):
        singa.MultWithRet(raw(x), raw(x), b"x", 0.0)


@pytest.mark.parametrize(
    ("name", "truth"),
    [
        ("Add", np.add),
        ("Sub", np.subtract),
        ("EltwiseMult", np.multiply),
        ("Div", np.divide),
        ("PowWithRet", np.power),
    ],
)
def test_results_are_written_into_the_third_argument(name: str, truth: Any) -> None:
    a, b, ret = abs(normal(2, 3)) + 0.1, abs(normal(2, 3)) + 0.1, tensor.Tensor((2, 3))
    assert getattr(singa, name)(raw(a), raw(b), ret.data) is None
    np.testing.assert_allclose(ret.numpy(), truth(a, b), rtol=1e-5)
    with_number = "PowFloatWitRet" if name == "PowWithRet" else f"{name}FloatWithRet"
    assert getattr(singa, with_number)(raw(a), 1.5, ret.data) is None
    np.testing.assert_allclose(ret.numpy(), truth(a, 1.5), rtol=1e-5)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        getattr(singa, name)(raw(a), raw(b), tensor.Tensor((3,)).data)


def test_matrices() -> None:
    a, b, c = normal(2, 3), normal(3, 4), normal(2, 4)
    product = raw(c)
    singa.MultWithScale(0.5, raw(a), raw(b), 2.0, product)
    np.testing.assert_allclose(back(product), 0.5 * a @ b + 2 * c, rtol=1e-5, atol=1e-6)
    singa.MultWithRet(raw(a), raw(b), product)
    np.testing.assert_allclose(back(product), a @ b, rtol=1e-5, atol=1e-6)
    for vector, add, truth in [
        (normal(4), singa.AddRowWithScale, lambda v: 3 * c + 2 * v),
        (normal(1, 4), singa.AddRowWithScale, lambda v: 3 * c + 2 * v),
        (normal(2), singa.AddColumnWithScale, lambda v: 3 * c + 2 * v[:, None]),
        (normal(2, 1), singa.AddColumnWithScale, lambda v: 3 * c + 2 * v),
    ]:
        matrix = raw(c)
        add(2.0, 3.0, raw(vector), matrix)
        np.testing.assert_allclose(back(matrix), truth(vector), rtol=1e-5, atol=1e-6)
    column = raw(c)
    singa.AddColumn(raw([[1.0], [2.0]]), column)
    np.testing.assert_allclose(back(column), c + np.array([[1], [2]]), rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(2, 4\)"):
        singa.AddRowWithScale(1.0, 1.0, raw(normal(3)), raw(c))


def test_views_and_copies() -> None:
    x = normal(4, 3, 2)
    np.testing.assert_array_equal(back(singa.DefaultTranspose(raw(x))), x.T)
    np.testing.assert_array_equal(back(singa.Contiguous(singa.DefaultTranspose(raw(x)))), x.T)
    source = raw(x)
    for start, end, axis in [(1, 3, 0), (0, 2, 1), (1, 2, -1), (2, 2, 0)]:
        part = singa.SliceOn(source, start, end, axis)
        key: list[Any] = [slice(None)] * 3
        key[axis] = slice(start, end)
        np.testing.assert_array_equal(back(part), x[tuple(key)])
        part.SetFloatValue(0.0)
    np.testing.assert_array_equal(back(source), x)  # slices are copies
    for wrong in [(0, 5, 0), (-1, 2, 0), (2, 1, 0), (0, 1, 3)]:
        with pytest.raises(ValueError, match=r"^\[SliceOn\] .*\(4, 3, 2\)"):
            singa.SliceOn(source, *wrong)
    np.testing.assert_array_equal(back(source.Repeat([2], 1)), x.repeat(2, 1))
    np.testing.assert_array_equal(back(source.Repeat([2], 9999)), x.repeat(2))  # no axis
    other = raw(normal(5), np.float64)
    source.ResetLike(other)
    assert (source.shape(), source.data_type()) == ((5,), other.data_type())
    assert not back(source).any()
    assert singa.Product([2, 3, 4]) == 24
    assert singa.Product([2, 3, 4], 1, 1) == 3


def test_values_come_as_arrays() -> None:
    t = raw([[1.5, -2.0], [3.0, 4.0]])
    assert t.GetFloatValue(4).reshape(t.shape()).tolist() == [[1.5, -2.0], [3.0, 4.0]]
    assert t.GetFloatValue(1).dtype == np.float32
    assert (t.GetHalfFloatValue(2).dtype, t.GetIntValue(2).dtype) == (np.float16, np.int32)
    nothing = singa.Tensor()
    assert nothing.GetHalfFloatValue(0).dtype == np.float16
    assert nothing.GetFloatValue(0).shape == (0,)
    assert (t.L1(), t.L2()) == pytest.approx((10.5 / 4, math.sqrt(31.25) / 4))


def test_softmax_takes_all_axes_from_one_on() -> None:
    """SINGA's softmax works on rows: axes before `axis` are joined, and so are those from it on."""
    x, dy = normal(2, 3, 4), normal(2, 3, 4)
    for axis, rows in [(0, 1), (1, 2), (2, 6), (-1, 6), (-3, 1)]:
        flat = x.reshape(rows, -1).astype(np.float64)
        truth = np.exp(flat) / np.exp(flat).sum(1, keepdims=True)
        y = singa.SoftMax(raw(x), axis)
        np.testing.assert_allclose(back(y), truth.reshape(x.shape), rtol=1e-5)
        slope = dy.reshape(rows, -1)
        truth = truth * (slope - (slope * truth).sum(1, keepdims=True))
        dx = singa.SoftMaxBackward(raw(dy), axis, y)
        np.testing.assert_allclose(back(dx), truth.reshape(x.shape), atol=1e-6)
    out = tensor.Tensor((2, 3, 4))
    assert singa.SoftMax(raw(x), out.data) is None
    np.testing.assert_array_equal(out.numpy(), back(singa.SoftMax(raw(x))))
    assert singa.SoftMax(raw(x), out.data, 2) is None
    np.testing.assert_array_equal(out.numpy(), back(singa.SoftMax(raw(x), 2)))
    assert back(singa.SoftMax(raw([1.0, 1.0]))).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"^\[SoftMax\] axis 3 is outside \(2, 3, 4\)"):
        singa.SoftMax(raw(x), 3)


def test_gradients_by_hand() -> None:
    x, dy = normal(3, 4), normal(3, 4)
    np.testing.assert_array_equal(back(singa.ReLUBackward(raw(dy), raw(x))), dy * (x > 0))
    p = back(singa.SoftMax(raw(x)))
    labels = np.array([3, 0, 1])
    one_hot = np.eye(4, dtype=np.float32)[labels]
    for t in (raw(labels, np.int32), raw(labels), raw(one_hot), raw(3 * one_hot)):
        loss = singa.CrossEntropyFwd(raw(p), t)
        np.testing.assert_allclose(back(loss), -np.log(p[range(3), labels]), rtol=1e-5)
        slope = singa.SoftmaxCrossEntropyBwd(raw(p), t)
        np.testing.assert_allclose(back(slope), p - one_hot, atol=1e-6)
    assert np.isfinite(back(singa.CrossEntropyFwd(raw([[0.0, 1.0]]), raw([0.0])))).all()
    for function in (singa.CrossEntropyFwd, singa.SoftmaxCrossEntropyBwd):
        with pytest.raises(ValueError, match=rf"^\[{function.__name__}\] t has the class 4.* 4 cl"):
            function(raw(p), raw([0, 4, 1]))
        with pytest.raises(ValueError, match=rf"^\[{function.__name__}\] t must hold"):
            function(raw(p), raw([0, 1]))


def test_a_loss_copied_from_singa() -> None:
    class SoftMaxCrossEntropy(autograd.Operator):
        def __init__(self, t: tensor.Tensor) -> None:
            super().__init__()
            self.t = t.data

        def forward(self, x: Any) -> Any:
            self.p = singa.SoftMax(x)
            loss = singa.SumAll(singa.CrossEntropyFwd(self.p, self.t))
            loss /= x.shape()[0]
            return loss

        def backward(self, dy: Any) -> Any:
            dx = singa.SoftmaxCrossEntropyBwd(self.p, self.t)
            dx /= float(self.p.shape()[0])
            return dx

    x = tensor.Tensor(data=normal(4, 3), stores_grad=True)
    t = tensor.from_numpy(np.array([0, 2, 1, 1], np.int32))
    loss, truth = SoftMaxCrossEntropy(t)(x)[0], autograd.softmax_cross_entropy(x, t)
    np.testing.assert_allclose(loss.numpy(), truth.numpy(), rtol=1e-6)
    gradient, wanted = autograd.gradients(loss)[x], autograd.gradients(truth)[x]
    np.testing.assert_allclose(gradient.numpy(), wanted.numpy(), atol=1e-6)


def test_batch_norm_of_scale_1_c_1_1() -> None:
    shape = (1, 3, 1, 1)
    x, dy = normal(4, 3, 5, 5), normal(4, 3, 5, 5)
    scale, bias, mean, var = normal(*shape), normal(*shape), normal(*shape), abs(normal(*shape))
    handle = singa.BatchNormHandle(0.2, raw(x))
    results = []
    for form in (shape, (3,)):
        s, b, m, v = (raw(a.reshape(form)) for a in (scale, bias, mean, var))
        y, batch_mean, batch_var = singa.CpuBatchNormForwardTraining(handle, raw(x), s, b, m, v)
        dx, ds, db = singa.CpuBatchNormBackwardx(
            handle, y, raw(dy), raw(x), s, b, batch_mean, batch_var
        )
        inferred = singa.CpuBatchNormForwardInference(handle, raw(x), s, b, m, v)
        assert {t.shape() for t in (batch_mean, batch_var, ds, db, m, v)} == {form}
        results.append([back(t).ravel() for t in (y, batch_mean, batch_var, dx, ds, db)])
        results[-1] += [back(t).ravel() for t in (inferred, m, v)]
    for four, one in zip(*results, strict=True):
        np.testing.assert_array_equal(four, one)
    wrong = raw(scale.reshape(3, 1, 1, 1))
    with pytest.raises(ValueError, match=r"scale must have shape \(3,\), got \(3, 1, 1, 1\)"):
        singa.CpuBatchNormForwardInference(handle, raw(x), wrong, *map(raw, (bias, mean, var)))


def test_a_parameter_of_batch_norm_in_that_shape_learns() -> None:
    scale = tensor.Tensor(data=np.ones((1, 3, 1, 1), np.float32), stores_grad=True)
    bias = tensor.Tensor((1, 3, 1, 1), stores_grad=True)
    running = tensor.Tensor((1, 3, 1, 1)), tensor.ones((1, 3, 1, 1))
    x = tensor.from_numpy(normal(4, 3, 5, 5))
    y = autograd.batchnorm_2d(singa.BatchNormHandle(0.1, x.data), x, scale, bias, *running)
    gradients = autograd.gradients(autograd.mse_loss(y, x))
    assert gradients[scale].shape == gradients[bias].shape == (1, 3, 1, 1)
    assert running[0].shape == (1, 3, 1, 1)
    assert running[0].numpy().any()


def test_what_the_build_says_of_itself(tmp_path: Path) -> None:
    assert singa.SINGA_VERSION == 5000
    assert (singa.USE_OPENCL, singa.USE_DIST, singa.USE_DNNL) == (False, True, True)
    singa.InitLogging("script")
    assert singa.Platform.GetNumOpenclDevices() == 0
    with pytest.raises(RuntimeError, match="no OpenCL backend"):
        singa.Platform.GetDefaultOpenclDevice()
    device.get_default_device().EnableLazyAlloc(True)
    path, x = str(tmp_path / "parameters"), normal(2, 3)
    snapshot = singa.Snapshot(path.encode(), singa.Snapshot.kWrite)
    snapshot.Write(b"w", raw(x))
    del snapshot
    ((name, value),) = singa.Snapshot(path.encode(), singa.Snapshot.kRead, 20).Read()
    assert (name, value.shape()) == ("w", (2, 3))
    np.testing.assert_array_equal(back(value), x)
    holder = singa.NcclIdHolder()
    assert pickle.loads(pickle.dumps(holder)) == holder != singa.NcclIdHolder()
    alone = singa.Communicator(0, 1, holder, 4194304)
    assert (alone.world_size, alone.global_rank, alone.local_rank) == (1, 0, 0)


def test_numbers_change_raw_tensors_in_place() -> None:
    """SINGA's names of `+=` and the like; other numbers than float32 keep their type."""
    for dtype in (np.float32, np.float64):
        x = raw([1.0, 2.0], dtype)
        for name, number, wanted in [
            ("iAddFloat", 2.0, [3.0, 4.0]),
            ("iSubFloat", 1, [2.0, 3.0]),
            ("iMulFloat", 4.0, [8.0, 12.0]),
            ("iDivFloat", 2.0, [4.0, 6.0]),
        ]:
            assert getattr(x, name)(number) is x
            assert (back(x).tolist(), x.data_type()) == (wanted, raw([1.0], dtype).data_type())

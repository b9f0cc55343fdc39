"""Uses of tensors in scripts and unit tests written for SINGA, by module."""

import math

import numpy as np
import pytest
from singa import device, initializer, tensor
from singa import singa_wrap as singa_api

DEVICE = device.get_default_device()


def of(values, dtype=np.float32):
    return tensor.from_numpy(np.array(values, dtype))


def test_fields_and_units() -> None:
    t = tensor.Tensor((2, 3), DEVICE)
    assert t.shape == (2, 3)
    assert (t.size(), t.memsize(), t.ndim()) == (6, 6 * tensor.sizeof(tensor.float32), 2)
    assert tensor.product((2, 3)) == 6
    assert not t.is_transpose()
    assert not t.is_empty()
    assert t.T().is_transpose()
    assert t.T().shape == (3, 2)
    assert t.device.id() == DEVICE.id()
    t.set_value(2.0)
    assert (t.l1(), t.l2()) == pytest.approx((2.0, math.sqrt(24.0) / 6))
    assert singa_api.SumAll(t.data).GetFloatValue(1).tolist() == [12.0]


def test_unary_functions() -> None:
    values = np.array([[0.2, -1.3], [2.7, 0.9]], np.float32)
    x = tensor.from_numpy(values)
    for function, truth in [
        (tensor.abs, np.abs),
        (tensor.exp, np.exp),
        (tensor.sign, np.sign),
        (tensor.square, np.square),
        (tensor.tanh, np.tanh),
        (tensor.ceil, np.ceil),
        (tensor.sigmoid, lambda v: 1 / (1 + np.exp(-v))),
    ]:
        np.testing.assert_allclose(tensor.to_numpy(function(x)), truth(values), rtol=2e-6)
    positive = tensor.abs(x)
    np.testing.assert_allclose(
        tensor.to_numpy(tensor.log(positive)), np.log(abs(values)), rtol=1e-5
    )
    np.testing.assert_allclose(
        tensor.to_numpy(tensor.sqrt(positive)), abs(values) ** 0.5, rtol=1e-6
    )
    softmax = tensor.to_numpy(tensor.softmax(x))
    np.testing.assert_allclose(softmax.sum(1), 1, rtol=1e-6)


def test_arithmetic_and_comparison() -> None:
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[4.0, 2.0], [0.5, 1.0]])
    x, y = of(a), of(b)
    for result, truth in [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x + 2, a + 2),
        (2 - x, 2 - a), (3 / x, 3 / a), (tensor.add(x, y), a + b), (tensor.sub(x, 1.0), a - 1),
        (tensor.eltwise_mult(x, y), a * b), (tensor.div(x, y), a / b), (tensor.mult(x, y), a @ b),
        (tensor.pow(x, 2.0), a**2), (tensor.pow(x, y), a**b), (x < y, a < b), (x <= 2.0, a <= 2),
        (tensor.gt(x, y), a > b), (tensor.ge(x, 3.0), a >= 3), (tensor.eq(x, y), a == b),
        (tensor.lt(x, 3), a < 3), (tensor.le(x, y), a <= b),
    ]:  # fmt: skip
        np.testing.assert_allclose(tensor.to_numpy(result), truth, rtol=1e-6)
    x += y
    x *= 2.0
    x -= y
    x /= 4.0
    np.testing.assert_allclose(tensor.to_numpy(x), ((a + b) * 2 - b) / 4, rtol=1e-6)
    c = tensor.zeros((2, 2))
    tensor.add(y, y, c)
    np.testing.assert_array_equal(tensor.to_numpy(c), 2 * b)
    tensor.axpy(-1.0, y, c)
    np.testing.assert_array_equal(tensor.to_numpy(c), b)


def test_rows_columns_and_sums() -> None:
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    row, column = np.array([1.0, 2.0, 4.0], np.float32), np.array([2.0, 5.0], np.float32)
    for change, truth in [
        (lambda t: t.add_row(of(row)), m + row),
        (lambda t: t.add_column(of(column)), m + column[:, None]),
        (lambda t: t.mult_row(of(row)), m * row),
        (lambda t: t.div_column(of(column)), m / column[:, None]),
    ]:
        t = tensor.from_numpy(m)
        change(t)
        np.testing.assert_allclose(tensor.to_numpy(t), truth, rtol=1e-6)
    t = tensor.from_numpy(m)
    np.testing.assert_array_equal(tensor.to_numpy(tensor.sum_rows(t)), m.sum(0))
    np.testing.assert_array_equal(tensor.to_numpy(tensor.sum_columns(t)), m.sum(1))
    np.testing.assert_array_equal(tensor.to_numpy(tensor.sum(t, axis=1)), m.sum(1))
    assert tensor.average(t) == 2.5
    np.testing.assert_allclose(tensor.to_numpy(tensor.average(t, 0)), m.mean(0))


def test_shapes_copies_and_types() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = tensor.from_numpy(values)
    np.testing.assert_array_equal(
        tensor.to_numpy(tensor.transpose(t, (2, 0, 1))), values.transpose(2, 0, 1)
    )
    np.testing.assert_array_equal(tensor.to_numpy(tensor.reshape(t, (4, 6))), values.reshape(4, 6))
    np.testing.assert_array_equal(tensor.to_numpy(t.repeat(2, 1)), values.repeat(2, 1))
    np.testing.assert_array_equal(
        tensor.to_numpy(tensor.repeat(t, [1, 2], 0)), values.repeat([1, 2], 0)
    )
    joined = tensor.concatenate([t, t], 2)
    np.testing.assert_array_equal(tensor.to_numpy(joined), np.concatenate([values, values], 2))
    np.testing.assert_array_equal(tensor.to_numpy(t[1, :, 1:3]), values[1, :, 1:3])
    moved = tensor.contiguous(t.transpose())
    assert not moved.is_transpose()
    np.testing.assert_array_equal(tensor.to_numpy(moved), values.T)

    copy = t.clone()
    copy.set_value(0.0)
    assert tensor.to_numpy(t)[1, 2, 3] == 23
    target = tensor.zeros((4, 6))
    tensor.copy_data_to_from(target, t, 5, dst_offset=2, src_offset=10)
    np.testing.assert_array_equal(tensor.to_numpy(target).reshape(-1)[2:7], np.arange(10, 15))

    integer = tensor.from_numpy(np.array([[1, -2]], np.int64))
    assert integer.dtype == tensor.int32
    assert integer.as_type(tensor.float32).dtype == tensor.float32
    with pytest.raises(ValueError, match="MatMul"):
        tensor.mult(t[0], t[0])


def test_einsum_tensordot_and_random_fills() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 4, 5)), rng.standard_normal((4, 5, 2))
    x, y = of(a), of(b)
    np.testing.assert_allclose(
        tensor.to_numpy(tensor.tensordot(x, y, axes=2)), np.tensordot(a, b, 2), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        tensor.to_numpy(tensor.einsum("kij,kij->ki", x, x)),
        np.einsum("kij,kij->ki", a, a),
        rtol=1e-4,
    )
    DEVICE.SetRandSeed(11)
    u = tensor.Tensor((4000,), DEVICE)
    u.uniform(-1.0, 3.0)
    first = tensor.to_numpy(u)
    assert -1 <= first.min() < first.max() < 3
    assert abs(first.mean() - 1) < 5 * 4 / math.sqrt(12 * 4000)
    DEVICE.SetRandSeed(11)
    tensor.uniform(-1.0, 3.0, u)
    np.testing.assert_array_equal(tensor.to_numpy(u), first)
    tensor.bernoulli(0.3, u)
    assert set(tensor.to_numpy(u)) == {0.0, 1.0}
    tensor.gaussian(2.0, 0.5, u)
    assert abs(tensor.to_numpy(u).mean() - 2) < 5 * 0.5 / math.sqrt(4000)
    w = tensor.Tensor((50, 30))
    initializer.glorot_uniform(w)
    assert np.abs(tensor.to_numpy(w)).max() <= math.sqrt(6 / 80)


def test_raw_tensors() -> None:
    """The SWIG module as in SINGA's own unit tests."""
    rng = np.random.default_rng(1)
    a, b = rng.uniform(0.5, 2, (3, 1, 4)), rng.uniform(0.5, 2, (2, 4))
    x, y = of(a).data, of(b).data
    for name, function in [
        ("__add__", np.add), ("__sub__", np.subtract), ("__mul__", np.multiply),
        ("__div__", np.divide), ("Pow", np.power),
    ]:  # fmt: skip
        result = tensor.from_raw_tensor(getattr(singa_api, name)(x, y))
        np.testing.assert_allclose(tensor.to_numpy(result), function(a, b), rtol=2e-6)
    values = np.array([-2.5, -0.5, 0.5, 1.5, 2.4], np.float32)
    raw = tensor.from_numpy(values).data
    for name, truth in [
        ("Ceil", [-2, 0, 1, 2, 3]), ("Floor", [-3, -1, 0, 1, 2]), ("RoundE", [-2, 0, 0, 2, 2]),
        ("Round", [-3, -1, 1, 2, 2]), ("Erf", [math.erf(v) for v in values]),
    ]:  # fmt: skip
        result = tensor.to_numpy(tensor.from_raw_tensor(getattr(singa_api, name)(raw)))
        np.testing.assert_allclose(result, truth, rtol=1e-5)
    soft = tensor.to_numpy(tensor.from_raw_tensor(singa_api.SoftMax(of(a[:, 0]).data, 1)))
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-6)
    joined = singa_api.ConcatOn(singa_api.VecTensor([y, y]), 1)
    assert joined.shape() == (2, 8)
    assert singa_api.Reshape(y, (4, 2)).shape() == (4, 2)
    assert y.data_type() == singa_api.kFloat32
    whole = y.AsType(singa_api.kInt).GetIntValue(y.Size())
    assert whole.tolist() == np.trunc(b).ravel().tolist()
    np.testing.assert_allclose(y.GetFloatValue(y.Size()), b.ravel(), rtol=1e-6)
    filled = tensor.Tensor((100,)).data
    singa_api.Gaussian(0.0, 1.0, filled)
    assert filled.ToHost().GetFloatValue(1).tolist() != [0.0]


def test_raw_batch_norm_and_pooling() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 3, 6, 6))
    scale, bias = rng.uniform(0.5, 2, 3), rng.standard_normal(3)
    running_mean, running_var = np.zeros(3), np.ones(3)
    raws = [of(v).data for v in (x, scale, bias, running_mean, running_var)]
    handle = singa_api.BatchNormHandle(0.1, raws[0])
    y, mean, var = singa_api.CpuBatchNormForwardTraining(handle, *raws)
    true_mean, true_var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    shape = (1, 3, 1, 1)
    normal = (x - true_mean.reshape(shape)) / np.sqrt(true_var.reshape(shape) + 1e-5)
    truth = normal * scale.reshape(shape) + bias.reshape(shape)
    np.testing.assert_allclose(tensor.to_numpy(tensor.from_raw_tensor(y)), truth, atol=1e-4)
    np.testing.assert_allclose(raws[3].GetFloatValue(3), 0.1 * true_mean, atol=1e-6)
    dy = rng.standard_normal(x.shape)
    _, dscale, dbias = singa_api.CpuBatchNormBackwardx(
        handle, y, of(dy).data, raws[0], raws[1], raws[2], mean, var
    )
    np.testing.assert_allclose(dbias.GetFloatValue(3), dy.sum((0, 2, 3)), atol=1e-4)
    np.testing.assert_allclose(dscale.GetFloatValue(3), (dy * normal).sum((0, 2, 3)), atol=1e-3)

    pool = singa_api.PoolingHandle(raws[0], [2, 2], [2, 2], [0, 0], True)
    top = singa_api.CpuPoolingForward(pool, raws[0])
    windows = x.reshape(4, 3, 3, 2, 3, 2).max((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(tensor.to_numpy(tensor.from_raw_tensor(top)), windows)
    dx = singa_api.CpuPoolingBackward(pool, of(np.ones(windows.shape)).data, raws[0], top)
    assert singa_api.SumAsFloat(dx) == windows.size


def test_attributes_can_be_set() -> None:
    """SINGA's helpers wrap raw tensors this way."""
    t = tensor.PlaceHolder((6,), DEVICE)
    t.data = of(np.arange(6.0)).data
    t.shape = tuple(t.data.shape())
    t.device = t.data.device()
    t.dtype = t.data.data_type()
    t.shape = [2, 3]
    assert t.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    t.dtype = tensor.int32
    assert (t.dtype, t.data.data_type()) == (tensor.int32, singa_api.kInt)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        t.shape = (7,)
    assert t.shape == (2, 3)
    with pytest.raises(TypeError, match="shape must be a sequence"):
        t.shape = 6  # type: ignore[assignment]


def test_python_2_division() -> None:
    t = of([1.0, 3.0])
    assert t.__div__(2).numpy().tolist() == [0.5, 1.5]
    assert t.__div__(t).numpy().tolist() == [1.0, 1.0]
    assert t.__rdiv__(3).numpy().tolist() == [3.0, 1.0]


def test_raw_functions_by_name() -> None:
    y = tensor._call_singa_func(singa_api.MultFloat, of([1.0, 2.0]).data, 3.0)
    assert isinstance(y, tensor.Tensor)
    assert y.numpy().tolist() == [3.0, 6.0]


def test_types_of_singas_protocol() -> None:
    from singa.proto import core_pb2, model_pb2

    assert (model_pb2.kTrain, model_pb2.kEval) == (4, 8)
    assert (core_pb2.kFloat32, core_pb2.kInt) == (tensor.float32, tensor.int32)
    assert tensor.sizeof(core_pb2.kDouble) == 8
    assert tensor.Tensor((2,), dtype=core_pb2.kFloat16).dtype == tensor.float16

"""The surface that scripts for Apache SINGA 5 use: names, arguments, defaults, conventions."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from singa import autograd, device, tensor
from singa import singa_wrap as singa

# name(arguments with defaults); ours may take more arguments after these.
AUTOGRAD = """
axis_helper(y_shape, x_shape) back_broadcast(y_shape, x_shape, x) infer_dependency(op)
gradients(y, dy=None) backward(y, dy=None) mean(*l) relu(x) less(x, y) clip(x, min=None, max=None)
identity(x) matmul(x, w) greater(x, y) add_bias(x, b, axis=0) reshape(x, shape) prelu(x, slope)
add(a, b) elu(x, alpha=1) equal(x, y) selu(x, alpha=1.67326, gamma=1.0507) softmax(x, axis=1)
sum(*l) binary_cross_entropy(x, t) cross_entropy(x, t) ranking_loss(pos, neg, M=0.2)
softmax_cross_entropy(x, t) mse_loss(x, t) ctensor2numpy(x) flatten(x, axis=1)
scatter_elements(x, indices, updates, axis=0) cat(xs, axis=0)
conv2d(handle, x, W, b=None, odd_padding=(0, 0, 0, 0))
batchnorm_2d(handle, x, scale, bias, running_mean, running_var)
pooling_2d(handle, x, odd_padding=(0, 0, 0, 0)) tanh(x) cos(x) cosh(x) acos(x) acosh(x) sin(x)
sinh(x) asin(x) asinh(x) tan(x) atan(x) atanh(x) sigmoid(x) mul(x, y) unsqueeze(x, axis=-1)
transpose(x, shape) add_all(*xs) abs(a) exp(a) leakyrelu(x, a=0.01) sign(a) pow(a, b) softsign(x)
sqrt(x) softplus(x) sub(a, b) min(*l) log(x) hardsigmoid(x, alpha=0.2, gamma=0.5)
squeeze(x, axis=[]) div(a, b) shape(x) max(*l) negative(x) reciprocal(x)
gemm(A, B, C=None, alpha=1.0, beta=1.0, transA=0, transB=0)
globalaveragepool(x, data_format='channels_first') constant_of_shape(x, value=0)
dropout(x, seed=0, ratio=0.5) reduce_sum(x, axes=None, keepdims=1)
reduce_mean(x, axes=None, keepdims=1) slice(x, starts, ends, axes=None, steps=None) ceil(x)
floor(x) split(x, axis, parts, num_output=None) gather(x, axis, indices) tile(x, repeats)
nonzero(x) cast(x, to) onehot(axis, indices, depth, values) cossim(a, b) expand(x, shape)
pad(x, mode, pads, constant=0.0) upsample(x, mode, scales)
depth_to_space(x, blocksize, mode='DCR') space_to_depth(x, blocksize, mode='DCR')
where(x, y, condition) round(x) rounde(x) embedding(x, w) erf(x)
Operator(name=None) Dummy(tensor, name=None) Mean() ReLU() Less() Clip(min, max) Identity() Matmul()
Greater() AddBias(axis=0) Reshape(shape) PRelu() Add() Elu(alpha=1.0) Equal()
SeLU(alpha=1.67326, gamma=1.0507) SoftMax(axis=1) Sum() BinaryCrossEntropy(t) CrossEntropy(t)
RankingLoss(M=0.2) SoftMaxCrossEntropy(t) MeanSquareError(t) Flatten(axis=1)
ScatterElements(indices, updates, axis=0) Concat(axis=0)
_Conv2d(handle, odd_padding=(0, 0, 0, 0))
_BatchNorm2d(handle, running_mean, running_var, name=None)
_Pooling2d(handle, odd_padding=(0, 0, 0, 0)) Tanh() Cos() Cosh() Acos() Acosh() Sin() Sinh() Asin()
Asinh() Tan() Atan() Atanh() Sigmoid() Mul() Unsqueeze(axis) Transpose(perm) Abs() Exp()
LeakyRelu(a) Sign() Pow() SoftSign() Sqrt() SoftPlus() Sub() Min() Log()
HardSigmoid(alpha=0.2, gamma=0.5) Squeeze(axis=[]) Div() Shape() Max() And() Or() Not() Xor()
Negative() Reciprocal() Gemm(alpha=1.0, beta=1.0, transA=0, transB=0)
GlobalAveragePool(data_format='channels_first') ConstantOfShape(value=0.0)
Dropout(seed=0, ratio=0.5) ReduceSum(axes=None, keepdims=1) ReduceMean(axes=None, keepdims=1)
Slice(starts, ends, axes=None, steps=None) Ceil() Floor() Split(axis, parts, num_output=None)
Gather(axis, indices) Tile(repeats) NonZero() Cast(to) OneHot(axis, depth, values)
_RNN(handle, return_sequences=False, use_mask=False, seq_lengths=None) CosSim() Expand(shape)
Pad(mode, pads, constant=0.0) UpSample(mode, scales) DepthToSpace(blocksize, mode='DCR')
SpaceToDepth(blocksize, mode='DCR') Where(condition) Round() Rounde() Embedding() Erf()
_and(a, b) _or(a, b) _not(x) _xor(a, b)
"""
DEVICE = """
get_num_gpus() get_gpu_ids() get_gpu_mem_size(id) get_num_opencl_platforms()
get_num_opencl_devices() device_query(id, verbose=False) create_cpu_device() create_cuda_gpus(num)
create_cuda_gpu() create_cuda_gpus_on(device_ids) create_cuda_gpu_on(device_id)
create_opencl_device() get_default_device() enable_lazy_alloc(enable)
"""
TENSOR = """
from_raw_tensor(t) from_raw_tensors(tt) zeros_like(t) ones_like(t) product(shape) sizeof(dtype)
contiguous(tensor) reshape(tensor, shape) transpose(t, axes=None)
copy_data_to_from(dst, src, size, dst_offset=0, src_offset=0) from_numpy(np_array, dev=None)
to_host(t) to_numpy(t) abs(t) exp(t) ceil(t) log(t) sigmoid(t) sign(t) sqrt(t) square(t) tanh(t)
sum(t, axis=None, out=None) pow(t, x, out=None) average(t, axis=None) softmax(t, out=None) lt(t, x)
le(t, x) gt(t, x) ge(t, x) eq(t, x) add(lhs, rhs, ret=None) sub(lhs, rhs, ret=None)
eltwise_mult(lhs, rhs, ret=None) mult(A, B, C=None, alpha=1.0, beta=0.0) einsum(ops, *args)
repeat(t, repeats, axis=None) tensordot(A, B, axes=2) div(lhs, rhs, ret=None) axpy(alpha, x, y)
bernoulli(p, t) gaussian(mean, std, t) uniform(low, high, t) add_column(alpha, v, beta, M)
add_row(alpha, v, beta, M) sum_columns(M) sum_rows(M) copy_from_numpy(data, np_array)
concatenate(tensors, axis) random(shape, device) zeros(shape, device) ones(shape, device)
"""
METHODS = """
is_dummy() ndim() is_empty() is_transpose() transpose(axes=None) size() memsize() contiguous()
reshape(shape) reset_like(t) as_type(dtype) to_type(dtype) to_device(device) to_host() l2() l1()
set_value(x, inplace=True) copy_from_numpy(np_array, offset=0) copy_data(t) copy_from(t, offset=0)
clone() repeat(repeats, axis) T() copy() deepcopy() bernoulli(p, inplace=True)
gaussian(mean, std, inplace=True) uniform(low, high, inplace=True) add_column(v) add_row(v)
div_column(v) div_row(v) mult_column(v) mult_row(v)
"""


def _entries(text: str) -> list[tuple[str, str]]:
    return re.findall(r"(\w+)\(((?:[^()]|\([^()]*\))*)\)", text)


def _parameters(arguments: str) -> list[tuple[str, Any]]:
    """(name, default) of a written signature; a starred name stands for any number."""
    function = eval(f"lambda {arguments}: None")
    return [
        ("*" if p.kind is p.VAR_POSITIONAL else p.name, p.default)
        for p in inspect.signature(function).parameters.values()
    ]


SURFACE = [
    (where, name, arguments)
    for where, text in [
        (autograd, AUTOGRAD), (device, DEVICE), (tensor, TENSOR), (tensor.Tensor, METHODS)
    ]
    for name, arguments in _entries(text)
]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "name", "arguments"), SURFACE, ids=[f"{w.__name__}.{n}" for w, n, _ in SURFACE]
)
def test_names_arguments_and_defaults(where: Any, name: str, arguments: str) -> None:
    signature = inspect.signature(getattr(where, name)).parameters.values()
    ours = [p for p in signature if p.name != "self"]
    wanted = _parameters(arguments)
    if name in ("abs", "exp", "sign") and where is autograd:
        wanted = [("x", inspect.Parameter.empty)]  # passed by position
    for p, (own, default) in zip(ours, wanted, strict=False):
        if own == "*":
            assert p.kind is p.VAR_POSITIONAL
            break
        assert p.name == own
        if default is not inspect.Parameter.empty:
            assert p.default == default or (default == [] and p.default == ())
    assert len(ours) >= len(wanted)
    for p in ours[len(wanted) :]:  # what is ours alone can be left out
        assert p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)


def test_the_lists_were_read() -> None:
    assert len(SURFACE) > 290


@pytest.fixture(autouse=True)
def _training() -> Iterator[None]:
    autograd.training = True
    yield
    autograd.training = False


def _of(values: Any) -> tensor.Tensor:
    return tensor.from_numpy(np.asarray(values, np.float32))


def test_losses_are_read_by_their_first_element_and_need_no_dy() -> None:
    x = _of([[4.3, 5.4], [3.3, 3.6], [5.7, 6.0]])
    t = tensor.from_numpy(np.array([[4.4, 5.3], [3.2, 3.7], [5.4, 6.3]]))
    loss = autograd.mse_loss(x, t)
    assert tensor.to_numpy(loss)[0] == pytest.approx(0.22 / 6, rel=1e-5)
    dx = loss.creator.backward()
    assert dx.shape() == (3, 2)
    truth = (x.numpy() - t.numpy()) / 3
    np.testing.assert_allclose(autograd.ctensor2numpy(dx), truth, rtol=1e-5)


def test_raw_gradients_come_in_the_order_of_the_inputs() -> None:
    cpu = device.create_cpu_device()
    x = tensor.Tensor(shape=(2, 3, 3, 3), device=cpu)
    x.gaussian(0.0, 1.0)
    W = tensor.Tensor(shape=(1, 3, 2, 2), device=cpu)
    W.gaussian(0.0, 1.0)
    b = tensor.Tensor(shape=(1,), device=cpu)
    dy = tensor.Tensor(shape=(2, 1, 2, 2), device=cpu)
    dy.gaussian(0.0, 1.0)
    handle = singa.ConvHandle(x.data, [2, 2], [1, 1], [0, 0], 3, 1, True, 1)
    y = autograd.conv2d(handle, x, W, b)
    assert y.shape == (2, 1, 2, 2)
    dx, dW, db = y.creator.backward(dy.data)
    assert (dx.shape(), dW.shape(), db.shape()) == ((2, 3, 3, 3), (1, 3, 2, 2), (1,))
    dx, dW = autograd.conv2d(handle, x, W).creator.backward(dy.data)
    assert (dx.shape(), dW.shape()) == ((2, 3, 3, 3), (1, 3, 2, 2))


def test_operators_over_lists_and_pieces() -> None:
    a, b = _of([[1.0, 5.0]]), _of([[3.0, 2.0]])
    for function, values, first in [
        (autograd.sum, [[4, 7]], [[1, 1]]),
        (autograd.mean, [[2, 3.5]], [[0.5, 0.5]]),
        (autograd.max, [[3, 5]], [[0, 1]]),
        (autograd.min, [[1, 2]], [[1, 0]]),
    ]:
        y = function(a, b)
        np.testing.assert_array_equal(tensor.to_numpy(y), values)
        da, _ = y.creator.backward(_of([[1.0, 1.0]]).data)
        np.testing.assert_array_equal(tensor.to_numpy(tensor.from_raw_tensor(da)), first)
    x = _of(np.arange(12.0).reshape(2, 6))
    pieces = autograd.split(x, 1, (2, 1, 3))
    dx = pieces[0].creator.backward(*[p.data for p in pieces])
    np.testing.assert_array_equal(autograd.ctensor2numpy(dx), x.numpy())


def test_onehot_takes_arrays() -> None:
    indices = tensor.from_numpy(np.array([[1, 9], [2, 4]], np.float32))
    values = np.array([1, 3], np.float32)
    result = autograd.onehot(1, indices, np.array([10], np.float32), values)
    truth = (np.arange(10)[None, :, None] == indices.numpy()[:, None, :]) * 2.0 + 1.0
    np.testing.assert_array_equal(tensor.to_numpy(result), truth)


def test_embedding_gives_the_indices_zeros() -> None:
    x = tensor.Tensor(data=np.array([[0, 1, 2, 3], [9, 8, 7, 6]]))
    w = tensor.Tensor((10, 3), stores_grad=True)
    w.gaussian(0.0, 1.0)
    y = autograd.embedding(x, w)
    dx, dW = y.creator.backward(tensor.ones((2, 4, 3)).data)
    assert dx.shape() == (2, 4)
    assert not autograd.ctensor2numpy(dx).any()
    assert autograd.ctensor2numpy(dW).sum(1).tolist() == [3, 3, 3, 3, 0, 0, 3, 3, 3, 3]


def test_numerical_gradients_as_singas_scripts_take_them() -> None:
    """Parameters are moved in place, by tensors, while the tape records."""
    x, t = _of(np.random.default_rng(0).standard_normal((4, 3))), _of(np.eye(4)[:, :2])
    w = tensor.Tensor((3, 2), stores_grad=True)
    w.gaussian(0.0, 1.0)

    def loss() -> tensor.Tensor:
        return autograd.mse_loss(autograd.sigmoid(autograd.matmul(x, w)), t)

    grads = autograd.gradients(loss())
    h = 1e-2
    for i in range(3):
        step = np.zeros((3, 2), np.float32)
        step[i, 1] = h
        change = tensor.from_numpy(step)
        w += change
        above = tensor.to_numpy(loss())[0]
        w -= change
        w -= change
        below = tensor.to_numpy(loss())[0]
        w += change
        numeric = (above - below) / (2 * h)
        assert numeric == pytest.approx(tensor.to_numpy(grads[id(w)])[i, 1], abs=1e-4)


def test_a_training_loop() -> None:
    """Two layers learn to tell points above a line from those below."""
    random = np.random.default_rng(0)
    points = random.uniform(-1, 1, (256, 2)).astype(np.float32)
    labels = (points[:, 1] > 0.5 * points[:, 0]).astype(np.int32)
    inputs, targets = tensor.from_numpy(points), tensor.from_numpy(np.eye(2)[labels])
    parameters = []
    for shape in [(2, 8), (8,), (8, 2), (2,)]:
        p = tensor.Tensor(shape=shape, requires_grad=True, stores_grad=True)
        if len(shape) == 2:
            p.copy_from_numpy(random.standard_normal(shape).astype(np.float32) * 0.5)
        parameters.append(p)
    w0, b0, w1, b1 = parameters
    losses = []
    for _ in range(200):
        h = autograd.relu(autograd.add_bias(autograd.matmul(inputs, w0), b0))
        x = autograd.add_bias(autograd.matmul(h, w1), b1)
        loss = autograd.softmax_cross_entropy(x, targets)
        losses.append(tensor.to_numpy(loss)[0])
        for p, gp in autograd.backward(loss):
            gp.to_type(tensor.float32)
            p -= 0.5 * gp
    assert losses[-1] < 0.2 * losses[0]
    assert (tensor.to_numpy(x).argmax(1) == labels).mean() > 0.95

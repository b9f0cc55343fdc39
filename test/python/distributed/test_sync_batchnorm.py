"""SyncBatchNorm: the statistics and gradients of one process with the whole batch."""

from itertools import pairwise

import numpy as np
import pytest
from memory_ranks import on_ranks
from singa import autograd, layer, tensor

CHANNELS = 5
pytestmark = pytest.mark.usefixtures("training")


def _data(shape, dtype, offset=0.0):
    draw = np.random.default_rng(7)
    x = draw.normal(offset, 2.0, shape) * draw.uniform(
        0.1, 3.0, (1, shape[1], *(1,) * (len(shape) - 2))
    )
    dy = draw.normal(0.0, 1.0, shape)
    z = draw.normal(0.0, 1.0, shape)
    return x.astype(dtype), dy.astype(dtype), z.astype(dtype)


def _layer(kind, dtype):
    made = kind(momentum=0.3, eps=1e-3)
    made.initialize(tensor.from_numpy(np.zeros((1, CHANNELS, 1, 1)), dtype=dtype))
    made._initialized = True
    for name, values in (
        ("scale", np.linspace(-1.0, 2.0, CHANNELS)),
        ("bias", np.arange(CHANNELS)),
    ):
        getattr(made, name).copy_from_numpy(values.astype(dtype))
    return made


def _step(made, x, dy, z, relu):
    """Results and gradients of two steps, the second on other images, then of inference."""
    results = []
    for times in (1.0, -0.5):
        inputs = [tensor.from_numpy(a * times, dtype=a.dtype) for a in (x, z)]
        for each in inputs:
            each.requires_grad = each.stores_grad = True
        add = inputs[1] if relu is not None else None
        y = made(inputs[0], add, bool(relu))
        gradients = {
            id(p): g for p, g in autograd.backward(y, tensor.from_numpy(dy, dtype=dy.dtype))
        }
        wanted = [inputs[0], made.scale, made.bias, *([add] if add is not None else [])]
        results.append([y.numpy(), *(gradients[id(p)].numpy() for p in wanted)])
    return results, made.running_mean.numpy(), made.running_var.numpy()


def _rank(communicator, dtype, parts, arrays, relu):
    made = _layer(layer.SyncBatchNorm, dtype)
    mine = parts[communicator.global_rank]
    return _step(made, *(a[mine] for a in arrays), relu)


@pytest.mark.parametrize("relu", [None, False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("sizes", "rest", "offset"),
    [
        ((3, 3), (4, 6), 0.0),
        ((5, 1, 2), (3, 3), 30.0),
        ((2, 0, 3, 1), (2, 5), 0.0),
        ((1, 1), (), 1.0),
        ((4, 2), (7,), 0.0),
    ],
)
def test_is_batchnorm_of_all_images(sizes, rest, offset, dtype, relu):
    arrays = _data((sum(sizes), CHANNELS, *rest), dtype, offset)
    ends = np.cumsum([0, *sizes])
    parts = [slice(a, b) for a, b in pairwise(ends)]
    want, want_mean, want_var = _step(_layer(layer.BatchNorm2d, dtype), *arrays, relu)
    got = on_ranks(len(sizes), _rank, dtype, parts, arrays, relu)
    bound = 1e-12 if dtype == "float64" else 2e-5
    for _, mean, var in got:
        np.testing.assert_array_equal(mean, got[0][1])
        np.testing.assert_array_equal(var, got[0][2])
        np.testing.assert_allclose(mean, want_mean, bound, bound)
        np.testing.assert_allclose(var, want_var, bound, bound)
    for step, expected in enumerate(want):
        for i, whole in enumerate(expected):
            per_rank = [results[step][i] for results, _, _ in got]
            merged = sum(per_rank) if i in (2, 3) else np.concatenate(per_rank)
            scale = np.abs(whole).max()
            np.testing.assert_allclose(merged, whole, 0, bound * max(scale, 1.0) * 8)


def _inference(communicator, x):
    made = _layer(layer.SyncBatchNorm, "float32")
    autograd.training = False
    return made(tensor.from_numpy(x)).numpy() if communicator.global_rank else None


def test_inference_waits_for_nobody():
    x = _data((2, CHANNELS, 3, 3), "float32")[0]
    autograd.training = False
    want = _layer(layer.BatchNorm2d, "float32")(tensor.from_numpy(x)).numpy()
    np.testing.assert_array_equal(on_ranks(2, _inference, x)[1], want)


def test_one_rank_is_batchnorm():
    arrays = _data((4, CHANNELS, 3, 2), "float32")
    want, got = (
        _step(_layer(kind, "float32"), *arrays, True)
        for kind in (layer.BatchNorm2d, layer.SyncBatchNorm)
    )
    for a, b in zip(want[0][0] + [want[1], want[2]], got[0][0] + [got[1], got[2]], strict=True):
        np.testing.assert_array_equal(a, b)

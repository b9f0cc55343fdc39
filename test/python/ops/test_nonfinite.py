"""NaN and infinity in inputs of every operator of the table. Results are those of PyTorch, and
those of `reference`, which OPCHECK compares."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from ops.table import CASES, Case
from singa import autograd, singa_wrap, tensor

pytestmark = pytest.mark.usefixtures("training")

POISONS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
every_poison = pytest.mark.parametrize("poison", POISONS)
_FLOAT = [case for case in CASES if case.differentiable]
every_case = pytest.mark.parametrize("case", _FLOAT, ids=lambda case: case.name)

# By case, and for some by value: why PyTorch's result, or that of the functions that the table
# composes, cannot be used.
OTHER_FORWARD = {
    "gelu inf": "inf · 1 is infinite; PyTorch's kernel says NaN",
    "cross_entropy -inf": "logarithms stop at 1e-10, as in SINGA",
    "cross_entropy of a target -inf": "logarithms stop at 1e-10, as in SINGA",
    "binary_cross_entropy": "PyTorch refuses what is no probability",
    "binary_cross_entropy of a target": "logarithms stop, as in SINGA",
    "batchnorm_2d inf": "an infinite scale: PyTorch takes its part for the mean apart, inf - inf",
    "batchnorm_2d -inf": "likewise",
    "batchnorm_2d and relu inf": "likewise",
    "batchnorm_2d and relu -inf": "likewise",
    "batchnorm_2d and relu6 inf": "likewise",
    "batchnorm_2d and relu6 -inf": "likewise",
    "batchnorm_2d and hardswish inf": "likewise",
    "batchnorm_2d and hardswish -inf": "likewise",
    "batchnorm_2d and silu inf": "likewise",
    "batchnorm_2d and silu -inf": "likewise",
    "batchnorm_2d and a residual inf": "likewise",
    "batchnorm_2d and a residual -inf": "likewise",
    "batchnorm_2d, a residual and relu inf": "likewise",
    "batchnorm_2d, a residual and relu -inf": "likewise",
    "sync_batchnorm_2d inf": "likewise",
    "sync_batchnorm_2d -inf": "likewise",
    "sync_batchnorm_2d and relu6 inf": "likewise",
    "sync_batchnorm_2d and relu6 -inf": "likewise",
    "sync_batchnorm_2d, a residual and relu inf": "likewise",
    "sync_batchnorm_2d, a residual and relu -inf": "likewise",
    "group_norm inf": "an infinite weight: likewise",
    "group_norm -inf": "likewise",
    "scaled_dot_product_attention": "an excluded key takes part in no sum; no keys give zeros",
    "grid_sample": "a position at infinity is anywhere; weight 0 times infinity is NaN",
    "interpolate, bicubic, corners True": "weight 0 leaves an element out; PyTorch multiplies",
    "interpolate, trilinear": "likewise",
    "lerp inf": "a weight below -1/2: PyTorch begins at the end, inf - inf",
    "lerp -inf": "likewise",
    "interpolate, bicubic, corners False inf": "weights of an element are added first",
    "interpolate, bicubic, corners False -inf": "likewise",
    **{
        f"{name}{place} {poison}": "PyTorch's zeta function, with which they are compared, is NaN"
        for name in ("digamma", "polygamma of order 1", "polygamma of order 2")
        for place in ("", " below 0")
        for poison in ("inf", "-inf")
    },
}
OTHER_BACKWARD = {
    **OTHER_FORWARD,
    "conv_transpose3d inf": "on GPUs padding takes part in the gradient of the weight",
    "conv_transpose3d -inf": "likewise",
    "normalize by the inf-norm inf": "inf / inf; PyTorch leaves the part of the norm out",
    "normalize by the inf-norm -inf": "likewise",
    "huber_loss nan": "NaN; PyTorch says delta",
    "smooth_l1_loss nan": "likewise",
    "binary_cross_entropy_with_logits, weights inf": "terms are multiplied in another order",
    "binary_cross_entropy_with_logits, weights -inf": "likewise",
    "sigmoid_focal_loss, alpha 0.25 inf": "0 where 1 - p_t is 0",
    "sigmoid_focal_loss, alpha 0.25 -inf": "likewise",
    "sigmoid_focal_loss, alpha -1.0 inf": "likewise",
    "sigmoid_focal_loss, alpha -1.0 -inf": "likewise",
    "var inf": "inf - inf is NaN in the part of the mean; PyTorch leaves that part out",
    "var -inf": "likewise",
    "layer_norm inf": "an infinite weight: PyTorch subtracts infinities in another order",
    "layer_norm -inf": "likewise",
    "channel_norm inf": "likewise",
    "channel_norm -inf": "likewise",
    "clip by tensors nan": "NaN is no limit's; PyTorch says 0",
    "acosh -inf": "the slope of NaN; PyTorch says 0",
    "softplus inf": "the table's exp overflows",
    "softsign inf": "the table's quotient is inf / inf",
    "softsign -inf": "likewise",
    "hardswish nan": "NaN; PyTorch's kernel passes dy",
    "elu nan": "NaN; PyTorch's kernel passes dy",
    "celu nan": "likewise",
    "selu inf": "torch.where multiplies what was not chosen by 0",
    "prelu nan": "likewise",
    "prelu inf": "likewise",
    "prelu -inf": "likewise",
    "mod inf": "a quotient of infinities has no floor",
    "mod -inf": "likewise",
    "fmod inf": "likewise",
    "fmod -inf": "likewise",
    "cumprod": "products of the other factors; PyTorch divides by the factor where none is 0",
    "logcumsumexp inf": "equal infinities share the gradient; PyTorch's is NaN",
    "logcumsumexp -inf": "likewise",
    "reduce_max nan": "the first NaN is the maximum; PyTorch divides by a count of 0",
    "reduce_min nan": "likewise",
    "lp_pool nan": "the slope is that of NaN; PyTorch's has none",
    "scatter_elements, mul": "the product of the others; PyTorch divides the result by the factor",
    "scatter_nd, mul": "likewise",
    "scatter_elements, max nan": "NaN is the maximum; PyTorch's has no gradient",
    "scatter_elements, min nan": "likewise",
    "scatter_nd, max nan": "likewise",
    "scatter_nd, min nan": "likewise",
}


def _agrees(case: Case, poison: str, other: dict[str, str]) -> bool:
    names = (case.name, re.split(" over | along | of (?:zeros|large numbers)", case.name)[0])
    return not any(f"{name}{end}" in other for name in names for end in ("", f" {poison}"))


def _poisoned(case: Case, poison: str) -> list[list[Any]]:
    """The inputs of a case, once for each float input, which then has two bad elements. Weights of
    convolutions are left out, because an implementation may skip products of padding and NaN."""
    found = []
    for i, x in enumerate(case.inputs):
        if i in case.constants or (i == 1 and case.name.startswith("conv")):
            continue
        bad = x.astype(np.float32)
        bad.flat[[0, 2 * x.size // 3]] = POISONS[poison]
        found.append([*case.inputs[:i], bad, *case.inputs[i + 1 :]])
    return found


def _ours(case: Case, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    xs = [
        tensor.from_numpy(x)
        if i in case.constants
        else tensor.Tensor(data=x, dtype="float32", stores_grad=True)
        for i, x in enumerate(arrays)
    ]
    ys = case.apply(*xs)
    return xs, list(ys) if isinstance(ys, tuple) else [ys]


def _theirs(torch: ModuleType, case: Case, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    xs = [
        torch.tensor(x)
        if i in case.constants
        else torch.tensor(x.astype(np.float32)).requires_grad_()
        for i, x in enumerate(arrays)
    ]
    ys = case.theirs(*xs)
    return xs, list(ys) if isinstance(ys, (tuple, list)) else [ys]


def _assert_close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@every_poison
@every_case
def test_forward_and_backward_are_pytorch(
    case: Case, poison: str, torch: ModuleType, tmp_path: Path
) -> None:
    forward = _agrees(case, poison, OTHER_FORWARD)
    backward = _agrees(case, poison, OTHER_BACKWARD)
    for arrays in _poisoned(case, poison):
        with singa.opcheck(every=1, directory=tmp_path):
            xs, ys = _ours(case, arrays)
            dys = [np.random.default_rng(3).standard_normal(y.shape) for y in ys]
            got: dict[int, Any] = {}
            for y, dy in zip(ys, dys, strict=True):
                for x, dx in autograd.backward(y, dy.astype(np.float32), retain_graph=True):
                    got[id(x)] = got.get(id(x), 0) + dx.numpy()
        if not forward:
            continue
        their_xs, their_ys = _theirs(torch, case, arrays)
        for y, dy, truth in zip(ys, dys, their_ys, strict=True):
            _assert_close(y.numpy(), truth.detach().numpy())
            truth.backward(torch.tensor(dy).to(truth.dtype), retain_graph=True)
        for x, their_x in zip(xs, their_xs, strict=True):
            if backward and their_x.grad is not None:
                _assert_close(got[id(x)], their_x.grad.numpy())


_IMAGES = [case for case in _FLOAT if case.inputs[0].ndim == 4]


@every_poison
@pytest.mark.parametrize("case", _IMAGES, ids=lambda case: case.name)
def test_images_in_blocks_are_as_row_major_ones(case: Case, poison: str, tmp_path: Path) -> None:
    for arrays in _poisoned(case, poison):
        results = []
        for blocked in (False, True):
            xs = [
                tensor.Tensor(data=x, dtype="float32", stores_grad=True)
                if i not in case.constants
                else tensor.from_numpy(x)
                for i, x in enumerate(arrays)
            ]
            if blocked:
                for x in xs:
                    if x.ndim() == 4:
                        x.data = x.to_blocked().data
            with singa.opcheck(every=1, directory=tmp_path):
                y = case.apply(*xs)
                dy = np.random.default_rng(3).standard_normal(y.shape).astype(np.float32)
                gradients = autograd.gradients(y, dy)
            # An implementation may skip products with padding in the gradient of a weight.
            kept = xs[:1] if case.name.startswith("conv") else [x for x in xs if x.stores_grad]
            results.append([y.numpy(), *[gradients[x].numpy() for x in kept]])
        for plain, other in zip(*results, strict=True):
            _assert_close(other, plain)


# ReLU as part of the operation before it.

TYPES = (tensor.float32, tensor.bfloat16)
every_type = pytest.mark.parametrize("dtype", TYPES, ids=["float32", "bfloat16"])


def _raw(array: np.ndarray, dtype: int) -> Any:
    return tensor.from_numpy(array.astype(np.float32)).as_type(dtype).data


def _read(raw: Any) -> np.ndarray:
    return autograd.ctensor2numpy(raw.AsType(singa_wrap.kFloat32))


def _rectified(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(x <= 0, np.float32(0), x)


@every_type
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("channels", [(3, 16), (16, 32), (20, 5)])
@pytest.mark.parametrize(
    ("kernel", "stride", "groups"),
    [(1, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 1), (11, 4, 1), (3, 1, 0)],
)
def test_relu_in_a_convolution(
    kernel: int,
    stride: int,
    groups: int,
    channels: tuple[int, int],
    batch: int,
    dtype: int,
    tmp_path: Path,
) -> None:
    inside, outside = channels
    if not groups:  # depthwise
        groups = outside = inside
    rng = np.random.default_rng(1)
    x = rng.standard_normal((batch, inside, 19, 18))
    x[0, 0, 3, 4], x[-1, -1, 9, 11], x[-1, 0, 17, 17] = np.nan, np.inf, -np.inf
    geometry = [kernel] * 2, [stride] * 2, [kernel // 2] * 2
    handle = singa_wrap.ConvHandle(_raw(x, dtype), *geometry, inside, outside, True, groups)
    W = _raw(rng.standard_normal((outside, inside // groups, kernel, kernel)) / kernel, dtype)
    b = _raw(rng.standard_normal(outside), dtype)
    y = singa_wrap.ConvForward(_raw(x, dtype), W, b, handle)
    add = rng.standard_normal(y.shape())
    add[0, 0, 1, 1], add[0, -1, 0, 2], add[-1, 0, 2, 0] = np.nan, np.inf, -np.inf
    for extra in (None, _raw(add, dtype)):
        with singa.opcheck(every=1, directory=tmp_path):
            got = singa_wrap.ConvForward(_raw(x, dtype), W, b, handle, extra, True)
        plain = _read(singa_wrap.ConvForward(_raw(x, dtype), W, b, handle, extra, False))
        assert np.isnan(plain).any()
        singa.set_strict(True)  # Winograd's method subtracts infinities, which gives NaN
        exact = _read(singa_wrap.ConvForward(_raw(x, dtype), W, b, handle, extra, False))
        singa.set_strict(False)
        assert np.isinf(exact).any()
        np.testing.assert_array_equal(_read(got), _rectified(plain))


@every_type
@pytest.mark.parametrize(
    ("rows", "inside", "outside"), [(1, 64, 40), (5, 1, 40), (3, 4, 5), (33, 64, 50)]
)
def test_relu_in_a_linear_layer(
    rows: int, inside: int, outside: int, dtype: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    x, W = rng.standard_normal((rows, inside)), rng.standard_normal((inside, outside))
    W[0, :3] = np.nan, np.inf, -np.inf
    b = rng.standard_normal(outside)
    b[3:5] = -np.inf, np.nan
    for bias in (None, _raw(b, dtype)):
        arguments = _raw(x, dtype), _raw(W, dtype), bias, False
        with singa.opcheck(every=1, directory=tmp_path):
            got = singa_wrap.LinearForward(*arguments, True)
        plain = _read(singa_wrap.LinearForward(*arguments, False))
        assert np.isnan(plain).any()
        assert np.isinf(plain).any()
        np.testing.assert_array_equal(_read(got), _rectified(plain))

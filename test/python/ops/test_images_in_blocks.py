"""Operations on images that convolutions have left in their own layout give what they give of plain
ones, and leave the image there."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import singa
from device_under_test import ON_GPU
from singa import autograd, tensor
from singa.tensor import Tensor

pytestmark = pytest.mark.usefixtures("training")

_OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, s: autograd.reduce_mean(x, (2, 3)),
    "mean without axes": lambda x, s: autograd.reduce_mean(x, (-1, 2), False),
    "mean of a method": lambda x, s: x.mean(axis=(2, 3), keepdims=True),
    "sum": lambda x, s: autograd.reduce_sum(x, (0, 2, 3)),
    "sum of all": lambda x, s: autograd.reduce_sum(x),
    "group norm": lambda x, s: _group_norm(x, 1),
    "scale of images": lambda x, s: x * s,
    "scale in front": lambda x, s: s * x,
}

#: Those of layouts whose padding is zero, and would not stay so.
_WITHOUT_PADDING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "number": lambda x, s: x * s.sum() + s.mean(),
    "number in front": lambda x, s: s.sum() - x / s.sum(),
    "sigmoid": lambda x, s: autograd.sigmoid(x),
}


def _group_norm(x: Tensor, groups: int) -> Tensor:
    scale = tensor.from_numpy(np.linspace(1, 2, x.shape[1], dtype=np.float32))
    return autograd.group_norm(x, groups, scale, scale)


@pytest.mark.parametrize("name", [*_OPERATIONS, *_WITHOUT_PADDING])
@pytest.mark.parametrize("channels", [16, 19])
def test_images_stay_in_blocks(name: str, channels: int) -> None:
    rng = np.random.default_rng(channels)
    values = rng.standard_normal((3, channels, 5, 6)).astype(np.float32)
    scale = rng.standard_normal((3, 1, 1, 1)).astype(np.float32)
    results: list[list[Any]] = []
    for is_blocked in (False, True):
        x = tensor.from_numpy(values)
        x = x.to_blocked() if is_blocked else x
        assert x.is_blocked == is_blocked
        x.stores_grad = x.requires_grad = True
        s = Tensor(data=scale, stores_grad=True)
        with singa.explain() as operations:
            y = (_OPERATIONS | _WITHOUT_PADDING)[name](x, s)
        reordered = [each["inputs"][0] for each in operations if each["op"] == "Reorder"]
        # On a GPU others than means read row-major images.
        stays = name.startswith("mean") or not ON_GPU
        if stays and not (name in _WITHOUT_PADDING and channels == 19):
            assert not [each for each in reordered if "5, 6" in each]
        found = autograd.gradients(y, np.ones(y.shape, np.float32))
        results.append([t.numpy() for t in (y, found[x], *([found[s]] if s in found else []))])
    for plain, blocked in zip(*results, strict=True):
        assert blocked.shape == plain.shape
        np.testing.assert_allclose(blocked, plain, rtol=1e-6, atol=1e-5)


def test_the_gradient_of_a_mean_lies_as_the_image() -> None:
    x = tensor.from_numpy(np.ones((2, 16, 4, 4), np.float32)).to_blocked()
    x.stores_grad = x.requires_grad = True
    for keepdims in (True, False):
        op = autograd.ReduceMean((2, 3), keepdims)
        dx = Tensor(data=op.backward(op(x)[0].data))
        assert dx.is_blocked
        np.testing.assert_array_equal(dx.numpy(), np.full(x.shape, 1 / 16, np.float32))


@pytest.mark.parametrize("axes", [(2, 3, 9), (2, -9), (2, 3, 3)])
def test_axes_that_a_mean_cannot_have_are_refused(axes: tuple[int, ...]) -> None:
    x = tensor.ones((2, 16, 4, 4)).to_blocked()
    with pytest.raises(ValueError, match=r"ReduceMean. axis (-?9 is outside|3 appears twice)"):
        autograd.reduce_mean(x, axes)

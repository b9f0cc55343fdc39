"""Where inputs lie in memory: unaligned addresses, views with any strides, blocked layouts. Results
are those of row-major inputs, and those of `reference`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import singa
from ops.table import CASES, Case
from singa import autograd, tensor

pytestmark = pytest.mark.usefixtures("training")

_EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
Array = np.ndarray[Any, Any]


@dataclass
class _Place:
    """An array is `store`d as another one, of which `view` is the input; `own` takes from an array
    of stored form, such as a gradient, what belongs to the input."""

    store: Callable[[Array], Array]
    view: Callable[[tensor.Tensor, tuple[int, ...]], tensor.Tensor]
    own: Callable[[Array], Array]


def _offset(count: int) -> _Place:
    return _Place(
        lambda x: np.concatenate([np.zeros(count, x.dtype), x.ravel()]),
        lambda t, shape: autograd.reshape(t[count:], shape),
        lambda g: g[count:],
    )


def _spaced(x: Array) -> Array:
    """With elements between those of x that no result may depend on."""
    gaps = np.full_like(x, np.nan if x.dtype.kind == "f" else 1)
    return np.stack([x, gaps], -1).reshape(*x.shape[:-1], -1)


_ROW_MAJOR = _offset(0)
_ADDRESSES = {"1 element on": _offset(1), "3 elements on": _offset(3)}
_VIEWS = {
    "axes reversed": _Place(
        lambda x: np.ascontiguousarray(x.T), lambda t, shape: autograd.transpose(t), lambda g: g.T
    ),
    "every second element": _Place(
        _spaced, lambda t, shape: t[..., ::2], lambda g: g[..., ::2]
    ),
    "backwards": _Place(
        lambda x: np.ascontiguousarray(x[..., ::-1]),
        lambda t, shape: t[..., ::-1],
        lambda g: g[..., ::-1],
    ),
    "in blocks": _Place(
        lambda x: x,
        lambda t, shape: autograd.to_blocked(t) if len(shape) in (4, 5) else t,
        lambda g: g,
    ),
}  # fmt: skip


def _computed(case: Case, dtype: str, place: _Place) -> list[Array]:
    """Results and gradients for inputs and dy that lie like this."""

    def placed(x: Array, kind: str, **of_leaf: bool) -> tensor.Tensor:
        leaf = tensor.Tensor(data=place.store(x) if x.ndim else x, dtype=kind, **of_leaf)
        leaves.append(leaf)
        return place.view(leaf, x.shape) if x.ndim else leaf

    leaves: list[tensor.Tensor] = []
    xs = []
    for i, x in enumerate(case.inputs):
        constant = i in case.constants
        xs.append(placed(x, x.dtype.name if constant else dtype, stores_grad=not constant))
    ys = case.apply(*xs)
    ys = list(ys) if isinstance(ys, tuple) else [ys]
    results = [y.numpy() for y in ys]
    for y in ys if case.differentiable else []:
        dy = placed(np.linspace(-1, 1, max(y.size(), 1))[: y.size()].reshape(y.shape), dtype)
        gradients = autograd.gradients(y, dy.detach(), retain_graph=True)
        for leaf in leaves:
            if id(leaf) in gradients:
                got = gradients[leaf].numpy()
                results.append((place.own(got) if got.ndim else got).ravel())
    return [np.asarray(result, np.float64) for result in results]


def _assert_near(case: Case, dtype: str, got: list[Array], expected: list[Array]) -> None:
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        # Vectors may be split differently, so sums may be in another order.
        scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
        limit = case.tolerance * _EPSILON[dtype] * scale
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_odd_address_changes_nothing(case: Case, dtype: str) -> None:
    """Kernels process what is not aligned to vectors element by element."""
    try:
        expected = _computed(case, dtype, _ROW_MAJOR)
    except TypeError as error:  # the operator accepts other types only
        with pytest.raises(TypeError, match=re.escape(str(error))):
            _computed(case, dtype, _ADDRESSES["1 element on"])
        return
    for place in _ADDRESSES.values():
        _assert_near(case, dtype, _computed(case, dtype, place), expected)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_views_and_blocks_change_nothing(case: Case, tmp_path: Path) -> None:
    """Every kernel that can compute a call is compared with `reference`, too."""
    expected = _computed(case, "float32", _ROW_MAJOR)
    for place in _VIEWS.values():
        with singa.opcheck(directory=tmp_path, every_kernel=True) as check:
            got = _computed(case, "float32", place)
        assert not [row for row in check.kernels() if row["failed"] and not row["refused"]]
        _assert_near(case, "float32", got, expected)

"""Tensors that are not aligned to vectors, which kernels process element by element."""

import re

import numpy as np
import pytest
from operator_table import CASES, Case
from singa import autograd, tensor

pytestmark = pytest.mark.usefixtures("training")

_EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _computed(case: Case, dtype: str, offset: int) -> list[np.ndarray]:
    """Results and gradients for inputs and dy that begin `offset` elements into their memory."""

    def placed(x: np.ndarray, kind: str, **of_leaf: bool) -> tensor.Tensor:
        memory = np.concatenate([np.zeros(offset, x.dtype), x.ravel()])
        leaf = tensor.Tensor(data=memory, dtype=kind, **of_leaf)
        leaves.append(leaf)
        return autograd.reshape(leaf[offset:], x.shape)

    leaves: list[tensor.Tensor] = []
    xs = []
    for i, x in enumerate(case.inputs):
        constant = i in case.constants
        xs.append(placed(x, x.dtype.name if constant else dtype, stores_grad=not constant))
    ys = case.apply(*xs)
    ys = list(ys) if isinstance(ys, tuple) else [ys]
    results = [y.numpy() for y in ys]
    if case.differentiable:
        wanted = {id(leaf): n for n, leaf in enumerate(leaves)}
        for y in ys:
            dy = placed(np.linspace(-1, 1, max(y.size(), 1))[: y.size()].reshape(y.shape), dtype)
            for x, gradient in autograd.backward(y, dy.detach(), retain_graph=True):
                if id(x) in wanted:
                    results.append(gradient.numpy().ravel()[offset:])
    return [np.asarray(result, np.float64) for result in results]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_odd_address_changes_nothing(case: Case, dtype: str) -> None:
    try:
        expected = _computed(case, dtype, 0)
    except TypeError as error:  # the operator accepts other types only
        with pytest.raises(TypeError, match=re.escape(str(error))):
            _computed(case, dtype, 1)
        return
    for offset in (1, 3):
        got = _computed(case, dtype, offset)
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            # Vectors may be split differently, so sums may be in another order.
            scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
            limit = case.tolerance * _EPSILON[dtype] * scale
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)

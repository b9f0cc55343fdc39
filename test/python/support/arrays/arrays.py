"""Arrays and tensors for tests."""

from typing import Any

import numpy as np
from singa import tensor
from singa.tensor import Tensor

RANDOM = np.random.default_rng(7)
A = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5


def array(*shape: int, dtype: str = "float32") -> Any:
    return RANDOM.standard_normal(shape).astype(dtype)


def image(*shape):
    return tensor.from_numpy(array(*shape))


def of(values: Any, **kwargs: Any) -> Tensor:
    return tensor.from_numpy(np.asarray(values), **kwargs)


def same(t: Tensor, values: Any) -> None:
    np.testing.assert_array_equal(t.numpy(), values)

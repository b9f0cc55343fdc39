"""Tensors of float32 that need a gradient or none, and gradients as lists."""

from typing import Any

import numpy as np
from singa import tensor


def parameter(values: Any, **kwargs: Any) -> tensor.Tensor:
    return tensor.Tensor(data=np.asarray(values, np.float32), stores_grad=True, **kwargs)


def constant(values: Any) -> tensor.Tensor:
    return tensor.from_numpy(np.asarray(values, np.float32))


def values(gradients: Any, *xs: tensor.Tensor) -> list[Any]:
    return [gradients[x].numpy().tolist() for x in xs]

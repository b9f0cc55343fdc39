"""Layers without parameters: one function of the tape each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .. import autograd
from .._check import fraction
from ..tensor import Tensor
from .base import Layer, observers
from .norm import BatchNorm2d


class Sequential(Layer):
    """Layers one after the other, named "0", "1", ... Indexed and counted like a list.

    A ReLU right after a BatchNorm2d is computed along with it, unless somebody watches the layers.
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        for index, each in enumerate(layers):
            if not isinstance(each, Layer):
                raise TypeError(f"[Sequential] expected layers, got {type(each).__name__}")
            self._adopt(str(index), each)

    def forward(self, x: Tensor) -> Tensor:
        layers = list(self._layers.values())
        done: Layer | None = None  # along with the one before
        for each, after in itertools.zip_longest(layers, layers[1:]):
            if each is done:
                done = None
            elif type(each) is BatchNorm2d and type(after) is ReLU and not observers:
                x, done = each(x, relu=True), after
            else:
                x = each(x)
        return x

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> Layer:
        return list(self._layers.values())[index]


class ReLU(Layer):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.relu(x)


class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.sigmoid(x)


class Add(Layer):
    """a + b."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return autograd.add(a, b)


class Flatten(Layer):
    """All axes from `axis` on as one."""

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return autograd.flatten(x, self.axis)


class SoftMax(Layer):
    """Softmax along axis 1."""

    def forward(self, x: Tensor) -> Tensor:
        return autograd.softmax(x)


class SoftMaxCrossEntropy(Layer):
    """Mean over the batch of the cross-entropy between targets t and softmax(x)."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.softmax_cross_entropy(x, t)


class MeanSquareError(Layer):
    """Sum of (x - t)² over the batch size."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.mse_loss(x, t)


class CrossEntropy(Layer):
    """Cross-entropy between targets t and probabilities x."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.cross_entropy(x, t)


class BinaryCrossEntropy(Layer):
    """Binary cross-entropy between targets t and probabilities x."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.binary_cross_entropy(x, t)


class Dropout(Layer):
    """In training, zeroes each element with probability `ratio` and scales the others up."""

    def __init__(self, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio = fraction("Dropout", "ratio", ratio, open_end=True)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.dropout(x, ratio=self.ratio)


class Cat(Layer):
    """Tensors joined along `axis`."""

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        return autograd.cat(xs, self.axis)


class Reshape(Layer):
    """The elements of x in another shape."""

    def forward(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return autograd.reshape(x, shape)

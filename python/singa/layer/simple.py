"""Layers without parameters, each of which applies one function of `singa.autograd`."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from .. import autograd
from ..raw.check import axis_of, fraction, integer, integers
from ..raw.words import spelled
from ..tensor import Tensor
from .activation import Hardswish, ReLU6, SiLU
from .base import Layer, checked_layer
from .hooks import hooked_forward
from .norm import BatchNorm2d
from .observers import are_watched


class Sequential(Layer):
    """A chain of layers, named "0", "1", ... It can be indexed and has a length, like a list.

    A BatchNorm2d and a ReLU or ReLU6 right after it run as one operation, except while one of
    them has a hook, or an observer, such as `Model.summary`, needs each layer by itself.
    An OrderedDict of layers, as PyTorch's takes it, gives them its keys as names. Raises TypeError
    if an argument is not a layer, ValueError for a key that is an attribute or has a dot.

    >>> net = layer.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
    >>> net(tensor.ones((5, 3))).shape
    (5, 2)
    >>> list(net.get_params())
    ['0.W', '0.b', '2.W', '2.b']
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__()
        first: Any = layers[0] if len(layers) == 1 else None
        named = first if isinstance(first, OrderedDict) else dict(enumerate(layers))
        for name, each in named.items():
            checked_layer("Sequential", each)
            name = str(name)
            if not name or self.sep in name or hasattr(type(self), name) or name in vars(self):
                raise ValueError(f"[Sequential] {name!r} cannot be the name of a layer")
            self._adopt(name, each)

    def forward(self, x: Tensor) -> Tensor:
        layers = list(self._layers.values())
        apart = are_watched()
        done: Layer | None = None  # an activation that ran with the layer before it
        for each, after in itertools.zip_longest(layers, layers[1:]):
            if each is done:
                done = None
            elif (
                type(each) is BatchNorm2d
                and type(after) in _BEHIND_NORM
                and not (apart or hooked_forward(each) or hooked_forward(after))
            ):
                x, done = each(x, activation=_BEHIND_NORM[type(after)]), after
            else:
                try:
                    x = each(x)
                except (AttributeError, TypeError) as error:
                    if not isinstance(x, tuple) or each is layers[0]:
                        raise
                    raise TypeError(
                        f"[{self.title}] {each.title} gets a tuple of {len(x)}, which the layer "
                        "before it returns: a Model with a forward() of its own takes one of them"
                    ) from error
        return x

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(list(self._layers.values()))

    def __getitem__(self, index: int) -> Layer:
        return list(self._layers.values())[index]


@spelled("inplace", inplace=(True, False))
class ReLU(Layer):
    """max(x, 0).

    >>> layer.ReLU()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([0., 0., 2.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.relu(x)


#: Activations that run with the batch norm before them.
_BEHIND_NORM = {ReLU: "relu", Hardswish: "hardswish", ReLU6: "relu6", SiLU: "silu"}


class Sigmoid(Layer):
    """1 / (1 + exp(-x)).

    >>> layer.Sigmoid()(tensor.Tensor(data=[-1.0, 0.0, 2.0]))
    Tensor([0.2689, 0.5   , 0.8808], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return autograd.sigmoid(x)


class Add(Layer):
    """a + b, with broadcasting.

    Raises ValueError for shapes that do not broadcast to each other.

    >>> layer.Add()(tensor.Tensor(data=[1.0, 2.0]), tensor.Tensor(data=[10.0, 20.0]))
    Tensor([11., 22.], dtype=float32)
    """

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return autograd.add(a, b)


class Identity(Layer):
    """Returns x. Arguments are ignored, so that it can replace another layer.

    >>> layer.Identity()(tensor.Tensor(data=[1.0, 2.0]))
    Tensor([1., 2.], dtype=float32)
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Unflatten(Layer):
    """Divides the axis `dim` into axes of the lengths `unflattened_size`, of which one may be -1.

    Raises ValueError for lengths whose product is not that of the axis, and for an axis outside x.

    >>> layer.Unflatten(1, (3, -1))(tensor.ones((2, 6))).shape
    (2, 3, 2)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim: int = integer("Unflatten", "dim", dim)
        self.unflattened_size = integers("Unflatten", "unflattened_size", unflattened_size, -1)

    def forward(self, x: Tensor) -> Tensor:
        shape = tuple(x.shape)
        axis = axis_of(self.title, self.dim, shape)
        known = math.prod(each for each in self.unflattened_size if each != -1)
        open_axes = self.unflattened_size.count(-1)
        rest = shape[axis] % known if known and open_axes else shape[axis] - known
        if rest or open_axes > 1 or (open_axes and not known):
            raise ValueError(
                f"[{self.title}] {shape[axis]} elements along axis {axis} of {shape} cannot be "
                f"divided into {self.unflattened_size}"
            )
        sizes = tuple(shape[axis] // known if n == -1 else n for n in self.unflattened_size)
        return autograd.reshape(x, (*shape[:axis], *sizes, *shape[axis + 1 :]))


@spelled("end_dim", start_dim=(1,), end_dim=(-1,))
class Flatten(Layer):
    """Reshapes to a matrix: the axes before `axis` (default 1), and the axes from it on.

    Raises ValueError for an axis outside x.

    >>> layer.Flatten()(tensor.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, axis: int = 1) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return autograd.flatten(x, self.axis)


class CrossEntropy(Layer):
    """Cross-entropy of probabilities x (N, C) for targets t, averaged over the batch, with shape
    (1,).

    Raises ValueError for targets of another shape.

    >>> layer.CrossEntropy()(tensor.Tensor(data=[[0.2, 0.8]]), tensor.Tensor(data=[[0.0, 1.0]]))
    Tensor([0.2231], dtype=float32)
    """

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.cross_entropy(x, t)


class BinaryCrossEntropy(Layer):
    """Binary cross-entropy of probabilities x for targets t, averaged over the batch, with shape
    (1,).

    Raises ValueError for targets of another shape.

    >>> x, t = tensor.Tensor(data=[[0.2, 0.8]]), tensor.Tensor(data=[[0.0, 1.0]])
    >>> layer.BinaryCrossEntropy()(x, t)
    Tensor([0.4463], dtype=float32)
    """

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return autograd.binary_cross_entropy(x, t)


@spelled("inplace", p="ratio", inplace=(True, False))
class Dropout(Layer):
    """In training, sets each element to zero with probability `ratio` in [0, 1) (default 0.5) and
    scales the others by 1 / (1 - ratio). The identity in inference.

    Raises ValueError for a ratio outside [0, 1).

    >>> dropout = layer.Dropout(0.5)
    >>> dropout(tensor.ones((3,)))  # in inference
    Tensor([1., 1., 1.], dtype=float32)
    >>> autograd.training = True
    >>> sorted(set(dropout(tensor.ones((100,))).tolist()))
    [0.0, 2.0]
    """

    def __init__(self, ratio: float = 0.5) -> None:
        super().__init__()
        self.ratio: float = fraction("Dropout", "ratio", ratio, open_end=True)

    def forward(self, x: Tensor) -> Tensor:
        if self.ratio == 0.0:
            return x
        return autograd.dropout(x, ratio=self.ratio)


class Cat(Layer):
    """Concatenates a list of tensors along `axis` (default 0).

    Raises ValueError if other dimensions differ.

    >>> layer.Cat(1)([tensor.ones((2, 3)), tensor.ones((2, 1))]).shape
    (2, 4)
    """

    def __init__(self, axis: int = 0) -> None:
        super().__init__()
        self.axis = axis

    def forward(self, xs: Sequence[Tensor]) -> Tensor:
        return autograd.cat(xs, self.axis)


class Reshape(Layer):
    """Reshapes x to `shape`, of which one entry may be -1.

    Raises ValueError for another number of elements.

    >>> layer.Reshape()(tensor.ones((2, 6)), (3, -1)).shape
    (3, 4)
    """

    def forward(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return autograd.reshape(x, shape)

"""Methods of Tensor under the names of NumPy and PyTorch, over the operators.

Reductions remove the axes unless `keepdims` is set. They also take PyTorch's `dim` and `keepdim`,
and `out=None`, which NumPy's functions pass. All methods are recorded on the tape as arithmetic is.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import bfloat16, bool_, float16, float32, float64, int32, int64, is_float
from ..raw.check import integer
from ..tape.operator import apply
from ..tape.tensor import Tensor, installed
from .arithmetic import pow
from .elementwise import Abs, Exp, Log, ReLU, Sigmoid, Sqrt, Square, Tanh, clip
from .indexing import where
from .linalg import matmul
from .movement import Cast, Reshape, Squeeze, ToDevice, Transpose, Unsqueeze, converted
from .reduction import (
    ArgMax,
    ArgMin,
    LogSoftMax,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    softmax_along,
)
from .statistics import all, any, std, var

if TYPE_CHECKING:
    from ..singa_wrap import Device

Axes = int | Sequence[int] | None
_Flag = builtins.bool  # a method is called bool


def _named(op: str, axis: Axes, keepdims: _Flag, names: dict[str, Any]) -> tuple[Axes, _Flag]:
    """(axis, keepdims), also by PyTorch's names. Raises TypeError for other names."""
    axis, keepdims = names.pop("dim", axis), names.pop("keepdim", keepdims)
    if names.pop("out", None) is not None or names:
        wrong = next(iter(names), "out")
        raise TypeError(f"[{op}] has no argument {wrong!r}; it has axis and keepdims")
    return axis, keepdims


def _extremum(op: str, t: Tensor, axis: Axes, keepdims: _Flag, names: dict[str, Any]) -> Tensor:
    if isinstance(axis, Tensor):
        raise TypeError(f"[{op}] takes an axis; autograd.{op}(a, b) compares two tensors")
    if "dim" in names:
        raise TypeError(
            f"[{op}] {op}(axis) gives the values alone, as in NumPy; autograd.topk(x, 1, dim) "
            "gives (values, indices)"
        )
    axis, keepdims = _named(op, axis, keepdims, names)
    return apply((ReduceMax if op == "max" else ReduceMin)(axis, keepdims), t)


def _index(
    kind: type[ArgMax], t: Tensor, axis: int | None, keepdims: _Flag, names: dict[str, Any]
) -> Tensor:
    where_, keepdims = _named(kind.__name__.lower(), axis, keepdims, names)
    if where_ is not None:
        return apply(kind(where_, keepdims), t)  # type: ignore[arg-type]
    index = apply(kind(0, False), t.reshape((-1,)))
    return index.reshape((1,) * t.ndim()) if keepdims else index


def _each(first: Any, more: tuple[Any, ...]) -> Any:
    """The numbers of a shape that are given as one sequence or one by one."""
    return (first, *more) if more else first


@installed
class Methods:
    """What `installed` puts on Tensor; type checkers take it for a base class of Tensor."""

    # Reductions.

    def sum(
        self: Any, axis: Axes = None, keepdims: _Flag = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Sum over an axis or axes (default: all). That of integers and bools is int64. `dtype` is
        a type to convert to before.

        >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
        >>> x.sum(), x.sum(axis=0)
        (Tensor(10., dtype=float32), Tensor([4., 6.], dtype=float32))
        """
        axes = _named("sum", axis, keepdims, names)
        return apply(ReduceSum(*axes), self if dtype is None else self.as_type(dtype))

    def prod(
        self: Any, axis: Axes = None, keepdims: _Flag = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Product over an axis or axes (default: all). That of integers and bools is int64.

        >>> tensor.Tensor(data=[2.0, 3.0, 4.0]).prod()
        Tensor(24., dtype=float32)
        """
        axes = _named("prod", axis, keepdims, names)
        return apply(ReduceProd(*axes), self if dtype is None else self.as_type(dtype))

    def mean(
        self: Any, axis: Axes = None, keepdims: _Flag = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Mean over an axis or axes (default: all). Integers and bools count as float32.

        >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
        >>> x.mean(axis=1, keepdims=True)
        Tensor([[1.5],
                [3.5]], dtype=float32)
        """
        axes = _named("mean", axis, keepdims, names)
        x = self if dtype is None else self.as_type(dtype)
        return apply(ReduceMean(*axes), x if is_float(x.dtype) else converted(x, float32))

    def var(
        self: Any,
        axis: Axes = None,
        keepdims: _Flag = False,
        correction: builtins.float = 1,
        **names: Any,
    ) -> Tensor:
        """Variance over an axis or axes (default: all), as torch.var: see `autograd.var`. `ddof` is
        NumPy's name of `correction`.

        >>> tensor.Tensor(data=[1.0, 2.0, 3.0]).var()
        Tensor(1., dtype=float32)
        """
        correction, dtype = names.pop("ddof", correction), names.pop("dtype", None)
        axes = _named("var", axis, keepdims, names)
        return var(self if dtype is None else self.as_type(dtype), *axes, correction)

    def std(
        self: Any,
        axis: Axes = None,
        keepdims: _Flag = False,
        correction: builtins.float = 1,
        **names: Any,
    ) -> Tensor:
        """Standard deviation over an axis or axes (default: all): the root of `var`.

        >>> tensor.Tensor(data=[1.0, 2.0, 3.0]).std()
        Tensor(1., dtype=float32)
        """
        correction, dtype = names.pop("ddof", correction), names.pop("dtype", None)
        axes = _named("std", axis, keepdims, names)
        return std(self if dtype is None else self.as_type(dtype), *axes, correction)

    def max(self: Any, axis: Axes = None, keepdims: _Flag = False, **names: Any) -> Tensor:
        """Maximum over an axis or axes (default: all): the values alone, as in NumPy, where
        torch.max gives (values, indices). Equal maxima share the gradient.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).max(axis=1)
        Tensor([4., 3.], dtype=float32)
        """
        return _extremum("max", self, axis, keepdims, names)

    def min(self: Any, axis: Axes = None, keepdims: _Flag = False, **names: Any) -> Tensor:
        """Minimum over an axis or axes (default: all); see `max`.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).min(axis=1)
        Tensor([1., 2.], dtype=float32)
        """
        return _extremum("min", self, axis, keepdims, names)

    def argmax(
        self: Any, axis: builtins.int | None = None, keepdims: _Flag = False, **names: Any
    ) -> Tensor:
        """Index (int64) of the first maximum along an axis; without an axis, in the flattened
        tensor. A NaN counts as the maximum.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).argmax(axis=1)
        Tensor([1, 0], dtype=int64)
        """
        return _index(ArgMax, self, axis, keepdims, names)

    def argmin(
        self: Any, axis: builtins.int | None = None, keepdims: _Flag = False, **names: Any
    ) -> Tensor:
        """Index (int64) of the first minimum along an axis; without an axis, in the flattened
        tensor. A NaN counts as the minimum.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).argmin()
        Tensor(0, dtype=int64)
        """
        return _index(ArgMin, self, axis, keepdims, names)

    def any(self: Any, axis: Axes = None, keepdims: _Flag = False, **names: Any) -> Tensor:
        """Whether an element along an axis or axes (default: all) is not 0, as bool.

        >>> tensor.Tensor(data=[0.0, 1.0]).any()
        Tensor(True, dtype=bool)
        """
        return any(self, *_named("any", axis, keepdims, names))

    def all(self: Any, axis: Axes = None, keepdims: _Flag = False, **names: Any) -> Tensor:
        """Whether no element along an axis or axes (default: all) is 0, as bool.

        >>> tensor.Tensor(data=[0.0, 1.0]).all()
        Tensor(False, dtype=bool)
        """
        return all(self, *_named("all", axis, keepdims, names))

    # Shape.

    def view(
        self: Any, shape: Sequence[builtins.int] | builtins.int, *more: builtins.int
    ) -> Tensor:
        """The same as `reshape`: `x.view(2, -1)` or `x.view((2, -1))`. It copies where no view is
        possible.

        >>> tensor.zeros((2, 6)).view(3, -1).shape
        (3, 4)
        """
        return apply(Reshape(_each(shape, more)), self)

    def permute(
        self: Any, axes: Sequence[builtins.int] | builtins.int, *more: builtins.int
    ) -> Tensor:
        """A view with permuted axes: `x.permute(0, 2, 1)` or `x.permute((0, 2, 1))`.

        >>> tensor.zeros((2, 3, 4)).permute(0, 2, 1).shape
        (2, 4, 3)
        """
        order = _each(axes, more)
        return apply(Transpose([order] if isinstance(order, int) else order), self)

    def flatten(self: Any, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Joins the axes from `start_dim` to `end_dim` (default: all) into one, as torch.flatten.

        Raises ValueError for axes outside the tensor or in the wrong order.

        >>> tensor.zeros((2, 3, 4)).flatten(1).shape
        (2, 12)
        """
        shape = self.shape or (1,)
        rank = len(shape)
        start, end = (
            integer("flatten", name, axis)
            for name, axis in (("start_dim", start_dim), ("end_dim", end_dim))
        )
        if not (-rank <= start < rank and -rank <= end < rank) or start % rank > end % rank:
            raise ValueError(
                f"[flatten] no axes {start} to {end} in a tensor of shape {self.shape}"
            )
        start, end = start % rank, end % rank
        count = 1
        for n in shape[start : end + 1]:
            count *= n
        return apply(Reshape((*shape[:start], count, *shape[end + 1 :])), self)

    def squeeze(
        self: Any, axis: builtins.int | Sequence[builtins.int] = (), **names: Any
    ) -> Tensor:
        """Removes one or more axes of length 1 (default: all of them). Raises ValueError for an
        axis of another length.

        >>> tensor.zeros((1, 3, 1)).squeeze().shape
        (3,)
        """
        axes, _ = _named("squeeze", axis, False, names)
        return apply(Squeeze(() if axes is None else axes), self)

    def unsqueeze(self: Any, axis: builtins.int) -> Tensor:
        """Inserts an axis of length 1, at position `axis` of the result.

        >>> tensor.zeros((2, 3)).unsqueeze(1).shape
        (2, 1, 3)
        """
        return apply(Unsqueeze(axis), self)

    @property
    def mT(self: Any) -> Tensor:  # noqa: N802 (the name in NumPy and PyTorch)
        """A view with the last two axes exchanged. Raises ValueError for fewer than two axes.

        >>> tensor.zeros((5, 2, 3)).mT.shape
        (5, 3, 2)
        """
        rank = self.ndim()
        if rank < 2:
            raise ValueError(f"[mT] needs at least two axes, got shape {self.shape}")
        return apply(Transpose([*range(rank - 2), rank - 1, rank - 2]), self)

    def dim(self: Any) -> builtins.int:
        """Number of axes: PyTorch's name of `ndim()`.

        >>> tensor.zeros((2, 3)).dim()
        2
        """
        return self.data.rank()

    def numel(self: Any) -> builtins.int:
        """Number of elements: PyTorch's name of `size()`.

        >>> tensor.zeros((2, 3)).numel()
        6
        """
        return self.data.size()

    # Types and places.

    def astype(self: Any, dtype: builtins.int | str) -> Tensor:
        """Converts to another element type: NumPy's name of `as_type`.

        >>> tensor.Tensor(data=[1.7]).astype("int32")
        Tensor([1], dtype=int32)
        """
        return apply(Cast(dtype), self)

    def to(self: Any, *targets: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """This tensor in another type, on another device, or both; itself if it is so already.

        A target is an element type, a Device, "cpu", or a Tensor whose type and device are taken.
        Unlike `to_type` and `to_device`, the tensor itself does not change, and gradients flow
        back. Raises TypeError for anything else.

        >>> tensor.Tensor(data=[1.7]).to("float64")
        Tensor([1.7], dtype=float64)
        """
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.device
            elif isinstance(target, _c.Device) or (
                isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda")
            ):
                device = target
            else:
                dtype = target
        if isinstance(device, str) and device != "cpu":
            raise TypeError(f"[to] a device is a Device or 'cpu', got {device!r}; see singa.device")
        y = self
        if device is not None:
            y = y.cpu() if device == "cpu" else _moved(y, device)
        return y if dtype is None or y.dtype == Cast(dtype).to else apply(Cast(dtype), y)

    def cpu(self: Any) -> Tensor:
        """This tensor on the CPU; itself if it lies there.

        >>> tensor.ones((2,)).cpu()
        Tensor([1., 1.], dtype=float32)
        """
        if self.device.kind() == _c.DeviceKind_kCpu:
            return self
        return _moved(self, _c.DefaultDevice())

    def float(self: Any) -> Tensor:
        """Converted to float32.

        >>> tensor.Tensor(data=[1, 2], dtype="int32").float()
        Tensor([1., 2.], dtype=float32)
        """
        return self.to(float32)

    def double(self: Any) -> Tensor:
        """Converted to float64.

        >>> tensor.ones((1,)).double()
        Tensor([1.], dtype=float64)
        """
        return self.to(float64)

    def half(self: Any) -> Tensor:
        """Converted to float16.

        >>> tensor.ones((1,)).half()
        Tensor([1.], dtype=float16)
        """
        return self.to(float16)

    def bfloat16(self: Any) -> Tensor:
        """Converted to bfloat16.

        >>> tensor.ones((1,)).bfloat16()
        Tensor([1.], dtype=bfloat16)
        """
        return self.to(bfloat16)

    def int(self: Any) -> Tensor:
        """Converted to int32.

        >>> tensor.Tensor(data=[1.7, -1.7]).int()
        Tensor([ 1, -1], dtype=int32)
        """
        return self.to(int32)

    def long(self: Any) -> Tensor:
        """Converted to int64.

        >>> tensor.Tensor(data=[1.7, -1.7]).long()
        Tensor([ 1, -1], dtype=int64)
        """
        return self.to(int64)

    def bool(self: Any) -> Tensor:
        """Whether each element is not 0.

        >>> tensor.Tensor(data=[0.0, 2.0]).bool()
        Tensor([False,  True], dtype=bool)
        """
        return self.to(bool_)

    # Functions of each element, and others that are often written as methods.

    def abs(self: Any) -> Tensor:
        """Absolute values.

        >>> tensor.Tensor(data=[-2.0, 3.0]).abs()
        Tensor([2., 3.], dtype=float32)
        """
        return apply(Abs(), self)

    def exp(self: Any) -> Tensor:
        """Exponential function.

        >>> tensor.Tensor(data=[0.0, 1.0]).exp()
        Tensor([1.    , 2.7183], dtype=float32)
        """
        return apply(Exp(), self)

    def log(self: Any) -> Tensor:
        """Natural logarithm.

        >>> tensor.Tensor(data=[1.0, 10.0]).log()
        Tensor([0.    , 2.3026], dtype=float32)
        """
        return apply(Log(), self)

    def sqrt(self: Any) -> Tensor:
        """Square root.

        >>> tensor.Tensor(data=[4.0, 2.0]).sqrt()
        Tensor([2.    , 1.4142], dtype=float32)
        """
        return apply(Sqrt(), self)

    def square(self: Any) -> Tensor:
        """Squares.

        >>> tensor.Tensor(data=[-3.0, 0.5]).square()
        Tensor([9.  , 0.25], dtype=float32)
        """
        return apply(Square(), self)

    def pow(self: Any, exponent: Any) -> Tensor:
        """The same as `x ** exponent`.

        >>> tensor.Tensor(data=[2.0, 3.0]).pow(2)
        Tensor([4., 9.], dtype=float32)
        """
        return pow(self, exponent)

    def relu(self: Any) -> Tensor:
        """max(x, 0).

        >>> tensor.Tensor(data=[-1.0, 2.0]).relu()
        Tensor([0., 2.], dtype=float32)
        """
        return apply(ReLU(), self)

    def sigmoid(self: Any) -> Tensor:
        """1 / (1 + e^-x).

        >>> tensor.Tensor(data=[-1.0, 0.0]).sigmoid()
        Tensor([0.2689, 0.5   ], dtype=float32)
        """
        return apply(Sigmoid(), self)

    def tanh(self: Any) -> Tensor:
        """Hyperbolic tangent.

        >>> tensor.Tensor(data=[-1.0, 0.0]).tanh()
        Tensor([-0.7616,  0.    ], dtype=float32)
        """
        return apply(Tanh(), self)

    def softmax(self: Any, axis: builtins.int = -1, **names: Any) -> Tensor:
        """Softmax along one axis (default: the last).

        >>> tensor.Tensor(data=[[0.0, 1.0, 2.0]]).softmax()
        Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
        """
        return softmax_along(self, names.pop("dim", axis), **names)

    def log_softmax(self: Any, axis: builtins.int = -1, **names: Any) -> Tensor:
        """Logarithm of softmax along an axis (default: the last).

        >>> tensor.Tensor(data=[[0.0, 1.0, 2.0]]).log_softmax()
        Tensor([[-2.4076, -1.4076, -0.4076]], dtype=float32)
        """
        return apply(LogSoftMax(names.pop("dim", axis), **names), self)

    def clip(self: Any, min: Any = None, max: Any = None) -> Tensor:
        """Limits the elements to [min, max]; None means no limit.

        >>> tensor.Tensor(data=[-2.0, 0.5, 3.0]).clip(0.0, 1.0)
        Tensor([0. , 0.5, 1. ], dtype=float32)
        """
        return clip(self, min, max)

    clamp = clip

    def masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
        """`value` where `mask` is true, else this tensor, with broadcasting.

        >>> x = tensor.Tensor(data=[1.0, -2.0])
        >>> x.masked_fill(x < 0, 0.0)
        Tensor([1., 0.], dtype=float32)
        """
        return where(value, self, mask)

    def matmul(self: Any, other: Tensor) -> Tensor:
        """The same as `x @ other`.

        >>> tensor.ones((2, 3)).matmul(tensor.ones((3, 1)))
        Tensor([[3.],
                [3.]], dtype=float32)
        """
        return matmul(self, other)


def _moved(t: Tensor, device: Device) -> Tensor:
    return t if t.device.id() == device.id() else apply(ToDevice(device), t)

"""Tensor's methods and signs, over the operators.

METHODS is the table of them all. Most methods have the names of NumPy and PyTorch.
Reductions remove the axes unless `keepdims` is set. They also take PyTorch's `dim` and `keepdim`,
and `out=None`, which NumPy's functions pass. All methods are recorded on the tape as arithmetic is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int32,
    int64,
    is_float,
)
from ..raw import arrays
from ..raw.check import axis_of
from ..tape.elements import as_raw
from ..tape.grad_mode import state
from ..tape.operator import apply
from ..tape.tensor import Tensor, install, is_computed, wrap
from . import elementwise, statistics
from .arithmetic import clip, pow
from .conversion import Cast, as_float, in_type
from .indexing import where
from .items import getitem, setitem
from .joining import Repeat
from .linalg import matmul
from .movement import (
    Clone,
    Contiguous,
    Reshape,
    ToDevice,
    Transpose,
    flatten,
    reshape,
    squeeze,
    transpose,
    unsqueeze,
)
from .reduction import Axes, argmax, argmin, log_softmax, reduce_prod, softmax
from .signs import SIGNS
from .statistics import all, any, std, var

if TYPE_CHECKING:
    from ..singa_wrap import Device

#: Functions of one tensor that are methods, too.
_ELEMENTWISE: tuple[Callable[..., Tensor], ...] = (
    elementwise.abs,
    elementwise.exp,
    elementwise.log,
    elementwise.relu,
    elementwise.sigmoid,
    elementwise.sqrt,
    elementwise.square,
    elementwise.tanh,
)
#: Methods that convert to a type.
_CONVERSIONS: dict[str, DType] = {
    "bfloat16": bfloat16,
    "bool": bool_,
    "double": float64,
    "float": float32,
    "half": float16,
    "int": int32,
    "long": int64,
}


def _named(op: str, axis: Axes, keepdims: bool, names: dict[str, Any]) -> tuple[Axes, bool]:
    """(axis, keepdims), also by PyTorch's names. Raises TypeError for other names."""
    axis, keepdims = names.pop("dim", axis), names.pop("keepdim", keepdims)
    if names.pop("out", None) is not None or names:
        wrong = next(iter(names), "out")
        raise TypeError(f"[{op}] has no argument {wrong!r}; it has axis and keepdims")
    return axis, keepdims


def _extremum(op: str, axis: Axes, keepdims: bool, names: dict[str, Any]) -> dict[str, Any]:
    if isinstance(axis, Tensor):
        raise TypeError(f"[{op}] takes an axis; autograd.{op}(a, b) compares two tensors")
    if "dim" in names:
        raise TypeError(
            f"[{op}] {op}(axis) gives the values alone, as in NumPy; autograd.topk(x, 1, dim) "
            "gives (values, indices)"
        )
    axis, keepdims = _named(op, axis, keepdims, names)
    return {"axis": axis, "keepdims": keepdims}


def _last_axis(op: str, t: Tensor, axis: Any) -> int:
    """The axis of a softmax: where it is not given and there are several, the default of the
    function differs from what the method's was."""
    if axis is not None:
        return axis
    if (rank := t.ndim()) > 2:
        raise ValueError(
            f"[{op}] which axis of shape {t.shape}? Give x.{op}(-1), which was the default, or "
            f"x.{op}(1), that of autograd.{op}"
        )
    return rank - 1


def _recorded_if_led(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A decorator of methods: they are recorded as `apply` does, where functions of `autograd`
    record whenever an input requires a gradient."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        if not state.recording or self.stores_grad or is_computed(self):
            return method(self, *args, **kwargs)
        state.recording = False
        try:
            return method(self, *args, **kwargs)
        finally:
            state.recording = True

    return call


def _each(first: Any, more: tuple[Any, ...]) -> Any:
    """The numbers of a shape that are given as one sequence or one by one."""
    return (first, *more) if more else first


class Methods:
    """Methods that are more than an operator without arguments. Tensor gets them from METHODS."""

    def __pos__(self) -> Self:
        return self

    # Reductions.

    @_recorded_if_led
    def sum(
        self: Any, axis: Axes = None, keepdims: bool = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Sum over an axis or axes (default: all); see `autograd.sum`.

        >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
        >>> x.sum(), x.sum(axis=0)
        (Tensor(10., dtype=float32), Tensor([4., 6.], dtype=float32))
        """
        axis, keepdims = _named("sum", axis, keepdims, names)
        return statistics.sum(self, axis=axis, keepdims=keepdims, dtype=dtype)

    @_recorded_if_led
    def prod(
        self: Any, axis: Axes = None, keepdims: bool = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Product over an axis or axes (default: all). That of integers and bools is int64. `dtype`
        is a type to convert to before, and the type of the result.

        >>> tensor.Tensor(data=[2.0, 3.0, 4.0]).prod()
        Tensor(24., dtype=float32)
        """
        axes = _named("prod", axis, keepdims, names)
        return in_type(lambda x: reduce_prod(x, *axes), self, dtype)

    @_recorded_if_led
    def mean(
        self: Any, axis: Axes = None, keepdims: bool = False, dtype: Any = None, **names: Any
    ) -> Tensor:
        """Mean over an axis or axes (default: all); see `autograd.mean`.

        >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
        >>> x.mean(axis=1, keepdims=True)
        Tensor([[1.5],
                [3.5]], dtype=float32)
        """
        axis, keepdims = _named("mean", axis, keepdims, names)
        return statistics.mean(self, axis=axis, keepdims=keepdims, dtype=dtype)

    def var(
        self: Any,
        axis: Axes = None,
        keepdims: bool = False,
        correction: float = 1,
        **names: Any,
    ) -> Tensor:
        """Variance over an axis or axes (default: all), as torch.var: see `autograd.var`. `ddof` is
        NumPy's name of `correction`.

        >>> tensor.Tensor(data=[1.0, 2.0, 3.0]).var()
        Tensor(1., dtype=float32)
        """
        correction, dtype = names.pop("ddof", correction), names.pop("dtype", None)
        axes = _named("var", axis, keepdims, names)
        return var(as_float("var", self, dtype), *axes, correction)

    def std(
        self: Any,
        axis: Axes = None,
        keepdims: bool = False,
        correction: float = 1,
        **names: Any,
    ) -> Tensor:
        """Standard deviation over an axis or axes (default: all): the root of `var`.

        >>> tensor.Tensor(data=[1.0, 2.0, 3.0]).std()
        Tensor(1., dtype=float32)
        """
        correction, dtype = names.pop("ddof", correction), names.pop("dtype", None)
        axes = _named("std", axis, keepdims, names)
        return std(as_float("std", self, dtype), *axes, correction)

    @_recorded_if_led
    def max(self: Any, axis: Axes = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Maximum over an axis or axes (default: all): the values alone, as in NumPy, where
        torch.max gives (values, indices); see `autograd.max`.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).max(axis=1)
        Tensor([4., 3.], dtype=float32)
        """
        return statistics.max(self, **_extremum("max", axis, keepdims, names))

    @_recorded_if_led
    def min(self: Any, axis: Axes = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Minimum over an axis or axes (default: all); see `max`.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).min(axis=1)
        Tensor([1., 2.], dtype=float32)
        """
        return statistics.min(self, **_extremum("min", axis, keepdims, names))

    def argmax(self: Any, axis: int | None = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Index (int64) of the first maximum along an axis; without an axis, in the flattened
        tensor; see `autograd.argmax`.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).argmax(axis=1)
        Tensor([1, 0], dtype=int64)
        """
        return argmax(self, *_named("argmax", axis, keepdims, names))  # type: ignore[arg-type]

    def argmin(self: Any, axis: int | None = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Index (int64) of the first minimum along an axis; without an axis, in the flattened
        tensor; see `autograd.argmin`.

        >>> tensor.Tensor(data=[[1.0, 4.0], [3.0, 2.0]]).argmin()
        Tensor(0, dtype=int64)
        """
        return argmin(self, *_named("argmin", axis, keepdims, names))  # type: ignore[arg-type]

    def any(self: Any, axis: Axes = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Whether an element along an axis or axes (default: all) is not 0, as bool.

        >>> tensor.Tensor(data=[0.0, 1.0]).any()
        Tensor(True, dtype=bool)
        """
        return any(self, *_named("any", axis, keepdims, names))

    def all(self: Any, axis: Axes = None, keepdims: bool = False, **names: Any) -> Tensor:
        """Whether no element along an axis or axes (default: all) is 0, as bool.

        >>> tensor.Tensor(data=[0.0, 1.0]).all()
        Tensor(False, dtype=bool)
        """
        return all(self, *_named("all", axis, keepdims, names))

    # Shape.

    @_recorded_if_led
    def reshape(self: Any, shape: Sequence[int] | int, *more: int) -> Tensor:
        """The same elements with another shape; a view where possible. One entry may be -1. The
        lengths are given as one sequence or one by one.

        Raises ValueError for another number of elements.

        >>> tensor.zeros((2, 6)).reshape((3, -1)).shape
        (3, 4)
        """
        return reshape(self, _each(shape, more))

    @_recorded_if_led
    def transpose(self: Any, axes: Axes = None, other: int | None = None) -> Tensor:
        """A view with permuted axes (default: reversed); see `autograd.transpose`. Two integers are
        axes that change places, as in PyTorch.

        >>> tensor.zeros((2, 3, 4)).transpose().shape, tensor.zeros((2, 3, 4)).transpose(1, 2).shape
        ((4, 3, 2), (2, 4, 3))
        """
        if other is not None:
            pair = [axis_of("transpose", axis, self.shape) for axis in (axes, other)]
            axes = [sum(pair) - k if k in pair else k for k in range(len(self.shape))]
        return transpose(self, cast("Sequence[int] | None", axes))

    def contiguous(self: Any) -> Tensor:
        """This tensor if its elements lie in row-major order, otherwise a copy in that order.

        >>> tensor.zeros((2, 3)).transpose().contiguous().is_transpose()
        False
        """
        return apply(Contiguous(), self)

    def clone(self: Any) -> Tensor:
        """A copy in memory of its own.

        The copy of a parameter, or of what was computed from one, stays on the tape while that
        records: gradients flow back through it. Other copies have the same flags and name. With
        SINGA's behaviour (`singa.compat`) every copy is off the tape, as `deepcopy` and
        `x.detach().clone()` always are.

        >>> tensor.Tensor(data=[1.0, 2.0]).clone()
        Tensor([1., 2.], dtype=float32)
        """
        t = apply(Clone(), self)
        if t._creator is None:
            t.requires_grad, t.stores_grad = self.requires_grad, self.stores_grad
            t.name = self.name
        return t

    def repeat(
        self: Any, repeats: int | Sequence[int], axis: int | None = None, *more: int
    ) -> Tensor:
        """Repeats elements along `axis`, or of the flattened tensor, as numpy.repeat.

        >>> tensor.Tensor(data=[1.0, 2.0]).repeat(2)
        Tensor([1., 1., 2., 2.], dtype=float32)
        """
        if more:
            raise TypeError("[repeat] repeats elements, as NumPy: use autograd.tile(x, repeats)")
        return apply(Repeat(repeats, axis), self)

    def as_type(self: Any, dtype: int | str) -> Tensor:
        """Converts to another element type. Floats are truncated to integers.

        >>> tensor.Tensor(data=[1.7]).as_type("int32")
        Tensor([1], dtype=int32)
        """
        return apply(Cast(dtype), self)

    def view(self: Any, shape: Sequence[int] | int, *more: int) -> Tensor:
        """The same as `reshape`: `x.view(2, -1)` or `x.view((2, -1))`. It copies where no view is
        possible.

        >>> tensor.zeros((2, 6)).view(3, -1).shape
        (3, 4)
        """
        return apply(Reshape(_each(shape, more)), self)

    def permute(self: Any, axes: Sequence[int] | int, *more: int) -> Tensor:
        """A view with permuted axes: `x.permute(0, 2, 1)` or `x.permute((0, 2, 1))`.

        >>> tensor.zeros((2, 3, 4)).permute(0, 2, 1).shape
        (2, 4, 3)
        """
        order = _each(axes, more)
        return apply(Transpose([order] if isinstance(order, int) else order), self)

    @_recorded_if_led
    def flatten(
        self: Any,
        *axes: int,
        axis: int | None = None,
        start_dim: int | None = None,
        end_dim: int | None = None,
    ) -> Tensor:
        """A matrix, of the axes before `axis` and those from it on, as `autograd.flatten`; or, with
        `start_dim` and `end_dim`, also as two numbers, the axes between them joined, as
        torch.flatten.

        Raises ValueError where it would not be the same: without an axis, and for one other than 1
        that has no name.

        >>> tensor.zeros((2, 3, 4)).flatten(1).shape
        (2, 12)
        >>> tensor.zeros((2, 3, 4)).flatten(start_dim=0).shape
        (24,)
        """
        if len(axes) == 2:
            start_dim, end_dim = axes
        elif axes == (1,):
            axis = 1
        elif axes or (axis, start_dim, end_dim) == (None, None, None):
            number = axes[0] if axes else 0
            raise ValueError(
                f"[flatten] x.flatten(start_dim={number}) joins the axes from {number} on, as "
                f"torch.flatten; x.flatten(axis={axes[0] if axes else 1}) gives a matrix, as "
                "autograd.flatten"
            )
        return flatten(self, 1 if axis is None else axis, start_dim=start_dim, end_dim=end_dim)

    @_recorded_if_led
    def squeeze(self: Any, axis: int | Sequence[int] = (), **names: Any) -> Tensor:
        """Removes one or more axes of length 1 (default: all of them). Raises ValueError for an
        axis of another length.

        >>> tensor.zeros((1, 3, 1)).squeeze().shape
        (3,)
        """
        axes, _ = _named("squeeze", axis, False, names)
        return squeeze(self, () if axes is None else axes)

    @_recorded_if_led
    def unsqueeze(self: Any, axis: int = -1) -> Tensor:
        """Inserts an axis of length 1, at position `axis` of the result; see `autograd.unsqueeze`.

        >>> tensor.zeros((2, 3)).unsqueeze(1).shape
        (2, 1, 3)
        """
        return unsqueeze(self, axis)

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

    def dim(self: Any) -> int:
        """Number of axes: PyTorch's name of `ndim()`.

        >>> tensor.zeros((2, 3)).dim()
        2
        """
        return self.data.rank()

    def numel(self: Any) -> int:
        """Number of elements: PyTorch's name of `size()`.

        >>> tensor.zeros((2, 3)).numel()
        6
        """
        return self.data.size()

    # Types and places.

    def astype(self: Any, dtype: int | str) -> Tensor:
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
            raise TypeError(
                f"[to] a device is a Device or 'cpu', got {device!r}: use device.create_cuda_gpu()"
            )
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

    # Functions that are often written as methods.

    def pow(self: Any, exponent: Any) -> Tensor:
        """The same as `x ** exponent`.

        >>> tensor.Tensor(data=[2.0, 3.0]).pow(2)
        Tensor([4., 9.], dtype=float32)
        """
        return pow(self, exponent)

    def softmax(self: Any, axis: int | None = None, **names: Any) -> Tensor:
        """Softmax along an axis; see `autograd.softmax`. Only vectors and matrices need none: it is
        the last.

        >>> tensor.Tensor(data=[[0.0, 1.0, 2.0]]).softmax()
        Tensor([[0.09  , 0.2447, 0.6652]], dtype=float32)
        """
        where_, _ = _named("softmax", axis, False, names)
        return softmax(self, _last_axis("softmax", self, where_))

    @_recorded_if_led
    def log_softmax(self: Any, axis: int | None = None, **names: Any) -> Tensor:
        """Logarithm of softmax along an axis; see `softmax`.

        >>> tensor.Tensor(data=[[0.0, 1.0, 2.0]]).log_softmax()
        Tensor([[-2.4076, -1.4076, -0.4076]], dtype=float32)
        """
        where_, _ = _named("log_softmax", axis, False, names)
        return log_softmax(self, _last_axis("log_softmax", self, where_))

    def clip(self: Any, min: Any = None, max: Any = None) -> Tensor:
        """Limits the elements to [min, max], numbers or tensors; None means no limit. See
        `autograd.clip`.

        >>> tensor.Tensor(data=[-2.0, 0.5, 3.0]).clip(0.0, 1.0)
        Tensor([0. , 0.5, 1. ], dtype=float32)
        """
        return clip(self, min, max)

    clamp = clip

    def masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
        """`value`, a number or tensor, where `mask` is true, else this tensor, with broadcasting.
        The result has this tensor's type, to which the value is converted.

        Raises ValueError for a number that an integer type does not hold.

        >>> x = tensor.Tensor(data=[1.0, -2.0])
        >>> x.masked_fill(x < 0, 0.0)
        Tensor([1., 0.], dtype=float32)
        """
        if isinstance(value, Tensor):
            return where(value.to(self.dtype), self, mask)
        if isinstance(value, np.generic):
            value = value.item()
        if not is_float(self.dtype):  # cut to a whole number
            value = arrays.converted(np.asarray(value), self.dtype)
            value = value if value.ndim else value.item()
        if not isinstance(value, int | float):
            value = np.asarray(value)
            return where(wrap(as_raw(value, self.dtype, self.device), False), self, mask)
        fill = arrays.full((), value, self.device, self.dtype)
        return where(wrap(fill, False), self, mask)

    def matmul(self: Any, other: Tensor) -> Tensor:
        """The same as `x @ other`.

        >>> tensor.ones((2, 3)).matmul(tensor.ones((3, 1)))
        Tensor([[3.],
                [3.]], dtype=float32)
        """
        return matmul(self, other)


def _moved(t: Tensor, device: Device) -> Tensor:
    return t if t.device.id() == device.id() else apply(ToDevice(device), t)


def _applying(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(self: Tensor) -> Tensor:
        return function(self)

    method.__doc__ = function.__doc__
    return _recorded_if_led(method)


def _converting(name: str, dtype: DType) -> Callable[..., Tensor]:
    def method(self: Any) -> Tensor:
        return self.to(dtype)

    method.__doc__ = f"""Converted to {dtype.name}.

    >>> tensor.ones((2,)).{name}().dtype
    singa.{dtype.name}
    """
    return method


#: All methods, properties and signs of Tensor that need an operator, by name.
METHODS: dict[str, Any] = {
    **SIGNS,
    "__getitem__": getitem,
    "__setitem__": setitem,
    **{k: v for k, v in vars(Methods).items() if isinstance(v, FunctionType | property)},
    **{function.__name__: _applying(function) for function in _ELEMENTWISE},
    **{name: _converting(name, dtype) for name, dtype in _CONVERSIONS.items()},
}
install(METHODS)

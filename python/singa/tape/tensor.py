"""The Tensor that Python code holds: a raw C++ tensor and its place on the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .. import singa_wrap as _c
from ..device import named_or_default
from ..dtypes import BY_VALUE, DType, as_dtype, float32, is_float, numpy_dtype
from ..raw import compat_mode
from ..raw.arrays import as_shape, converted, fill, narrowed
from ..raw.check import integer, number
from .grad_mode import state
from .step_recording import move_back

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from ..singa_wrap import Device
    from .operator import Operator


def as_raw(value: object, dtype: int | None = None, device: Device | None = None) -> _c.Tensor:
    """The raw tensor of a Tensor, or of a copy of an array or number, in this type and place.

    Without a device, tensors stay where they are, and others go to the default one. Arrays keep
    their type unless `dtype` is given; Python numbers become float32, int32 or bool.
    """
    if isinstance(value, Tensor):
        raw = value.data
    elif isinstance(value, _c.Tensor):
        raw = value
    else:
        array = np.asarray(value)
        if dtype is not None and array.dtype.kind in "biuf":
            array = converted(array, as_dtype(dtype))
        elif not isinstance(value, (np.ndarray, np.generic)):
            array = narrowed(array)
        device = named_or_default(device)
        raw = from_array(array, device)
    if dtype is not None:
        raw = raw.AsType(int(dtype))
    return raw if device is None else raw.ToDevice(device)


def from_array(array: NDArray[Any], device: Device | None) -> _c.Tensor:
    """A copy on the CPU; or the memory itself, where a GPU takes a copy of it at once."""
    copied_anyway = device is not None and device.kind() != _c.DeviceKind_kCpu
    return _c.from_buffer(array, not (copied_anyway and array.flags.writeable))


#: Functions that are told of each tensor whose elements Python reads, in any thread. Usually there
#: are none; export to ONNX notes such tensors.
read_followers: list[Callable[[Tensor], object]] = []

#: The CPU in DLPack's terms: (kDLCPU, number).
_DLPACK_CPU = (1, 0)


def _lies_on_cpu(raw: _c.Tensor) -> bool:
    return raw.device().kind() == _c.DeviceKind_kCpu


def _as_array(raw: _c.Tensor) -> NDArray[Any]:
    """The elements as an array that shares the memory, where NumPy can read them, else a copy."""
    if raw.data_type() == DType.bfloat16:
        raw = raw.AsType(int(float32))
    return np.asarray(_c.Exporter(raw.ToHost()))


if TYPE_CHECKING:
    from .tensor_methods import TensorMethods

    class _Base(_c.TapeTensor, TensorMethods): ...
else:
    _Base = _c.TapeTensor


class Tensor(_Base):
    """An array of numbers on a device, to which operations can be applied.

    data: the raw tensor (`singa_wrap.Tensor`), which holds shape, type, device and elements.
    requires_grad: gradients flow through it. The default, as in SINGA.
    stores_grad: a parameter: `autograd.backward` yields its gradient.
    grad: what `Tensor.backward` of a result has added up, or None.
    creator: the operator that computed it (`autograd.Dummy` where there is none).

    A new tensor is filled with zeros. `data` may be a raw tensor, which is shared, or an array,
    which is copied and gets type `dtype`. Without a `device` it lies on the default one
    (`singa.device.set_default_device`), a raw tensor where it is.

    Raises ValueError for a negative length, and for another number of elements than `shape` has;
    TypeError for an unknown type.

    >>> x = tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]])
    >>> x
    Tensor([[1., 2.],
            [3., 4.]], dtype=float32)
    >>> x.shape, x.dtype
    ((2, 2), singa.float32)
    >>> x[:, 0] * 10
    Tensor([10., 30.], dtype=float32)
    >>> tensor.Tensor((2, 3))
    Tensor([[0., 0., 0.],
            [0., 0., 0.]], dtype=float32)
    """

    __slots__ = ("__dict__", "__weakref__")  # the other attributes lie in TapeTensor

    data: Any
    requires_grad: bool
    stores_grad: bool
    name: str | None
    grad: Tensor | None
    #: Of a loss that is a mean over targets of which some do not count, or count more than others:
    #: the sum of their weights. Results of operators on the loss have none.
    counted: Tensor | None = None

    def __init__(
        self,
        shape: Sequence[int] = (),
        device: Device | None = None,
        dtype: int | str = float32,
        data: object = None,
        requires_grad: bool = True,
        stores_grad: bool = False,
        creator: Operator | None = None,
        name: str | None = None,
    ) -> None:
        if data is None:
            shape = as_shape(shape)
            self.data = _c.Full(shape, 0.0, named_or_default(device), int(as_dtype(dtype)))
        elif isinstance(data, (_c.Tensor, Tensor)):
            self.data = as_raw(data, device=device)
        else:
            self.data = as_raw(data, as_dtype(dtype), device)
            if shape:
                self.data = self.data.Reshape(as_shape(shape))
        self.requires_grad = requires_grad
        self.stores_grad = stores_grad
        self.name = name
        self.grad = None
        self._creator: Operator | None = creator
        self._index: int = 0

    #: NumPy leaves `array + tensor` to us.
    __array_priority__: int = 1000
    if not TYPE_CHECKING:  # `==` compares elements, but a tensor is a key by itself
        __hash__ = object.__hash__

    # What it is.

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes. Setting it reshapes the tensor itself, off the tape; another number
        of elements raises ValueError.

        >>> x = tensor.zeros((2, 3))
        >>> x.shape = (3, 2)
        >>> x.shape
        (3, 2)
        """
        return self.data.shape()

    @shape.setter
    def shape(self, shape: Sequence[int]) -> None:
        shape = as_shape(shape)
        if shape != self.data.shape():
            self.data = self.data.Reshape(shape)

    @property
    def dtype(self) -> DType:
        """Type of the elements. Setting it is `to_type`.

        >>> tensor.zeros((2,), dtype="int64").dtype
        singa.int64
        """
        return BY_VALUE[self.data.data_type()]

    @dtype.setter
    def dtype(self, dtype: int | str) -> None:
        self.to_type(dtype)

    @property
    def device(self) -> Device:
        """Where the elements lie. Setting it is `to_device`.

        >>> tensor.zeros((2,)).device.name()
        'cpu'
        """
        return self.data.device()

    @device.setter
    def device(self, device: Device) -> None:
        self.to_device(device)

    def is_dummy(self) -> bool:
        """Whether no operator on the tape made it.

        >>> autograd.training = True
        >>> x = tensor.Tensor(data=[1.0], stores_grad=True)
        >>> x.is_dummy(), (x + 1).is_dummy()
        (True, False)
        """
        return self._creator is None or not self._creator.requires_grad

    def ndim(self) -> int:
        """Number of axes.

        >>> tensor.zeros((2, 3)).ndim()
        2
        """
        return self.data.rank()

    def is_empty(self) -> bool:
        """Whether its shape is () or has a zero: SINGA's meaning.

        >>> tensor.zeros((2, 0)).is_empty()
        True
        """
        shape = self.shape
        return not shape or 0 in shape

    def is_transpose(self) -> bool:
        """Whether its elements lie in another order than row-major.

        >>> x = tensor.zeros((2, 3))
        >>> x.is_transpose(), x.transpose().is_transpose()
        (False, True)
        """
        return not (self.data.is_contiguous() or self.data.is_blocked())

    def size(self) -> int:
        """Number of elements.

        >>> tensor.zeros((2, 3)).size()
        6
        """
        return self.data.size()

    def memsize(self) -> int:
        """Bytes of its elements.

        >>> tensor.zeros((2, 3)).memsize()
        24
        """
        return self.data.bytes()

    @property
    def is_blocked(self) -> bool:
        """Whether it lies in a layout that only its backend reads.

        >>> tensor.zeros((2, 3)).is_blocked
        False
        """
        return self.data.is_blocked()

    def to_blocked(self) -> Self:
        """Moves it into the layout that the device's convolutions like such images in.

        Other tensors that shared its memory keep the old one. Nothing happens where there is none:
        unless it is (N, C, H, W) of a float type that the backend has.

        >>> x = tensor.random((1, 16, 4, 4))
        >>> before = x.numpy()
        >>> bool((x.to_blocked().numpy() == before).all())  # only the layout changes
        True
        """
        self.data = _c.ToBlocked(self.data)
        return self

    def to_plain(self) -> Self:
        """Reorders to row-major, in place, for all tensors that share the memory.

        >>> tensor.random((1, 16, 4, 4)).to_blocked().to_plain().is_blocked
        False
        """
        self.data.MakePlain()
        return self

    # Off the tape, and to other types and places.

    def detach(self) -> Tensor:
        """The same elements (shared) as a constant: no gradient flows back from it.

        >>> autograd.training = True
        >>> x = tensor.Tensor(data=[1.0], stores_grad=True)
        >>> (x * 2).detach().requires_grad
        False
        """
        return wrap(self.data, False)

    def deepcopy(self) -> Tensor:
        """A copy in memory of its own, off the tape, with the same flags and name.

        >>> x = tensor.Tensor(data=[1.0, 2.0])
        >>> y = x.deepcopy()
        >>> x += 1
        >>> y
        Tensor([1., 2.], dtype=float32)
        """
        t = wrap(self.data.Clone(), self.requires_grad)
        t.stores_grad = self.stores_grad
        t.name = self.name
        return t

    def copy(self) -> Tensor:
        """Another Tensor over the same memory.

        >>> x = tensor.Tensor(data=[1.0, 2.0])
        >>> y = x.copy()
        >>> x += 1
        >>> y
        Tensor([2., 3.], dtype=float32)
        """
        t = wrap(self.data, self.requires_grad, self._creator, self._index)
        t.stores_grad = self.stores_grad
        t.name = self.name
        if self.is_dummy():
            t._creator = None
        return t

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        t = self.deepcopy()
        t.__dict__.update(self.__dict__)
        return t

    def __reduce__(self) -> tuple[object, ...]:
        flags = (self.requires_grad, self.stores_grad, self.name, dict(self.__dict__))
        return Tensor._restore, (self.numpy(), self.dtype.name, *flags)

    @classmethod
    def _restore(
        cls,
        array: NDArray[Any],
        dtype: str,
        requires_grad: bool,
        stores_grad: bool,
        name: str | None,
        attributes: dict[str, object],
    ) -> Tensor:
        t = wrap(as_raw(array, as_dtype(dtype)), requires_grad)
        t.stores_grad = stores_grad
        t.name = name
        t.__dict__.update(attributes)
        return t

    def to_type(self, dtype: int | str) -> Self:
        """Changes its own type.

        >>> x = tensor.Tensor(data=[1.7])
        >>> x.to_type("int32")
        Tensor([1], dtype=int32)
        """
        return self._move(self.data.AsType(int(as_dtype(dtype))))

    def to_device(self, device: Device) -> Self:
        """Moves itself to a device.

        >>> x = tensor.zeros((2,))
        >>> x.to_device(device.get_default_device()) is x
        True
        """
        return self._move(self.data.ToDevice(device))

    def to_host(self) -> Self:
        """Moves itself to the CPU.

        >>> tensor.ones((2,)).to_host()
        Tensor([1., 1.], dtype=float32)
        """
        return self._move(self.data.ToHost())

    def _move(self, raw: _c.Tensor) -> Self:
        """Takes over `raw` if that is other memory: recorded steps know a state by `data`."""
        if raw.block_id() != self.data.block_id():
            self.data = raw
        return self

    def numpy(self) -> NDArray[Any]:
        """A copy as an array; bfloat16 as float32.

        >>> tensor.ones((2,)).numpy()
        array([1., 1.], dtype=float32)
        """
        for follow in read_followers:
            follow(self)
        raw = self.data
        if raw.data_type() == DType.bfloat16:
            raw = raw.AsType(int(float32))
        array = np.empty(raw.shape(), numpy_dtype(BY_VALUE[raw.data_type()]))
        _c.to_buffer(raw, array)
        return array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The memory itself where NumPy can read it (`np.asarray`); a copy where it has to be."""
        for follow in read_followers:
            follow(self)
        array = _as_array(self.data)
        shared = self.dtype != DType.bfloat16 and _lies_on_cpu(self.data)
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"[array] {self.dtype} cannot be read as {dtype} without a copy")
            return array.astype(dtype)
        if copy is False and not shared:
            raise ValueError(f"[array] NumPy cannot read {self.data.ToString()} without a copy")
        return array.copy() if copy and shared else array

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule over the same memory, or over a copy of it with `copy=True`.

        `dl_device` is (1, 0), the CPU, or None for where the tensor lies; a tensor on a GPU is
        copied to the CPU. Raises BufferError for another device, or if that copy is needed and
        `copy` is False; TypeError for a tensor on a GPU without `dl_device`. `stream` and
        `max_version` are accepted: memory of the CPU needs no stream, and capsules have no version.
        """
        if dl_device is not None and tuple(dl_device) != _DLPACK_CPU:
            raise BufferError(
                f"[dlpack] only CPU memory can be shared, so dl_device must be {_DLPACK_CPU}, "
                f"got {dl_device}"
            )
        for follow in read_followers:
            follow(self)
        raw = self.data
        if dl_device is not None and not _lies_on_cpu(raw):
            if copy is False:
                raise BufferError(f"[dlpack] {raw.ToString()} cannot reach the CPU without a copy")
            raw = raw.ToHost()
        elif copy:
            raw = raw.Clone()
        return _c.Exporter(raw).dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU

    def item(self) -> float | int | bool:
        """The only element, as a Python number. Raises ValueError unless there is one.

        >>> tensor.Tensor(data=[1.5]).item()
        1.5
        """
        if is_float(self.dtype) or self.size() != 1:
            return self._number()
        return self.numpy().item()  # a double does not hold all integers of 64 bits

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number if there are no axes.

        >>> tensor.Tensor(data=[[1.0, 2.0]]).tolist()
        [[1.0, 2.0]]
        """
        return self.numpy().tolist()

    def _number(self) -> float:
        for follow in read_followers:
            follow(self)
        return self.data.Item()

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if is_float(self.dtype):
            raise TypeError(f"[index] only an integer tensor is an index, got {self.dtype}")
        return int(self.item())

    def __bool__(self) -> bool:
        if compat_mode.enabled:
            return True  # a tensor that is there, whatever is in it
        if self.size() != 1:
            raise ValueError(f"[bool] a tensor of shape {self.shape} is neither true nor false")
        return bool(self._number())

    def __round__(self, digits: int | None = None) -> float:
        return round(self.item(), digits) if digits is not None else round(self.item())

    def __format__(self, form: str) -> str:
        """`f"{loss:.3f}"` formats the only element. Raises TypeError for several."""
        if not form:
            return str(self)
        if self.size() != 1:
            raise TypeError(f"[format] {form!r} formats one element, got shape {self.shape}")
        return format(self.item(), form)

    def __repr__(self) -> str:
        values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(", threshold=1000)
        device = f", device={self.device.name()}" if self.device.name() != "cpu" else ""
        return f"Tensor({values}, dtype={self.dtype}{device})"

    def _repr_html_(self) -> str:
        """What notebooks show: shape, type and statistics, and images as a picture."""
        from ..drawing.array import array_table  # not loaded by a program that only computes

        device = self.device.name()
        return array_table(self.numpy(), str(self.dtype), "" if device == "cpu" else device)

    # Elements.

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("[len] a tensor of shape () has no length")
        return shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def set_value(self, x: ArrayLike | Tensor, inplace: bool = True) -> Tensor:
        """Fills with a number, or with the elements of an array that broadcasts to its shape.

        >>> tensor.zeros((2, 2)).set_value([1.0, 2.0])
        Tensor([[1., 2.],
                [1., 2.]], dtype=float32)
        """
        t = self if inplace else self.deepcopy()
        if isinstance(x, (int, float)):
            fill(t.data, x)
        else:
            t.data.CopyFrom(as_raw(x, device=self.device))
        return t

    def copy_from_numpy(self, np_array: NDArray[Any], offset: int = 0) -> None:
        """Copies an array's elements, in order, to its own from number `offset` on.

        Raises ValueError when they do not fit, or, without an offset, when the sizes differ.

        >>> x = tensor.zeros((4,))
        >>> x.copy_from_numpy(np.array([5.0, 6.0], np.float32), offset=1)
        >>> x
        Tensor([0., 5., 6., 0.], dtype=float32)
        """
        source = from_array(np.asarray(np_array), self.device).Reshape((-1,))
        offset = integer("copy_from_numpy", "offset", offset)
        size, room = source.size(), self.size() - offset
        if offset < 0 or size > room or (not offset and size != room):
            raise ValueError(
                f"[copy_from_numpy] {size} elements at offset {offset} of {room + offset}"
            )
        flattened(self, "copy_from_numpy").SliceAxis(0, offset, offset + size).CopyFrom(source)

    def copy_data(self, t: Tensor) -> None:
        """Copies another tensor's elements. Raises ValueError when the sizes differ.

        While the tape records, the copy goes to new memory, which other tensors do not share: a
        recurrent network that keeps its state so in the middle of a step needs the old elements
        for backward. At the end of a step that is recorded it moves back to the old memory.

        >>> x = tensor.zeros((2, 1))
        >>> x.copy_data(tensor.Tensor(data=[1.0, 2.0]))
        >>> x
        Tensor([[1.],
                [2.]], dtype=float32)
        """
        if t.size() != self.size():
            raise ValueError(f"[copy_data] {t.shape} into {self.shape}: the sizes differ")
        source = t.data if t.shape == self.shape else t.data.Reshape(self.shape)
        if state.recording:
            move_back(self)
            self.data = source.AsType(int(self.dtype)).ToDevice(self.device).Clone()
        else:
            self.data.CopyFrom(source)

    def copy_from(self, t: Tensor | NDArray[Any], offset: int = 0) -> None:
        """Copies a tensor's or an array's elements to its own from number `offset` on.

        >>> x = tensor.zeros((3,))
        >>> x.copy_from(tensor.Tensor(data=[1.0, 2.0]), offset=1)
        >>> x
        Tensor([0., 1., 2.], dtype=float32)
        """
        if isinstance(t, Tensor) and not offset:
            self.copy_data(t)
        else:
            self.copy_from_numpy(t.numpy() if isinstance(t, Tensor) else t, offset)

    def reset_like(self, t: Tensor) -> Self:
        """Takes another tensor's shape, type and device, filled with zeros.

        >>> tensor.ones((3,)).reset_like(tensor.ones((1, 2)))
        Tensor([[0., 0.]], dtype=float32)
        """
        self.data = _c.Full(t.shape, 0.0, t.device, int(t.dtype))
        return self

    # Random fills, from the device's sequence. Each returns the tensor that it filled.

    def bernoulli(self, p: float, inplace: bool = True) -> Tensor:
        """1 with probability p, else 0.

        >>> tensor.zeros((3,)).bernoulli(1.0)
        Tensor([1., 1., 1.], dtype=float32)
        """
        t = self if inplace else self.deepcopy()
        _c.Bernoulli(number("bernoulli", "p", p), t.data)
        return t

    def gaussian(self, mean: float, std: float, inplace: bool = True) -> Tensor:
        """Normally distributed.

        >>> x = tensor.zeros((1000,)).gaussian(5.0, 0.1)
        >>> round(x.mean().item())
        5
        """
        t = self if inplace else self.deepcopy()
        _c.Gaussian(number("gaussian", "mean", mean), number("gaussian", "std", std), t.data)
        return t

    def uniform(self, low: float, high: float, inplace: bool = True) -> Tensor:
        """Uniform in [low, high).

        >>> x = tensor.zeros((1000,)).uniform(2.0, 3.0)
        >>> x.min().item() >= 2, x.max().item() < 3
        (True, True)
        """
        t = self if inplace else self.deepcopy()
        _c.Uniform(number("uniform", "low", low), number("uniform", "high", high), t.data)
        return t

    # Shape.

    def T(self) -> Tensor:  # noqa: N802 (SINGA's name)
        """A view with the axes reversed.

        >>> tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]).T()
        Tensor([[1., 3.],
                [2., 4.]], dtype=float32)
        """
        return self.transpose()

    # Norms: SINGA divides them by the number of elements.

    def l1(self) -> float:
        """Sum of absolute values, divided by the number of elements; NaN where there is none.

        >>> tensor.Tensor(data=[3.0, -4.0]).l1()
        3.5
        """
        return self.data.L1()

    def l2(self) -> float:
        """Root of the sum of squares, divided by the number of elements; NaN where there is
        none.

        >>> tensor.Tensor(data=[3.0, -4.0]).l2()
        2.5
        """
        return self.data.L2()

    # A matrix with a vector, in place.

    def add_column(self, v: Tensor) -> Self:
        """Adds v to each column.

        >>> tensor.zeros((2, 3)).add_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 1., 1.],
                [2., 2., 2.]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kAdd, v)

    def add_row(self, v: Tensor) -> Self:
        """Adds v to each row.

        >>> tensor.zeros((2, 3)).add_row(tensor.Tensor(data=[1.0, 2.0, 3.0]))
        Tensor([[1., 2., 3.],
                [1., 2., 3.]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kAdd, v)

    def div_column(self, v: Tensor) -> Self:
        """Divides each column by v.

        >>> tensor.ones((2, 3)).div_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1. , 1. , 1. ],
                [0.5, 0.5, 0.5]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kDiv, v)

    def div_row(self, v: Tensor) -> Self:
        """Divides each row by v.

        >>> tensor.ones((2, 2)).div_row(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1. , 0.5],
                [1. , 0.5]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kDiv, v)

    def mult_column(self, v: Tensor) -> Self:
        """Multiplies each column by v.

        >>> tensor.ones((2, 3)).mult_column(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 1., 1.],
                [2., 2., 2.]], dtype=float32)
        """
        return self._with_column(_c.BinaryOp_kMul, v)

    def mult_row(self, v: Tensor) -> Self:
        """Multiplies each row by v.

        >>> tensor.ones((2, 2)).mult_row(tensor.Tensor(data=[1.0, 2.0]))
        Tensor([[1., 2.],
                [1., 2.]], dtype=float32)
        """
        return self._with_row(_c.BinaryOp_kMul, v)

    def _with_column(self, code: int, v: Tensor) -> Self:
        _c.BinaryInto(code, self.data, v.data.Reshape((-1, 1)), self.data)
        return self

    def _with_row(self, code: int, v: Tensor) -> Self:
        _c.BinaryInto(code, self.data, v.data.Reshape((1, -1)), self.data)
        return self


#: What `install` has put on Tensor, by name.
installed: dict[str, Callable[..., Any] | property] = {}


def install(methods: Mapping[str, Callable[..., Any] | property]) -> None:
    """Gives Tensor methods and properties by their names.

    Tensor knows neither operators nor the tape. The modules that do put these methods on it.
    `tensor_methods.pyi` declares them for type checkers; test/python/support/tensor_stub.py writes
    it.
    """
    for name, value in methods.items():
        if isinstance(value, FunctionType) and value not in installed.values():
            value.__name__, value.__qualname__ = name, f"Tensor.{name}"
        setattr(Tensor, name, value)
        installed[name] = value


#: wrap(raw, requires_grad, creator=None, index=0): a Tensor over a raw one, the quick way in for
#: results of operations.
wrap = Tensor._wrap


def is_computed(x: Tensor) -> bool:
    """Whether the tape, which records, has x as the result of an operator that a stored gradient
    passes through."""
    return (
        state.recording and x.requires_grad and x._creator is not None and bool(x._creator._leads)
    )


def flattened(t: Tensor, function: str) -> _c.Tensor:
    """All elements as one axis, as a view: writes reach the tensor."""
    t.data.MakePlain()
    flat = t.data.Reshape((-1,))
    if not flat.SharesMemory(t.data):
        raise ValueError(f"[{function}] the tensor is a view that does not lie in row-major order")
    return flat


Tensor.__module__ = "singa.tensor"  # where users, and pickles, find it

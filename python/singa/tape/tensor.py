"""The Tensor that Python code holds: a raw C++ tensor and its place on the tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self

from .. import singa_wrap as _c
from ..device import checked_device, named_or_default
from ..dtypes import BY_VALUE, DType, as_dtype, float32
from ..raw.arrays import as_shape, kind_of
from .elements import as_raw
from .grad_mode import state
from .reading import Reading
from .writing import Writing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..singa_wrap import Device
    from .operator import Operator
    from .tensor_methods import TensorMethods

    class _Base(_c.TapeTensor, TensorMethods): ...
else:
    _Base = _c.TapeTensor


class _Attribute:
    """A property that is a function where the class is asked for it, as SINGA's `Tensor.T` is."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get__(self, instance: object, owner: type) -> Any:
        return self.function if instance is None else self.function(instance)


class Count(int):
    """A number that a call returns, too."""

    __slots__ = ()

    def __call__(self, axis: int | None = None) -> int:
        if axis is not None:
            raise TypeError(f"[size] is the number of elements, as in SINGA: use x.shape[{axis}]")
        return int(self)


class Counted(property):
    """A property that is a Count, and the method itself as an attribute of the class."""

    def __get__(  # type: ignore[override]
        self, instance: Any, owner: type | None = None
    ) -> Count:
        number: Any = self.fget
        return number if instance is None else Count(number(instance))


class Tensor(Reading, Writing, _Base):
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
        if device is not None and not isinstance(device, _c.Device):
            checked_device("Tensor", device)
        if data is None:
            shape, place = as_shape(shape), named_or_default(device)
            try:
                self.data = _c.Full(shape, 0.0, place, int(as_dtype(dtype)))
            except TypeError:
                if others := [each for each in shape if not isinstance(each, Integral)]:
                    raise TypeError(
                        f"[Tensor] shape must be integers, got {kind_of(others[0])}: values are "
                        "tensor.Tensor(data=x)"
                    ) from None
                raise
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

    @Counted
    def ndim(self) -> int:
        """Number of axes: a number, as in NumPy and PyTorch, which may be called, as in SINGA.

        >>> x = tensor.zeros((2, 3))
        >>> x.ndim, x.ndim()
        (2, 2)
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

    @Counted
    def size(self, axis: int | None = None) -> int:
        """Number of elements: a number, as in NumPy, which may be called, as in SINGA. Raises
        TypeError if it is called with an axis, as in PyTorch: `shape` has its length.

        >>> x = tensor.zeros((2, 3))
        >>> x.size, x.size()
        (6, 6)
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
        unless it is (N, C, H, W) of a float type that the backend has, and while NumPy or another
        library shares its memory.

        >>> x = tensor.random((1, 16, 4, 4))
        >>> before = x.numpy()
        >>> bool((x.to_blocked().numpy() == before).all())  # only the layout changes
        True
        """
        if not self.data.IsPinned():
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
        return self._move(self.data.ToDevice(checked_device("to_device", device)))

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

    # Elements.

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("[len] a tensor of shape () has no length")
        return shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    # Shape.

    @_Attribute
    def T(self) -> _Transposed:  # noqa: N802 (SINGA's name)
        """A view with the axes reversed, as NumPy's `x.T`. SINGA's `x.T()` is the same.

        >>> tensor.Tensor(data=[[1.0, 2.0], [3.0, 4.0]]).T
        Tensor([[1., 3.],
                [2., 4.]], dtype=float32)
        """
        view = self.transpose()
        view.__class__ = _Transposed
        return view  # type: ignore[return-value]


class _Transposed(Tensor):
    """What `x.T` is: a tensor that can be called, since SINGA spells it `x.T()`."""

    __slots__ = ()

    def __call__(self) -> Tensor:
        """The tensor itself."""
        return self


#: What `install` has put on Tensor, by name.
installed: dict[str, Callable[..., Any] | property] = {}


def install(methods: Mapping[str, Callable[..., Any] | property]) -> None:
    """Gives Tensor methods and properties by their names.

    Tensor knows neither operators nor the tape. The modules that do put these methods on it.
    `tensor_methods.pyi` declares them for type checkers;
    test/python/support/interface/tensor_stub.py writes it.
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


def has_gradient(x: object) -> bool:
    """Whether the tape, which records, leads from x to a stored gradient: its own, or that of what
    x was computed from."""
    return isinstance(x, Tensor) and (
        is_computed(x) or (state.recording and x.requires_grad and x.stores_grad)
    )


Tensor.__module__ = "singa.tensor"  # where users, and pickles, find it
for _part in (Reading, Writing):  # errors of calls name the class that users know
    for _value in vars(_part).values():
        if isinstance(_value, FunctionType):
            _value.__qualname__ = f"Tensor.{_value.__name__}"

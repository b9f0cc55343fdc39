"""The elements of a Tensor as Python, NumPy and other libraries read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, DType, float32, is_float, numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from .tensor import Tensor

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


class Reading:
    """Methods of Tensor that read its elements."""

    __slots__ = ()

    def numpy(self: Any) -> NDArray[Any]:
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

    def __array__(
        self: Any, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
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
        self: Any,
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

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        return _DLPACK_CPU

    def item(self: Any) -> float | int | bool:
        """The only element, as a Python number. Raises ValueError unless there is one.

        >>> tensor.Tensor(data=[1.5]).item()
        1.5
        """
        if is_float(self.dtype) or self.size() != 1:
            return self._number()
        return self.numpy().item()  # a double does not hold all integers of 64 bits

    def tolist(self: Any) -> Any:
        """The elements as nested lists of Python numbers; a number if there are no axes.

        >>> tensor.Tensor(data=[[1.0, 2.0]]).tolist()
        [[1.0, 2.0]]
        """
        return self.numpy().tolist()

    def _number(self: Any) -> float:
        for follow in read_followers:
            follow(self)
        return self.data.Item()

    def __float__(self: Any) -> float:
        return float(self._number())

    def __int__(self: Any) -> int:
        return int(self.item())

    def __index__(self: Any) -> int:
        if is_float(self.dtype):
            raise TypeError(f"[index] only an integer tensor is an index, got {self.dtype}")
        return int(self.item())

    def __bool__(self: Any) -> bool:
        if self.size() != 1:
            raise ValueError(f"[bool] a tensor of shape {self.shape} is neither true nor false")
        return bool(self._number())

    def __round__(self: Any, digits: int | None = None) -> float:
        return round(self.item(), digits) if digits is not None else round(self.item())

    def __format__(self: Any, form: str) -> str:
        """`f"{loss:.3f}"` formats the only element. Raises TypeError for several."""
        if not form:
            return str(self)
        if self.size() != 1:
            raise TypeError(f"[format] {form!r} formats one element, got shape {self.shape}")
        return format(self.item(), form)

    def __repr__(self: Any) -> str:
        values = np.array2string(self.numpy(), separator=", ", prefix="Tensor(", threshold=1000)
        device = f", device={self.device.name()}" if self.device.name() != "cpu" else ""
        return f"Tensor({values}, dtype={self.dtype}{device})"

    def _repr_html_(self: Any) -> str:
        """What notebooks show: shape, type and statistics, and images as a picture."""
        from ..drawing.array import array_table  # not loaded by a program that only computes

        device = self.device.name()
        return array_table(self.numpy(), str(self.dtype), "" if device == "cpu" else device)

    # Norms: SINGA divides them by the number of elements.

    def l1(self: Any) -> float:
        """Sum of absolute values, divided by the number of elements; NaN where there is none.

        >>> tensor.Tensor(data=[3.0, -4.0]).l1()
        3.5
        """
        return self.data.L1()

    def l2(self: Any) -> float:
        """Root of the sum of squares, divided by the number of elements; NaN where there is
        none.

        >>> tensor.Tensor(data=[3.0, -4.0]).l2()
        2.5
        """
        return self.data.L2()

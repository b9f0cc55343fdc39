"""Functions that copy tensors: to the host, from arrays, and between tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import integer
from .arguments import names_arguments
from .creation import from_raw_tensor
from .elements import flattened
from .tensor import Tensor, wrap

if TYPE_CHECKING:
    from numpy.typing import NDArray


@names_arguments
def to_host(t: Tensor) -> Tensor:
    """`t` on the CPU; a copy only if it is on another device.

    >>> tensor.to_host(tensor.ones((2,)))
    Tensor([1., 1.], dtype=float32)
    """
    return wrap(t.data.ToHost(), t.requires_grad)


@names_arguments
def to_numpy(t: Tensor) -> NDArray[Any]:
    """Copies a tensor to an array; bfloat16 becomes float32.

    >>> tensor.to_numpy(tensor.ones((2,)))
    array([1., 1.], dtype=float32)
    """
    return t.numpy()


@names_arguments
def copy_from_numpy(data: _c.Tensor | Tensor, np_array: NDArray[Any]) -> None:
    """Copies the elements of an array to `data` in row-major order.

    Sizes must be equal, shapes may differ. Raises ValueError for another size.

    >>> x = tensor.zeros((2,))
    >>> tensor.copy_from_numpy(x, np.array([1.0, 2.0], np.float32))
    >>> x
    Tensor([1., 2.], dtype=float32)
    """
    (data if isinstance(data, Tensor) else from_raw_tensor(data)).copy_from_numpy(np_array)


@names_arguments
def copy_data_to_from(
    dst: Tensor, src: Tensor, size: int, dst_offset: int = 0, src_offset: int = 0
) -> None:
    """Copies `size` elements from `src` to `dst`, starting at the offsets.

    Both tensors are treated as flattened in row-major order, and all numbers are in elements.
    Raises ValueError if the range lies outside one of the tensors.

    >>> x = tensor.zeros((4,))
    >>> tensor.copy_data_to_from(x, tensor.Tensor(data=[1.0, 2.0, 3.0]), 2, dst_offset=1)
    >>> x
    Tensor([0., 1., 2., 0.], dtype=float32)
    """
    for name, value in (("size", size), ("dst_offset", dst_offset), ("src_offset", src_offset)):
        integer("copy_data_to_from", name, value)
    for what, t, offset in (("dst", dst, dst_offset), ("src", src, src_offset)):
        if size < 0 or offset < 0 or offset + size > t.size():
            raise ValueError(
                f"[copy_data_to_from] {size} elements at offset {offset} of {what}, which has "
                f"{t.size()}"
            )
    source = src.data.Reshape((-1,)).SliceAxis(0, src_offset, src_offset + size)
    flattened(dst, "copy_data_to_from").SliceAxis(0, dst_offset, dst_offset + size).CopyFrom(source)


@names_arguments
def contiguous(tensor: Tensor) -> Tensor:
    """`tensor` if its elements lie in row-major order, otherwise a copy in that order.

    >>> x = tensor.zeros((2, 3)).transpose()
    >>> tensor.contiguous(x).is_transpose()
    False
    """
    return tensor.contiguous()

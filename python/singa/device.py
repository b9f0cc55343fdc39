"""Devices, which hold tensors and run operations.

A device is an object of the C++ class `singa_wrap.Device`. The functions here find or create one.
Objects of the same device are equal: `x.device == y.device`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import singa_wrap as _c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .singa_wrap import Device

__all__ = [
    "create_cpu_device",
    "create_cuda_gpu",
    "create_cuda_gpu_on",
    "create_cuda_gpus",
    "create_cuda_gpus_on",
    "create_opencl_device",
    "device_query",
    "enable_lazy_alloc",
    "get_default_device",
    "get_gpu_ids",
    "get_gpu_mem_size",
    "get_num_gpus",
    "get_num_opencl_devices",
    "get_num_opencl_platforms",
    "set_default_device",
]

_default: Device | None = None  # None: the CPU
#: What an argument for a device has to be, in messages.
WANTED = "a Device, such as device.create_cuda_gpu(), or None"


def _is_same(self: Device, other: object) -> bool:
    return isinstance(other, _c.Device) and self.id() == other.id()


def _hash(self: Device) -> int:
    return hash(self.id())


def _shown(self: Device) -> str:
    return f"Device({self.name()!r})"


# Each question for a device gives a new object.
_c.Device.__eq__ = _is_same  # type: ignore[assignment,method-assign]
_c.Device.__hash__ = _hash  # type: ignore[assignment,method-assign]
_c.Device.__repr__ = _shown  # type: ignore[assignment,method-assign]


def get_default_device() -> Device:
    """The device of tensors that are created without one: the CPU, or the device that was passed
    to `set_default_device`.

    >>> device.get_default_device().name()
    'cpu'
    """
    return _c.DefaultDevice() if _default is None else _default


def set_default_device(dev: Device | None) -> None:
    """Sets the device of tensors that are created without one, for all threads. None sets the CPU.

    `singa.seed` seeds this device. An operation runs on the device of its operands, so a script
    that names no device runs on a GPU after
    `device.set_default_device(device.create_cuda_gpu())`. Call it before the first tensor is
    created. Raises TypeError if `dev` is neither a Device nor None.

    >>> device.set_default_device(None)
    >>> device.get_default_device().name()
    'cpu'
    """
    global _default
    _default = None if dev is None else checked_device("set_default_device", dev)


def checked_device(op: str, dev: object) -> Device:
    """`dev`, if it is a Device. Raises TypeError, which says what to write, for something else."""
    if isinstance(dev, _c.Device):
        return dev
    raise TypeError(f"[{op}] device must be {WANTED}, got {dev!r:.80}")


def named_or_default(dev: Device | None) -> Device | None:
    """`dev`, or the default device if it is None. Returns None if that is the CPU."""
    return _default if dev is None else dev


def create_cpu_device(separate: bool = False) -> Device:
    """The CPU device.

    Each call returns the same device, as in SINGA, so its tensors can be combined. It is never
    closed. With `separate` the call creates a new device, with its own memory and random generator.
    `Close()` frees all memory of a separate device. Its tensors cannot be combined with those of
    other devices.

    >>> device.create_cpu_device().name()
    'cpu'
    """
    return _c.CreateCpuDevice() if separate else _c.DefaultDevice()


def get_num_gpus() -> int:
    """Number of CUDA GPUs that this build can use; 0 without the CUDA backend.

    >>> device.get_num_gpus() == len(device.get_gpu_ids())
    True
    """
    return _c.Platform.GetNumGPUs()


def get_gpu_ids() -> tuple[int, ...]:
    """Identifiers of the CUDA GPUs that this build can use.

    >>> len(device.get_gpu_ids()) == device.get_num_gpus()
    True
    """
    return _c.Platform.GetGPUIDs()


def get_gpu_mem_size(id: int) -> tuple[int, int]:
    """Free and total memory of GPU `id`, in bytes.

    Raises RuntimeError if there is no GPU, ValueError for another `id`.

    >>> all(free <= total for free, total in map(device.get_gpu_mem_size, device.get_gpu_ids()))
    True
    """
    return _c.Platform.GetGPUMemSize(id)


def device_query(id: int, verbose: bool = False) -> str:
    """Description of GPU `id`; with `verbose` it includes free memory and compute capability.

    Raises RuntimeError if there is no GPU, ValueError for another `id`.

    >>> all(device.device_query(gpu) for gpu in device.get_gpu_ids())
    True
    """
    return _c.Platform.DeviceQuery(id, verbose)


def _is_cpu_wanted(function: str) -> bool:
    """Whether SINGA_DEVICE replaces GPUs by the CPU."""
    return _c.EnvironmentValue("SINGA_DEVICE", function) == "cpu"


def _gpus(function: str, device_ids: Sequence[int]) -> list[Device]:
    if _is_cpu_wanted(function):
        return [create_cpu_device() for _ in device_ids]
    try:
        return _c.Platform.CreateCudaGPUsOn(device_ids)
    except RuntimeError as error:
        if get_num_gpus():
            raise
        raise RuntimeError(
            f"{error}. With SINGA_DEVICE=cpu in the environment, {function}() returns the CPU"
        ) from None


def create_cuda_gpus(num: int) -> list[Device]:
    """The first `num` GPUs. Raises RuntimeError if there is no GPU, ValueError if there are fewer.

    With SINGA_DEVICE=cpu in the environment, all functions that create GPUs return the CPU instead.

    >>> gpus = device.create_cuda_gpus(2) if device.get_num_gpus() >= 2 else []
    >>> [tensor.ones((2,), gpu).sum().item() for gpu in gpus] == [2.0] * len(gpus)
    True
    """
    return _gpus("create_cuda_gpus", range(num))


def create_cuda_gpu() -> Device:
    """The first GPU, or the CPU with SINGA_DEVICE=cpu. Raises RuntimeError if there is no GPU.

    >>> dev = device.create_cuda_gpu() if device.get_num_gpus() else device.create_cpu_device()
    >>> tensor.ones((2,), dev).numpy()
    array([1., 1.], dtype=float32)
    """
    return _gpus("create_cuda_gpu", [0])[0]


def create_cuda_gpus_on(device_ids: list[int]) -> list[Device]:
    """The GPUs with these identifiers, or the CPU for each with SINGA_DEVICE=cpu.

    Raises RuntimeError if there is no GPU, ValueError if one of them does not exist.

    >>> gpus = device.create_cuda_gpus_on([0, 1]) if device.get_num_gpus() >= 2 else []
    >>> [tensor.ones((2,), gpu).sum().item() for gpu in gpus] == [2.0] * len(gpus)
    True
    """
    return _gpus("create_cuda_gpus_on", device_ids)


def create_cuda_gpu_on(device_id: int) -> Device:
    """The GPU with this identifier, or the CPU with SINGA_DEVICE=cpu.

    Raises RuntimeError if there is no GPU, ValueError for another identifier.

    >>> dev = device.create_cuda_gpu_on(0) if device.get_num_gpus() else device.create_cpu_device()
    >>> tensor.ones((2,), dev).numpy()
    array([1., 1.], dtype=float32)
    """
    return _gpus("create_cuda_gpu_on", [device_id])[0]


def get_num_opencl_platforms() -> int:
    """Always 0: singa has no OpenCL backend.

    >>> device.get_num_opencl_platforms()
    0
    """
    return 0


def get_num_opencl_devices() -> int:
    """Always 0: singa has no OpenCL backend.

    >>> device.get_num_opencl_devices()
    0
    """
    return 0


def create_opencl_device() -> Device:
    """The CPU with SINGA_DEVICE=cpu. Otherwise raises RuntimeError: there is no OpenCL backend.

    >>> try:
    ...     device.create_opencl_device()
    ... except RuntimeError:
    ...     print("there is no OpenCL backend")
    ...
    there is no OpenCL backend
    """
    if _is_cpu_wanted("create_opencl_device"):
        return create_cpu_device()
    raise RuntimeError(
        "[create_opencl_device] singa has no OpenCL backend. With SINGA_DEVICE=cpu in the "
        "environment, create_opencl_device() returns the CPU"
    )


def enable_lazy_alloc(enable: bool) -> None:
    """Accepted for SINGA's scripts; it changes nothing.

    >>> device.enable_lazy_alloc(True)
    >>> tensor.ones((2,))
    Tensor([1., 1.], dtype=float32)
    """
    _c.Device.EnableLazyAlloc(enable)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        words = importlib.import_module("singa.raw.words")  # of a higher layer
        return words.missing(__name__, name)

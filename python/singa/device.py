"""Devices: where tensors lie and operations run.

A device is the C++ object itself (`singa_wrap.Device`); the functions here find or make one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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


def get_default_device() -> Device:
    """Where tensors lie that are made without naming a device: the CPU, which is never closed, or
    what `set_default_device` has named."""
    return _c.DefaultDevice() if _default is None else _default


def set_default_device(dev: Device | None) -> None:
    """Names the device of tensors that are made without one, and the one that `singa.seed` starts,
    for all threads from now on; None is the CPU again.

    Results of operations lie where their operands do, so a script that names no devices runs as it
    is on a GPU: `device.set_default_device(device.create_cuda_gpu())` before its first tensor.
    """
    global _default
    if dev is not None and not isinstance(dev, _c.Device):
        raise TypeError(f"[set_default_device] needs a Device or None, got {type(dev).__name__}")
    _default = dev


def named_or_default(dev: Device | None) -> Device | None:
    """`dev`, or the default device where it is None; None is the CPU then."""
    return _default if dev is None else dev


def create_cpu_device(separate: bool = False) -> Device:
    """The CPU. As in SINGA this is the device of all tensors that were made without one (unless
    `set_default_device` names another), so they mix.

    `separate` gives a new device with memory and a random sequence of its own, which `Close()`
    frees as a whole; its tensors do not mix with those of other devices.
    """
    return _c.CreateCpuDevice() if separate else _c.DefaultDevice()


def get_num_gpus() -> int:
    """CUDA GPUs that this build can use."""
    return _c.Platform.GetNumGPUs()


def get_gpu_ids() -> tuple[int, ...]:
    """Identifiers of the CUDA GPUs that this build can use."""
    return _c.Platform.GetGPUIDs()


def get_gpu_mem_size(id: int) -> tuple[int, int]:
    """Free and total bytes of a GPU. Raises RuntimeError where there is none."""
    return _c.Platform.GetGPUMemSize(id)


def device_query(id: int, verbose: bool = False) -> str:
    """Description of a GPU. Raises RuntimeError where there is none."""
    return _c.Platform.DeviceQuery(id, verbose)


def _is_cpu_wanted(function: str) -> bool:
    """Whether SINGA_DEVICE asks for the CPU in place of GPUs."""
    wanted = os.environ.get("SINGA_DEVICE", "")
    if wanted not in ("", "cpu"):
        raise ValueError(f"[{function}] SINGA_DEVICE has to be cpu or unset, got {wanted!r}")
    return wanted == "cpu"


def _gpus(function: str, device_ids: Sequence[int]) -> list[Device]:
    if _is_cpu_wanted(function):
        return [create_cpu_device() for _ in device_ids]
    try:
        return _c.Platform.CreateCudaGPUsOn(device_ids)
    except RuntimeError as error:
        if get_num_gpus():
            raise
        raise RuntimeError(
            f"{error}. With SINGA_DEVICE=cpu in the environment {function}() gives the CPU"
        ) from None


def create_cuda_gpus(num: int) -> list[Device]:
    """The first `num` GPUs. Raises RuntimeError where there are none.

    This function and the three below give the CPU in place of each GPU where the environment
    variable SINGA_DEVICE is "cpu".
    """
    return _gpus("create_cuda_gpus", range(num))


def create_cuda_gpu() -> Device:
    """The first GPU. Raises RuntimeError where there is none."""
    return _gpus("create_cuda_gpu", [0])[0]


def create_cuda_gpus_on(device_ids: list[int]) -> list[Device]:
    """The GPUs of these identifiers. Raises RuntimeError where there are none."""
    return _gpus("create_cuda_gpus_on", device_ids)


def create_cuda_gpu_on(device_id: int) -> Device:
    """The GPU of this identifier. Raises RuntimeError where there is none."""
    return _gpus("create_cuda_gpu_on", [device_id])[0]


def get_num_opencl_platforms() -> int:
    """Always 0: singa has no OpenCL backend."""
    return 0


def get_num_opencl_devices() -> int:
    """Always 0: singa has no OpenCL backend."""
    return 0


def create_opencl_device() -> Device:
    """The CPU with SINGA_DEVICE=cpu. Raises RuntimeError otherwise: there is no OpenCL backend."""
    if _is_cpu_wanted("create_opencl_device"):
        return create_cpu_device()
    raise RuntimeError(
        "[create_opencl_device] singa has no OpenCL backend; use the CPU, which "
        "create_opencl_device() gives with SINGA_DEVICE=cpu in the environment"
    )


def enable_lazy_alloc(enable: bool) -> None:
    """Accepted and ignored: memory comes from a cache, so allocating late has nothing to save."""

"""Devices of the tests in this folder. Without a GPU, they use the emulated one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from singa import device

if TYPE_CHECKING:
    from singa.singa_wrap import Device


@pytest.fixture(autouse=True)
def _cpu_is_the_default() -> Iterator[None]:
    """These tests name their devices, so the default device is the CPU."""
    before = device.get_default_device()
    device.set_default_device(None)
    yield
    device.set_default_device(before)


@pytest.fixture
def gpu() -> "Device":
    """The first GPU."""
    if device.get_num_gpus() == 0:
        pytest.skip("there is no GPU, and no emulated one in this build")
    return device.create_cuda_gpu()

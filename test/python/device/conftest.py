"""The devices that tests of this folder run on; the host plays a GPU where there is none."""

from typing import TYPE_CHECKING

import pytest
from singa import device

if TYPE_CHECKING:
    from singa.singa_wrap import Device


@pytest.fixture
def gpu() -> "Device":
    """The first GPU."""
    if device.get_num_gpus() == 0:
        pytest.skip("there is no GPU, and no emulated one in this build")
    return device.create_cuda_gpu()

"""The device that the tests run on: the CPU, or with SINGA_TEST_DEVICE=cuda the first GPU."""

from __future__ import annotations

import os

_NAME = os.environ.get("SINGA_TEST_DEVICE", "cpu")
if _NAME not in ("cpu", "cuda"):
    raise ValueError(f"SINGA_TEST_DEVICE has to be cpu or cuda, got {_NAME!r}")

ON_GPU = _NAME == "cuda"
# Bytes that a step may take to keep apart what its branches use (docs/cuda.md).
KEPT_APART = (32 << 20) * (ON_GPU and os.environ.get("SINGA_CUDA_BRANCHES", "1") not in ("", "1"))


def make_default() -> str:
    """Makes it the default device; returns why that cannot be, or nothing."""
    if not ON_GPU:
        return ""
    from singa import device, singa_wrap

    if device.get_num_gpus() == 0:
        return f"there is no GPU: {singa_wrap.GpuProblem()}"
    device.set_default_device(device.create_cuda_gpu())
    return ""

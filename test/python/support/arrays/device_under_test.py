"""The device on which tests run: the CPU, or the first GPU with SINGA_TEST_DEVICE=cuda.

With SINGA_REQUIRE_GPU=1 a missing GPU is an error, not a reason to skip tests. With
SINGA_REQUIRE_GPU=emulated the emulated GPU is sufficient.
"""

from __future__ import annotations

import os

_NAME = os.environ.get("SINGA_TEST_DEVICE", "cpu")
if _NAME not in ("cpu", "cuda"):
    raise ValueError(f"SINGA_TEST_DEVICE must be cpu or cuda, got {_NAME!r}")

_REQUIRED = os.environ.get("SINGA_REQUIRE_GPU", "0")
if _REQUIRED not in ("0", "1", "emulated"):
    raise ValueError(f"SINGA_REQUIRE_GPU must be 0, 1 or emulated, got {_REQUIRED!r}")

ON_GPU = _NAME == "cuda"
# Memory in bytes that a step may use so that branches can run at the same time
# (docs/developers/cuda.md).
KEPT_APART = (32 << 20) * (ON_GPU and os.environ.get("SINGA_CUDA_BRANCHES", "1") not in ("", "1"))


def make_default() -> str:
    """Makes it the default device. Returns the reason if that fails, otherwise an empty string."""
    if not ON_GPU:
        return ""
    from singa import device, singa_wrap

    if device.get_num_gpus() == 0:
        return f"there is no GPU: {singa_wrap.GpuProblem()}"
    device.set_default_device(device.create_cuda_gpu())
    return ""


def spoiled() -> str:
    """Why the GPU under test cannot be used any more; an empty string if it can."""
    import numpy as np
    from singa import tensor

    problem = ""
    for _ in range(2):  # the first call may raise an error of what the test has queued
        try:
            tensor.from_numpy(np.ones(1, np.float32)).numpy()
        except Exception as error:
            problem = str(error)
        else:
            return ""
    return problem


def missing_gpu() -> str:
    """Why the GPU that SINGA_REQUIRE_GPU requires is missing; an empty string if it is not."""
    if _REQUIRED == "0":
        return ""
    from singa import device, singa_wrap

    if device.get_num_gpus() == 0:
        return f"SINGA_REQUIRE_GPU={_REQUIRED}, but there is no GPU: {singa_wrap.GpuProblem()}"
    found = device.device_query(0)
    if _REQUIRED == "1" and "emulated" in found:
        return (
            f"SINGA_REQUIRE_GPU=1, but the GPU is emulated ({found}); "
            "SINGA_REQUIRE_GPU=emulated takes it for one"
        )
    return ""

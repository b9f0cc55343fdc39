"""Settings of the whole process: threads, random state, strictness."""

from __future__ import annotations

import operator

from . import singa_wrap as _c
from ._check import integer
from .device import get_default_device


def set_num_threads(n: int) -> None:
    """Threads that kernels use: one number for OpenMP, oneDNN and BLAS. Raises ValueError unless
    1 <= n <= 1024."""
    n = integer("set_num_threads", "threads", n, 1)
    if n > 1024:
        raise ValueError(f"[set_num_threads] threads has to be in [1, 1024], got {n}")
    _c.SetNumThreads(n)


def get_num_threads() -> int:
    """Threads that kernels use. At the start OMP_NUM_THREADS, or else the CPUs that this process
    may use within its cgroup's quota."""
    return _c.NumThreads()


def seed(n: int) -> None:
    """Starts the random sequence of the default device, from which initial weights and dropout
    come, at a point that n names. Other devices have their own: `device.SetRandSeed(n)`."""
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"[seed] has to be an integer, got {type(n).__name__}") from None
    if not 0 <= n < 1 << 64:
        raise ValueError(f"[seed] has to be in [0, 2**64), got {n}")
    get_default_device().SetRandSeed(n)


def set_layout(mode: str) -> None:
    """Layouts of images between operations: "auto", the default, leaves them as the kernels like
    them; "plain" has every operation return row-major tensors, for comparison. Environment:
    SINGA_LAYOUT. Raises ValueError for another mode."""
    if mode not in ("auto", "plain"):
        raise ValueError(f"[set_layout] mode has to be 'auto' or 'plain', got {mode!r}")
    _c.SetPlainLayouts(mode == "plain")


def set_strict(strict: bool = True) -> None:
    """Strict: only methods whose rounding error has the bound of plain sums of products.

    That leaves out Winograd's convolution (kernels of 3 x 3, 5 x 5, 1 x 3, 3 x 1, 1 x 7 and 7 x 1,
    stride 1), which is two to four times as fast and whose rounding error is two to nine times as
    large, most for many channels; an infinity or NaN in an image spreads over the tile of results
    around it. Off by default; environment: SINGA_STRICT=1.
    """
    _c.SetStrict(bool(strict))


def is_strict() -> bool:
    """Whether strict mode is on."""
    return _c.IsStrict()


def set_tf32(tf32: bool = True) -> None:
    """TF32: on a CUDA GPU, float32 convolutions and matrix products may round their factors to 10
    bits of mantissa, which is several times as fast. Off by default, and in strict mode;
    environment: SINGA_TF32=1."""
    _c.SetTf32(bool(tf32))


def is_tf32() -> bool:
    """Whether float32 products may be computed in TF32."""
    return _c.IsTf32()


def set_deterministic(deterministic: bool = True) -> None:
    """Deterministic: on a CUDA GPU, no method that adds up in another order each time. On by
    default; environment: SINGA_DETERMINISTIC=0. On a CPU everything is."""
    _c.SetDeterministic(bool(deterministic))


def is_deterministic() -> bool:
    """Whether methods that add up in another order each time are left out."""
    return _c.IsDeterministic()

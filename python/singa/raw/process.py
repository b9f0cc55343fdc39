"""Settings of the whole process: threads, random seed, layouts and numeric modes; its notebook."""

from __future__ import annotations

import operator
import sys
from typing import Any

from .. import singa_wrap as _c
from ..device import get_default_device
from .calls import checks_flags
from .check import integer, one_of


def set_num_threads(n: int) -> None:
    """Sets the number of threads of OpenMP, oneDNN and BLAS kernels.

    Raises ValueError unless 1 <= n <= 1024, TypeError if `n` is not an integer. In a process that
    was forked n is 1, else ValueError: OpenMP's threads do not survive a fork.

    >>> threads = singa.get_num_threads()
    >>> singa.set_num_threads(1)
    >>> singa.get_num_threads()
    1
    >>> singa.set_num_threads(threads)
    """
    n = integer("set_num_threads", "threads", n, 1)
    if n > 1024:
        raise ValueError(f"[set_num_threads] threads must be in [1, 1024], got {n}")
    _c.SetNumThreads(n)


def get_num_threads() -> int:
    """The number of threads that kernels use.

    The default is OMP_NUM_THREADS, or the number of CPUs that this process may use, which respects
    affinity and the quota of its cgroup.

    >>> singa.get_num_threads() >= 1
    True
    """
    return _c.NumThreads()


def seed(n: int) -> None:
    """Seeds the random generator of the default device, which initial weights and dropout use.

    Each device has its own generator; `device.SetRandSeed(n)` seeds another one. Raises ValueError
    unless 0 <= n < 2**64, TypeError if `n` is not an integer.

    >>> singa.seed(1)
    >>> x = tensor.random((2,)).numpy()
    >>> singa.seed(1)
    >>> bool((tensor.random((2,)).numpy() == x).all())
    True
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"[seed] must be an integer, got {type(n).__name__}") from None
    if not 0 <= n < 1 << 64:
        raise ValueError(f"[seed] must be in [0, 2**64), got {n}")
    get_default_device().SetRandSeed(n)


def set_layout(mode: str) -> None:
    """Sets the layouts of images between operations.

    With "auto", the default, kernels choose. With "plain", every operation returns row-major
    tensors, for comparison. SINGA_LAYOUT in the environment sets the default. Raises ValueError
    for another mode.

    >>> singa.set_layout("plain")
    >>> autograd.relu(tensor.ones((2,)))
    Tensor([1., 1.], dtype=float32)
    >>> singa.set_layout("auto")
    """
    one_of("set_layout", "mode", mode, ["auto", "plain"])
    _c.SetPlainLayouts(mode == "plain")


@checks_flags
def set_strict(strict: bool = True) -> None:
    """Turns strict mode on or off: only algorithms with the error bound of plain sums of products.

    Strict mode excludes Winograd convolution (kernels of 3 x 3, 5 x 5, 1 x 3, 3 x 1, 1 x 7 and
    7 x 1 with stride 1). Winograd is two to four times as fast. Its rounding error is two to nine
    times as large, most with many channels, and an infinity or NaN in an image spreads over a tile
    of the output. Strict mode is off by default; SINGA_STRICT=1 in the environment turns it on.

    >>> before = singa.is_strict()
    >>> singa.set_strict(True)
    >>> singa.is_strict()
    True
    >>> singa.set_strict(before)
    """
    _c.SetStrict(bool(strict))


def is_strict() -> bool:
    """Whether strict mode is on.

    >>> isinstance(singa.is_strict(), bool)
    True
    """
    return _c.IsStrict()


@checks_flags
def set_spot_checks(enable: bool = True) -> None:
    """Turns spot checks on or off.

    They compute sampled elements of the first results of each implementation again, and replace an
    implementation that is wrong by another one, with a warning on stderr
    (docs/how_it_works/spot_checks.md). They are on by default; SINGA_SPOT_CHECKS=0 in the
    environment turns them off.

    >>> singa.set_spot_checks(False)
    >>> singa.has_spot_checks()
    False
    >>> singa.set_spot_checks(True)
    """
    _c.SetSpotChecks(bool(enable))


def has_spot_checks() -> bool:
    """Whether spot checks are on.

    >>> singa.has_spot_checks()
    True
    """
    return _c.SpotChecks()


def set_float32_precision(precision: str) -> None:
    """Sets how exactly float32 factors of convolutions and matrix products are multiplied.

    precision  "highest", the default: with the error of float32 arithmetic.
               "high": factors may be rounded, which is several times as fast. CPUs with AMX keep
               16 bits of each (SINGA_AMX_FLOAT32=off turns that off), CUDA GPUs the 11 bits of
               TF32, recurrent networks included. Other processors compute as with "highest";
               `singa.explain` says so, and names the implementations that round.

    Sums, results and all other operations stay in float32. Strict mode overrides the setting.
    Recorded steps follow it: they are recorded anew after a change. SINGA_FLOAT32_PRECISION=high in
    the environment sets the default.

    Raises ValueError for another precision, such as PyTorch's "medium": use
    `autograd.autocast("bfloat16")`.

    >>> before = singa.get_float32_precision()
    >>> singa.set_float32_precision("high")
    >>> singa.get_float32_precision()
    'high'
    >>> singa.set_float32_precision(before)
    """
    known = {"highest": _c.Float32Precision_kHighest, "high": _c.Float32Precision_kHigh}
    one_of("set_float32_precision", "precision", precision, list(known))
    _c.SetFloat32Precision(known[precision])


def get_float32_precision() -> str:
    """The precision of float32 products: "highest" or "high".

    >>> singa.get_float32_precision()
    'highest'
    """
    return _c.Float32PrecisionName(_c.GetFloat32Precision())


@checks_flags
def set_tf32(tf32: bool = True) -> None:
    """Sets the precision of float32 products to "high", or with False to "highest".

    It is the older name of `set_float32_precision`, on CPUs as on CUDA GPUs.

    >>> before = singa.is_tf32()
    >>> singa.set_tf32(True)
    >>> singa.is_tf32()
    True
    >>> singa.set_tf32(before)
    """
    _c.SetTf32(bool(tf32))


def is_tf32() -> bool:
    """Whether the precision of float32 products is "high".

    >>> isinstance(singa.is_tf32(), bool)
    True
    """
    return _c.IsTf32()


@checks_flags
def set_deterministic(deterministic: bool = True) -> None:
    """Turns deterministic mode on or off: on CUDA GPUs, no algorithm whose order of summation
    varies between runs.

    It is on by default; SINGA_DETERMINISTIC=0 in the environment turns it off. CPU kernels are
    always deterministic.

    >>> before = singa.is_deterministic()
    >>> singa.set_deterministic(True)
    >>> singa.is_deterministic()
    True
    >>> singa.set_deterministic(before)
    """
    _c.SetDeterministic(bool(deterministic))


def is_deterministic() -> bool:
    """Whether deterministic mode is on.

    >>> singa.is_deterministic()
    True
    """
    return _c.IsDeterministic()


def ipython_shell() -> Any:
    """The shell of IPython in which this process runs, as in a notebook, or None."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None


def notebook_cell() -> int | None:
    """The number of the notebook's cell that runs; None outside of notebooks."""
    shell = ipython_shell()
    return shell.execution_count if shell is not None and "IPKernelApp" in shell.config else None

"""Initial values of weights. Each function fills a tensor in place.

Random numbers come from the generator of the tensor's device. With the same seed (`singa.seed` or
`device.SetRandSeed`) the values are the same for any number of threads. Fans are counted as in
Keras and SINGA. A matrix of shape (in, out) has fan_in = in and fan_out = out. A convolution's
weight of shape (out, in / group, kh, kw) has fan_in = in / group · kh · kw and
fan_out = out · kh · kw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .raw import words
from .raw.arrays import kind_of
from .raw.check import number, one_of, positive

if TYPE_CHECKING:
    from .tape.tensor import Tensor

_NORMAL, _UNIFORM = "normal", "uniform"


def compute_fans(shape: Sequence[int]) -> tuple[float, float]:
    """(fan_in, fan_out) of a weight with `shape`.

    For shapes that are neither a matrix nor a convolution's weight, such as vectors, both are the
    square root of the number of elements.

    >>> initializer.compute_fans((128, 10))
    (128.0, 10.0)
    >>> initializer.compute_fans((64, 32, 3, 3))
    (288.0, 576.0)
    """
    if len(shape) == 2:
        return float(shape[0]), float(shape[1])
    if len(shape) in (3, 4, 5):
        window = math.prod(shape[2:])
        return float(shape[1] * window), float(shape[0] * window)
    root = math.sqrt(math.prod(shape))
    return root, root


def _shape(function: str, t: Tensor) -> tuple[int, ...]:
    shape = getattr(t, "shape", None)
    if not isinstance(shape, tuple):
        raise TypeError(f"[{function}] expected a Tensor to fill, got {kind_of(t)}")
    return shape


def variance_scaling(t: Tensor, scale: float, mode: str, distribution: str) -> None:
    """Fills `t` with random values of mean 0 and variance scale / n.

    `mode` chooses n: "fan_in", "fan_out", or "fan_avg" for their mean. `distribution` is "normal"
    or "uniform", which is uniform over ±sqrt(3 · scale / n). Raises ValueError for other modes and
    distributions, and if `scale` is not positive.

    >>> w = tensor.zeros((1000, 10))
    >>> initializer.variance_scaling(w, 2.0, "fan_in", "normal")
    >>> round(w.std().item() * np.sqrt(1000 / 2), 1)
    np.float64(1.0)
    """
    positive("variance_scaling", "scale", scale)
    fan_in, fan_out = compute_fans(_shape("variance_scaling", t))
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    one_of("variance_scaling", "mode", mode, fans)
    one_of("variance_scaling", "distribution", distribution, [_NORMAL, _UNIFORM])
    variance = scale / max(fans[mode], 1.0)
    if distribution == _NORMAL:
        t.gaussian(0.0, math.sqrt(variance))
    else:
        limit = math.sqrt(3.0 * variance)
        t.uniform(-limit, limit)


def eye(t: Tensor) -> None:
    """Ones on the main diagonal, zeros elsewhere. Raises ValueError if `t` is not a matrix.

    >>> w = tensor.zeros((2, 3))
    >>> initializer.eye(w)
    >>> w
    Tensor([[1., 0., 0.],
            [0., 1., 0.]], dtype=float32)
    """
    if len(_shape("eye", t)) != 2:
        raise ValueError(f"[eye] expected a matrix, got shape {tuple(t.shape)}")
    t.copy_from_numpy(np.eye(*t.shape, dtype=np.float32))


def orthogonal(t: Tensor, gain: float = 1.0) -> None:
    """A random orthogonal matrix, times `gain`. Saxe et al. 2014.

    `t` is treated as a matrix with t.shape[0] rows. Its rows or its columns, whichever are fewer,
    are orthonormal before they are scaled. The distribution is uniform (Haar): the QR
    factorisation of a normal matrix, with the signs of Mezzadri 2007, section 5. Raises ValueError
    for fewer than two dimensions, for dimensions of 0 and for a `gain` that is not finite.

    >>> w = tensor.zeros((3, 3))
    >>> initializer.orthogonal(w)
    >>> bool(np.allclose(w.numpy() @ w.numpy().T, np.eye(3), atol=1e-5))
    True
    """
    if len(_shape("orthogonal", t)) < 2 or 0 in t.shape:
        raise ValueError(
            f"[orthogonal] expected two or more dimensions, none of them 0, got {t.shape}"
        )
    if not math.isfinite(number("orthogonal", "gain", gain)):
        raise ValueError(f"[orthogonal] gain must be finite, got {gain}")
    t.gaussian(0.0, 1.0)
    values = t.numpy().astype(np.float64)
    rows = t.shape[0]
    tall = values.reshape(rows, -1)
    wide = tall.shape[1] > rows
    q, r = np.linalg.qr(tall.T if wide else tall)
    q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the factorisation unique
    q = gain * (q.T if wide else q)
    t.copy_from_numpy(q.reshape(t.shape))


def lecun_uniform(t: Tensor) -> None:
    """Uniform over ±sqrt(3 / fan_in). LeCun et al. 1998.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((300, 10))
    >>> initializer.lecun_uniform(w)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    variance_scaling(t, 1.0, "fan_in", _UNIFORM)


def lecun_normal(t: Tensor) -> None:
    """Normal with standard deviation sqrt(1 / fan_in). LeCun et al. 1998.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((100, 100))
    >>> initializer.lecun_normal(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    variance_scaling(t, 1.0, "fan_in", _NORMAL)


def glorot_uniform(t: Tensor) -> None:
    """Uniform over ±sqrt(6 / (fan_in + fan_out)). Glorot & Bengio 2010.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((300, 300))
    >>> initializer.glorot_uniform(w)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    variance_scaling(t, 1.0, "fan_avg", _UNIFORM)


def glorot_normal(t: Tensor) -> None:
    """Normal with standard deviation sqrt(2 / (fan_in + fan_out)). Glorot & Bengio 2010.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((100, 100))
    >>> initializer.glorot_normal(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    variance_scaling(t, 1.0, "fan_avg", _NORMAL)


def he_uniform(t: Tensor) -> None:
    """Uniform over ±sqrt(6 / fan_in). He et al. 2015.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((600, 10))
    >>> initializer.he_uniform(w)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    variance_scaling(t, 2.0, "fan_in", _UNIFORM)


def he_normal(t: Tensor) -> None:
    """Normal with standard deviation sqrt(2 / fan_in). He et al. 2015.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((200, 100))
    >>> initializer.he_normal(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    variance_scaling(t, 2.0, "fan_in", _NORMAL)


def he_normal_fan_out(t: Tensor) -> None:
    """Normal with standard deviation sqrt(2 / fan_out), which keeps the variance of gradients.

    He et al. 2015. torchvision's ResNet and VGG use it.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((50, 200))
    >>> initializer.he_normal_fan_out(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    variance_scaling(t, 2.0, "fan_out", _NORMAL)


def fan_in_uniform(t: Tensor) -> None:
    """Uniform over ±1 / sqrt(fan_in). PyTorch's default for convolutions and linear layers.

    Raises TypeError unless t is a Tensor.

    >>> w = tensor.zeros((100, 10))
    >>> initializer.fan_in_uniform(w)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    variance_scaling(t, 1.0 / 3.0, "fan_in", _UNIFORM)


def normal(t: Tensor, std: float) -> None:
    """Normal with mean 0 and standard deviation `std`.

    Raises ValueError for a negative std.

    >>> w = tensor.zeros((100, 100))
    >>> initializer.normal(w, 0.5)
    >>> round(w.std().item(), 1)
    0.5
    """
    t.gaussian(0.0, std)


def gaussian(t: Tensor, fan_in: float = 0, fan_out: float = 0) -> None:
    """Normal with standard deviation sqrt(2 / fan).

    `fan` is the mean of the arguments that are not 0. If both are 0, the fans are computed from
    the shape. With one fan this is He et al. 2015, with both Glorot & Bengio 2010. Raises
    ValueError for negative or infinite fans, and if all fans are 0.

    >>> w = tensor.zeros((200, 100))
    >>> initializer.gaussian(w, fan_in=200)
    >>> round(w.std().item(), 2)
    0.1
    """
    t.gaussian(0.0, math.sqrt(2.0 / _mean_fan(t, fan_in, fan_out)))


def uniform(t: Tensor, fan_in: float = 0, fan_out: float = 0) -> None:
    """Uniform over ±sqrt(3 / fan), with `fan` as in `gaussian`.

    >>> w = tensor.zeros((300, 100))
    >>> initializer.uniform(w, fan_in=300)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    limit = math.sqrt(3.0 / _mean_fan(t, fan_in, fan_out))
    t.uniform(-limit, limit)


def xavier(t: Tensor) -> None:
    """Fills a matrix uniformly over ±sqrt(6 / (rows + columns)). SINGA's older name of
    `glorot_uniform`.

    Raises ValueError for fewer than two axes.

    >>> w = tensor.zeros((300, 300))
    >>> initializer.xavier(w)
    >>> bool((w.abs() <= 0.1).all())
    True
    """
    rows, columns = _matrix("xavier", t)
    limit = math.sqrt(6.0 / (rows + columns))
    t.uniform(-limit, limit)


def glorot(t: Tensor) -> None:
    """Fills a matrix normally with standard deviation sqrt(2 / (rows + columns)). SINGA's older
    name of `glorot_normal`.

    Raises ValueError for fewer than two axes.

    >>> w = tensor.zeros((100, 100))
    >>> initializer.glorot(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    rows, columns = _matrix("glorot", t)
    t.gaussian(0.0, math.sqrt(2.0 / (rows + columns)))


def msra(t: Tensor) -> None:
    """Fills a matrix normally with standard deviation sqrt(2 / rows). SINGA's older name of
    `he_normal`.

    Raises ValueError for fewer than two axes.

    >>> w = tensor.zeros((200, 100))
    >>> initializer.msra(w)
    >>> round(w.std().item(), 2)
    0.1
    """
    rows, _ = _matrix("msra", t)
    t.gaussian(0.0, math.sqrt(2.0 / rows))


def _mean_fan(t: Tensor, fan_in: float, fan_out: float) -> float:
    if not fan_in and not fan_out:
        fan_in, fan_out = compute_fans(_shape("initializer", t))
    given = [fan for fan in (fan_in, fan_out) if fan]
    if not given or not 0 < sum(given) < math.inf or min(given) < 0:
        raise ValueError(
            "[initializer] fans must be finite and not negative, and one must be positive, got "
            f"fan_in {fan_in}, fan_out {fan_out} for shape {tuple(t.shape)}"
        )
    return sum(given) / len(given)


def _matrix(name: str, t: Tensor) -> tuple[int, int]:
    if len(_shape(name, t)) < 2 or 0 in t.shape[:2]:
        raise ValueError(f"[{name}] expected a matrix, got shape {tuple(t.shape)}")
    return t.shape[0], t.shape[1]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)

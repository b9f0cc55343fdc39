"""The gamma function's logarithm and its derivatives, and the complement and inverse of erf."""

from __future__ import annotations

from .. import singa_wrap as _c
from ..raw.check import integer
from ..tape.tensor import Tensor
from .conversion import floating
from .elementwise import Elementwise


class Erfc(Elementwise):
    """1 - erf(x), exact to rounding for large x as well."""

    code: int = _c.UnaryOp_kErfc


class Erfinv(Elementwise):
    """The number whose erf is x, by Halley's method; infinite at -1 and 1, NaN beyond."""

    code: int = _c.UnaryOp_kErfInverse


class Lgamma(Elementwise):
    """The logarithm of |Γ(x)|; infinite at 0 and at negative whole numbers."""

    code: int = _c.UnaryOp_kLogGamma


class Polygamma(Elementwise):
    """The derivative of order n of the digamma function."""

    code: int = _c.UnaryOp_kPolyGamma

    def __init__(self, n: int) -> None:
        super().__init__()
        self.a: float = float(integer("polygamma", "n", n, 0))


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), exact to rounding for large x as well. Integers count as float32.

    >>> autograd.erfc(tensor.Tensor(data=[0.0, 1.0]))
    Tensor([1.    , 0.1573], dtype=float32)
    """
    return Erfc()(floating(x))[0]


def erfinv(x: Tensor) -> Tensor:
    """The number whose erf is x; infinite at -1 and 1, and NaN beyond. Integers count as float32.

    >>> autograd.erfinv(tensor.Tensor(data=[0.0, 0.5, 1.0]))
    Tensor([0.    , 0.4769,    inf], dtype=float32)
    """
    return Erfinv()(floating(x))[0]


def lgamma(x: Tensor) -> Tensor:
    """The logarithm of |Γ(x)|, the factorial of x - 1 for whole numbers; infinite at 0 and at
    negative whole numbers. Integers count as float32.

    >>> autograd.lgamma(tensor.Tensor(data=[0.5, 1.0, 5.0]))
    Tensor([0.5724, 0.    , 3.1781], dtype=float32)
    """
    return Lgamma()(floating(x))[0]


def digamma(x: Tensor) -> Tensor:
    """The derivative of `lgamma`. At 0 it is infinite, at negative whole numbers NaN. Integers
    count as float32.

    >>> autograd.digamma(tensor.Tensor(data=[0.5, 1.0, 5.0]))
    Tensor([-1.9635, -0.5772,  1.5061], dtype=float32)
    """
    return Polygamma(0)(floating(x))[0]


def polygamma(n: int, x: Tensor) -> Tensor:
    """The derivative of order n of `digamma`, n at most 169; infinite at 0 and at negative whole
    numbers unless n is 0. Integers count as float32.

    Raises ValueError for other n, TypeError for what is no number.

    >>> autograd.polygamma(1, tensor.Tensor(data=[0.5, 1.0, 5.0]))
    Tensor([4.9348, 1.6449, 0.2213], dtype=float32)
    """
    return Polygamma(n)(floating(x))[0]

"""Random numbers, from the generator of the device: `singa.seed` starts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import autograd
from ...dtypes import DType, float32, is_float
from ...tensor import Tensor
from .registry import Call, computes, in_type_of_result

Fill = Callable[[Tensor], Any]


def _drawn(call: Call, shape: Sequence[int], fill: Fill) -> Tensor:
    """Numbers of the shape: floats of the type of the result, or of float32."""
    kind = call.node.output_types[0].type
    assert kind is not None
    wanted = DType[kind]
    x = Tensor(tuple(shape), call.run.device, wanted if is_float(wanted) else float32)
    x.requires_grad = False
    fill(x)
    return x


def _uniform(low: float, high: float) -> Fill:
    return lambda x: x.uniform(low, high)


def _gaussian(mean: float, std: float) -> Fill:
    return lambda x: x.gaussian(mean, std)


@computes("rand", "rand.generator")
def rand(call: Call, shape: Sequence[int], **options: Any) -> Tensor:
    """Uniform in [0, 1)."""
    return _drawn(call, shape, _uniform(0.0, 1.0))


@computes("rand_like")
def rand_like(call: Call, x: Tensor, **options: Any) -> Tensor:
    """Uniform in [0, 1), in the shape of x."""
    return _drawn(call, x.shape, _uniform(0.0, 1.0))


@computes("uniform")
def uniform(call: Call, x: Tensor, low: float = 0.0, high: float = 1.0, **options: Any) -> Tensor:
    """Uniform in [low, high), in the shape of x."""
    return _drawn(call, x.shape, _uniform(low, high))


@computes("randn", "randn.generator")
def randn(call: Call, shape: Sequence[int], **options: Any) -> Tensor:
    """Normally distributed, with mean 0 and variance 1."""
    return _drawn(call, shape, _gaussian(0.0, 1.0))


@computes("randn_like")
def randn_like(call: Call, x: Tensor, **options: Any) -> Tensor:
    """Normally distributed, in the shape of x."""
    return _drawn(call, x.shape, _gaussian(0.0, 1.0))


@computes("normal_functional")
def normal(call: Call, x: Tensor, mean: float = 0.0, std: float = 1.0, **options: Any) -> Tensor:
    """Normally distributed, in the shape of x."""
    return _drawn(call, x.shape, _gaussian(mean, std))


@computes("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_of(call: Call, mean: Any, std: Any = 1.0, **options: Any) -> Tensor:
    """Normally distributed, with a mean or a standard deviation for each element."""
    like = mean if isinstance(mean, Tensor) else std
    shape = like.shape
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        shape = (mean + std).shape
    return (_drawn(call, shape, _gaussian(0.0, 1.0)) * std + mean).detach()


@computes("exponential")
def exponential(call: Call, x: Tensor, rate: float = 1.0, **options: Any) -> Tensor:
    """Exponentially distributed, in the shape of x. Never 0, whose logarithm is taken."""
    drawn = _drawn(call, x.shape, _uniform(0.0, 1.0))
    return autograd.log(1.0 - drawn) * (-1.0 / rate)


@computes("bernoulli")
def bernoulli(call: Call, p: Tensor, **options: Any) -> Tensor:
    """1 with the probability p of each element, else 0."""
    return autograd.cast(_drawn(call, p.shape, _uniform(0.0, 1.0)) < p, p.dtype).detach()


@computes("rrelu_with_noise_functional")
def rrelu(
    call: Call,
    x: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    in_training: bool = False,
    **options: Any,
) -> Tensor:
    """x where x > 0, else slope·x, with a slope drawn for each element; in inference their mean."""
    if not in_training:
        return autograd.leakyrelu(x, (lower + upper) / 2)
    slope = _drawn(call, x.shape, _uniform(lower, upper))
    return autograd.where(x, x * slope, x > 0)


def _integers(call: Call, low: int, high: int, shape: Sequence[int]) -> Tensor:
    whole = autograd.floor(_drawn(call, shape, _uniform(low, high)))
    # Numbers just below `high` may round to it.
    return in_type_of_result(call, autograd.clip(whole, low, high - 1))


@computes("randint")
def randint(call: Call, high: int, shape: Sequence[int], **options: Any) -> Tensor:
    """Integers in [0, high)."""
    return _integers(call, 0, high, shape)


@computes("randint.low")
def randint_between(
    call: Call, low: int, high: int, shape: Sequence[int], **options: Any
) -> Tensor:
    """Integers in [low, high)."""
    return _integers(call, low, high, shape)


@computes("randint_like")
def randint_like(call: Call, x: Tensor, high: int, **options: Any) -> Tensor:
    """Integers in [0, high), in the shape of x."""
    return _integers(call, 0, high, x.shape)


@computes("randint_like.low_dtype")
def randint_like_between(call: Call, x: Tensor, low: int, high: int, **options: Any) -> Tensor:
    """Integers in [low, high), in the shape of x."""
    return _integers(call, low, high, x.shape)


@computes("randperm")
def randperm(call: Call, n: int, **options: Any) -> Tensor:
    """The integers below n in a random order."""
    return autograd.argsort(_drawn(call, (n,), _uniform(0.0, 1.0)))

"""Layer, group, instance, RMS and local response normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.arrays import full
from ..raw.check import integer, number
from ..tape.tensor import Tensor
from .base import BuiltinOperator

if TYPE_CHECKING:
    from ..tape.operator import Raw


class LayerNorm(BuiltinOperator):
    """(x - mean) / sqrt(var + eps) · weight + bias, with the statistics of the axes from `axis` to
    the last. Ba, Kiros & Hinton 2016. Without `centered` it is RMS norm, x / sqrt(mean(x²) + eps) ·
    weight. Zhang & Sennrich 2019.
    """

    fresh_gradients = True

    def __init__(self, axis: int = -1, eps: float = 1e-5, centered: bool = True) -> None:
        super().__init__()
        self.axis: int = integer(type(self).__name__, "axis", axis)
        self.eps: float = number(type(self).__name__, "eps", eps)
        self.centered: bool = bool(centered)

    def forward(self, x: Raw, weight: Raw | None = None, bias: Raw | None = None) -> Raw:
        y, mean, inv_std = self._forward(x, weight, bias)
        self.save(x, weight, mean, inv_std)
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, weight, mean, inv_std = self.load()
        needs = [self._need(i) for i in range(len(self.src))]
        return tuple(self._backward(dy, x, weight, mean, inv_std, needs)[: len(needs)])

    def _forward(self, x: Raw, weight: Raw | None, bias: Raw | None) -> Any:
        return _c.LayerNormForward(x, weight, bias, self.axis, self.eps, self.centered)

    def _backward(
        self, dy: Raw, x: Raw, weight: Raw, mean: Raw, inv_std: Raw, needs: list[bool]
    ) -> Any:
        return _c.LayerNormBackward(dy, x, weight, mean, inv_std, self.axis, *_three(needs))


class ChannelNorm(LayerNorm):
    """LayerNorm of (N, C, ...) over the channels, at each position by itself. Channels-last images
    are not copied."""

    def __init__(self, eps: float = 1e-5, centered: bool = True) -> None:
        super().__init__(1, eps, centered)

    def _forward(self, x: Raw, weight: Raw | None, bias: Raw | None) -> Any:
        return _c.ChannelNormForward(x, weight, bias, self.eps, self.centered)

    def _backward(
        self, dy: Raw, x: Raw, weight: Raw, mean: Raw, inv_std: Raw, needs: list[bool]
    ) -> Any:
        return _c.ChannelNormBackward(dy, x, weight, mean, inv_std, *_three(needs))


class GroupNorm(LayerNorm):
    """As LayerNorm, with the statistics of each group of channels of (N, C, ...) over all
    positions. Wu & He 2018.

    `groups` of None means one for each channel: instance norm. Ulyanov, Vedaldi & Lempitsky 2016.
    """

    def __init__(self, groups: int | None, eps: float = 1e-5) -> None:
        super().__init__(1, eps)
        self.groups: int | None = (
            None if groups is None else integer("GroupNorm", "groups", groups, 1)
        )

    def _groups(self, x: Raw) -> int:
        if self.groups is not None:
            return self.groups
        shape = x.shape()
        return max(shape[1], 1) if len(shape) > 1 else 1

    def _forward(self, x: Raw, weight: Raw | None, bias: Raw | None) -> Any:
        return _c.GroupNormForward(x, self._groups(x), weight, bias, self.eps)

    def _backward(
        self, dy: Raw, x: Raw, weight: Raw, mean: Raw, inv_std: Raw, needs: list[bool]
    ) -> Any:
        return _c.GroupNormBackward(dy, x, self._groups(x), weight, mean, inv_std, *_three(needs))


def _three(needs: list[bool]) -> tuple[bool, bool, bool]:
    """Whether the gradients of x, weight and bias are needed, where the last may not be there."""
    x, weight, bias = (*needs, False, False)[:3]
    return x, weight, bias


class LRN(BuiltinOperator):
    """Local response normalisation: x / (k + alpha / size · Σ x²)^beta, summed over `size`
    neighbouring channels. Krizhevsky et al. 2012."""

    fresh_gradients = True

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        constants = {"alpha": alpha, "beta": beta, "k": k}
        self._constants = (
            integer("LRN", "size", size, 1),
            *(number("LRN", name, value) for name, value in constants.items()),
        )

    def forward(self, x: Raw) -> Raw:
        y, saved = _c.LrnForward(x, *self._constants, self.requires_grad is not False)
        self.save(x, y, saved)
        return y

    def backward(self, dy: Raw) -> Raw:
        return _c.LrnBackward(dy, *self.load(), *self._constants)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    axis: int = -1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) · weight + bias, with the mean and the biased variance over the
    axes from `axis` to the last. Ba, Kiros & Hinton 2016.

    weight, bias: of the shape of these axes, of x's type or float32; None: 1 and 0. Raises
    ValueError for other shapes, TypeError for other types.

    >>> autograd.layer_norm(tensor.Tensor(data=[[1.0, 2.0, 3.0], [0.0, 0.0, 9.0]]))
    Tensor([[-1.2247,  0.    ,  1.2247],
            [-0.7071, -0.7071,  1.4142]], dtype=float32)
    """
    return _apply(LayerNorm(axis, eps), x, weight, bias)


def rms_norm(
    x: Tensor, weight: Tensor | None = None, axis: int = -1, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight, with the mean over the axes from `axis` to the last. Zhang
    & Sennrich 2019. `eps` of None is the distance from 1 to the next float32 (float64 for
    float64).

    Raises ValueError for a weight of another shape.

    >>> autograd.rms_norm(tensor.Tensor(data=[[3.0, 4.0]]))
    Tensor([[0.8485, 1.1314]], dtype=float32)
    """
    if eps is None:
        eps = 2.0**-52 if x.data.data_type() == _c.kFloat64 else 2.0**-23
    return _apply(LayerNorm(axis, eps, centered=False), x, weight, None)


def channel_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm of x (N, C, ...) over the channels, at each position by itself; weight and bias
    are (C). Channels-last images are not copied.

    Raises ValueError for a weight or bias of another length than the channels.

    >>> x = tensor.Tensor(data=np.arange(6).reshape(1, 3, 2))
    >>> autograd.channel_norm(x)
    Tensor([[[-1.2247, -1.2247],
             [ 0.    ,  0.    ],
             [ 1.2247,  1.2247]]], dtype=float32)
    """
    return _apply(ChannelNorm(eps), x, weight, bias)


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises x (N, C, ...) by the mean and the biased variance of each group of C / groups
    channels over all positions; weight and bias are (C). Wu & He 2018. Raises ValueError where
    `groups` does not divide C.

    >>> x = tensor.Tensor(data=[[[0.0], [1.0], [0.0], [9.0]]])
    >>> autograd.group_norm(x, 2).reshape((4,))
    Tensor([-1.,  1., -1.,  1.], dtype=float32)
    """
    return _apply(GroupNorm(groups, eps), x, weight, bias)


def instance_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Group norm with as many groups as channels. Ulyanov, Vedaldi & Lempitsky 2016.

    Raises ValueError for a weight or bias of another length than the channels.

    >>> x = tensor.Tensor(data=[[[0.0, 1.0], [5.0, 9.0]]])
    >>> autograd.instance_norm(x)
    Tensor([[[-1.,  1.],
             [-1.,  1.]]], dtype=float32)
    """
    return _apply(GroupNorm(None, eps), x, weight, bias)


def _apply(op: LayerNorm, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if bias is None:
        return op(x)[0] if weight is None else op(x, weight)[0]
    if weight is None:
        ones = full(tuple(bias.shape), 1.0, x.device, bias.dtype)
        weight = Tensor(data=ones, device=x.device, requires_grad=False)
    return op(x, weight, bias)[0]


def lrn(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Local response normalisation: x / (k + alpha / size · Σ x²)^beta, summed over `size`
    neighbouring channels. Krizhevsky et al. 2012.

    Raises ValueError for a size below 1.

    >>> x = tensor.ones((1, 3, 1))
    >>> autograd.lrn(x, 3, alpha=3.0, beta=1.0).reshape((3,))
    Tensor([0.3333, 0.25  , 0.3333], dtype=float32)
    """
    return LRN(size, alpha, beta, k)(x)[0]

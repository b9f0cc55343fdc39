"""Batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..raw.check import flag
from ..tape import batch_statistics
from ..tape.elements import as_raw
from ..tape.grad_mode import training as is_training
from ..tape.tensor import Tensor
from .base import BuiltinOperator

if TYPE_CHECKING:
    from ..tape.operator import Raw


#: Activations of batch norm, by the name of the function that each is: kind, limits.
ACTIVATIONS = {
    "relu": (_c.ActivationKind_kRelu, 0.0, 0.0),
    "relu6": (_c.ActivationKind_kClip, 0.0, 6.0),
    "hardswish": (_c.ActivationKind_kHardSwish, 0.0, 0.0),
    "silu": (_c.ActivationKind_kSilu, 0.0, 0.0),
}
_NONE = (_c.ActivationKind_kNone, 0.0, 0.0)


def _chosen(relu: bool, activation: str | None) -> tuple[int, float, float]:
    """The activation of a batch norm with these arguments."""
    if relu is not False:
        relu = flag("BatchNorm2d", "relu", relu)
    if activation is not None and (relu or activation not in ACTIVATIONS):
        raise ValueError(
            "[BatchNorm2d] activation must be None with relu, else one of "
            f"{sorted(ACTIVATIONS)}, got {activation!r}"
        )
    name = "relu" if relu else activation
    return ACTIVATIONS[name] if name else _NONE


class _BatchNorm2d(BuiltinOperator):
    """Batch normalisation of x (N, C, ...) over all axes except 1, with scale and bias (C).

    An optional residual `add` of x's shape is added to the result, and ReLU (`relu`) or another
    activation is applied to that: "relu", "relu6", "hardswish" or "silu". With a residual it must
    be ReLU or none. In training, mean and variance are those of the batch, and the running
    statistics are updated in place. In inference the running statistics are used.
    """

    fresh_gradients = True

    def __init__(
        self,
        handle: _c.BatchNormHandle,
        running_mean: Any,
        running_var: Any,
        name: str | None = None,
        relu: bool = False,
        activation: str | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self.handle = handle
        self.running_mean = None if running_mean is None else as_raw(running_mean)
        self.running_var = None if running_var is None else as_raw(running_var)
        self.activation = _chosen(relu, activation)
        self._batch = self._adds = False

    def forward(self, x: Raw, scale: Raw, bias: Raw, add: Raw | None = None) -> Raw:
        self._batch = is_training()
        self._expect(add)
        running = self.running_mean, self.running_var
        collector = batch_statistics.state.collector if self._batch else None
        updated = running if collector is None else (None, None)
        arguments = self.handle, x, scale, bias, *updated, add, self.activation
        if self._batch:
            if collector is None and x.size() == scale.size():
                raise ValueError(
                    "[BatchNorm] training needs several values for each channel, got x of shape "
                    f"{tuple(x.shape())}: choose another batch size, leave out a short last batch "
                    "by data.DataLoader(..., drop_last=True), or layer.freeze_statistics(net)"
                )
            y, mean, var = _c.BatchNormForwardTraining(*arguments)
            statistics = mean, var
            if collector is not None and None not in running:
                seen = *running, mean, var, x.size() // x.shape()[1], self.handle.factor
                collector.append(batch_statistics.BatchStatistics(*seen))
        else:
            y = _c.BatchNormForwardInference(*arguments)
            statistics = running
        self.save(x, scale, *statistics, *self._of_activation(bias, y))
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        backward = _c.BatchNormBackward if self._batch else _c.BatchNormBackwardInference
        *inputs, bias, y = self.load()
        need_scale = self._need(1) or self._need(2)
        need_add = self._adds and self._need(3)
        gradients = backward(
            self.handle, dy, *inputs, self._need(0), need_scale, self.activation, bias, y, need_add
        )
        return (*gradients, None) if self._adds and not need_add else gradients

    def _expect(self, add: Raw | None) -> None:
        """Notes whether there is a residual."""
        self._adds = add is not None
        # Without an activation the gradient of the residual is dy itself.
        self.fresh_gradients = self.activation is not _NONE or not self._adds

    def _of_activation(self, bias: Raw, y: Raw) -> tuple[Raw | None, Raw | None]:
        """The bias and the result, where backward of the activation needs them.

        Backward computes the argument of the activation again from x, scale, bias and statistics.
        With a residual, the sign of y is enough, since the activation is ReLU.
        """
        if self.activation is _NONE:
            return None, None
        return (None, y) if self._adds else (bias, None)


class _SyncBatchNorm2d(_BatchNorm2d):
    """`_BatchNorm2d` in training, with the statistics of the batches of all ranks.

    Each rank contributes mean, variance and number of its own values, which are merged in the order
    of the ranks (Chan, Golub & LeVeque 1983, "Algorithms for Computing the Sample Variance"), so
    all ranks have the same statistics, and no cancellation occurs. Backward adds the ranks' sums of
    dy and of dy · x̂. The gradients of scale and bias are those of this rank's values.
    """

    def __init__(
        self,
        handle: _c.BatchNormHandle,
        running_mean: Any,
        running_var: Any,
        communicator: Any,
        relu: bool = False,
        activation: str | None = None,
    ) -> None:
        super().__init__(handle, running_mean, running_var, relu=relu, activation=activation)
        self.communicator = communicator

    def forward(self, x: Raw, scale: Raw, bias: Raw, add: Raw | None = None) -> Raw:
        self._expect(add)
        mean, var, count = self._statistics(x)
        self._update(self.running_mean, mean)
        if self.running_var is not None:
            others = _c.Binary(_c.BinaryOp_kMax, _add_number(count, -1.0), _full_like(count, 1.0))
            unbiased = _c.Binary(_c.BinaryOp_kDiv, _product(var, count), others)
            self._update(self.running_var, unbiased)
        y = _c.BatchNormForwardInference(
            self.handle, x, scale, bias, mean, var, add, self.activation
        )
        self.save(x, scale, mean, var, count, *self._of_activation(bias, y))
        return y

    def backward(self, dy: Raw) -> tuple[Raw | None, ...]:
        x, scale, mean, var, count, bias, y = self.load()
        need_add = self._adds and self._need(3)
        # The gradients as if mean and variance were constants, and this rank's sums.
        dx, dscale, dbias, *dadd = _c.BatchNormBackwardInference(
            self.handle,
            dy,
            x,
            scale,
            mean,
            var,
            self._need(0),
            True,
            self.activation,
            bias,
            y,
            need_add,
        )
        if self._need(0):
            wide = mean.data_type()
            flat = (self.handle.channels,)
            sums = _c.Concat([part.Reshape(flat).AsType(wide) for part in (dscale, dbias)], 0)
            self.communicator.all_reduce([sums])
            # What the mean and the variance contribute: two numbers for each channel, which are
            # applied as an affine normalisation with dx as its residual.
            deviation = _c.Unary(_c.UnaryOp_kSqrt, _add_number(var, self.handle.epsilon))
            deviation = _c.Unary(_c.UnaryOp_kNegative, deviation)
            wide_scale = scale.Reshape(flat).AsType(wide)
            factor = _c.Binary(_c.BinaryOp_kDiv, wide_scale, _product(deviation, count))
            by_x, by_one = (_product(part, factor) for part in _c.Split(sums, 0, 2 * flat))
            dx = _c.BatchNormForwardInference(self.handle, x, by_x, by_one, mean, var, dx)
        gradients = (dx, dscale, dbias)
        return (*gradients, dadd[0] if need_add else None) if self._adds else gradients

    def _statistics(self, x: Raw) -> tuple[Raw, Raw, Raw]:
        """Mean and biased variance (C) over all ranks, and the number (1) of values per channel."""
        none = None
        _, mean, var = _c.BatchNormForwardTraining(self.handle, x, none, none, none, none)
        count = x.size() // max(self.handle.channels, 1)
        if count == 0:  # of an empty batch the statistics are undefined
            mean, var = _full_like(mean, 0.0), _full_like(var, 0.0)
        own = _c.Concat([mean, var, _c.Full((1,), count, x.device(), mean.data_type())], 0)
        of_ranks = self.communicator.all_gather(own)
        channels = self.handle.channels
        means, variances, counts = _c.Split(of_ranks, 1, [channels, channels, 1])
        total = _c.Reduce(_c.ReduceOp_kSum, counts, (0,), False)
        weights = _c.Binary(_c.BinaryOp_kDiv, counts, total)
        mean = _c.Reduce(_c.ReduceOp_kSum, _product(weights, means), (0,), False)
        away = _c.Unary(_c.UnaryOp_kSquare, _c.Binary(_c.BinaryOp_kSub, means, mean))
        spread = _c.Binary(_c.BinaryOp_kAdd, variances, away)
        var = _c.Reduce(_c.ReduceOp_kSum, _product(weights, spread), (0,), False)
        return mean, var, total

    def _update(self, running: Raw | None, batch: Raw) -> None:
        if running is not None:
            change = _c.Binary(_c.BinaryOp_kSub, batch.Reshape(running.shape()), running)
            _c.Axpy(self.handle.factor, change, running)


def _product(a: Raw, b: Raw) -> Raw:
    return _c.Binary(_c.BinaryOp_kMul, a, b)


def _add_number(x: Raw, number: float) -> Raw:
    return _c.Unary(_c.UnaryOp_kAddScalar, x, number)


def _full_like(x: Raw, number: float) -> Raw:
    return _c.Full(x.shape(), number, x.device(), x.data_type())


def batchnorm_2d(
    handle: _c.BatchNormHandle,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    add: Tensor | None = None,
    relu: bool = False,
    activation: str | None = None,
) -> Tensor:
    """Batch normalisation of x (N, C, ...) over all axes except 1. Ioffe & Szegedy 2015.

    handle                     singa_wrap.BatchNormHandle: momentum and eps
    scale, bias                parameters (C)
    running_mean, running_var  running statistics (C), which training updates in place
    add                        optional residual of x's shape, added to the result
    relu                       apply ReLU to the sum (default False)
    activation                 instead of `relu`, a function to apply to the result: "relu",
                               "relu6", "hardswish" or "silu" (default None). Behind a residual it
                               must be "relu" or None.

    `relu(bn(x) + add)` in one operation reads and writes each tensor once. `autograd.training`
    chooses between the statistics of the batch and the running statistics.

    Raises ValueError for parameters of another length than the channels of x, and in training for
    x with one value for each channel, whose variance is 0.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=np.arange(4).reshape(4, 1, 1, 1))
    >>> handle = singa_wrap.BatchNormHandle(0.9, x.data)
    >>> one, zero = tensor.ones((1,)), tensor.zeros((1,))
    >>> mean, var = tensor.zeros((1,)), tensor.ones((1,))
    >>> autograd.training = True
    >>> autograd.batchnorm_2d(handle, x, one, zero, mean, var).reshape((4,))
    Tensor([-1.3416, -0.4472,  0.4472,  1.3416], dtype=float32)
    >>> mean
    Tensor([1.35], dtype=float32)
    """
    op = _BatchNorm2d(handle, running_mean, running_var, relu=relu, activation=activation)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]


def sync_batchnorm_2d(
    handle: _c.BatchNormHandle,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    communicator: Any | None,
    add: Tensor | None = None,
    relu: bool = False,
    activation: str | None = None,
) -> Tensor:
    """`batchnorm_2d` with mean and variance over the batches of all ranks of `communicator`; None:
    there are no other ranks.

    The batches may have different sizes, also 0 where another rank has images. All ranks update
    their running statistics alike. In inference no rank waits for another. Raises ValueError in a
    step of a DistOpt with `virtual_ranks` of which a rank has several.

    >>> from singa import singa_wrap
    >>> x = tensor.Tensor(data=np.arange(4).reshape(4, 1, 1, 1))
    >>> handle = singa_wrap.BatchNormHandle(0.9, x.data)
    >>> one, zero = tensor.ones((1,)), tensor.zeros((1,))
    >>> mean, var = tensor.zeros((1,)), tensor.ones((1,))
    >>> autograd.training = True
    >>> autograd.sync_batchnorm_2d(handle, x, one, zero, mean, var, None).reshape((4,))
    Tensor([-1.3416, -0.4472,  0.4472,  1.3416], dtype=float32)
    """
    if is_training() and batch_statistics.state.shards_apart:
        raise ValueError(
            "[SyncBatchNorm] its statistics are those of the shards that the ranks compute at "
            "once, so they would depend on the number of ranks. With virtual_ranks, take "
            "BatchNorm2d or as many ranks as virtual ones"
        )
    if not is_training() or communicator is None or communicator.world_size == 1:
        return batchnorm_2d(
            handle, x, scale, bias, running_mean, running_var, add, relu, activation
        )
    op = _SyncBatchNorm2d(handle, running_mean, running_var, communicator, relu, activation)
    return op(x, scale, bias)[0] if add is None else op(x, scale, bias, add)[0]

"""Normalisation, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ... import autograd, singa_wrap
from ...dtypes import bool_, wide_type
from ...networks.errors import Refused
from ...ops.reduction import softmax_along
from ...tape.grad_mode import enable_grad, is_recording, no_grad, set_training, training
from ...tensor import Tensor
from .registry import Call, along_axis, computes, in_type_of_result


@contextmanager
def _behaving(in_training: bool) -> Iterator[None]:
    """Operators behave as in training, or as in inference. What the tape records stays."""
    before = training()
    with enable_grad() if is_recording() else no_grad():
        set_training(in_training)
        try:
            yield
        finally:
            set_training(before)


def _normalised(
    call: Call,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    statistics: tuple[Tensor | None, Tensor | None],
    momentum: float,
    eps: float,
    fused: dict[str, Any],
) -> Tensor:
    channels = x.shape[1]
    handle = call.kept.get(channels)
    if handle is None:
        handle = call.kept[channels] = singa_wrap.BatchNormHandle(momentum, x.data, eps)
    kind = wide_type(x.dtype)

    def constant(value: float) -> Tensor:
        array = call.run.made(
            (call.node.name, value, channels, kind.name),
            lambda: np.full(channels, value, kind.name),
        )
        return call.run.tensor(array)

    def wide(value: Tensor | None) -> Tensor | None:
        """In a module of 16-bit floats, in the type in which norms compute."""
        return value if value is None or value.dtype == kind else autograd.cast(value, kind)

    scale = constant(1.0) if scale is None else wide(scale)
    bias = constant(0.0) if bias is None else wide(bias)
    mean, var = (wide(each) for each in statistics)
    y = autograd.batchnorm_2d(handle, x, scale, bias, mean, var, **fused)  # type: ignore[arg-type]
    for own, used in zip(statistics, (mean, var), strict=True):
        if own is not None and own is not used and training():
            own.data.CopyFrom(used.data.AsType(int(own.dtype)))  # type: ignore[union-attr]
    return y


@computes("_native_batch_norm_legit_functional")
def batch_norm_in_training(
    call: Call,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    in_training: bool,
    momentum: float,
    eps: float,
    **fused: Any,
) -> Tensor:
    """Batch norm by statistics of the batch, which updates the running ones in place."""
    if not in_training or call.forced:
        raise Refused(
            "batch norm that updates running statistics in inference: give F.batch_norm "
            "training=self.training"
        )
    return _normalised(call, x, scale, bias, (mean, var), momentum, eps, fused)


@computes("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    call: Call,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    in_training: bool,
    momentum: float,
    eps: float,
    **fused: Any,
) -> Tensor:
    """Batch norm by statistics of the batch, in inference, too."""
    with _behaving(True):
        return _normalised(call, x, scale, bias, (None, None), momentum, eps, fused)


@computes("_native_batch_norm_legit_no_training")
def batch_norm_in_inference(
    call: Call,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
    **fused: Any,
) -> Tensor:
    """Batch norm by running statistics, in training, too."""
    with _behaving(False):
        return _normalised(call, x, scale, bias, (mean, var), 0.1, eps, fused)


#: Operators to which an activation behind them may be given.
BATCH_NORMS = (
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit.no_stats",
    "_native_batch_norm_legit_no_training",
)


@computes("layer_norm")
def layer_norm(
    call: Call,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Normalisation over the last axes."""
    return autograd.layer_norm(x, weight, bias, -len(shape), eps)


@computes("native_layer_norm")
def native_layer_norm(
    call: Call,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    """Normalisation over the last axes."""
    return autograd.layer_norm(x, weight, bias, -len(shape), eps)


@computes("rms_norm", "_fused_rms_norm")
def rms_norm(
    call: Call,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x divided by its root mean square over the last axes."""
    return autograd.rms_norm(x, weight, -len(shape), eps)


@computes("group_norm")
def group_norm(
    call: Call,
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalisation of groups of channels."""
    return autograd.group_norm(x, groups, weight, bias, eps)


@computes("native_group_norm")
def native_group_norm(
    call: Call,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    c: int,
    size: int,
    groups: int,
    eps: float,
) -> Tensor:
    """Normalisation of groups of channels."""
    return autograd.group_norm(x, groups, weight, bias, eps)


@computes("instance_norm")
def instance_norm(
    call: Call,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """Normalisation of each channel of each image."""
    if not use_input_stats:
        assert mean is not None
        assert var is not None
        return batch_norm_in_inference(call, x, weight, bias, mean, var, momentum, eps)
    if mean is not None or var is not None:  # PyTorch's graphs do not say that they change
        raise Refused(
            "instance norm that updates running statistics: give it track_running_stats=False"
        )
    return autograd.instance_norm(x, weight, bias, eps)


@computes("softmax.int", "_softmax")
@along_axis
def softmax(call: Call, x: Tensor, axis: int, kind: Any = None) -> Tensor:
    """Softmax along an axis."""
    return softmax_along(in_type_of_result(call, x), axis)


@computes("_safe_softmax")
@along_axis
def safe_softmax(call: Call, x: Tensor, axis: int, dtype: Any = None) -> Tensor:
    """Softmax along an axis; 0 where all elements are -inf."""
    x = in_type_of_result(call, x)
    is_below = autograd.cast(autograd.equal(x, -math.inf), bool_)
    is_empty = autograd.all(is_below, (axis,), True)
    zero = call.run.number(0.0, x)
    return autograd.where(zero, softmax_along(autograd.where(zero, x, is_empty), axis), is_empty)


@computes("log_softmax.int", "_log_softmax")
@along_axis
def log_softmax(call: Call, x: Tensor, axis: int, kind: Any = None) -> Tensor:
    """Logarithm of softmax along an axis."""
    return autograd.log_softmax(in_type_of_result(call, x), axis)


@computes("native_dropout", "dropout")
def dropout(call: Call, x: Tensor, p: float, in_training: Any = True) -> Tensor:
    """Dropout."""
    if not in_training or not p:
        return x
    if p >= 1:
        return x * 0.0
    if call.forced:
        with _behaving(True):
            return autograd.dropout(x, ratio=p)
    return autograd.dropout(x, ratio=p)


@computes("bernoulli.p")
def bernoulli(call: Call, x: Tensor, p: float = 0.5) -> Tensor:
    """1 with probability p, else 0, in the shape of x."""
    ones = np.ones(x.shape, np.float32)
    kept = call.run.tensor(call.run.made((call.node.name, tuple(x.shape)), lambda: ones))
    if p <= 0 or p >= 1:
        drawn = kept * float(p >= 1)
    elif call.forced:
        with _behaving(True):
            drawn = autograd.dropout(kept, ratio=1 - p)
    else:
        drawn = autograd.dropout(kept, ratio=1 - p)
    return autograd.cast(drawn > 0, x.dtype).detach()

"""Batch normalisation."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable
from typing import Any, ClassVar

from .. import autograd, distributed, singa_wrap
from ..dtypes import wide_type
from ..raw.check import fraction, integer, integers, number
from ..raw.words import spelled
from ..tape.grad_mode import enable_grad, is_recording, no_grad, set_training, training
from ..tensor import Tensor
from .base import Layer
from .creation import take_room

#: What torch.nn.BatchNorm2d takes by position after num_features.
_BEHIND_FEATURES = ("eps", "momentum", "affine", "track_running_stats")
#: What is smaller, as a second argument, is meant for an eps.
_LEAST_MOMENTUM = 0.01


def _takes_pytorchs_form(cls: type) -> type:
    """A class decorator: BatchNorm2d also takes the arguments of PyTorch's. Its second one by
    position is eps, and SINGA's the momentum: a number too small for one is refused."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if "num_features" in kwargs and not args:
            args = (kwargs.pop("num_features"),)
        others = args[1:]
        has_momentum = "momentum" in kwargs or len(others) > 1
        if has_momentum and 0 < len(others) <= len(_BEHIND_FEATURES):
            for name, value in zip(_BEHIND_FEATURES, others, strict=False):
                if name in kwargs:
                    raise TypeError(f"[{type(self).__name__}] {name} is given twice")
                kwargs[name] = value
            args = args[:1]
        elif len(others) == 1 and isinstance(eps := others[0], float) and 0 < eps < _LEAST_MOMENTUM:
            raise ValueError(
                f"[{type(self).__name__}] the second argument is the momentum, as in SINGA, and "
                f"PyTorch's is eps: write eps={eps} or momentum={eps}"
            )
        init(self, *args, **kwargs)

    cls.__init__ = __init__  # type: ignore[misc]
    return cls


@_takes_pytorchs_form
@spelled(track_running_stats=(True,), bias=(True,))
class BatchNorm2d(Layer):
    """Batch normalisation of x (N, C, ...) over all axes except 1. Ioffe & Szegedy 2015.

    y = scale · (x - mean) / sqrt(var + eps) + bias, where scale and bias have shape (C).

    momentum   weight of the new batch in the running statistics (default 0.9, as in SINGA; PyTorch
               and the networks of `singa.models` use 0.1)
    eps        added to the variance (default 1e-5)
    fix_scale  do not train the scale; it stays 1 (default False)
    affine     False: scale and bias stay 1 and 0, and are no parameters (default True)

    In training, mean and variance are those of the batch, and the running statistics are updated:
    running = (1 - momentum) · running + momentum · batch. In inference the running statistics are
    used; with `frozen_statistics` (see `freeze_statistics`) in training, too, and they stay.
    `bn(x, add=z, relu=True)` computes `relu(bn(x) + z)` in one operation, and
    `bn(x, activation="silu")` `silu(bn(x))`; see `autograd.batchnorm_2d`.

    Parameters and statistics are float32 (float64 for float64 inputs), and so are the sums; x may
    also have 16 bits, and y has the type of x.

    SINGA's older form `BatchNorm2d(channels[, momentum])` works, too, and so does PyTorch's
    `BatchNorm2d(num_features, eps, momentum[, affine])`. Raises ValueError for values outside their
    range, for a second argument that is small enough for an eps, if the input does not have the
    expected number of channels, and in training if it has one value for each; TypeError for an
    input of float64 if the parameters are float32, and the other way round.

    >>> norm = layer.BatchNorm2d(momentum=0.1)
    >>> autograd.training = True
    >>> y = norm(tensor.Tensor(data=np.arange(8).reshape(8, 1, 1, 1)))
    >>> y.mean(), y.std(correction=0)
    (Tensor(0., dtype=float32), Tensor(1., dtype=float32))
    >>> list(norm.get_params()), list(norm.get_states())
    (['scale', 'bias'], ['scale', 'bias', 'running_mean', 'running_var'])
    """

    state_names: ClassVar[tuple[str, ...]] = ("running_mean", "running_var")
    transient: ClassVar[tuple[str, ...]] = ("handle",)
    fixed_settings = ("channels", "affine")
    handle_settings = ("momentum", "eps", "fix_scale")
    scale: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    input_types = "narrow"
    _apply: ClassVar[Callable[..., Tensor]] = staticmethod(autograd.batchnorm_2d)

    def __init__(
        self,
        *args: Any,
        momentum: float = 0.9,
        eps: float = 1e-5,
        fix_scale: bool = False,
        affine: bool = True,
    ) -> None:
        super().__init__()
        if len(args) > 2:
            raise TypeError(f"[BatchNorm2d] expected at most channels and momentum, got {args}")
        self.channels: int | None = args[0] if args else None
        self.momentum = args[1] if len(args) == 2 else momentum
        self.eps = eps
        self.fix_scale = fix_scale
        self.affine: bool = bool(affine)
        self.handle: Any = None

    @property
    def frozen_statistics(self) -> bool:
        """Whether training uses the running statistics and leaves them as they are."""
        return "_apply" in self.__dict__

    @frozen_statistics.setter
    def frozen_statistics(self, frozen: bool) -> None:
        # Calls of other batch norms do not look for it.
        self.__dict__.pop("_apply", None)
        if frozen:
            self.__dict__["_apply"] = functools.partial(_as_in_inference, type(self)._apply)

    def _checked_setting(self, name: str, value: Any) -> Any:
        if name == "momentum":
            return fraction("BatchNorm2d", name, value)
        if name == "eps":
            eps = number("BatchNorm2d", name, value)
            if not 0.0 <= eps < float("inf"):
                raise ValueError(f"[BatchNorm2d] eps must be finite and not negative, got {value}")
            return eps
        if name == "fix_scale" and self._initialized:
            self.scale.requires_grad = self.affine and not value
        return value

    def initialize(
        self,
        x: Tensor,
        add: Tensor | None = None,
        relu: bool = False,
        activation: str | None = None,
    ) -> None:
        channels = x.shape[1] if len(x.shape) > 1 else 0
        if not channels or (self.channels is not None and self.channels != channels):
            raise ValueError(
                f"[{self.title}] expected (batch, {self.channels or 'channels'}, ...), got "
                f"{tuple(x.shape)}"
            )
        self.channels = channels
        wide = wide_type(x.dtype)
        for attribute, value in (
            ("scale", 1.0),
            ("bias", 0.0),
            ("running_mean", 0.0),
            ("running_var", 1.0),
        ):
            trained = self.affine and attribute not in self.state_names
            if trained or attribute in self.state_names:  # a file has them
                take_room(self, (channels,))
            values = Tensor((channels,), x.device, wide, requires_grad=trained, stores_grad=trained)
            setattr(self, attribute, values.set_value(value))
        self.scale.requires_grad = self.affine and not self.fix_scale

    def _own_tensors(self) -> list[Tensor]:
        constant = self._initialized and not self.affine
        return [*super()._own_tensors(), *([self.scale, self.bias] if constant else [])]

    def forward(
        self,
        x: Tensor,
        add: Tensor | None = None,
        relu: bool = False,
        activation: str | None = None,
    ) -> Tensor:
        if self.handle is None:
            self.handle = singa_wrap.BatchNormHandle(self.momentum, x.data, self.eps)
        return self._apply(
            self.handle,
            x,
            self.scale,
            self.bias,
            self.running_mean,
            self.running_var,
            add=add,
            relu=relu,
            activation=activation,
        )


def _as_in_inference(apply: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor:
    """`apply(*args, **options)` with running statistics, recorded on the tape if it records."""
    before = training()
    with enable_grad() if is_recording() else no_grad():
        set_training(False)
        try:
            return apply(*args, **options)
        finally:
            set_training(before)


def freeze_statistics(root: Layer, pattern: str = "*", frozen: bool = True) -> None:
    """Has batch norms use their running statistics in training, too, and leave them as they are; or
    ends that, with frozen=False. As eval() of PyTorch's layers alone, for training the last layers
    of a network.

    pattern  which layers: paths as `root.named_layers()` has them, in which * and ? match as in
             file names (default: all)

        net.freeze("layer[12].*")
        layer.freeze_statistics(net, "layer[12].*")

    Raises ValueError for a pattern that selects no batch norm.

    >>> net = layer.Sequential(layer.Conv2d(4, 1), layer.BatchNorm2d())
    >>> net(tensor.ones((1, 3, 2, 2))).shape
    (1, 4, 2, 2)
    >>> layer.freeze_statistics(net)
    """
    selected = [
        each
        for path, each in root.named_layers()
        if isinstance(each, BatchNorm2d) and fnmatch.fnmatchcase(path, pattern)
    ]
    if not selected:
        raise ValueError(f"[freeze_statistics] no batch norm matches {pattern!r} in {root.title}")
    for each in selected:
        each.frozen_statistics = frozen


@spelled("track_running_stats", track_running_stats=(True,), bias=(True,))
class BatchNorm1d(BatchNorm2d):
    """BatchNorm2d of x (N, C) or (N, C, L), with the arguments and defaults of
    torch.nn.BatchNorm1d.

    Raises ValueError for other shapes, and values outside their range.

    >>> layer.BatchNorm1d(3)(tensor.ones((2, 3))).shape
    (2, 3)
    """

    _axes: ClassVar[tuple[int, ...]] = (2, 3)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
    ) -> None:
        super().__init__(num_features, momentum=momentum, eps=eps, affine=affine)

    def initialize(self, x: Tensor, *others: Any, **options: Any) -> None:
        if len(x.shape) not in self._axes:
            wanted = " or ".join(map(str, self._axes))
            raise ValueError(f"[{self.title}] expected {wanted} axes, got {tuple(x.shape)}")
        super().initialize(x, *others, **options)


class BatchNorm3d(BatchNorm1d):
    """BatchNorm2d of x (N, C, D, H, W), with the arguments and defaults of torch.nn.BatchNorm3d.

    Raises ValueError for other shapes, and values outside their range.

    >>> layer.BatchNorm3d(3)(tensor.ones((2, 3, 1, 2, 2))).shape
    (2, 3, 1, 2, 2)
    """

    _axes = (5,)


def _sync_batchnorm(handle: Any, x: Tensor, *states: Tensor, **options: Any) -> Tensor:
    """The batch norm of all ranks together; that of this process in a job of one rank."""
    scale, bias, mean, var = states
    ranks = distributed.communicator() if distributed.world_size() > 1 else None
    return autograd.sync_batchnorm_2d(handle, x, scale, bias, mean, var, ranks, **options)


class SyncBatchNorm(BatchNorm2d):
    """BatchNorm2d with the statistics of the batches of all ranks together.

    For small batches a rank. All ranks have to run the layer in the same order. Arguments are those
    of BatchNorm2d, and so are the names of its states: checkpoints fit both. The communicator is
    `singa.distributed`'s. In a job of one rank, and in inference, it is BatchNorm2d.

    >>> norm = layer.SyncBatchNorm2d()
    >>> norm(tensor.ones((2, 3, 4, 4))).shape  # in a process of its own, as BatchNorm2d
    (2, 3, 4, 4)
    """

    _apply = staticmethod(_sync_batchnorm)


#: The name that says for which images it is.
SyncBatchNorm2d = SyncBatchNorm


class _Norm(Layer):
    """Normalisation by statistics of each sample, with a weight and, if wanted, a bias. Both are
    float32 (float64 for float64 inputs), and so are the sums; x may also have 16 bits."""

    input_types = "narrow"
    fixed_settings = ("shape", "affine", "has_bias")
    weight: Tensor
    bias: Tensor | None

    def __init__(self, shape: tuple[int, ...], eps: float, affine: bool, bias: bool) -> None:
        super().__init__()
        self.shape = shape
        self.eps: float = eps if eps is None else number(type(self).__name__, "eps", eps)
        self.affine: bool = bool(affine)
        self.has_bias: bool = bool(affine and bias)

    def initialize(self, x: Tensor) -> None:
        wide = wide_type(x.dtype)
        for attribute, value, wanted in (
            ("weight", 1.0, self.affine),
            ("bias", 0.0, self.has_bias),
        ):
            if wanted:
                take_room(self, self.shape)
                made = Tensor(self.shape, x.device, wide, requires_grad=True, stores_grad=True)
                setattr(self, attribute, made.set_value(value))
            else:
                setattr(self, attribute, None)


class LayerNorm(_Norm):
    """(x - mean) / sqrt(var + eps) · weight + bias over the last axes. Ba, Kiros & Hinton 2016.

    normalized_shape: lengths of these axes, or of the last one. Names and defaults are those of
    torch.nn.LayerNorm. Weights and sums are float32 for 16-bit x, too. Raises ValueError where x
    ends in other lengths.

    >>> layer.LayerNorm(3)(tensor.Tensor(data=[[1.0, 2.0, 3.0]]))
    Tensor([[-1.2247,  0.    ,  1.2247]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        several = hasattr(normalized_shape, "__len__")
        lengths = normalized_shape if several else (normalized_shape,)
        shape = integers(name, "normalized_shape", lengths, 1)
        if not shape:
            raise ValueError(f"[{name}] normalized_shape must not be empty")
        super().__init__(shape, eps, elementwise_affine, bias)

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return autograd.layer_norm(x, self.weight, self.bias, -len(self.shape), self.eps)

    def _check(self, x: Tensor) -> None:
        if tuple(x.shape[-len(self.shape) :]) != self.shape:
            raise ValueError(
                f"[{self.title}] expected (..., {str(self.shape)[1:-1].rstrip(',')}), "
                f"got {tuple(x.shape)}"
            )


class RMSNorm(LayerNorm):
    """x / sqrt(mean(x²) + eps) · weight over the last axes. Zhang & Sennrich 2019.

    Names and defaults are those of torch.nn.RMSNorm: `eps` of None is the distance from 1 to the
    next float32.

    Raises ValueError where x ends in other lengths.

    >>> layer.RMSNorm(2)(tensor.Tensor(data=[[3.0, 4.0]]))
    Tensor([[0.8485, 1.1314]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine, False)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        self._check(x)
        return autograd.rms_norm(x, self.weight, -len(self.shape), self.eps)


class LayerNorm2d(_Norm):
    """LayerNorm of images (N, C, H, W) over the channels, at each pixel by itself.

    Channels-last images are not copied. The defaults are timm's, whose ConvNeXt uses it.

    Raises ValueError for another number of channels.

    >>> layer.LayerNorm2d(3)(tensor.ones((1, 3, 4, 4))).shape
    (1, 3, 4, 4)
    """

    def __init__(self, num_channels: int, eps: float = 1e-6, affine: bool = True) -> None:
        channels = integer("LayerNorm2d", "num_channels", num_channels, 1)
        super().__init__((channels,), eps, affine, True)

    def forward(self, x: Tensor) -> Tensor:
        return autograd.channel_norm(x, self.weight, self.bias, self.eps)


@spelled(bias=(True,))
class GroupNorm(_Norm):
    """Normalises (N, C, ...) by the statistics of groups of channels. Wu & He 2018.

    Names and defaults are those of torch.nn.GroupNorm. Raises ValueError where num_groups does not
    divide num_channels.

    >>> layer.GroupNorm(2, 4)(tensor.Tensor(data=[[[0.0], [1.0], [0.0], [9.0]]])).reshape((4,))
    Tensor([-1.,  1., -1.,  1.], dtype=float32)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        groups = integer("GroupNorm", "num_groups", num_groups, 1)
        channels = integer("GroupNorm", "num_channels", num_channels, 1)
        if channels % groups:
            raise ValueError(
                f"[GroupNorm] num_groups must divide num_channels, got {num_groups} and "
                f"{num_channels}"
            )
        super().__init__((channels,), eps, affine, True)
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        if len(x.shape) < 2 or x.shape[1] != self.shape[0]:
            raise ValueError(
                f"[{self.title}] expected (N, {self.shape[0]}, ...), got {tuple(x.shape)}"
            )
        return autograd.group_norm(x, self.groups, self.weight, self.bias, self.eps)


@spelled(
    *("momentum", "affine", "track_running_stats"),
    shared=2,
    momentum=...,
    track_running_stats=(False,),
    bias=(True,),
)
class InstanceNorm2d(GroupNorm):
    """Normalises each channel of each image by its own statistics. Ulyanov, Vedaldi & Lempitsky
    2016.

    Names and defaults are those of torch.nn.InstanceNorm2d, which has no weight and bias unless
    `affine`; running statistics are not kept.

    Raises ValueError for another number of channels.

    >>> layer.InstanceNorm2d(3)(tensor.ones((1, 3, 4, 4))).shape
    (1, 3, 4, 4)
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(num_features, num_features, eps, affine)

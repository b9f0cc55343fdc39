"""Loss scaling for gradients in float16 (Micikevicius et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import singa_wrap
from .._check import integer, number
from ..tensor import Tensor


class GradScaler:
    """Makes gradients larger on their way, so that they do not vanish in float16, with PyTorch's
    names, defaults and arithmetic (torch.amp.GradScaler).

        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9, scaler=opt.GradScaler()))
        net.compile([x], dtype="float16")

    Backward starts from `scale` instead of 1; the loss itself stays as it is. Before the update,
    and before clipping, gradients are divided by the scale. If one of them is infinite or NaN, the
    update is left out, the optimizer's step does not count, and the scale is multiplied by
    `backoff_factor`. After `growth_interval` updates in a row without that it is multiplied by
    `growth_factor`, up to the largest float32. A scaler belongs to one optimizer, whose state and
    checkpoints contain its own.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        for name, value, low, high in (
            ("init_scale", init_scale, 0.0, math.inf),
            ("growth_factor", growth_factor, 1.0, math.inf),
            ("backoff_factor", backoff_factor, 0.0, 1.0),
        ):
            if not low < number("GradScaler", name, value) < high:
                raise ValueError(f"[GradScaler] {name} must be in ({low:g}, {high:g}): {value}")
        self._scale = _as_float32(init_scale)
        self._growth_factor = float(growth_factor)
        self._backoff_factor = float(backoff_factor)
        self._growth_interval = integer("GradScaler", "growth_interval", growth_interval, 1)
        self._growth_tracker = 0
        self._seeds: dict[Any, Tensor] = {}

    def get_scale(self) -> float:
        """The present scale."""
        return self._scale

    def seed(self, loss: Tensor) -> Tensor:
        """The gradient with which backward from `loss` starts: the scale, in a tensor that stays
        the same, so that recorded steps see it change."""
        key = (tuple(loss.shape), loss.dtype, loss.device.id())
        if key not in self._seeds:
            seed = Tensor(loss.shape, loss.device, loss.dtype, requires_grad=False)
            self._seeds[key] = seed.set_value(self._scale)
        return self._seeds[key]

    def unscale(self, gradients: Sequence[Tensor]) -> bool:
        """Divides gradients by the scale, in place, unless one is infinite or NaN; says which, and
        updates the scale.

        Raises FloatingPointError when the scale has become too small: gradients that are infinite
        even then are so without it.
        """
        raw = [gradient.data for gradient in gradients]
        finite = math.isfinite(singa_wrap.GlobalNorm(raw))
        if finite:
            singa_wrap.ScaleAll(raw, 1.0 / self._scale)
        self._update(finite)
        return finite

    def _update(self, finite: bool) -> None:
        self._growth_tracker = self._growth_tracker + 1 if finite else 0
        scale = self._scale
        if not finite:
            scale = _as_float32(scale * self._backoff_factor)
            if scale < _SMALLEST:
                raise FloatingPointError(
                    f"[GradScaler] gradients are infinite or NaN at a scale of {self._scale:g}, "
                    "too: it is not float16 that makes them so"
                )
        elif self._growth_tracker == self._growth_interval:
            self._growth_tracker = 0
            larger = _as_float32(scale * self._growth_factor)
            scale = larger if math.isfinite(larger) else scale
        self._set_scale(scale)

    def _set_scale(self, scale: float) -> None:
        if scale == self._scale:
            return
        self._scale = scale
        for seed in self._seeds.values():
            seed.set_value(scale)

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval, and the updates since the last change: PyTorch's keys."""
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from what state_dict() returned, this one's or PyTorch's.

        Raises ValueError or TypeError, before anything is changed, for what is no such state.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"[GradScaler] a state has to be a dict, got {type(state_dict).__name__}"
            )
        if lacking := sorted(self.state_dict().keys() - state_dict.keys()):
            raise ValueError(f"[GradScaler] the state lacks {', '.join(lacking)}")
        names = ("growth_factor", "backoff_factor", "growth_interval")
        other = GradScaler(state_dict["scale"], *(state_dict[name] for name in names))
        tracker = integer("GradScaler", "_growth_tracker", state_dict["_growth_tracker"], 0)
        for name in names:
            setattr(self, f"_{name}", getattr(other, f"_{name}"))
        self._growth_tracker = tracker
        self._set_scale(other.get_scale())

    def __getstate__(self) -> dict[str, Any]:
        # The tensors belong to losses of this process.
        return {**self.__dict__, "_seeds": {}}


#: Below, float32 loses digits.
_SMALLEST = 2.0**-126


def _as_float32(value: float) -> float:
    """Rounded as it is where it is used."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))

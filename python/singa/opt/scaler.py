"""Loss scaling for gradients in float16 (Micikevicius et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import singa_wrap
from ..raw.check import integer, number
from ..tape.tensor import wrap
from ..tensor import Tensor, float64

if TYPE_CHECKING:
    from ..singa_wrap import Device


class GradScaler:
    """Dynamic loss scaling, so that small gradients do not vanish in float16 (Micikevicius et al.
    2018). Names, defaults and arithmetic are those of torch.amp.GradScaler.

        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9, scaler=opt.GradScaler()))
        net.compile([x], dtype="float16")

    Backward starts from the scale instead of 1; the loss itself is not scaled. Before clipping and
    update, gradients are divided by the scale. If one of them is infinite or NaN, the update is
    skipped: the optimizer's step does not count, and the scale is multiplied by `backoff_factor`.
    After `growth_interval` updates in a row without a skip it is multiplied by `growth_factor`, up
    to the largest float32. A scaler belongs to one optimizer. The optimizer's state and checkpoints
    contain the scaler's.

    Defaults: init_scale 65536, growth_factor 2, backoff_factor 0.5, growth_interval 2000. Raises
    ValueError for a scale that is not positive and finite, a growth factor of at most 1, a backoff
    factor outside (0, 1), and an interval below 1. A step raises FloatingPointError when gradients
    are infinite or NaN at the smallest scale, too.

    Scale and decision lie on the gradients' device. The device counts the updates that it makes,
    and picks their hyperparameters from a table of up to 256 updates (`HyperparameterTable`). The
    host waits for a GPU only when the table runs out, when a step is recorded or audited, and when
    `optimizer.steps` is read; that is also when it sees the FloatingPointError. It waits at each
    step for a user's optimizer, a user's schedule, and a scheduled weight decay.

    >>> scaler = opt.GradScaler(init_scale=1024.0)
    >>> gradients = [tensor.Tensor(data=[1024.0, 2048.0])]
    >>> scaler.unscale(gradients)
    True
    >>> gradients
    [Tensor([1., 2.], dtype=float32)]
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
        self._state = Tensor(data=np.array([_as_float32(init_scale), 0, 0, 0]), dtype=float64)
        self._growth_factor = float(growth_factor)
        self._backoff_factor = float(backoff_factor)
        self._growth_interval = integer("GradScaler", "growth_interval", growth_interval, 1)

    @property
    def state(self) -> Tensor:
        """Scale and counts, as `UpdateConditions::loss_scale` in singa/operation/optimizer.h."""
        return self._state

    @property
    def factors(self) -> tuple[float, float, int]:
        """growth_factor, backoff_factor and growth_interval."""
        return self._growth_factor, self._backoff_factor, self._growth_interval

    def get_scale(self) -> float:
        """The scale of the next step. Waits for the device.

        >>> opt.GradScaler(init_scale=1024.0).get_scale()
        1024.0
        """
        return float(self._state.numpy()[0])

    def made(self) -> int:
        """The number of updates so far, without skipped ones. Waits for the device."""
        return int(self._state.numpy()[2])

    def state_on(self, device: Device) -> singa_wrap.Tensor:
        """The raw `state`, moved to that device."""
        if self._state.device.id() != device.id():
            self._state.to_device(device)
        return self._state.data

    def is_on_host(self) -> bool:
        """Whether reading the state waits for no device."""
        return self._state.device.kind() == singa_wrap.DeviceKind_kCpu

    def seed(self, loss: Tensor) -> Tensor:
        """The gradient with which backward from `loss` starts: the scale."""
        scale = self.state_on(loss.device).SliceAxis(0, 0, 1).Reshape(())
        seed = singa_wrap.Tensor(loss.shape, loss.device, int(loss.dtype))
        seed.CopyFrom(scale)
        return wrap(seed, False)

    def unscale(self, gradients: Sequence[Tensor]) -> bool:
        """Divides gradients by the scale, in place, if all are finite, and updates the scale.

        Returns whether all are finite. Raises as `check` does.
        """
        raw = [gradient.data for gradient in gradients]
        self.state_on(gradients[0].device)
        squares = singa_wrap.SumsOfSquares(raw)
        finite = bool(np.isfinite(wrap(squares, False).numpy()).all())
        if finite:
            singa_wrap.ScaleAll(raw, 1.0 / self.get_scale())
        self.update(squares)
        self.check()
        return finite

    def update(self, squares: singa_wrap.Tensor) -> None:
        """Sets the next scale. `squares`: the gradients' sums of squares."""
        singa_wrap.UpdateLossScale(squares, self._state.data, *self.factors)

    def check(self) -> None:
        """Raises FloatingPointError when gradients are infinite or NaN and float32 has no smaller
        scale: the scale is not the cause."""
        scale, _, _, exhausted = self._state.numpy()
        if exhausted:
            raise FloatingPointError(
                f"[GradScaler] gradients are infinite or NaN at a scale of {scale:g}, "
                "too: it is not float16 that makes them so"
            )

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval, and updates since the last change, under PyTorch's keys.

        >>> opt.GradScaler(init_scale=1024.0).state_dict()["scale"]
        1024.0
        """
        scale, updates = self._state.numpy()[:2]
        return {
            "scale": float(scale),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(updates),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continues from a state_dict(), singa's or PyTorch's.

        Raises ValueError or TypeError for anything else. Nothing has changed then.

        >>> scaler = opt.GradScaler()
        >>> scaler.load_state_dict(opt.GradScaler(init_scale=1024.0).state_dict())
        >>> scaler.get_scale()
        1024.0
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"[GradScaler] a state must be a dict, got {type(state_dict).__name__}")
        if lacking := sorted(self.state_dict().keys() - state_dict.keys()):
            raise ValueError(f"[GradScaler] the state lacks {', '.join(lacking)}")
        names = ("growth_factor", "backoff_factor", "growth_interval")
        other = GradScaler(state_dict["scale"], *(state_dict[name] for name in names))
        tracker = integer("GradScaler", "_growth_tracker", state_dict["_growth_tracker"], 0)
        for name in names:
            setattr(self, f"_{name}", getattr(other, f"_{name}"))
        self._state.copy_from_numpy(np.array([other.get_scale(), tracker, self.made(), 0]))


def _as_float32(value: float) -> float:
    """Rounded to float32, the type in which the scale is used."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))

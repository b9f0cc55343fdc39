"""Calls of all functions of singa_wrap, one to three in a row, with arguments that mostly fit.

Each result is compared with that of the reference implementation. After each input, a training step
must give the same bits as before.
"""

from __future__ import annotations

import bisect
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from arguments import Arguments
from draw import Draw
from signatures import Function, constructors, functions, methods
from singa import singa_wrap as wrap
from singa import tensor
from targets import Finding, Target

# Their results depend on the implementation, or are uninitialised memory.
_NOT_COMPARED = frozenset(
    [
        *("ToBlocked", "Tensor", "Tensor.version", "Tensor.block_id"),
        # Questions about the layout, which is plain with reference kernels.
        *("Tensor.strides", "Tensor.is_blocked", "Tensor.layout_name", "Tensor.FillsBlock"),
        "Tensor.copied_bytes",
    ]
)
# Some implementations multiply the padding of an image, where NaN or infinity times 0 is NaN.
_PADDED = re.compile("Conv|Pool")
# Only the first result is compared; the others are for backward, in the implementation's own form.
_FIRST_ALONE = frozenset(["PoolingForward", "LrnForward", "RnnForward", "CpuPoolingForward"])
# These read what forward saved, so the same implementation must compute both.
_FED_BY_FORWARD = frozenset(["PoolingBackward", "LrnBackward", "RnnBackward", "CpuPoolingBackward"])


class RawCalls(Target):
    format = "draws"
    declared = (
        *(ValueError, TypeError, IndexError, ZeroDivisionError, RuntimeError),
        *(NotImplementedError, MemoryError),
    )

    def __init__(self) -> None:
        self._functions = functions() + methods(wrap.Tensor)
        self._functions.sort(key=_number)
        self._numbers = [_number(function) for function in self._functions]
        self._others = constructors()
        for kind in (wrap.Device, wrap.Recording, wrap.Graph, wrap.Arena, wrap.Recorder):
            self._others += methods(kind)
        self._canary = _canary()

    def run(self, data: bytes) -> str:
        self.tell("")
        small = True
        try:
            outcome, small, values = self._called(data, reference=False)
        finally:
            _reset()
            if _canary() != self._canary:
                self._canary = _canary()
                raise Finding(f"a later training step gives something else after {self.note}")
        if isinstance(outcome, MemoryError) and small:
            raise Finding(f"MemoryError of a small call: {outcome}")
        if values:
            self._compare(data, values)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _called(self, data: bytes, reference: bool) -> tuple[Any, bool, list[Any]]:
        """Returns (the exception, or the names called; True if all numbers were small; values and
        arguments)."""
        wrap.DefaultDevice().SetRandSeed(5)
        wrap.SetStrict(True)  # Winograd spreads NaN and rounding errors over its tiles
        if reference:
            wrap.SetPreference(wrap.Preference_kReference)
        draw, said, values, names = Draw(data), [], [], []
        arguments = Arguments(draw)
        try:
            for _ in range(draw.pick((1, 1, 2, 3))):
                function = self._pick(draw)
                before, arguments.said = len(arguments.tensors), []
                try:
                    made = self._arguments(function, arguments)
                finally:
                    said.append(f"{function.name}({', '.join(arguments.said)})")
                    self.tell("; ".join(said))
                result = function.call(*made)
                names.append(function.name)
                values += self._values(function, result, arguments.tensors[before:])
                found = [r for r in _flat(result) if isinstance(r, wrap.Tensor)]
                arguments.tensors += [r for r in found if r.size() < 1 << 18]
        except Exception as error:
            error.__traceback__ = None if reference else error.__traceback__
            return error, arguments.small, values
        return " ".join(names), arguments.small, values

    def _pick(self, draw: Draw) -> Function:
        if draw.chance(20):
            return draw.pick(self._others)
        # By a hash of the name, so that inputs keep their meaning when functions are added.
        place = bisect.bisect_left(self._numbers, draw.byte() << 8 | draw.byte())
        return self._functions[place % len(self._functions)]

    def _arguments(self, function: Function, arguments: Arguments) -> list[Any]:
        draw = arguments.draw
        kind = function.name.partition(".")[0] if "." in function.name else ""
        first = [arguments.object_of(kind)] if kind else []
        count = draw.between(function.needed, len(function.takes))
        takes = list(function.takes[:count])
        if draw.chance(60):
            takes.append(("any", ""))
        # First handles, which give shapes of tensors; then tensors, which give the range of axes.
        made: dict[int, Any] = {}
        for at in sorted(range(len(takes)), key=lambda at: _order(takes[at][0])):
            made[at] = arguments.make(*takes[at])
        return [*first, *(made[at] for at in range(len(takes)))]

    def _values(self, function: Function, result: Any, given: list[Any]) -> list[Any]:
        """Arrays and numbers to compare. Reading all results is part of the test."""
        flat = _flat(result)
        values = [_host(item) for item in flat]
        name = function.name
        if name in _FIRST_ALONE:
            values = values[:1]
        about_tensors = given or any(isinstance(item, wrap.Tensor) for item in flat)
        if name in _NOT_COMPARED or name in _FED_BY_FORWARD or not about_tensors:
            values = []
        return [(name, value) for value in (*values, *map(_host, given)) if value is not None]

    def _compare(self, data: bytes, values: list[Any]) -> None:
        note = self.note
        try:
            _, _, others = self._called(data, reference=True)
        finally:
            self.note = note
            _reset()
        # If only one of the two refuses a call, its list ends there.
        for (name, ours), (_, theirs) in zip(values, others, strict=False):
            if difference := differ(ours, theirs, spreads=bool(_PADDED.search(name))):
                raise Finding(f"{name} differs from reference: {difference}")


def differ(ours: Any, theirs: Any, loose: float = 1.0, spreads: bool = False) -> str:
    """How two results differ beyond rounding; "" if they do not. With `spreads`, elements that are
    not finite may be at different positions, but both results must have some, or neither."""
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        same = ours == theirs or (ours != ours and theirs != theirs)
        close = isinstance(ours, float) and abs(ours - theirs) <= 1e-4 * max(abs(ours), 1e-30)
        return "" if same or close else f"{ours!r:.40} and {theirs!r:.40}"
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape} and {theirs.shape}"
    if not ours.size:
        return ""
    if ours.dtype.kind not in "f":
        return (
            "" if (ours == theirs).all() else f"of {ours.dtype}: {ours.flat[:4]}, {theirs.flat[:4]}"
        )
    nans = np.isnan(theirs)
    if spreads and not np.isfinite(theirs).all() and not np.isfinite(ours).all():
        sound = np.isfinite(ours) & np.isfinite(theirs)
        ours, theirs, nans = ours[sound], theirs[sound], nans[sound]
        if not ours.size:
            return ""
    if (np.isnan(ours) != nans).any():
        at = tuple(int(i) for i in np.argwhere(np.isnan(ours) != nans)[0])
        return f"NaN in one of them at {at}: {ours[at]} and {theirs[at]}"
    with np.errstate(all="ignore"):
        finite = np.isfinite(theirs) & np.isfinite(ours)
        largest = float(np.abs(theirs[finite]).max(initial=0.0))
        # Whether a sum overflows may depend on its order.
        wild = (np.isfinite(ours) != np.isfinite(theirs)) & ~nans
        if wild.any() and largest < 1e30:
            at = tuple(int(i) for i in np.argwhere(wild)[0])
            return f"infinite in one of them at {at}: {ours[at]} and {theirs[at]}"
        wrong = np.abs(ours - theirs) > loose * _TOLERANCE * max(largest, 1e-3)
        wrong &= finite
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"at {at}: {ours[at]} and {theirs[at]}, largest {largest:.3g}"
    return ""


_TOLERANCE = 2e-3


def _order(kind: str) -> int:
    return 0 if kind.endswith("Handle") or kind == "Recorder" else 1 if "Tensor" in kind else 2


def _number(function: Function) -> int:
    return zlib.crc32(f"{function.name} {function.takes}".encode()) & 0xFFFF


def _flat(result: Any) -> list[Any]:
    if isinstance(result, list | tuple):
        return [item for part in result for item in _flat(part)]
    return [result]


def _host(value: Any) -> Any:
    if isinstance(value, wrap.Tensor):
        if value.empty() or value.size() > 1 << 20:
            return None
        rounds = value.data_type() in (wrap.kBFloat16, wrap.kFloat16)
        array = tensor.from_raw_tensor(value).numpy().astype(np.float64 if rounds else None)
        if not rounds:
            return array.copy()
        # Rounded to a few bits, because results may differ by rounding errors.
        with np.errstate(all="ignore"):
            top = np.abs(array[np.isfinite(array)]).max(initial=0.0) or 1.0
            return np.where(np.isfinite(array), np.round(array / top * 16) / 16 * top * 1e-3, array)
    if isinstance(value, np.ndarray):
        return value.copy()
    return value if isinstance(value, bool | int | float) else None


def _reset() -> None:
    """Resets the settings of the process."""
    for setting, value in _DEFAULTS:
        setting(value)
    wrap.ClearTuningChoices()
    wrap.ForgetMeasurements()
    wrap.TakeReorders()
    wrap.TakeProfile()
    wrap.TakeExplanations()
    wrap.DefaultDevice().SetRandSeed(5)
    if wrap.DefaultDevice().memory().reserved > 256 << 20:
        wrap.DefaultDevice().EmptyCache()


_DEFAULTS: tuple[tuple[Callable[[Any], Any], Any], ...] = (
    (wrap.SetPreference, wrap.GetPreference()),
    (wrap.SetStrict, wrap.IsStrict()),
    (wrap.SetFloat32Precision, wrap.GetFloat32Precision()),
    (wrap.SetDeterministic, wrap.IsDeterministic()),
    (wrap.SetPlainLayouts, wrap.PlainLayouts()),
    (wrap.EnablePlanCache, wrap.PlanCacheEnabled()),
    (wrap.SetProfiling, False),
    (wrap.SetExplaining, False),
    (wrap.RecordReorders, False),
    (wrap.SetCurrentLayer, ""),
)


def _canary() -> bytes:
    """A training step that uses global state: plans, statistics, random positions."""
    device = wrap.DefaultDevice()
    device.SetRandSeed(9)
    x = wrap.Full((2, 3, 6, 6), 0.25, device)
    w = wrap.Full((4, 3, 3, 3), 0.5, device)
    wrap.Gaussian(0.0, 1.0, x)
    handle = wrap.ConvHandle(x, [3, 3], [1, 1], [1, 1], 3, 4, False)
    y = wrap.ReLU(wrap.ConvForward(x, w, None, handle))
    dx = wrap.ConvBackwardX(y, w, handle)
    product = wrap.Mult(y.Reshape((2, 144)), y.Reshape((2, 144)).Transpose())
    return b"".join(tensor.from_raw_tensor(t).numpy().tobytes() for t in (y, dx, product))

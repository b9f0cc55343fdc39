"""Random programs of operators, trained and inferred in all ways that singa has to run one.

Recorded, fused and recomputed steps must give the bits of eager ones. Results with plain layouts,
the reference implementation or replayed inference may differ by the effect of a small change of the
input. Wherever eager execution gives NaN, all others must give NaN, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import singa
from draw import Draw
from operators import LARGEST, Step, draw_step
from raw_calls import differ
from singa import autograd, layer, model, opt, tensor
from singa import singa_wrap as wrap
from targets import Finding, Target

_CLEAN = (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError)
_TRAINED, _INFERRED = 5, 3


class Program(model.Model):
    """A program drawn from bytes. Steps that raise are left out."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        channels = draw.pick((3, 1, 8, 16, 4))
        size = draw.pick((6, 4, 9))
        self.input_shape = (3, channels, size, size + draw.below(2))
        self.steps: list[Step] = []
        self.fc = layer.Linear(3)
        x = tensor.from_numpy(np.linspace(-1, 1, int(np.prod(self.input_shape)), dtype=np.float32))
        values = [autograd.reshape(x, self.input_shape)]
        for _ in range(draw.between(1, 9)):
            if draw.ended() and self.steps:
                break
            step = draw_step(draw, [value.shape for value in values])
            try:
                with autograd.no_grad():
                    value = step.apply(*(values[i] for i in step.operands))
            except _CLEAN:
                continue
            if not 0 < value.size() <= LARGEST or value.dtype != tensor.float32:
                continue
            for part in step.layers:
                setattr(self, f"part{len(self.steps)}", part)
            self.steps.append(step)
            values.append(value)
        self.special = draw.pick((0.0, 0.0, float("nan"), float("inf"), -float("inf"), 1e38))
        self.rate = draw.pick((0.01, 0.1))
        self.optimizers = draw.below(3)
        self.rows = self._head(values[-1]).shape[0]

    @property
    def smooth(self) -> bool:
        return all(step.smooth for step in self.steps)

    def told(self) -> str:
        steps = ", ".join(f"{i + 1}: {s.name} of {s.operands}" for i, s in enumerate(self.steps))
        special = f"; {self.special} in the input" if self.special else ""
        return f"{self.input_shape} → {steps}{special}"

    def new_optimizer(self) -> Any:
        rate = self.rate * 0.1
        kinds = (
            lambda: opt.SGD(lr=rate, momentum=0.9, weight_decay=1e-3),
            lambda: opt.Adam(lr=rate),
            lambda: opt.SGD(lr=rate, clip_norm=1.0),
        )
        return kinds[self.optimizers]()

    def _head(self, x: Any) -> Any:
        return x if x.ndim() == 2 else autograd.reshape(x, (x.shape[0] if x.ndim() else 1, -1))

    def forward(self, x: Any) -> Any:
        values = [x]
        for step in self.steps:
            values.append(step.apply(*(values[i] for i in step.operands)))
        return self.fc(self._head(values[-1]))

    def train_one_batch(self, x: Any, y: Any) -> Any:
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


@dataclass
class _Way:
    """A way to run a program, and how its results are compared."""

    name: str
    graph: bool = False
    fuse: bool = False
    recompute: bool = False
    plain: bool = False
    reference: bool = False
    dtype: str | None = None
    nudge: float = 0.0


@dataclass
class _Results:
    outputs: list[np.ndarray]  # of the training steps: scores and loss in turn
    scores: list[np.ndarray]
    states: dict[str, np.ndarray]


class Programs(Target):
    format = "draws"
    declared = ()  # a program whose forward works must also train

    def run(self, data: bytes) -> str:
        self.tell("")
        executed = self._results(data, _Way("executed"))
        told = self.note
        for way in (
            _Way("recorded", graph=True),
            _Way("fused", graph=True, fuse=True),
            _Way("recomputed", graph=True, recompute=True),
        ):
            self._same(way.name, executed, self._results(data, way))
        lowered = self._lowered(data)
        for way in (
            _Way("bfloat16 recorded", graph=True, dtype="bfloat16"),
            _Way("bfloat16 fused", graph=True, fuse=True, dtype="bfloat16"),
        ):
            if lowered is not None:
                self._same(way.name, lowered, self._results(data, way))
        if self._smooth:
            self._close(data, executed)
        return told.partition(";")[0].partition("→")[2][:60]

    def _lowered(self, data: bytes) -> _Results | None:
        """Eager results in bfloat16. None if autocast lowers only one of two operands that must
        have the same type, which raises."""
        try:
            return self._results(data, _Way("bfloat16", dtype="bfloat16"))
        except TypeError:
            return None

    def _close(self, data: bytes, executed: _Results) -> None:
        """Compares results of other implementations: only the first step's, because later steps
        amplify rounding."""
        nudged = [self._results(data, _Way("", nudge=nudge)) for nudge in (3e-6, -3e-6)]
        swing = max(_distance(executed.outputs[:2], other.outputs[:2]) for other in nudged)
        if not swing < 1e-2:
            return  # too sensitive to rounding for a comparison
        for way in (_Way("plain layouts", plain=True), _Way("reference", reference=True)):
            other = self._results(data, way)
            self._near(way.name, other.outputs[:2], executed.outputs[:2], 1.0 + swing * 1e5)

    def _near(self, name: str, ours: Any, theirs: Any, loose: float) -> None:
        for i, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            if difference := differ(one, two, loose):
                raise Finding(f"{name}, not as executed: result {i} {difference}")

    def _same(self, name: str, executed: _Results, other: _Results) -> None:
        pairs = [
            *((f"step {i // 2}", a, b) for i, (a, b) in _paired(executed.outputs, other.outputs)),
            *((k, v, other.states[k]) for k, v in executed.states.items()),
        ]
        for where, one, two in pairs:
            # The payloads of NaNs may differ.
            if not np.array_equal(one, two, equal_nan=True):
                raise Finding(f"{name}, not as executed, in {where}: {_parting(one, two)}")
        for i, (one, two) in _paired(executed.scores, other.scores):
            lost = np.isnan(one) & ~np.isnan(two)
            if lost.any():
                raise Finding(f"{name}, inferred: NaN becomes {two[lost][0]} (replay {i})")
            if self._smooth and np.isfinite(one).all():
                loose = 500.0 if "bfloat16" in name else 10.0
                if difference := differ(two, one, loose):
                    raise Finding(f"{name}, inferred, not as executed: {difference}")

    def _results(self, data: bytes, way: _Way) -> _Results:
        with _settings(way):
            singa.seed(7)
            draw = Draw(data)
            program = Program(draw)
            self._smooth = program.smooth
            if way.name:
                self.tell(f"{program.told()}; run {way.name}")
            x, wanted = self._batches(program, way.nudge)
            program.set_optimizer(program.new_optimizer())
            program.compile(
                [tensor.from_numpy(x[0])], is_train=True, use_graph=way.graph, fuse=way.fuse,
                recompute=way.recompute, dtype=way.dtype,
            )  # fmt: skip
            outputs = []
            for batch in x:
                out, loss = program(tensor.from_numpy(batch), tensor.from_numpy(wanted))
                outputs += [_floats(out), _floats(loss)]
            states = {name: _floats(t) for name, t in program.get_states().items()}
            program.eval()
            scores = [_floats(program(tensor.from_numpy(x[-1]))) for _ in range(_INFERRED)]
        return _Results(outputs, scores, states)

    def _batches(self, program: Program, nudge: float) -> tuple[list[Any], Any]:
        random = np.random.default_rng(3)
        x = [random.standard_normal(program.input_shape, np.float32) for _ in range(_TRAINED)]
        if nudge:
            x = [
                np.float32(batch * (1 + nudge * random.choice([-1, 1], batch.shape))) for batch in x
            ]
        if program.special:
            # Only in the last batch, so that the parameters are finite before it.
            x[-1].flat[random.integers(0, x[-1].size, 2)] = program.special
        return x, random.integers(0, 3, program.rows).astype(np.int32)


@contextlib.contextmanager
def _settings(way: _Way) -> Iterator[None]:
    preference = wrap.GetPreference()
    singa.set_layout("plain" if way.plain else "auto")
    if way.reference:
        wrap.SetPreference(wrap.Preference_kReference)
    try:
        yield
    finally:
        singa.set_layout("auto")
        wrap.SetPreference(preference)
        autograd.training = False


def _floats(t: Any) -> np.ndarray:
    return np.array(t.numpy(), np.float32)


def _paired(ours: Any, theirs: Any) -> Any:
    return enumerate(zip(ours, theirs, strict=True))


def _parting(one: np.ndarray, two: np.ndarray) -> str:
    differs = (one != two) & ~(np.isnan(one) & np.isnan(two))
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"{int(differs.sum())} of {one.size}, at {at} {one[at]} becomes {two[at]}"


def _distance(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    worst = 0.0
    for one, two in zip(ours, theirs, strict=True):
        with np.errstate(all="ignore"):
            scale = float(np.abs(one).max(initial=1e-3))
            worst = max(worst, float(np.abs(one - two).max(initial=0.0)) / scale)
    return worst

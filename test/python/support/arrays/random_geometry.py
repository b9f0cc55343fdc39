"""Random geometries: tensors with any memory layout, compared with an oracle within a derived
bound.

A `Trial` is one geometry. Hypothesis draws the bytes that decide about it, and shrinks them when
the trial fails. All bytes are drawn at once, because many draws take longer than a small operator.
`Trial.check` runs an operator forward and backward on both implementations and compares it with
PyTorch in float64 on the same inputs. The bound of the error follows from the number of terms in
its sums and from their magnitudes, which PyTorch also computes; see `products`, `copies` and
`elementwise`. No bound is measured or tuned.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from device_under_test import ON_GPU
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from singa import autograd, tensor
from singa import singa_wrap as wrap
from trials import TRIALS

Array = np.ndarray[Any, Any]
Oracle = Callable[..., Any]
# Bounds in units of eps: of each output, and of the gradient of each input.
Bounds = tuple[list[Any], list[Any]]
Bound = Callable[["Trial", Oracle, list[Any], list[Any]], Bounds]


_DECISIONS = 256  # bytes of a trial; no trial has used more than half of them
# The reference kernels exist on the CPU only.
IMPLEMENTATIONS = (
    (wrap.Preference_kFastest,)
    if ON_GPU
    else (wrap.Preference_kReference, wrap.Preference_kFastest)
)

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}


@contextlib.contextmanager
def preference(code: int) -> Iterator[None]:
    """Context manager: operators use this implementation."""
    before = wrap.GetPreference()
    wrap.SetPreference(code)
    try:
        yield
    finally:
        wrap.SetPreference(before)


@dataclass
class Input:
    """float64 values, and a singa tensor that holds exactly these values."""

    values: Array
    raw: Any


class Families(list[Callable[["Trial"], None]]):
    """The families of a test file. Used as a decorator that adds one."""

    def __call__(self, check: Callable[[Trial], None]) -> Callable[[Trial], None]:
        self.append(check)
        return check


def run(check: Callable[[Trial], None], torch: ModuleType, count: int = TRIALS) -> None:
    """Tests random geometries of a family, with gradients."""

    # Hypothesis prints nothing, because the message of a failing trial describes it.
    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None,
        phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )  # fmt: skip
    @given(st.binary(min_size=_DECISIONS, max_size=_DECISIONS))
    def trials(decisions: bytes) -> None:
        check(Trial(torch, check.__name__, decisions))

    autograd.training = True
    try:
        trials()
    finally:
        autograd.training = False


class Trial:
    """One geometry of a family. Numbers shrink to the lowest value, choices to the first. Values
    from `random`, such as elements of tensors, follow from a seed and do not shrink."""

    def __init__(self, torch: ModuleType, family: str, decisions: bytes) -> None:
        self.torch = torch
        self.label = family
        self.decisions = iter(decisions)
        self.random = np.random.default_rng(self.integers(4, 0, 255))
        # 16-bit floats are computed in float32 and rounded once.
        self.dtype = self.pick(*["float32"] * 6, "float64", "float64", "float16", "bfloat16")
        self.facts: dict[str, Any] = {"dtype": self.dtype}
        #: Error of an intermediate result that was rounded to a 16-bit float, in units of float32's
        #: eps.
        self.coarse = _EPS[self.dtype] / _EPS["float32"] if self.halves else 0.0
        #: The same near zero, where the spacing of 16-bit floats is constant.
        self.tiny = _SMALLEST[self.dtype] / _EPS["float32"] if self.halves else 0.0

    @property
    def halves(self) -> bool:
        return self.dtype in ("float16", "bfloat16")

    # Random draws.

    def integer(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both inclusive. There are at most 256."""
        return low + next(self.decisions) % (high - low + 1)

    def integers(self, count: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(count)]

    def real(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def chance(self, probability: float = 0.5) -> bool:
        return self.integer(1, 256) > 256 * (1 - probability)

    def pick(self, *options: Any) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def order(self, count: int) -> list[int]:
        rest = list(range(count))
        return [rest.pop(self.integer(0, len(rest) - 1)) for _ in range(count)]

    def shape(self, rank: int, high: int = 7) -> tuple[int, ...]:
        """A shape with lengths from 1, rarely 0."""
        return tuple(0 if self.chance(0.02) else n for n in self.integers(rank, 1, high))

    def batch(self) -> int:
        return self.pick(0, 1, 1, 1, 2, 2, 3, 4)

    def channels(self, high: int = 20) -> int:
        """A number of channels that is often not a multiple of a vector's length."""
        return self.pick(1, 2, 3, 5, 7, 8, 9, 13, 16, 17, self.integer(1, high))

    def rounded(self, values: Array | float, dtype: str | None = None) -> Array:
        """The values rounded to this trial's type, or to another one."""
        name = dtype or self.dtype
        if name != "bfloat16":
            return np.asarray(np.asarray(values).astype(name), np.float64)
        raw = wrap.from_buffer(np.ascontiguousarray(values, np.float32))
        half = raw.AsType(wrap.kBFloat16).AsType(wrap.kFloat32)
        return np.asarray(wrap.Exporter(half), np.float64).reshape(np.shape(values))

    def input(
        self,
        shape: Sequence[int],
        low: float = -1.0,
        high: float = 1.0,
        values: Array | None = None,
        dtype: str | None = None,
    ) -> Input:
        """An input with uniform values, or those given, in row-major order or as a view."""
        name = dtype or self.dtype
        if values is None:
            values = self.random.uniform(low, high, tuple(shape))
        values = self.rounded(values, name)
        if not values.ndim or self.chance(0.4):
            return Input(values, _raw(values, name))
        return self._view(values, name)

    def _view(self, values: Array, dtype: str) -> Input:
        """A view with permuted axes, steps of -3 to 3, a margin, and sometimes a broadcast axis.
        Elements outside the view are NaN, so that reading them is detected."""
        rank = values.ndim
        shape = values.shape
        if self.chance(0.15):
            axis = self.integer(0, rank - 1)
            values = values.take(range(min(1, shape[axis])), axis)
        order = self.order(rank)
        lengths, entries = [], []
        for axis in order:
            n, step = values.shape[axis], self.pick(1, 1, 1, 2, 3, -1, -2)
            before, after = self.integers(2, 0, 1)
            span = max(n - 1, 0) * abs(step) + min(n, 1)
            last = before + span - 1
            if n == 0:
                entries.append(slice(0, 0))
            elif step > 0:
                entries.append(slice(before, before + span, step))
            else:
                entries.append(slice(last, before - 1 if before else None, step))
            lengths.append(before + span + after)
        base = np.full(lengths, np.nan)
        back = [int(i) for i in np.argsort(order)]
        base[tuple(entries)].transpose(back)[...] = values
        raw = tensor.Tensor(data=_raw(base, dtype))[tuple(entries)].data.Transpose(back)
        return Input(np.broadcast_to(values, shape), raw.Broadcast(shape))

    # Comparison.

    def check(
        self,
        ours: Callable[..., Any],
        oracle: Oracle,
        inputs: Sequence[Input],
        bound: Bound,
        backward: bool = True,
        dy_dtype: str | None = None,
    ) -> None:
        """Compares `ours` on tensors with `oracle` on float64 tensors of PyTorch: outputs, and the
        gradients of all inputs for random gradients of all outputs."""
        torch = self.torch
        xs = [torch.tensor(x.values, requires_grad=backward) for x in inputs]
        truths = as_tuple(oracle(*xs))
        dys = [self.input(y.shape, dtype=dy_dtype) for y in truths]
        slopes = [torch.tensor(dy.values) for dy in dys]
        y_bounds, dx_bounds = bound(self, oracle, xs, slopes)
        expected = gradients(torch, truths, xs, slopes) if backward else []
        for code in IMPLEMENTATIONS:
            self.facts["implementation"] = wrap.PreferenceName(code)
            with preference(code):
                leaves = [tensor.Tensor(data=x.raw, stores_grad=backward) for x in inputs]
                ys = as_tuple(ours(*leaves))
                assert len(ys) == len(truths), self.message("outputs")
                for i, y in enumerate(ys):
                    self.compare(f"y[{i}]", y, truths[i], y_bounds[i])
                if backward:
                    got = self._gradients(leaves, ys, dys)
                    for i, truth in enumerate(expected):
                        self.compare(f"dx[{i}]", got[i], truth, dx_bounds[i])

    def _gradients(self, leaves: list[Any], ys: Sequence[Any], dys: list[Input]) -> list[Any]:
        slopes = [tensor.Tensor(data=dy.raw, requires_grad=False) for dy in dys]
        if len(ys) == 1:
            found = autograd.gradients(ys[0], slopes[0])
        else:  # one backward from Σ y·dy, in which each y gets exactly dy
            pairs = zip(ys, slopes, strict=True)
            found = autograd.gradients(
                autograd.sum(*(autograd.reduce_sum(y * dy, keepdims=0) for y, dy in pairs))
            )
        return [found[x] if id(x) in found else zeros(x) for x in leaves]

    def compare(self, what: str, got: Any, truth: Any, bound: Any) -> None:
        """Checks that each element differs by at most eps · bound plus half a unit of its own
        type."""
        want = truth.detach().numpy()
        limit = bound.detach().numpy() if hasattr(bound, "detach") else np.asarray(bound)
        dtype = got.dtype.name
        values = got.as_type("float64").numpy()
        assert values.shape == want.shape, self.message(
            f"{what} has shape {values.shape}, expected {want.shape}"
        )
        exact = dtype not in _EPS
        eps = _EPS["float64" if self.dtype == "float64" else "float32"]
        rounding = 0 if exact else _EPS[self.dtype if dtype == "float64" else dtype]
        with np.errstate(invalid="ignore"):
            allowed = eps * limit + rounding / 2 * np.abs(want) + _SMALLEST[self.dtype]
            near = np.abs(values - want) <= allowed
        same = near | (values == want) | (np.isnan(values) & np.isnan(want))
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            raise AssertionError(
                self.message(
                    f"{what}{list(at)} of {want.shape} is {values[at]!r}, expected {want[at]!r} "
                    f"within {np.broadcast_to(allowed, want.shape)[at]:.3g}; "
                    f"{np.count_nonzero(~same)} elements are wrong"
                )
            )

    def message(self, text: str) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        return f"{self.label} ({facts}): {text}"


def zeros(like: Any) -> Any:
    return tensor.zeros(like.shape, dtype=like.dtype)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def gradients(torch: ModuleType, ys: Sequence[Any], xs: Sequence[Any], dys: Sequence[Any]) -> Any:
    """PyTorch's gradients, with zeros for inputs without influence."""
    linked = [(y, dy) for y, dy in zip(ys, dys, strict=True) if y.requires_grad]
    if not linked:
        return [torch.zeros_like(x) for x in xs]
    outputs, slopes = zip(*linked, strict=True)
    found = torch.autograd.grad(outputs, xs, slopes, allow_unused=True)
    return [torch.zeros_like(x) if dx is None else dx for x, dx in zip(xs, found, strict=True)]


def _raw(values: Array, dtype: str) -> Any:
    return tensor.from_numpy(np.asarray(values), dtype=dtype).data


# Bounds.


def products(
    terms: float = 1, magnitude: Oracle | None = None, partial_sums: bool = False
) -> Bound:
    """Bound of sums of products: |result - truth| <= 8·eps·√K·(|x| ⋆ |w|), where ⋆ is the
    operation.

    `magnitude` computes it for absolute values; by default it is the oracle, which must not
    subtract. The gradients of `magnitude` give the bounds of gradients. K is the number of
    products, which the operation on ones counts, but at least `terms`, because a mean counts as
    one. With `partial_sums`, parts of a sum are rounded to 16-bit floats before they are added.
    """

    def bound(trial: Trial, oracle: Oracle, xs: list[Any], dys: list[Any]) -> Bounds:
        torch = trial.torch
        run = magnitude or oracle

        def both(of: Callable[[Any], Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            points = [of(x.detach()).requires_grad_() for x in xs]
            ys = as_tuple(run(*points))
            return [y.detach() for y in ys], gradients(torch, ys, points, [of(dy) for dy in dys])

        counts, sizes = both(torch.ones_like), both(torch.abs)
        y, dx = (
            [
                (8 * torch.sqrt(count.clamp(min=terms)) + partial_sums * trial.coarse) * size
                for count, size in zip(*pair, strict=True)
            ]
            for pair in zip(counts, sizes, strict=True)
        )
        return y, dx

    return bound


def copies() -> Bound:
    """Bound of operations that select or move elements. The result is exact. A gradient is a sum of
    the dy of one element, which is exact if there is only one."""

    def bound(trial: Trial, oracle: Oracle, xs: list[Any], dys: list[Any]) -> Bounds:
        torch = trial.torch
        ys = as_tuple(oracle(*xs))
        exact = [torch.zeros_like(y) for y in ys]
        if not xs[0].requires_grad:
            return exact, []
        points = [x.detach().requires_grad_() for x in xs]
        counts = gradients(
            torch, as_tuple(oracle(*points)), points, [torch.ones_like(d) for d in dys]
        )
        sizes = gradients(torch, as_tuple(oracle(*points)), points, [d.abs() for d in dys])
        return exact, [
            8 * torch.sqrt(count) * size * (count > 1)
            for count, size in zip(counts, sizes, strict=True)
        ]

    return bound


def elementwise(from_y: bool = False, units: float = 8) -> Bound:
    """Bound of y = f(x, …) for elementwise functions that are computed in a few rounded steps.

    Both the argument and the result may be off by some eps, which gives |y| + Σ |x_i·f_i|. The
    bound of a gradient is (|f_i| + Σ |x_j·f_ij|)·|dy|, summed over broadcast elements. If the
    derivative is computed as g(y) from a rounded y, then |y·g'(y)| = |y·f'' / f'| is added; for
    powers, the derivative itself.
    """

    def bound(trial: Trial, oracle: Oracle, xs: list[Any], dys: list[Any]) -> Bounds:
        torch = trial.torch
        whole = torch.broadcast_shapes(*(x.shape for x in xs))
        points = [x.detach().expand(whole).clone().requires_grad_() for x in xs]

        def slopes(of: Any) -> list[Any]:
            if not of.requires_grad:
                return [torch.zeros(whole, dtype=torch.float64) for _ in points]
            found = torch.autograd.grad(of.sum(), points, create_graph=True, allow_unused=True)
            pairs = zip(points, found, strict=True)
            return [torch.zeros_like(x) if dx is None else dx for x, dx in pairs]

        y = oracle(*points)
        first = slopes(y)
        size = y.abs() + sum((x * dx).abs() for x, dx in zip(points, first, strict=True))
        bounds = []
        for x, slope in zip(xs, first, strict=True):
            second = slopes(slope)
            share = slope.abs() + sum((x * d).abs() for x, d in zip(points, second, strict=True))
            if from_y:
                through = (y * second[0] / slope).abs() if len(xs) == 1 else slope.abs()
                share = share + (1 + trial.coarse / units) * through
            terms = max(1, y.numel() / max(x.numel(), 1))
            share = (dys[0].abs() * share).detach().sum_to_size(x.shape)
            bounds.append(units * math.sqrt(terms) * share)
        return [units * size.detach()], bounds

    return bound

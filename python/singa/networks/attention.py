"""Scaled dot-product attention, written as products and a softmax, as one operation.

    matmul(q · scale, permute(k) · scale')
    → masks: where(mask, ·, -inf) and add of a mask, between two reshapes where it repeats along the
      batch: the first one splits the batch into (repetitions, masks)
    → softmax along the last axis → matmul(·, v)

So PyTorch's exporters write it, and singa's own, which adds nodes that make the result of a query
without keys zero. One operation needs no memory for the scores. Shapes, scales and masks are known
when a step runs. Where one of them does not fit, the nodes are computed as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import autograd
from ..tensor import Tensor
from .tensors import short_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fusion import Fusion
    from .network import Execution

    Array = NDArray[Any]

#: Masks whose form is remembered.
_MOST_FORMS = 32

#: Masks of one attention.
_MOST_MASKS = 3


@dataclass(frozen=True)
class _Mask:
    """A mask, by the name of its value.

    by_where  True for where, whose mask is bool, False for add
    shapes    of the two reshapes around it, the first one's first; empty where there are none
    """

    by_where: bool
    name: str
    shapes: tuple[str, ...] = ()


@dataclass
class _Found:
    """What the nodes say, by names of values.

    masks    in the order in which they apply
    guarded  whether a query without keys gives zeros, not NaN
    """

    q: str = ""
    k: str = ""  # transposed
    v: str = ""
    multiplied: list[str | float] = field(default_factory=list)
    divided: list[str | float] = field(default_factory=list)
    masks: list[_Mask] = field(default_factory=list)
    guarded: bool = False
    steps: list[int] = field(default_factory=list)

    def names(self) -> list[str]:
        """The inputs of the operation."""
        masks = [name for mask in self.masks for name in (mask.name, *mask.shapes)]
        factors = [f for f in (*self.multiplied, *self.divided) if isinstance(f, str)]
        return [self.q, self.k, self.v, *factors, *masks]


def fuse(fusion: Fusion, last: int) -> bool:
    """Merges the steps of an attention that end with the product `last`."""
    found = _match(fusion, last)
    if found is None:
        return False
    end = fusion.step(last)
    numbers = [*found.steps, last]
    steps = [fusion.step(i) for i in numbers]
    made = {name for step in steps for name in step.node.outputs}
    others = {name for step in steps for name in step.node.inputs} - made
    names = [*found.names(), *sorted(others - {*found.names(), ""})]
    reader = None if end.reader is None else replace(end.reader, either=True)
    lead = fusion.make(end.node, reader, end.compute)
    compute = _Attention(found, fusion.apart(numbers, names)).compute
    return fusion.merge(numbers, lead, names, compute, "Attention")


# The pattern.


def _match(fusion: Fusion, last: int) -> _Found | None:
    found = _Found()
    weights, found.v = fusion.operands(last)
    hidden = least = ""
    where = fusion.only(weights, "where")
    if where is not None:
        hidden, zero, weights = fusion.operands(where)
        if fusion.number(zero) != 0:
            return None
        found.steps.append(where)
    softmax = fusion.only(weights, "softmax")
    if softmax is None:
        return None
    if fusion.part(softmax).options["axis"] not in (-1, 3):
        return None
    found.steps.append(softmax)
    scores, uses = fusion.operands(softmax)[0], 1
    if hidden:
        where = fusion.only(scores, "where")
        less = fusion.only(hidden, "less", uses=2)
        if where is None or less is None:
            return None
        condition, least, scores = fusion.operands(where)
        if condition != hidden or fusion.operands(less) != (scores, least):
            return None
        if fusion.number(least) not in [float(np.finfo(t).min) for t in (np.float32, np.float64)]:
            return None
        found.steps += [where, less]
        found.guarded, uses = True, 2
    product = _masked(fusion, scores, uses, found, _MOST_MASKS)
    if product is None:
        return None
    q, k = fusion.operands(product)
    found.q, found.k = _unscaled(fusion, q, found), _unscaled(fusion, k, found)
    maker = fusion.makers.get(found.k)
    return found if maker is not None and fusion.is_one(maker, "permute") else None


def _masked(fusion: Fusion, scores: str, uses: int, found: _Found, more: int) -> int | None:
    """The product behind at most `more` masks; None if there is something else. Notes masks and
    steps."""
    at = fusion.only(scores, "matmul", "where", "add", "reshape", uses=uses)
    if at is None or (not more and not fusion.is_one(at, "matmul")):
        return None
    before = len(found.steps)
    found.steps.append(at)
    if fusion.is_one(at, "matmul"):
        return at
    together = ""
    if fusion.is_one(at, "reshape"):
        scores, *lengths = fusion.operands(at)
        together = lengths[0] if len(lengths) == 1 else ""
        at = fusion.only(scores, "where", "add") if together else None
        found.steps += [] if at is None else [at]
    for mask, inner in [] if at is None else _mask_choices(fusion, at, found.guarded):
        kept = len(found.steps)
        if together:
            reshape = fusion.only(inner, "reshape")
            if reshape is None or len(fusion.operands(reshape)) != 2:
                continue
            inner, apart = fusion.operands(reshape)
            found.steps.append(reshape)
            mask = replace(mask, shapes=(apart, together))
        product = _masked(fusion, inner, 1, found, more - 1)
        if product is not None:
            found.masks.append(mask)
            return product
        del found.steps[kept:]
    del found.steps[before:]
    return None


def _mask_choices(fusion: Fusion, at: int, guarded: bool) -> list[tuple[_Mask, str]]:
    """The mask that step `at` may apply, and the scores that it is applied to."""
    inputs = fusion.operands(at)
    if fusion.is_one(at, "where"):
        hides = fusion.number(inputs[2]) == -math.inf
        return [(_Mask(True, inputs[0]), inputs[1])] if hides else []
    # A mask that is computed may hide all keys of a query, which then is NaN without the guard.
    return [
        (_Mask(False, mask), inner)
        for inner, mask in (inputs, inputs[::-1])
        if guarded or fusion.is_given(mask)
    ]


def _unscaled(fusion: Fusion, x: str, found: _Found) -> str:
    """x without the factor that a step applies to it."""
    at = fusion.only(x, "mul", "div")
    if at is None:
        return x
    a, b = fusion.operands(at)
    division = fusion.is_one(at, "div")
    for inner, factor in ((a, b), (b, a)):
        if fusion.is_known(factor) and not (division and factor == a):
            (found.divided if division else found.multiplied).append(factor)
            found.steps.append(at)
            return inner
    return x


# The operation.


class _Attention:
    """Attention of values, each of which may be a tensor or an array."""

    def __init__(self, found: _Found, apart: Callable[..., Any]) -> None:
        self.found, self.apart = found, apart
        self.forms: dict[int, tuple[Array, int | None, bool]] = {}  # by id of a mask

    def compute(self, run: Execution, *arguments: Any) -> Any:
        options = self._options(arguments)
        if options is None:
            return self.apart(run, *arguments)
        q, k, v = arguments[:3]
        mask = options.pop("mask")
        mask = None if mask is None else run.as_tensor(mask)
        k = autograd.transpose(k, (0, 1, 3, 2))
        return autograd.scaled_dot_product_attention(q, k, v, mask, **options)

    def _options(self, arguments: Sequence[Any]) -> dict[str, Any] | None:
        """Arguments of the operation; None where it would give other numbers."""
        q, k, v, *others = arguments
        if not all(isinstance(x, Tensor) and len(x.shape) == 4 for x in (q, k, v)):
            return None
        batch, heads, queries, width = q.shape
        keys = k.shape[3]
        fits = tuple(k.shape) == (batch, heads, width, keys)
        fits = fits and tuple(v.shape[:3]) == (batch, heads, keys)
        if not fits or not q.dtype == k.dtype == v.dtype or not keys:
            return None
        values = iter(others)
        named = (*self.found.multiplied, *self.found.divided)
        factors = [next(values) if isinstance(f, str) else np.array(f) for f in named]
        scale = self._scale(factors, width)
        if scale is None:
            return None
        options: dict[str, Any] = {"scale": None if scale == 0 else scale, "mask": None}
        for found in self.found.masks:
            mask, *shapes = (next(values) for _ in (found.name, *found.shapes))
            first, safe = self._form(mask, found.by_where)
            if not safe or not _fits(tuple(mask.shape), (batch, heads, queries, keys), shapes):
                return None
            if first is not None and tuple(mask.shape) == (queries, keys):
                if "first_query" in options:
                    return None
                options |= {"is_causal": True, "first_query": first}
            elif options["mask"] is not None or (
                not found.by_where and mask.dtype.name != q.dtype.name
            ):
                return None
            else:
                options["mask"] = mask
        several = len(self.found.masks) > 1
        return None if several and not self.found.guarded else options

    def _scale(self, factors: Sequence[Any], width: int) -> float | None:
        """The factor of the products; 0 for the usual one, None if it is not known."""
        if not all(isinstance(f, np.ndarray) and f.size == 1 and f.ndim <= 4 for f in factors):
            return None
        count = len(self.found.multiplied)
        values = [_number(f.reshape(-1)[0]) for f in factors]
        if not all(values):
            return None
        scale = math.prod(values[:count]) / math.prod(values[count:])
        usual = 1 / math.sqrt(width) if width else 1.0
        if count == len(factors) == 1 and factors[0].reshape(-1)[0] == factors[0].dtype.type(usual):
            return 0.0
        return scale if math.isfinite(scale) else None

    def _form(self, mask: Any, by_where: bool) -> tuple[int | None, bool]:
        """(where causal queries begin, or None for another mask; whether each query has a key, or
        gives zeros in the file as well)."""
        if not isinstance(mask, np.ndarray):
            return None, self.found.guarded
        kept = self.forms.get(id(mask))
        if kept is None:
            if len(self.forms) >= _MOST_FORMS:
                self.forms.clear()
            kept = self.forms[id(mask)] = (mask, *_form_of(mask, by_where))
        return kept[1], kept[2] or self.found.guarded


def _number(value: Any) -> float:
    """The number that was meant: 0.1, not 0.100000001, which is what float32 holds."""
    return short_number(value) if value.dtype == np.float32 else float(value)


def _form_of(mask: Array, by_where: bool) -> tuple[int | None, bool]:
    if by_where:
        used, plain = mask, True
    else:
        used = mask != -np.inf
        plain = bool((mask[used] == 0).all())
    safe = bool(used.any(-1).all()) if used.ndim else bool(used)
    if used.ndim != 2 or not plain or not used.size:
        return None, safe
    row = int(used.any(1).argmax())
    first = int(used[row].sum()) - 1 - row
    queries, keys = used.shape
    causal = np.arange(keys) <= np.arange(queries)[:, None] + first
    return (first if np.array_equal(used, causal) else None), safe


def _fits(mask: tuple[int, ...], scores: tuple[int, ...], shapes: Sequence[Any]) -> bool:
    """Whether attention takes a mask of this shape, which the nodes apply between Reshapes to
    `shapes`."""
    if not shapes:
        return _broadcasts(mask, scores)
    if len(mask) != 4 or not mask[0] or scores[0] % mask[0]:
        return False
    apart = (scores[0] // mask[0], mask[0], *scores[1:])
    return _broadcasts(mask, apart[1:]) and all(map(_is_shape, shapes, (apart, scores)))


def _is_shape(given: Any, wanted: tuple[int, ...]) -> bool:
    """Whether a Reshape to `given` gives this shape."""
    if not isinstance(given, np.ndarray) or given.shape != (len(wanted),) or 0 in wanted:
        return False
    unknown = given == -1
    return unknown.sum() <= 1 and bool((unknown | (given == wanted)).all())


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and all(
        n in (1, m) for n, m in zip(shape[::-1], wanted[::-1], strict=False)
    )

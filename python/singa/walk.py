"""The walk back over the tape, from a result to the tensors that store their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from . import compat
from . import singa_wrap as _c
from ._tensor import Tensor, as_raw, wrap
from .tape import Operator

if TYPE_CHECKING:
    Raw: TypeAlias = _c.Tensor

__all__ = ["Gradient", "Gradients", "backward", "gradients"]

_Output = tuple[Operator, int]


class Gradient:
    """A gradient on its way: what has arrived so far, and whether its memory is ours to write."""

    __slots__ = ("owned", "raw")

    def __init__(self, raw: Raw, owned: bool) -> None:
        self.raw = raw
        self.owned = owned

    def add(self, raw: Raw) -> None:
        if self.owned:
            _c.Axpy(1.0, raw, self.raw)
        else:
            self.raw = _c.Binary(_c.BinaryOp_kAdd, self.raw, raw)
            self.owned = True

    def give(self, to: Tensor) -> Tensor:
        """For the user, who may write to it."""
        gradient = wrap(self.raw if self.owned else self.raw.Clone(), False)
        gradient.name = to.name
        return gradient


def _reachable(
    root: Operator,
) -> tuple[list[Operator], dict[_Output, int], dict[_Output, Tensor]]:
    """Operators from which a stored gradient is reached, oldest first; for each tensor at which the
    walk ends, how many gradients it will get; and the tensors that store theirs."""
    operators = [root] if root._tracked else []
    seen = {root}
    waiting: dict[_Output, int] = {}
    storing: dict[_Output, Tensor] = {}
    for op in operators:  # which grows meanwhile
        if op._released:
            raise RuntimeError(op._released_message())
        for _, creator, index, x in op._edges:
            if x is not None:
                storing[creator, index] = x
            if not creator._tracked:
                waiting[creator, index] = waiting.get((creator, index), 0) + 1
            elif creator not in seen:
                seen.add(creator)
                operators.append(creator)
    operators.sort(key=_position)
    return operators, waiting, storing


def _position(op: Operator) -> int:
    return op._position


def _walk(y: Tensor, dy: Raw, retain_graph: bool) -> Iterator[tuple[Tensor, Tensor]]:
    root = y.creator
    operators, waiting, storing = _reachable(root)
    arrived: dict[Operator, dict[int, Gradient]] = {root: {y._index: Gradient(dy, False)}}
    changing: set[int] = set()  # memory that the user may write to between two walks
    if compat.enabled:
        retain_graph = True
    elif retain_graph:
        changing = {x.data.block_id() for x in storing.values()}
    if y.stores_grad:
        storing[root, y._index] = y
        if not root._tracked:
            yield y, arrived[root][y._index].give(y)
    gradient: Gradient | None
    while operators:
        op = operators.pop()
        sums = arrived.pop(op, None)
        edges, dxs = op._edges, None
        if sums is not None:
            for index, gradient in sums.items():
                if (op, index) in storing:
                    gradient.owned = False  # the walk goes on with it, so the user gets a copy
                    yield storing[op, index], gradient.give(storing[op, index])
            dxs = op._do_backward(sums)
            if changing:
                op._keep_values(changing)
        if not (retain_graph or op._users):
            op._release()
        complete = []
        for i, creator, index, _ in edges:
            if dxs is not None and dxs[i] is not None:
                sums = arrived.setdefault(creator, {})
                if index in sums:
                    sums[index].add(dxs[i])
                else:
                    sums[index] = Gradient(dxs[i], op.fresh_gradients)
            if not creator._tracked:
                output = creator, index
                waiting[output] -= 1
                if not waiting[output]:
                    complete.append(output)
        sums = dxs = gradient = None  # while the user has the word, hold only what is needed
        for output in complete:
            creator, index = output
            if index in arrived.get(creator, ()):
                x, gradient = storing[output], arrived[creator].pop(index)
                _check_gradient(op, x, gradient.raw)
                yield x, gradient.give(x)


def _check_gradient(op: Operator, x: Tensor, gradient: Raw) -> None:
    if not isinstance(gradient, _c.Tensor):
        raise TypeError(
            f"[{op.name}] backward has to return raw tensors or None, got {type(gradient).__name__}"
        )
    if not gradient.same_shape(x.data):
        raise RuntimeError(
            f"[{op.name}] backward returned a gradient of shape {gradient.shape()} for "
            f"{x.name or 'an input'} of shape {x.shape}"
        )


def backward(
    y: Tensor, dy: object = None, retain_graph: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Walks back from `y` and yields (tensor, gradient) for each tensor that stores its gradient,
    as soon as that gradient is complete: the tensor may then be updated while the walk goes on.

    `dy` is the gradient of y (tensor, array or number; default 1, for a y of one element). What the
    operators saved is let go on the way, so a second walk raises RuntimeError unless the first had
    `retain_graph`; operators that something outside this walk was computed from are kept for it.
    With `retain_graph` the values of parameters are copied: a second walk gives the gradients of
    the same y, whatever has become of the parameters. Under `singa.compat` every walk retains, and
    copies nothing. Raises ValueError when dy is missing or does not have y's shape.
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"[backward] y has to be a Tensor, got {type(y).__name__}")
    if isinstance(dy, Tensor) and dy.data.matches(y.data):
        return _walk(y, dy.data, retain_graph)
    shape = y.shape
    if dy is None:
        if y.size() != 1:
            raise ValueError(f"[backward] y has shape {shape}: only one element needs no dy")
        dy = 1.0
    if isinstance(dy, (int, float)):
        raw = _c.Full(shape, float(dy), y.device, y.dtype)
    else:
        raw = as_raw(dy, dtype=y.dtype, device=y.device)
        if raw.shape() != shape:
            raise ValueError(f"[backward] dy has shape {raw.shape()}, y has {shape}")
    return _walk(y, raw, retain_graph)


class Gradients(dict[int, Tensor]):
    """Gradients by id(tensor), as SINGA keys them; the tensor itself is taken as a key too."""

    def __init__(self) -> None:
        super().__init__()
        self._tensors: list[Tensor] = []  # alive, so that no other object gets one's id

    def _put(self, x: Tensor, gradient: Tensor) -> None:
        self._tensors.append(x)
        self[id(x)] = gradient

    def tensors(self) -> list[Tensor]:
        """The tensors that have a gradient here."""
        return list(self._tensors)

    def __missing__(self, key: object) -> Tensor:
        if isinstance(key, Tensor) and id(key) in self:
            return self[id(key)]
        raise KeyError(key)


def gradients(y: Tensor, dy: object = None, retain_graph: bool = False) -> Gradients:
    """The gradients of y for all tensors that store theirs. Arguments as for `backward`."""
    result = Gradients()
    for x, gradient in backward(y, dy, retain_graph):
        result._put(x, gradient)
    return result

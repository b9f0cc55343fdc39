"""The tape: operators that remember what they were applied to.

Applying an Operator while the tape records links it to the operators that made its inputs, so each
tensor that was computed leads, over `creator` and `src`, to the whole of its computation.
`walk.backward` goes over that graph from the newest operator to the oldest. There is no list of all
operators: a computation lives as long as a tensor that leads to it, and what an operator saved for
its backward is let go as soon as the walk has used it.

Two flags of each thread decide whether the tape records: `training` (SINGA's module flag) and the
contexts `no_grad` and `enable_grad`, which take precedence over it.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from . import compat
from . import singa_wrap as _c
from ._tensor import Tensor, wrap

if TYPE_CHECKING:
    from .walk import Gradient

    Raw: TypeAlias = _c.Tensor

__all__ = [
    "Dummy",
    "Operator",
    "apply",
    "enable_grad",
    "grad_mode",
    "infer_dependency",
    "is_recording",
    "no_grad",
    "set_training",
    "training",
]


class _State(threading.local):
    training = False
    grad_mode: bool | None = None  # what no_grad or enable_grad say; None: follow `training`
    recording = False


_state = _State()

#: (get, set) of the name of the layer that runs, while somebody wants to know it; see `profiling`.
current_layer: tuple[Callable[[], str], Callable[[str], None]] | None = None
_positions = itertools.count()


def training() -> bool:
    """This thread's training flag: batch norm, dropout and the tape follow it."""
    return _state.training


def set_training(flag: bool) -> None:
    """Sets this thread's training flag."""
    _state.training = bool(flag)
    _update_recording()


def is_recording() -> bool:
    """Whether operators applied now, in this thread, are recorded."""
    return _state.recording


def grad_mode() -> bool | None:
    """What `no_grad` (False) or `enable_grad` (True) says in this thread; None outside of both."""
    return _state.grad_mode


def _update_recording() -> None:
    mode = _state.grad_mode
    _state.recording = _state.training if mode is None else mode


class _GradMode(contextlib.ContextDecorator):
    _mode: bool

    def __init__(self) -> None:
        self._outer: list[bool | None] = []

    def __enter__(self) -> None:
        self._outer.append(_state.grad_mode)
        _state.grad_mode = self._mode
        _update_recording()

    def __exit__(self, *error: object) -> None:
        _state.grad_mode = self._outer.pop()
        _update_recording()

    def _recreate_cm(self) -> _GradMode:
        return type(self)()  # one per call: a decorated function may run in many threads


class no_grad(_GradMode):  # noqa: N801 (the field's spelling)
    """Context or decorator: nothing is recorded. The training flag, which batch norm and dropout
    follow, stays as it is."""

    _mode = False


class enable_grad(_GradMode):  # noqa: N801
    """Context or decorator: operators are recorded, inside `no_grad` or without training too."""

    _mode = True


# (which input, its creator, index among the creator's outputs, itself where its gradient is stored)
_Edge: TypeAlias = "tuple[int, Operator, int, Tensor | None]"


class Operator:
    """One differentiable step. To add one, write `forward` and `backward` on raw tensors:

        class Double(autograd.Operator):
            def forward(self, x):
                return singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, x, x)

            def backward(self, dy):
                return singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, dy, dy)

        y = Double()(x)[0]

    `forward` gets the inputs' data and returns one raw tensor or a tuple of them; `backward` gets a
    gradient for each output and returns one for each input, None where there is none. Raw tensors
    that `forward` sets as attributes are what backward keeps; they are dropped after the walk, and
    backward raises RuntimeError when one of them was changed in place meanwhile. (Under
    `singa.compat` it does neither.)
    """

    #: False for comparisons and the like: they are never recorded, their results are constants.
    differentiable = True
    #: True where backward returns memory of its own, never dy, a saved tensor or a view.
    fresh_gradients = False

    #: For each input: (creator, index among the creator's outputs, the tensor itself where its
    #: gradient is to be stored, whether that is so).
    src: tuple[tuple[Operator, int, Tensor | None, bool], ...] = ()
    #: Any input requires a gradient. None: forward was called by hand, without the tape.
    requires_grad: bool | None = None

    _name: str | None = None
    _layer = ""  # in which it was applied, if that was asked for
    _needs: tuple[bool, ...] = ()  # which inputs' gradients backward() returns; empty: all
    _edges: tuple[_Edge, ...] = ()  # to inputs that lead to a tensor that stores its gradient
    _tracked = False  # there are such edges
    _position = -1  # among all recorded operators; -1: not recorded
    _users = 0  # recorded operators that take this one's outputs and may still be walked
    _released = False
    _saved: tuple[Raw | None, ...] | None = None
    _versions: tuple[int, ...] = ()
    _kept: tuple[str, ...] = ()  # attributes that forward of a user's operator has set
    _outputs: Sequence[tuple[tuple[int, ...], Any, int]] = ()  # of several: shape, device, type

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Given name, or class name and position on the tape."""
        return self._name or f"{type(self).__name__}#{max(self._position, 0)}"

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = name

    def forward(self, *xs: Raw) -> Raw | tuple[Raw, ...]:
        """The outputs for these inputs. A subclass implements it."""
        raise NotImplementedError(f"[{type(self).__name__}] has no forward")

    def backward(self, *dys: Raw) -> Raw | Sequence[Raw | None] | None:
        """The inputs' gradients for these of the outputs. A subclass implements it."""
        raise NotImplementedError(f"[{type(self).__name__}] has no backward")

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        return self._do_forward(*xs)

    def _do_forward(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Runs forward, records it if the tape does, and wraps the results."""
        if self._position >= 0:  # used before: each application is an operator of its own
            return self._again()._do_forward(*xs)
        raws = []
        for x in xs:
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"[{type(self).__name__}] inputs have to be Tensors, got {type(x).__name__}"
                )
            raws.append(x.data)
        self.requires_grad = False
        if _state.recording and self.differentiable:
            self._link(xs)
        before = None if self._saved is not None else set(vars(self))
        ys = self.forward(*raws)
        if not isinstance(ys, _c.Tensor):
            ys = self._checked_outputs(ys)
        if not self.requires_grad:
            needs = self.differentiable and _state.grad_mode is not False
            needs = needs and any([x.requires_grad for x in xs])
            creator = None
            if _state.recording:  # a script may call its backward; autograd.backward does not
                creator, self._position = self, next(_positions)
            if not isinstance(ys, tuple):
                return (wrap(ys, needs, creator),)
            return tuple([wrap(y, needs, creator, i) for i, y in enumerate(ys)])
        self._position = next(_positions)
        if current_layer:
            self._layer = current_layer[0]()
        for entry in self.src:
            entry[0]._users += 1
        if before is not None:
            self._adopt(before)
        if not isinstance(ys, tuple):
            return (wrap(ys, True, self),)
        if len(ys) > 1:
            self._outputs = [(y.shape(), y.device(), y.data_type()) for y in ys]
        return tuple([wrap(y, True, self, i) for i, y in enumerate(ys)])

    def _checked_outputs(self, ys: Any) -> tuple[Raw, ...]:
        outputs = tuple(ys) if isinstance(ys, (tuple, list)) else (ys,)
        for y in outputs:
            if not isinstance(y, _c.Tensor):
                raise TypeError(
                    f"[{type(self).__name__}] forward has to return raw tensors "
                    f"(singa_wrap.Tensor), got {type(y).__name__}"
                )
        return outputs

    def _link(self, xs: tuple[Tensor, ...]) -> None:
        src, needs, edges = [], [], []
        requires = False
        for x in xs:
            creator, stores, need = x._creator or x.creator, x.stores_grad, x.requires_grad
            kept = x if stores else None
            src.append((creator, x._index, kept, stores))
            needs.append(need)
            if need:
                requires = True
                if stores or creator._tracked:
                    edges.append((len(needs) - 1, creator, x._index, kept))
        self.requires_grad = requires
        if not requires:
            return
        self.src = tuple(src)
        self._needs = tuple(needs)
        if edges:
            self._edges = tuple(edges)
            self._tracked = True

    def _again(self) -> Operator:
        fresh = copy.copy(self)
        for name in (*_TAPE_FIELDS, *self._kept):
            fresh.__dict__.pop(name, None)
        return fresh

    # What backward needs.

    def _need(self, i: int) -> bool:
        """Whether backward has to return the gradient of input `i`."""
        return not self._needs or self._needs[i]

    def save(self, *tensors: Raw | None) -> None:
        """Keeps raw tensors for backward, which gets them by `load`, if there will be one."""
        if self.requires_grad is None:
            self.requires_grad = _state.training
        if self.requires_grad:
            self._saved = tensors
            self._versions = tuple([t.version() for t in tensors if t is not None])

    def load(self) -> tuple[Any, ...]:
        """What `save` kept.

        Raises RuntimeError when it was let go by an earlier walk, or changed in place since.
        """
        if not self._saved:
            raise RuntimeError(self._released_message() if self._released else self._eval_message())
        self._check()
        return self._saved

    def _held(self) -> list[Raw]:
        """The raw tensors that it keeps for backward."""
        held = [t for t in self._saved or () if t is not None]
        for name in self._kept:
            held += _raws(self.__dict__.get(name))
        return held

    def _check(self) -> None:
        if compat.enabled:
            return
        held = self._held()
        if [t.version() for t in held] != list(self._versions):
            changed = next(
                t for t, then in zip(held, self._versions, strict=True) if t.version() != then
            )
            raise RuntimeError(
                f"[{self.name}] backward needs a tensor that was changed in place after it was "
                f"saved: {changed.ToString()}"
            )

    def _adopt(self, before: set[str]) -> None:
        """Finds what the forward of an operator of the user's has kept as attributes."""
        held = {
            name: value
            for name, value in vars(self).items()
            if name not in before and not name.startswith("_") and _raws(value)
        }
        self._kept = tuple(held)
        self._versions += tuple(t.version() for value in held.values() for t in _raws(value))

    def _released_message(self) -> str:
        return (
            f"[{self.name}] was walked before and has let go of what it saved; pass "
            "retain_graph=True to the first backward to walk twice"
        )

    def _eval_message(self) -> str:
        return (
            f"[{self.name}] saved nothing for backward: no input required a gradient, or the tape "
            "was not recording (set autograd.training, or use autograd.enable_grad())"
        )

    # The walk.

    def _do_backward(self, sums: dict[int, Gradient]) -> Sequence[Raw | None]:
        """Gradients of the inputs from those of the outputs (by index), counted and checked."""
        if self._released:
            raise RuntimeError(self._released_message())
        if self._kept:
            self._check()
        if self._outputs:
            dys = [
                sums[i].raw if i in sums else _c.Full(shape, 0.0, device, dtype)
                for i, (shape, device, dtype) in enumerate(self._outputs)
            ]
        else:
            dys = [sums[0].raw]
        needs = self._needs
        if len(self._edges) < len(needs):
            leads = {edge[0] for edge in self._edges}
            self._needs = tuple([i in leads for i in range(len(needs))])
        if current_layer:
            current_layer[1](self._layer)
        try:
            dxs = self.backward(*dys)
        finally:
            self._needs = needs
            if current_layer:
                current_layer[1]("")
        if not isinstance(dxs, (tuple, list)):
            dxs = (dxs,)
        if len(dxs) != len(needs):
            raise RuntimeError(
                f"[{self.name}] backward returned {len(dxs)} gradients for {len(needs)} inputs"
            )
        return dxs

    def _keep_values(self, blocks: Set[int]) -> None:
        """Copies what it keeps that lies in these blocks, to which others will write."""
        before = self._held()
        if len(before) != len(self._versions) or not any([t.block_id() in blocks for t in before]):
            return
        for name in ("_saved", *self._kept):
            if name in self.__dict__:
                setattr(self, name, _with_copies(self.__dict__[name], blocks))
        self._versions = tuple(
            then if t is old else t.version()
            for t, old, then in zip(self._held(), before, self._versions, strict=True)
        )

    def _release(self) -> None:
        """Lets go of the inputs and of what was saved."""
        for entry in self.src:
            entry[0]._users -= 1
        self.src = self._edges = ()
        if self._saved:
            self._saved = ()
        for name in self._kept:
            self.__dict__.pop(name, None)
        self._released = True

    def __del__(self) -> None:
        if self._position >= 0:
            for entry in self.src:
                entry[0]._users -= 1


# What the tape has written into an operator.
_TAPE_FIELDS = (
    "src", "requires_grad", "_needs", "_edges", "_tracked", "_position", "_users", "_released",
    "_saved", "_versions", "_kept", "_outputs",
)  # fmt: skip


def _raws(value: object) -> list[Raw]:
    """The raw tensors in an attribute: itself, or those in a list, tuple or dict."""
    if isinstance(value, _c.Tensor):
        return [value]
    if isinstance(value, Tensor):
        return [value.data]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _raws(item)]
    return []


def _with_copies(value: Any, blocks: Set[int]) -> Any:
    """A value as in `_raws`, in which raw tensors in these blocks are copies."""
    if isinstance(value, _c.Tensor):
        return value.Clone() if value.block_id() in blocks else value
    if isinstance(value, Tensor):
        raw = _with_copies(value.data, blocks)
        return value if raw is value.data else wrap(raw, value.requires_grad)
    if isinstance(value, dict):
        return {name: _with_copies(item, blocks) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        copies = [_with_copies(item, blocks) for item in value]
        return copies if isinstance(value, list) else tuple(copies)
    return value


class Dummy(Operator):
    """The creator of a tensor that no operator made."""

    def __init__(self, tensor: Tensor, name: str | None = None) -> None:
        super().__init__(name or tensor.name)
        self._tensor = ref(tensor)

    @property
    def tensor(self) -> Tensor | None:
        """The tensor, while it lives."""
        return self._tensor()

    def backward(self, *dys: Raw) -> Raw:
        raise RuntimeError(
            f"[backward] tensor {self._name or 'without a name'} was not computed on the tape: no "
            "input required a gradient, or autograd.training was not set"
        )


def _leads(x: Tensor) -> bool:
    """Whether x stores its gradient, or was computed on the tape from a tensor that does."""
    return x.requires_grad and (x.stores_grad or (x._creator is not None and x._creator._tracked))


def apply(op: Operator, *xs: Tensor) -> Tensor:
    """The first output of `op`, for arithmetic on tensors.

    It is recorded only where that leads to a tensor that stores its gradient. A call of the
    operator itself records whenever an input requires a gradient, which is the default of every
    tensor: too much for plain calculations such as running averages, which would keep their whole
    history.
    """
    if _state.recording and any([_leads(x) for x in xs]):
        return op(*xs)[0]
    op.requires_grad = False
    y = op.forward(*[x.data for x in xs])
    return wrap(y, any([x.requires_grad for x in xs]))


def is_computed(x: Tensor) -> bool:
    """Whether the tape, which records, has x as the result of an operator that a stored gradient
    passes through."""
    return _state.recording and x.requires_grad and x._creator is not None and x._creator._tracked


_Output = tuple[Operator, int]


def infer_dependency(op: Operator) -> tuple[Counter[Operator], Counter[_Output]]:
    """For each operator that `op` depends on, and for each output of one, how many operators take
    it."""
    operators: Counter[Operator] = Counter()
    outputs: Counter[_Output] = Counter()
    stack = [op]
    while stack:
        for creator, index, _, _ in stack.pop().src:
            if creator not in operators:
                stack.append(creator)
            operators[creator] += 1
            outputs[creator, index] += 1
    return operators, outputs

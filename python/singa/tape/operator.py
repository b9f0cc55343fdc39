"""The tape: operators that remember what they were applied to.

While the tape records, applying an Operator links it to the operators that made its inputs. So a
computed tensor leads, by `creator` and `src`, to its whole computation. `backward` walks that graph
from the newest operator to the oldest. There is no list of operators: a computation lives as long
as a tensor that leads to it. What an operator saved for backward is released once it was used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from .. import singa_wrap as _c
from ..raw.arrays import kind_of

# By name: singa_wrap has a __getattr__, which makes looking names up in it slow.
from ..singa_wrap import Tensor as RawTensor
from ..singa_wrap import Versions
from .grad_mode import state
from .tensor import Tensor, install, wrap

if TYPE_CHECKING:
    Raw: TypeAlias = _c.Tensor
    Gradient: TypeAlias = tuple[Raw, bool]  # and whether the walk may write to its memory

#: (get, set) of the name of the layer that runs, while somebody wants to know it (`layer.names`).
current_layer: tuple[Callable[[], str], Callable[[str], None]] | None = None

#: Functions that are told of each application of an operator, in any thread: (operator, inputs,
#: outputs). Usually there are none; export to ONNX follows one forward pass.
followers: list[Callable[[Operator, Sequence[Tensor], Sequence[Tensor]], object]] = []

#: Those who follow a forward pass that must not write to tensors: while there are any, `t += other`
#: is an operator, to whose result Python binds the name, and their attribute `writes_in_place` is
#: set.
tracers: list[Any] = []

#: Functions that are told of each backward of an operator, in any thread: (operator, gradients of
#: the outputs, None where there is none, gradients of the inputs).
backward_followers: list[Callable[[Operator, Sequence[Raw | None], Sequence[Any]], object]] = []


class Operator(_c.TapeOperator):
    """One differentiable step. To add one, write `forward` and `backward` on raw tensors:

        class Double(autograd.Operator):
            def forward(self, x):
                return singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, x, x)

            def backward(self, dy):
                return singa_wrap.Binary(singa_wrap.BinaryOp_kAdd, dy, dy)

        y = Double()(x)[0]

    `forward` gets the inputs' data and returns one raw tensor or a tuple of them. `backward` gets a
    gradient for each output and returns one for each input, None where there is none. Raw tensors
    have the signs of Tensor, such as `2 * x + 1`, and singa_wrap has their functions. Those that
    `forward` sets as attributes are kept for backward and dropped after the walk. Backward raises
    RuntimeError when one of them was changed in place meanwhile. (Under `singa.compat` it does
    neither.)
    """

    #: False for comparisons and the like: they are never recorded, their results are constants.
    differentiable: bool = True
    #: True where backward returns memory of its own, never dy, a saved tensor or a view.
    fresh_gradients: bool = False
    #: Whether backward is singa's own, and what it returns need not be checked.
    _is_builtin: bool = False

    # The attributes of the tape lie in TapeOperator (src/api/tape.cc).
    if TYPE_CHECKING:
        #: For each input: (creator, index among the creator's outputs, the tensor itself where its
        #: gradient is to be stored, whether that is so).
        src: tuple[tuple[Operator, int, Tensor | None, bool], ...]
        #: Any input requires a gradient. None: forward was called by hand, without the tape.
        requires_grad: bool | None
        _needs: tuple[bool, ...]  # which inputs' gradients backward() returns; empty: all
        _leads: tuple[int, ...]  # the inputs that lead to a tensor that stores its gradient
        _position: int  # among all recorded operators; -1: not recorded
        _users: int  # recorded operators that take this one's outputs and may still be walked
        _saved: tuple[Raw | None, ...] | None
        _versions: tuple[int, ...]  # of what is saved, then of what is kept
        _outputs: Sequence[tuple[tuple[int, ...], Any, int]]  # of several: shape, device, type

    _name: str | None = None
    _layer: str = ""  # in which it was applied, if that was asked for
    _keeps_attributes: bool = True  # raw tensors that forward sets as attributes are for backward
    _kept: tuple[str, ...] = ()  # such attributes

    def __init__(self, name: str | None = None) -> None:
        self._name = name

    @property
    def name(self) -> str:
        """Given name, or class name and position on the tape."""
        return self._name or f"{type(self).__name__}#{max(self._position, 0)}"

    @name.setter
    def name(self, name: str | None) -> None:
        self._name = name

    def output_name(self, idx: int) -> str:
        """SINGA's name of output number `idx`, such as 'ReLU#3:0'."""
        return f"{self.name}:{idx}"

    def grad_name(self, idx: int) -> str:
        """SINGA's name of the gradient of output number `idx`, such as 'ReLU#3:0_g'."""
        return f"{self.output_name(idx)}_g"

    # With `**options: Any`, type checkers take any arguments of a subclass.
    def forward(self, *xs: Any, **options: Any) -> Raw | tuple[Raw, ...]:
        """The outputs for these inputs. A subclass implements it."""
        raise NotImplementedError(f"[{type(self).__name__}] has no forward")

    def backward(self, *dys: Any, **options: Any) -> Raw | Sequence[Raw | None] | None:
        """The inputs' gradients for these of the outputs. A subclass implements it."""
        raise NotImplementedError(f"[{type(self).__name__}] has no backward")

    def __call__(self, *xs: Tensor) -> tuple[Tensor, ...]:
        """Runs forward, records it if the tape does, and wraps the results."""
        if self._position >= 0:  # used before: each application is an operator of its own
            return self._again()(*xs)
        recording = state.recording
        inputs = self._inputs(xs, recording and self.differentiable)
        if inputs is None:
            wrong = next(x for x in xs if not isinstance(x, Tensor))
            kind = kind_of(wrong)
            if isinstance(wrong, RawTensor):
                kind = "a raw tensor, which functions of singa_wrap and signs take"
            raise TypeError(f"[{type(self).__name__}] inputs must be Tensors, got {kind}")
        raws, needs = inputs
        needs = needs and self.differentiable
        self.requires_grad = recorded = needs and recording
        before = set(vars(self)) if self._keeps_attributes else None
        ys = self.forward(*raws)
        if not isinstance(ys, RawTensor):
            ys = self._checked_outputs(ys)
        if recorded:
            if current_layer:
                self._layer = current_layer[0]()
            if before is not None:
                self._adopt(before)
            if isinstance(ys, tuple) and len(ys) > 1:
                self._outputs = [(y.shape(), y.device(), y.data_type()) for y in ys]
        else:
            needs = needs and state.grad_mode is not False
        # Recorded also where autograd.backward does not come: a script may call backward.
        results = self._results(Tensor, ys, needs, recording)
        for follow in followers:
            follow(self, xs, results)
        return results

    def _checked_outputs(self, ys: Any) -> tuple[Raw, ...]:
        outputs = tuple(ys) if isinstance(ys, (tuple, list)) else (ys,)
        for y in outputs:
            if not isinstance(y, _c.Tensor):
                raise TypeError(
                    f"[{type(self).__name__}] forward must return raw tensors "
                    f"(singa_wrap.Tensor), got {type(y).__name__}"
                )
        return outputs

    def _again(self) -> Operator:
        fresh = type(self).__new__(type(self))
        fresh.__dict__.update(
            (name, value)
            for name, value in vars(self).items()
            if name != "_kept" and name not in self._kept
        )
        return fresh

    # What backward needs.

    def _need(self, i: int) -> bool:
        """Whether backward has to return the gradient of input `i`."""
        return not self._needs or self._needs[i]

    save = _c.TapeOperator.save
    load = _c.TapeOperator.load

    def _follow_training(self) -> None:
        """Decides whether `save` keeps tensors, where forward was called by hand."""
        self.requires_grad = state.training

    def _checked(self) -> tuple[Any, ...]:
        """What `load` returns, or raises, where more was kept than saved, or something is wrong."""
        if not self._saved:
            raise RuntimeError(self._lost_message())
        self._check()
        return self._saved

    def _held(self) -> tuple[Raw | None, ...]:
        """What it keeps for backward."""
        kept = [t for name in self._kept for t in _raws(self.__dict__.get(name))]
        return (*(self._saved or ()), *kept)

    def _check(self) -> None:
        """Raises RuntimeError where something that it keeps was changed."""
        held = self._held()
        for t, now, then in zip(held, Versions(held), self._versions, strict=True):
            if t is not None and now != then:
                raise RuntimeError(
                    f"[{self.name}] backward needs a tensor that was changed in place after it was "
                    f"saved: {t.ToString()}"
                )

    def _adopt(self, before: set[str]) -> None:
        """Finds what the forward of an operator of the user's has kept as attributes."""
        held = {
            name: value
            for name, value in vars(self).items()
            if name not in before and not name.startswith("_") and _raws(value)
        }
        self._kept = tuple(held)
        self._versions += Versions(tuple([t for value in held.values() for t in _raws(value)]))

    def _lost_message(self) -> str:
        """Why there is nothing saved for backward."""
        if self.requires_grad and self._position >= 0 and not self.src:
            return (
                f"[{self.name}] backward has been here before and freed what was saved for it; "
                "pass retain_graph=True to the first backward to run it twice"
            )
        return (
            f"[{self.name}] saved nothing for backward: no input required a gradient, or the tape "
            "was not recording (set autograd.training, or use autograd.enable_grad())"
        )

    # The walk.

    def _input_gradients(self, dys: Sequence[Raw | None]) -> Sequence[Raw | None]:
        """The gradients of the inputs from those of the outputs, of which one at least is given."""
        src, leads, needs = self.src, self._leads, self._needs
        dxs: Any
        if not src:
            raise RuntimeError(self._lost_message())
        if self._kept:
            self._check()
        if len(leads) < len(src):
            self._needs = tuple([i in leads for i in range(len(src))])
        if current_layer:
            current_layer[1](self._layer)
        try:
            if self._outputs:
                dxs = self.backward(
                    *[
                        _c.Full(shape, 0.0, device, dtype) if dy is None else dy
                        for dy, (shape, device, dtype) in zip(dys, self._outputs, strict=True)
                    ]
                )
            else:
                dxs = self.backward(dys[0])
        finally:
            self._needs = needs
            if current_layer:
                current_layer[1]("")
        if not isinstance(dxs, (tuple, list)):
            dxs = (dxs,)
        if len(dxs) != len(src):
            raise RuntimeError(
                f"[{self.name}] backward returned {len(dxs)} gradients for {len(src)} inputs"
            )
        for follow in backward_followers:
            follow(self, dys, dxs)
        return dxs

    def _keep_values(self, blocks: Set[int]) -> None:
        """Copies what it keeps that lies in these blocks, to which others will write."""
        before = self._held()
        if len(before) != len(self._versions) or not any([_lies_in(t, blocks) for t in before]):
            return
        self._saved = _with_copies(self._saved, blocks)
        for name in self._kept:
            if name in self.__dict__:
                setattr(self, name, _with_copies(self.__dict__[name], blocks))
        held = self._held()
        self._versions = tuple(
            then if t is old else now
            for t, now, old, then in zip(held, Versions(held), before, self._versions, strict=True)
        )

    def _release(self) -> None:
        """Lets go of the inputs and of what was saved."""
        self._release_sources()
        if self._saved:
            self._saved = ()
        for name in self._kept:
            self.__dict__.pop(name, None)


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


def _lies_in(t: Raw | None, blocks: Set[int]) -> bool:
    return t is not None and t.block_id() in blocks


def _with_copies(value: Any, blocks: Set[int]) -> Any:
    """A value as in `_raws`, in which raw tensors in these blocks are copies."""
    if isinstance(value, _c.Tensor):
        return value.Clone() if _lies_in(value, blocks) else value
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

    def output_name(self, idx: int) -> str:
        """The name of the tensor, without a number."""
        return self.name

    def backward(self, *dys: Any, **options: Any) -> Raw:
        raise RuntimeError(
            f"[backward] tensor {self._name or 'without a name'} was not computed on the tape: no "
            "input required a gradient, or autograd.training was not set"
        )


def _creator(self: Tensor) -> Operator:
    """The operator that computed it; an `autograd.Dummy` where there is none. While the tape
    records, also an operator that it does not keep, because no gradient passes through.

    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[1.0], stores_grad=True)
    >>> type(autograd.exp(x).creator).__name__
    'Exp'
    """
    if self._creator is None:
        self._creator = Dummy(self)
    return self._creator


def _set_creator(self: Tensor, creator: Operator | None) -> None:
    self._creator = creator


install({"creator": property(_creator, _set_creator)})


def apply(op: Operator, *xs: Tensor) -> Tensor:
    """The first output of `op`, for arithmetic on tensors.

    It is recorded only where that leads to a tensor that stores its gradient. A call of the
    operator itself records whenever an input requires a gradient, which is the default of every
    tensor: too much for plain calculations such as running averages, which would keep their whole
    history.
    """
    raws = []
    needs = False
    for x in xs:
        if x.requires_grad:
            needs = True
            if state.recording and (
                x.stores_grad or (x._creator is not None and x._creator._leads)
            ):
                return op(*xs)[0]
        raws.append(x.data)
    op.requires_grad = False
    y: Any = op.forward(*raws)
    result = wrap(y, needs)
    for follow in followers:
        follow(op, xs, (result,))
    return result


_Output = tuple[Operator, int]


def infer_dependency(op: Operator) -> tuple[Counter[Operator], Counter[_Output]]:
    """For each operator that `op` depends on, and for each output of one, how many operators take
    it.

    >>> autograd.training = True
    >>> x = tensor.Tensor(data=[1.0, 2.0], stores_grad=True)
    >>> y = autograd.exp(x)
    >>> len(autograd.infer_dependency((y + y * y).creator))
    2
    """
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

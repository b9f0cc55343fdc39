"""The walk back over the tape, from a result to the tensors that store their gradients."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from .. import singa_wrap as _c
from ..dtypes import BY_VALUE, is_float
from ..raw.arrays import kind_of
from ..raw.calls import argument_error, says_what_to_write
from ..raw.check import flag
from .behaviour import behaviour
from .elements import as_raw
from .grad_mode import enable_grad
from .operator import Operator
from .tensor import Tensor, install, wrap

if TYPE_CHECKING:
    from .operator import Gradient, Raw

#: An output of an operator: the operator where it is the first, else with the index.
_Output = Operator | tuple[Operator, int]


def _reachable(
    root: Operator,
) -> tuple[list[Operator], dict[_Output, int], dict[_Output, Tensor]]:
    """What a walk from `root` visits:

    - the operators that lead to a stored gradient, oldest first;
    - how many gradients each tensor gets at which the walk ends;
    - the tensors that store their gradients.
    """
    operators = [root] if root._leads else []
    seen = {root}
    waiting: dict[_Output, int] = {}
    storing: dict[_Output, Tensor] = {}
    for op in operators:  # which grows meanwhile
        src = op.src
        if not src:
            raise RuntimeError(op._lost_message())
        for i in op._leads:
            creator, index, x, _ = src[i]
            output = (creator, index) if index else creator
            if x is not None:
                storing[output] = x
            if not creator._leads:
                waiting[output] = waiting[output] + 1 if output in waiting else 1
            elif creator not in seen:
                seen.add(creator)
                operators.append(creator)
    operators.sort(key=_position)
    return operators, waiting, storing


_position = attrgetter("_position")


def _for_user(gradient: Gradient, x: Tensor) -> Tensor:
    """The gradient of x as a tensor to which the user may write."""
    raw, is_ours = gradient
    result = wrap(raw if is_ours else raw.Clone(), False)
    result.name = x.name
    return result


def _walk(
    y: Tensor, dy: Raw, retain_graph: bool, number: float | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields what `backward` does. With a `number` equal to dy, the operator that made y gets it
    instead of dy."""
    root = y.creator
    first: _Output = (root, y._index) if y._index else root
    operators, waiting, storing = _reachable(root)
    arrived: dict[_Output, Gradient] = {first: (dy, False)}
    changing: set[int] = set()  # memory that the user may write to between two walks
    if behaviour.repeats_backward:
        retain_graph = True
    elif retain_graph:
        changing = {x.data.block_id() for x in storing.values()}
    if y.stores_grad:
        storing[first] = y
        if not root._leads:
            yield y, _for_user((dy, False), y)
    while operators:
        op = operators.pop()
        src, dxs, given = op.src, None, False
        dys: list[Any] = []
        for output in _outputs(op) if op._outputs else (op,):
            if output not in arrived:
                dys.append(None)
                continue
            given = True
            dys.append(arrived.pop(output)[0])
            if output in storing:
                # The walk goes on with it, so the user gets a copy.
                yield storing[output], _for_user((dys[-1], False), storing[output])
        if given:
            if number is not None and op is root:
                dys = [number]
            dxs = op._input_gradients(dys)
            if changing:
                op._keep_values(changing)
        if not (retain_graph or op._users):
            op._release()
        fresh = op.fresh_gradients
        complete = []
        for i in op._leads:
            creator, index, _, _ = src[i]
            output = (creator, index) if index else creator
            dx = None if dxs is None else dxs[i]
            if dx is not None:
                if output not in arrived:
                    arrived[output] = dx, fresh
                elif arrived[output][1]:
                    _c.Axpy(1.0, dx, arrived[output][0])
                else:
                    arrived[output] = _c.Binary(_c.BinaryOp_kAdd, arrived[output][0], dx), True
            if output in waiting:
                waiting[output] -= 1
                if not waiting[output]:
                    complete.append(output)
        del src, creator, dys, dxs, dx  # what the user gets next may need the memory
        for output in complete:
            if output in arrived:
                x = storing[output]
                if not op._is_builtin:
                    _check_gradient(op, x, arrived[output][0])
                yield x, _for_user(arrived.pop(output), x)


def _outputs(op: Operator) -> list[_Output]:
    """The outputs of an operator that has several."""
    return [(op, i) if i else op for i in range(len(op._outputs))]


def _check_gradient(op: Operator, x: Tensor, gradient: Raw) -> None:
    if not isinstance(gradient, _c.Tensor):
        raise TypeError(
            f"[{op.name}] backward must return raw tensors or None, got {type(gradient).__name__}"
        )
    if not gradient.same_shape(x.data):
        raise RuntimeError(
            f"[{op.name}] backward returned a gradient of shape {gradient.shape()} for "
            f"{x.name or 'an input'} of shape {x.shape}"
        )


def backward(
    y: Tensor, dy: object = None, retain_graph: bool = False, create_graph: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Walks back from `y` and yields (tensor, gradient) for each tensor that stores its gradient,
    as soon as that gradient is complete. The tensor may then be updated while the walk goes on.

    `dy` is the gradient of y: a tensor, array or number; the default is 1, for a y of one element.
    The walk releases what the operators saved, so a second walk raises RuntimeError unless the
    first had `retain_graph`. Operators from which something outside this walk was computed are
    kept. `retain_graph` copies the values of parameters, so that a second walk gives the same
    gradients after an update. Under `singa.compat` every walk retains, and copies nothing, and a
    user's operator that made y gets a number, or 1.0 by default, as it is. Raises ValueError when
    dy is missing or does not have y's shape, TypeError with PyTorch's `create_graph`: there are no
    second derivatives.

    >>> autograd.training = True
    >>> w = tensor.Tensor(data=[1.0, 2.0], stores_grad=True, name="w")
    >>> for parameter, gradient in autograd.backward(autograd.sum(w * w)):
    ...     print(parameter.name, gradient)
    ...
    w Tensor([2., 4.], dtype=float32)
    """
    if create_graph:
        raise argument_error("backward", "create_graph")
    if retain_graph is not False:
        retain_graph = flag("backward", "retain_graph", retain_graph)
    if not isinstance(y, Tensor):
        raise TypeError(f"[backward] y must be a Tensor, got {kind_of(y)}")
    if isinstance(dy, Tensor) and dy.data.matches(y.data):
        return _walk(y, dy.data, retain_graph)
    shape = y.shape
    if dy is None:
        if y.size() != 1:
            raise ValueError(f"[backward] y has shape {shape}: only one element needs no dy")
        dy = 1.0
    if isinstance(dy, (int, float)):
        raw = _c.Full(shape, float(dy), y.device, y.dtype)
        if behaviour.passes_numbers and not (y.creator._is_builtin or y.creator._outputs):
            return _walk(y, raw, retain_graph, float(dy))
    else:
        raw = as_raw(dy, dtype=y.dtype, device=y.device)
        if raw.shape() != shape:
            raise ValueError(f"[backward] dy has shape {raw.shape()}, y has {shape}")
    return _walk(y, raw, retain_graph)


class Gradients(dict[int, Tensor]):
    """Gradients by id(tensor), as SINGA keys them; the tensor itself is taken as a key too.

    >>> autograd.training = True
    >>> w = tensor.Tensor(data=[1.0, 2.0], stores_grad=True)
    >>> found = autograd.gradients(autograd.sum(w * w))
    >>> len(found), w in found, found[w]
    (1, True, Tensor([2., 4.], dtype=float32))
    """

    def __init__(self) -> None:
        super().__init__()
        self._tensors: list[Tensor] = []  # alive, so that no other object gets one's id

    def _put(self, x: Tensor, gradient: Tensor) -> None:
        self._tensors.append(x)
        self[id(x)] = gradient

    def tensors(self) -> list[Tensor]:
        """The tensors that have a gradient here."""
        return list(self._tensors)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(id(key) if isinstance(key, Tensor) else key)

    def __missing__(self, key: object) -> Tensor:
        if isinstance(key, Tensor) and key in self:
            return self[id(key)]
        raise KeyError(key)

    def get(self, key: Tensor | int, default: Any = None) -> Any:
        """The gradient of a tensor, or `default` where it has none."""
        return super().get(id(key) if isinstance(key, Tensor) else key, default)


class _Unused(threading.local):
    """Parameters to whose `grad` the last `Tensor.backward` of this thread has added, unless an
    optimizer has made an update since."""

    params: tuple[weakref.ref[Tensor], ...] = ()


unused = _Unused()


def unused_gradients() -> list[Tensor]:
    """Parameters whose `grad` is of the last `Tensor.backward`, and waits for an update."""
    found = [param() for param in unused.params]
    return [param for param in found if param is not None and param.grad is not None]


@says_what_to_write("backward")
def _add_gradients(self: Tensor, dy: object = None, retain_graph: bool = False) -> None:
    """Adds the gradients of this result to `grad` of every tensor that stores its gradient.

    >>> autograd.training = True
    >>> w = tensor.Tensor(data=[1.0, 2.0], stores_grad=True)
    >>> (w * w).sum().backward()
    >>> w.grad
    Tensor([2., 4.], dtype=float32)
    """
    params = []
    for x, gradient in backward(self, dy, retain_graph):
        params.append(weakref.ref(x))
        if x.grad is None:
            x.grad = gradient
        else:
            _c.Axpy(1.0, gradient.data, x.grad.data)
    unused.params = tuple(params)


install({"backward": _add_gradients})


def gradients(
    y: Tensor, dy: object = None, retain_graph: bool = False, create_graph: bool = False
) -> Gradients:
    """The gradients of y for all tensors that store theirs. Arguments as for `backward`.

    >>> autograd.training = True
    >>> w = tensor.Tensor(data=[1.0, 2.0], stores_grad=True)
    >>> autograd.gradients(autograd.sum(w * w))[w]
    Tensor([2., 4.], dtype=float32)
    """
    result = Gradients()
    for x, gradient in backward(y, dy, retain_graph, create_graph):
        result._put(x, gradient)
    return result


@says_what_to_write("input_gradients")
def input_gradients(function: Callable[..., Tensor], *inputs: Any) -> tuple[Tensor, Any]:
    """(value, gradient) of a function of one tensor, or (value, tuple of gradients) of several:
    `function(*inputs)`, a tensor of one element, and its derivatives by the inputs.

        net.eval()
        score, saliency = autograd.input_gradients(lambda x: net(x)[0, cat], image)

    The inputs are float tensors or arrays, and stay as they are. The tape records inside, whatever
    the mode. Gradients of parameters are computed, too, unless they are frozen, and dropped.

    Raises TypeError for inputs of other types, and if the function returns no tensor; ValueError if
    its value has several elements, or does not depend on an input.

    >>> x = np.array([1.0, 2.0])
    >>> value, gradient = autograd.input_gradients(lambda x: autograd.sum(x * x), x)
    >>> value, gradient
    (Tensor(5., dtype=float64), Tensor([2., 4.], dtype=float64))
    """
    leaves = []
    for i, x in enumerate(inputs):
        raw = as_raw(x)
        if not is_float(raw.data_type()):
            kind = BY_VALUE[raw.data_type()]
            raise TypeError(f"[input_gradients] input {i} must be of floats, got {kind}")
        leaves.append(wrap(raw, True))
        leaves[-1].stores_grad = True
    with enable_grad():
        value = function(*leaves)
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"[input_gradients] the function must return a tensor, got {kind}")
    found = gradients(value)
    for i, leaf in enumerate(leaves):
        if id(leaf) not in found:
            raise ValueError(f"[input_gradients] the value does not depend on input {i}")
    by_input = tuple([found[id(leaf)] for leaf in leaves])
    return wrap(value.data, False), by_input[0] if len(by_input) == 1 else by_input

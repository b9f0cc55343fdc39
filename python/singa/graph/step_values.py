"""Arguments and results of a step: the tensors among them, and what tells kinds of steps apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import singa_wrap as _c
from ..tape.tensor import Tensor, wrap
from .tokens import exact


class UnknownError(Exception):
    """A value of a type that may contain tensors, but cannot be searched for them."""


def mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """`value` with each tensor in it replaced by function(tensor).

    Raises UnknownError for objects other than tensors, containers and plain values.
    """
    if isinstance(value, Tensor):
        if type(value) is not Tensor or None in [one for _, one in _attributes(value)]:
            raise UnknownError(f"{type(value).__name__} with attributes")
        return function(value)
    if type(value) in (list, tuple):
        return type(value)([mapped(item, function) for item in value])
    if type(value) is dict:
        return {name: mapped(item, function) for name, item in value.items()}
    if value is None or isinstance(value, _PLAIN):
        return value
    raise UnknownError(type(value).__name__)


def _attributes(t: Tensor) -> tuple[tuple[str, Any], ...]:
    """What the program has set besides the attributes of each tensor."""
    own = vars(t)
    return tuple([(n, exact(one)) for n, one in own.items() if n != "counted"]) if own else ()


_PLAIN = (int, float, str, bytes, bool)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, each followed by how many targets it counts, if it is such a loss.
    Raises UnknownError as `mapped`."""
    found: list[Tensor] = []
    mapped(value, found.append)
    return [each for t in found for each in (t, t.counted) if each is not None]


def key_of(value: Any, tensors: list[Tensor]) -> Any:
    """The part of a step's key that comes from an argument. Adds its tensors to `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        raw = value.data
        kind = (raw.type_and_place(), raw.type_and_shape())
        flags = (value.requires_grad, value.stores_grad, is_computed(value))
        return (kind, flags, _attributes(value))
    if isinstance(value, list | tuple):
        return (type(value), tuple([key_of(item, tensors) for item in value]))
    if isinstance(value, dict):
        return tuple([(name, key_of(item, tensors)) for name, item in value.items()])
    return exact(value) or (type(value), value, id(value))


def objects_in(value: Any) -> list[Any]:
    """What is among arguments besides tensors, containers and plain values, such as members of an
    IntEnum. A replay depends on what they lead to."""
    if isinstance(value, list | tuple):
        return [found for item in value for found in objects_in(item)]
    if isinstance(value, dict):
        return objects_in(list(value.values()))
    return [] if isinstance(value, Tensor) or exact(value) is not None else [value]


def is_computed(t: Tensor) -> bool:
    """Whether gradients may go on from it, to what it was computed from."""
    return t._creator is not None and not t.is_dummy()


def identity(value: Any) -> Any:
    """What a step changes if it changes an argument in place, apart from elements of tensors."""
    if isinstance(value, Tensor):
        flags = value.requires_grad, value.stores_grad, value.name
        attributes = [(name, id(one)) for name, one in vars(value).items()]
        return id(value), id(value.data), flags, id(value.grad), attributes
    if isinstance(value, list | tuple):
        return id(value), [identity(item) for item in value]
    if isinstance(value, dict):
        return id(value), [(name, identity(item)) for name, item in value.items()]
    return id(value)


def separate(tensors: list[Tensor], others: list[_c.Tensor]) -> list[Tensor]:
    """The tensors, with copies for those that are not dense or share memory with another one or
    with one of `others`."""
    result: list[Tensor] = []
    for t in tensors:
        raw = t.data
        taken = others + [other.data for other in result]
        if not raw.FillsBlock() or any([raw.SharesMemory(other) for other in taken]):
            copy = wrap(raw.Clone(), t.requires_grad)
            copy.stores_grad, copy.name = t.stores_grad, t.name
            vars(copy).update(vars(t))
            t = copy
        result.append(t)
    return result


class Like:
    """Placeholder for a tensor in the structure of a step's result."""

    def __init__(self, t: Tensor) -> None:
        self.requires_grad = t.requires_grad
        self.name = t.name
        self.is_counted = t.counted is not None
        self.attributes = {n: one for n, one in vars(t).items() if n != "counted"}

    def over(self, raws: Iterator[_c.Tensor]) -> Tensor:
        """A tensor with the next of `raws`."""
        t = wrap(next(raws), self.requires_grad)
        t.name = self.name
        if self.attributes:
            vars(t).update(self.attributes)
        if self.is_counted:
            t.counted = wrap(next(raws), False)
        return t


def filled(template: Any, raws: Iterator[_c.Tensor]) -> Any:
    """The structure with tensors over `raws` in the places of its `Like`s."""
    if isinstance(template, Like):
        return template.over(raws)
    if isinstance(template, list | tuple):
        return type(template)([filled(item, raws) for item in template])
    if isinstance(template, dict):
        return {name: filled(item, raws) for name, item in template.items()}
    return template

"""Arguments and results of a step: the tensors among them, and what tells kinds of steps apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
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


def key_of(value: Any) -> Any:
    """What tells results of a step apart, besides the elements of tensors."""
    tensors: list[Tensor] = []
    return key_parts((value,), tensors), _c.KindsOf(list(map(RAW, tensors)))


#: The raw tensor of a tensor.
RAW = attrgetter("data")


def key_parts(values: Iterable[Any], tensors: list[Tensor]) -> tuple[Any, ...]:
    """The part of a step's key that comes from each argument, apart from `KindsOf` its tensors,
    which are added to `tensors`. One loop, because each replay comes by here."""
    parts: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
            computed = value._creator is not None and is_computed(value)
            own = value.__dict__ and _attributes(value)
            parts.append((value.requires_grad, value.stores_grad, computed, own or ()))
        elif isinstance(value, list | tuple):
            parts.append((type(value), key_parts(value, tensors)))
        elif isinstance(value, dict):
            parts.append((tuple(value), key_parts(value.values(), tensors)))
        else:
            parts.append(exact(value) or (type(value), value, id(value)))
    return tuple(parts)


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


def filled(templates: Iterable[Any], raws: Iterator[_c.Tensor]) -> list[Any]:
    """The structures with tensors over `raws` in the places of their `Like`s."""
    found: list[Any] = []
    for each in templates:
        if isinstance(each, Like):
            t = wrap(next(raws), each.requires_grad)
            t.name = each.name
            if each.attributes:
                vars(t).update(each.attributes)
            if each.is_counted:
                t.counted = wrap(next(raws), False)
            found.append(t)
        elif isinstance(each, list | tuple):
            found.append(type(each)(filled(each, raws)))
        elif isinstance(each, dict):
            found.append(dict(zip(each, filled(each.values(), raws), strict=True)))
        else:
            found.append(each)
    return found

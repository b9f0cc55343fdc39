"""What the graph of a module depends on besides the values of its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import is_, methodcaller
from typing import Any, NamedTuple

#: Attributes of every module of PyTorch, which are looked at one by one.
_OF_ANY_MODULE = frozenset(
    {
        *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"),
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks"),
        *("_forward_hooks_always_called", "_is_full_backward_hook", "_state_dict_pre_hooks"),
        *("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "call_super_init"),
        *("dump_patches", "_backward_post_hooks"),
    }
)
_PLAIN = (bool, int, float, str, type(None))
_values = methodcaller("values")


class Value(NamedTuple):
    """A parameter or buffer.

    name   as in `state_dict()`
    first  the name under which the same tensor comes first
    """

    name: str
    first: str
    tensor: Any
    is_buffer: bool


class Key:
    """Equal for modules of equal graphs. It is hashed once: it has all attributes of all parts."""

    def __init__(self, parts: tuple[Any, ...], kinds: tuple[Any, ...]) -> None:
        self.parts = parts
        self._all = parts, kinds
        self._hash = hash(self._all)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._all == other._all


class Signature(NamedTuple):
    """A module as it is now.

    key     equal for modules of equal graphs
    values  its parameters and buffers
    kept    objects that `key` has by their ids
    trains  whether a part of it is in training mode
    watch   tells whether a new signature would be the same
    """

    key: Key
    values: list[Value]
    kept: list[Any]
    trains: bool
    watch: Watch


class Watch:
    """The attributes of a module's parts and their tensors, as they were.

    That nothing has changed is found without a look at each attribute: the contents of all
    dictionaries, lists and sets are compared in one go, by identity.
    """

    def __init__(
        self, parts: Sequence[Any], tensors: Sequence[Any], constants: Sequence[Any]
    ) -> None:
        self._dicts: list[Any] = []
        self._lists: list[Any] = []
        self._sets: list[Any] = []
        seen: set[int] = set()
        for part in parts:
            self._add(part.__dict__, seen)
        self._tensors, self._constants = tensors, constants
        self._before = self._now()

    def _add(self, value: Any, seen: set[int]) -> None:
        """Adds a container and those in it."""
        if id(value) in seen:
            return
        if isinstance(value, dict):
            self._dicts.append(value)
        elif isinstance(value, list):
            self._lists.append(value)
        elif isinstance(value, set):
            self._sets.append(value)
        elif not isinstance(value, tuple):
            return
        seen.add(id(value))
        for each in value.values() if isinstance(value, dict) else value:
            self._add(each, seen)

    def _now(self) -> tuple[list[Any], list[Any]]:
        """What is compared by identity, and what is equal if it is the same."""
        held = [
            *chain.from_iterable(self._dicts),
            *chain.from_iterable(map(_values, self._dicts)),
            *chain.from_iterable(self._lists),
        ]
        equal = [
            *map(len, self._dicts),
            *map(len, self._lists),
            *map(frozenset, self._sets),
            *[(x.dtype, x.shape, x.is_cpu, x.layout) for x in self._tensors],
            *[(x.data_ptr(), x._version) for x in self._constants],
        ]
        return held, equal

    def unchanged(self) -> bool:
        held, equal = self._now()
        before, equal_before = self._before
        return len(held) == len(before) and all(map(is_, held, before)) and equal == equal_before


def signature(torch: Any, module: Any) -> Signature:
    """The module's modes, the attributes of its parts, and what kinds of tensors it has.

    Raises NotImplementedError for hooks of its parts, and for tensors that are not on the CPU.
    """
    parts: list[Any] = []
    values: list[Value] = []
    kinds: list[Any] = []
    kept: list[Any] = []
    constants: list[Any] = []
    names: dict[int, str] = {}
    trains = False
    for path, part in module.named_modules(remove_duplicate=False):
        _check_hooks(path, part)
        kept.append(part)
        trains = trains or part.training
        attributes = tuple(_attributes(torch, part, kept))
        parts.append((path, id(part), part.training, attributes))
        prefix = f"{path}." if path else ""
        for held, is_buffer in ((part._parameters, False), (part._buffers, True)):
            for own, value in held.items():
                if value is None:
                    continue
                name = prefix + own
                if torch.nn.parameter.is_lazy(value):
                    raise NotImplementedError(
                        f"[accelerate] {name} has no elements yet: call the module once in PyTorch"
                    )
                if not (is_buffer or isinstance(value, torch.nn.Parameter)):
                    raise NotImplementedError(
                        f"[accelerate] {name} is a {type(value).__name__} and no Parameter, as "
                        "torch.func.functional_call makes it: write into the parameter's .data"
                    )
                first = names.setdefault(id(value), name)
                if value.device.type != "cpu" or value.layout != torch.strided:
                    raise NotImplementedError(
                        f"[accelerate] {name} is on {value.device} ({value.layout}): take a dense "
                        "tensor on the CPU. singa.from_torch computes on GPUs"
                    )
                values.append(Value(name, first, value, is_buffer))
                # Export makes constants of buffers that no file keeps.
                constant = is_buffer and own in part._non_persistent_buffers_set
                written = (value.data_ptr(), value._version) if constant else None
                constants += [value] * constant
                kinds.append((name, first, value.dtype, value.shape, written))
    constants += [x for x in kept if isinstance(x, torch.Tensor)]
    watch = Watch(list(module.modules()), [value.tensor for value in values], constants)
    return Signature(Key(tuple(parts), tuple(kinds)), values, kept, trains, watch)


def _attributes(torch: Any, part: Any, kept: list[Any]) -> Iterator[Any]:
    for name, value in part.__dict__.items():
        if name not in _OF_ANY_MODULE:
            yield name, _plain(torch, value, kept)


def _plain(torch: Any, value: Any, kept: list[Any]) -> Any:
    """Something hashable that is equal for equal values."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind in (tuple, list):
        return kind, tuple([_plain(torch, each, kept) for each in value])
    if kind is dict:
        return kind, tuple([(str(k), _plain(torch, v, kept)) for k, v in value.items()])
    kept.append(value)
    return id(value), value._version if isinstance(value, torch.Tensor) else 0


def _check_hooks(path: str, part: Any) -> None:
    where = f"[accelerate] {path or 'the module'} ({type(part).__name__}) has a"
    if part._backward_hooks or part._backward_pre_hooks:
        raise NotImplementedError(
            f"{where} backward hook: its gradients stay inside of singa. Hooks of parameters and "
            "of the accelerated module itself work"
        )
    for hook in (*part._forward_hooks.values(), *part._forward_pre_hooks.values()):
        package = getattr(hook, "__module__", None) or type(hook).__module__
        if not package.startswith(("torch.nn.utils", "torch.nn.modules.lazy", "torch.export")):
            raise NotImplementedError(
                f"{where} forward hook: its output stays inside of singa. Hooks of the accelerated "
                "module itself work"
            )


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def assignments(part: Any, before: dict[str, Any]) -> list[tuple[Any, str, Any]]:
    """(part, name, value) of numbers and texts that were assigned to a part since `before`."""
    return [
        (part, name, value)
        for name, value in part.__dict__.items()
        if name not in _OF_ANY_MODULE
        and _is_plain(value)
        and (name not in before or before[name] != value)
    ]


def changed(before: Signature, after: Signature) -> str:
    """The path and attribute of the first part in which two signatures differ."""
    for one, other in zip(before.key.parts, after.key.parts, strict=False):
        if one != other:
            old, new = dict(one[3]), dict(other[3])
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            return ".".join(filter(None, (one[0], *names[:1])))
    return "a buffer"

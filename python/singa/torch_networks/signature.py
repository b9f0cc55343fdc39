"""What the graph of a module depends on besides the values of its parameters."""

from __future__ import annotations

from collections.abc import Iterator
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


class Value(NamedTuple):
    """A parameter or buffer.

    name   as in `state_dict()`
    first  the name under which the same tensor comes first
    """

    name: str
    first: str
    tensor: Any
    is_buffer: bool


class Signature(NamedTuple):
    """A module as it is now.

    key     equal for modules of equal graphs
    values  its parameters and buffers
    kept    objects that `key` has by their ids
    trains  whether a part of it is in training mode
    """

    key: Any
    values: list[Value]
    kept: list[Any]
    trains: bool


def signature(torch: Any, module: Any) -> Signature:
    """The module's modes, the attributes of its parts, and what kinds of tensors it has.

    Raises NotImplementedError for hooks of its parts, and for tensors that are not on the CPU.
    """
    parts: list[Any] = []
    values: list[Value] = []
    kinds: list[Any] = []
    kept: list[Any] = []
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
                first = names.setdefault(id(value), name)
                if value.device.type != "cpu" or value.layout != torch.strided:
                    raise NotImplementedError(
                        f"[accelerate] {name} is on {value.device} ({value.layout}): singa "
                        "computes with dense tensors of the CPU here"
                    )
                values.append(Value(name, first, value, is_buffer))
                # Export makes constants of buffers that no file keeps.
                constant = is_buffer and own in part._non_persistent_buffers_set
                written = (value.data_ptr(), value._version) if constant else None
                kinds.append((name, first, value.dtype, value.shape, written))
    return Signature((tuple(parts), tuple(kinds)), values, kept, trains)


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
        if not package.startswith("torch.nn.utils"):
            raise NotImplementedError(
                f"{where} forward hook: its output stays inside of singa. Hooks of the accelerated "
                "module itself work"
            )


def assignments(part: Any, before: dict[str, Any]) -> list[tuple[Any, str, Any]]:
    """(part, name, value) of numbers and texts that were assigned to a part since `before`."""
    return [
        (part, name, value)
        for name, value in part.__dict__.items()
        if name not in _OF_ANY_MODULE
        and type(value) in (*_PLAIN, tuple)
        and (name not in before or before[name] != value)
    ]


def changed(before: Signature, after: Signature) -> str:
    """The path and attribute of the first part in which two signatures differ."""
    for one, other in zip(before.key[0], after.key[0], strict=False):
        if one != other:
            old, new = dict(one[3]), dict(other[3])
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            return ".".join(filter(None, (one[0], *names[:1])))
    return "a buffer"

"""Hooks: functions that run before and after a layer, as in PyTorch.

A layer without hooks knows nothing of them: the first one puts a `Hooked` in the place of the
layer's `forward`, and the last one to go takes it away.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from ..tape.step_recording import state as current

if TYPE_CHECKING:
    from .base import Layer

#: hook(layer, arguments): None, or other arguments, as a tuple unless there is one.
PreHook = Callable[[Any, tuple[Any, ...]], Any]
#: hook(layer, arguments, output): None, or another output.
Hook = Callable[[Any, tuple[Any, ...], Any], Any]

#: Counts the hooks that have come and gone in this process.
changes = itertools.count(1)
last_change = 0


def _note_change() -> None:
    global last_change
    last_change = next(changes)


class _Hooks:
    """The hooks of one layer, in the order in which they run."""

    #: What a hook leads to is its own business: steps with hooks are executed.
    not_settings: ClassVar[tuple[str, ...]] = ("before", "after")

    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self.inner = inner  # a `forward` that was assigned to the layer; None: that of the class
        self.before: dict[int, PreHook] = {}
        self.after: dict[int, Hook] = {}


class Hooked:
    """Stands in for `forward` of a layer that has hooks. Copies of the layer have them, too."""

    def __init__(self, layer: Layer, hooks: _Hooks) -> None:
        self._layer, self.hooks = weakref.ref(layer), hooks

    def __reduce__(self) -> Any:
        return Hooked, (self._layer(), self.hooks)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        layer = self._layer()
        return self.hooks.inner or MethodType(type(layer).forward, layer)  # type: ignore[union-attr]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self._layer()
        assert layer is not None  # it calls
        if current.recording is not None:
            current.recording.hooked = f"{layer.title} has a hook, which a replay would not run"
        for before in list(self.hooks.before.values()):
            given = before(layer, args)
            if given is not None:
                args = given if isinstance(given, tuple) else (given,)
        output = self.__wrapped__(*args, **kwargs)
        for after in list(self.hooks.after.values()):
            given = after(layer, args, output)
            if given is not None:
                output = given
        return output


class HookHandle:
    """What registering a hook returns. The hook ends with `remove()`, or with a `with` block."""

    def __init__(self, layer: Layer, number: int) -> None:
        self._layer, self._number = weakref.ref(layer), number

    def remove(self) -> None:
        """Removes the hook. A second call does nothing."""
        layer = self._layer()
        hooked = None if layer is None else hooked_forward(layer)
        if layer is None or hooked is None:
            return
        hooks = hooked.hooks
        for each in (hooks.before, hooks.after):
            each.pop(self._number, None)
        if not hooks.before and not hooks.after:
            del layer.__dict__["forward"]
            if hooks.inner is not None:
                layer.__dict__["forward"] = hooks.inner
        _note_change()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def hooked_forward(layer: Layer) -> Hooked | None:
    """What stands in for `forward` of a layer with hooks; None of another layer."""
    forward = layer.__dict__.get("forward")
    return forward if isinstance(forward, Hooked) else None


def _register(layer: Layer, kind: str, hook: Callable[..., Any], prepend: bool) -> HookHandle:
    if not callable(hook):
        raise TypeError(f"[{layer.title}] a hook must be a function, got {type(hook).__name__}")
    hooked = hooked_forward(layer)
    if hooked is None:
        hooked = Hooked(layer, _Hooks(layer.__dict__.get("forward")))
        layer.__dict__["forward"] = hooked
    _note_change()
    hooks: dict[int, Any] = getattr(hooked.hooks, kind)
    others = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[last_change] = hook
    hooks.update(others)
    return HookHandle(layer, last_change)


class Hookable:
    """What hooks add to layers."""

    def register_forward_hook(self: Any, hook: Hook, *, prepend: bool = False) -> HookHandle:
        """Has each call of this layer end with `hook(layer, arguments, output)`, as in PyTorch.

        hook     gets the positional arguments as a tuple; if it returns something other than None,
                 that is the output of the layer
        prepend  whether it runs before the hooks that are there (default: after them)

        It also runs where the model calls `self.forward`. A layer that computes others in one
        operation, such as batch norm with its ReLU, has the output of the last; a Sequential runs
        layers with hooks one by one. Recorded steps in which a hook runs are executed, with a
        GraphWarning (docs/recorded_steps.md).

            with net.layer1.register_forward_hook(lambda layer, args, out: print(out.shape)):
                net(x)

        Returns a handle, whose `remove()` ends the hook. Raises TypeError for what is no function.

        >>> linear = layer.Linear(2)
        >>> with linear.register_forward_hook(lambda layer, args, out: print(out.shape)):
        ...     y = linear(tensor.ones((1, 3)))
        ...
        (1, 2)
        """
        return _register(self, "after", hook, prepend)

    def register_forward_pre_hook(self: Any, hook: PreHook, *, prepend: bool = False) -> HookHandle:
        """Has each call of this layer begin with `hook(layer, arguments)`. If it returns something
        other than None, these are the arguments: a tuple, or the only one. The rest is as for
        register_forward_hook.

        >>> relu = layer.ReLU()
        >>> with relu.register_forward_pre_hook(lambda layer, args: -args[0]):
        ...     print(relu(tensor.Tensor(data=[-1.0, 2.0])))
        ...
        Tensor([1., 0.], dtype=float32)
        """
        return _register(self, "before", hook, prepend)

"""Whether the tape records.

Two flags of each thread decide: `training` (SINGA's module flag) and the contexts `no_grad` and
`enable_grad`, which take precedence over it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any


class _State(threading.local):
    training = False
    grad_mode: bool | None = None  # what no_grad or enable_grad say; None: follow `training`
    recording = False


#: This thread's flags, for who reads them at each operation.
state: _State = _State()


def training() -> bool:
    """This thread's training flag: batch norm, dropout and the tape follow it."""
    return state.training


def set_training(flag: bool) -> None:
    """Sets this thread's training flag."""
    state.training = bool(flag)
    _update_recording()


def is_recording() -> bool:
    """Whether operators applied now, in this thread, are recorded.

    >>> autograd.is_recording()
    False
    >>> autograd.training = True
    >>> autograd.is_recording()
    True
    """
    return state.recording


def grad_mode() -> bool | None:
    """What `no_grad` (False) or `enable_grad` (True) says in this thread; None outside of both."""
    return state.grad_mode


def _update_recording() -> None:
    mode = state.grad_mode
    state.recording = state.training if mode is None else mode


class _GradMode(contextlib.ContextDecorator):
    _mode: bool

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        """With a function, as a decorator without parentheses: the function, decorated."""
        return super().__new__(cls) if function is None else cls()(function)

    def __init__(self) -> None:
        self._outer: list[bool | None] = []

    def __enter__(self) -> None:
        self._outer.append(state.grad_mode)
        state.grad_mode = self._mode
        _update_recording()

    def __exit__(self, *error: object) -> None:
        state.grad_mode = self._outer.pop()
        _update_recording()

    def _recreate_cm(self) -> _GradMode:
        return type(self)()  # one per call: a decorated function may run in many threads


class no_grad(_GradMode):  # noqa: N801 (the field's spelling)
    """Context or decorator: nothing is recorded. The training flag, which batch norm and dropout
    follow, stays as it is.

    >>> autograd.training = True
    >>> with autograd.no_grad():
    ...     print(autograd.is_recording())
    ...
    False
    >>> autograd.is_recording()
    True
    """

    _mode = False


class enable_grad(_GradMode):  # noqa: N801
    """Context or decorator: operators are recorded, inside `no_grad` or without training too.

    >>> with autograd.enable_grad():
    ...     print(autograd.is_recording())
    ...
    True
    >>> autograd.is_recording()
    False
    """

    _mode = True

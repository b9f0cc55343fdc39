"""What the capture of a step for replay has to know beside its operations.

`singa.graph` captures; the code that a step runs says here what a replay has to do besides. Outside
of a capture these functions do nothing, or call at once.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import singa_wrap as _c

if TYPE_CHECKING:
    from .tensor import Tensor

#: (segment, ready, renew): see `capture_update`.
Update = tuple[int, Callable[[], bool], Callable[[], object]]


class Capture:
    """A capture in progress: its operations in C++, and what a replay does between them."""

    def __init__(self, recording: Any) -> None:
        self.recording = recording
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[Update] = []
        self.moved: dict[int, tuple[Tensor, _c.Tensor]] = {}  # and what they were before the step
        self.hooked = ""  # why a replay would not do the same, if a hook ran


class _State(threading.local):
    """Refers weakly to the capture, which belongs to the call that captures: an interrupt at any
    line ends it with that call, also where nothing sets it to None."""

    _capture: ref[Capture] | None = None

    @property
    def capture(self) -> Capture | None:
        return None if self._capture is None else self._capture()

    @capture.setter
    def capture(self, capture: Capture | None) -> None:
        self._capture = None if capture is None else ref(capture)


#: This thread's capture.
state: _State = _State()


def is_capturing() -> bool:
    """Whether this thread captures a step."""
    return state.capture is not None


def host_call(function: Callable[[], Any], lent: Sequence[_c.Tensor] = ()) -> Any:
    """Calls `function`, which a replay calls again at the same place.

    For what a step does that is not the same every time, such as an optimizer with its schedule.
    `lent` are temporaries of the step that the function uses and then releases. Its results must
    not be used by operations of the step.
    """
    capture = state.capture
    if capture is None:
        return function()
    capture.recording.Pause(lent)
    state.capture = None  # calls inside this one are part of it
    result = function()
    state.capture = capture
    capture.recording.Resume()
    capture.calls.append(function)
    return result


def host_called(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose calls, within a step that is captured, are host calls."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.capture is None:
            return method(self, *args, **kwargs)
        return host_call(functools.partial(method, self, *args, **kwargs))

    return call


def capture_update(ready: Callable[[], bool], renew: Callable[[], object]) -> None:
    """Has a step that is being captured ask `ready`, before each replay, whether what was captured
    still holds, and call `renew` when all host calls before this place have been made."""
    assert state.capture is not None
    state.capture.updates.append((len(state.capture.calls), ready, renew))


def move_back(t: Tensor) -> None:
    """Moves `t`, which is about to get new memory, back to its original memory at the end of a step
    that is captured, because a replay starts from there."""
    if state.capture is not None:
        state.capture.moved.setdefault(id(t), (t, t.data))

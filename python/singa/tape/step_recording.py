"""What the recording of a step for replay has to know beside its operations.

`singa.graph` records; the code that a step runs says here what a replay has to do besides. Outside
of a recording these functions do nothing, or call at once.
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

#: (segment, ready, renew): see `record_update`.
Update = tuple[int, Callable[[], bool], Callable[[], object]]


class StepRecording:
    """A step that is being recorded: its operations in C++, and what a replay does between them."""

    def __init__(
        self, operations: _c.Recording, planned: Callable[[], object] = lambda: None
    ) -> None:
        self.operations = operations
        self.planned = planned  # called when operations have been planned, before they run
        self.calls: list[Callable[[], Any]] = []
        self.updates: list[Update] = []
        self.moved: dict[int, tuple[Tensor, _c.Tensor]] = {}  # and what they were before the step
        self.hooked = ""  # why a replay would not do the same, if a hook ran


class _State(threading.local):
    """Refers weakly to the recording, which belongs to the call that records: an interrupt at any
    line ends it with that call, also where nothing sets it to None."""

    #: Usually None: what each step asks first, because a property is a call.
    reference: ref[StepRecording] | None = None

    @property
    def recording(self) -> StepRecording | None:
        return None if self.reference is None else self.reference()

    @recording.setter
    def recording(self, recording: StepRecording | None) -> None:
        self.reference = None if recording is None else ref(recording)


#: This thread's recording of a step.
state: _State = _State()


def is_recording_step() -> bool:
    """Whether this thread records a step."""
    return state.recording is not None


def host_call(function: Callable[[], Any], lent: Sequence[_c.Tensor] = ()) -> Any:
    """Calls `function`, which a replay calls again at the same place.

    For what a step does that is not the same every time, such as an optimizer with its schedule.
    `lent` are temporaries of the step that the function uses and then releases. Its results must
    not be used by operations of the step.
    """
    recording = state.recording
    if recording is None:
        return function()
    recording.operations.Pause(lent, False)
    recording.planned()
    recording.operations.RunPlanned()
    state.recording = None  # calls inside this one are part of it
    result = function()
    state.recording = recording
    recording.operations.Resume()
    recording.calls.append(function)
    return result


def host_called(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose calls, within a step that is recorded, are host calls."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.reference is None:
            return method(self, *args, **kwargs)
        return host_call(functools.partial(method, self, *args, **kwargs))

    return call


def record_update(ready: Callable[[], bool], renew: Callable[[], object]) -> None:
    """Has a step that is being recorded ask `ready`, before each replay, whether what was recorded
    still holds, and call `renew` when all host calls before this place have been made."""
    assert state.recording is not None
    state.recording.updates.append((len(state.recording.calls), ready, renew))


def move_back(t: Tensor) -> None:
    """Moves `t`, which is about to get new memory, back to its original memory at the end of a step
    that is recorded, because a replay starts from there."""
    if state.recording is not None:
        state.recording.moved.setdefault(id(t), (t, t.data))

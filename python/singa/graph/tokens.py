"""Values that tell whether a number, an array, a generator or another object has changed."""

from __future__ import annotations

import contextvars
import gc
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FrameType
from typing import Any, Self

import numpy as np

from .. import singa_wrap as _c
from ..tape.tensor import wrap

_PLAIN = (int, bool, str, bytes, type(None), type(...), range)
#: Names of functions and methods of PyTorch that draw from its generator.
_TORCHS_DRAWS = {
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
    *("bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "uniform_", "random_"),
    *("exponential_", "geometric_", "log_normal_", "cauchy_", "poisson", "binomial"),
    *("dropout", "dropout_", "feature_dropout", "alpha_dropout", "rrelu", "rrelu_"),
}
#: Items of a container of another package that are looked at.
_MOST_PLAIN = 1000
#: Stands for what is not there.
ABSENT: Any = object()


def exact(value: Any) -> Any:
    """A token for a number or text. Tokens are equal if types and bits are equal.

    None for other objects, such as NumPy's records, whose fields can be set.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, struct.pack("<dd", value.real, value.imag)
    if (
        isinstance(value, np.generic)
        and kind.__module__ == "numpy"
        and not isinstance(value, np.void)
    ):
        return kind, value.dtype.str, value.tobytes()
    return None


def is_plain(value: Any) -> bool:
    """Whether it is a list, set or dict of numbers and texts alone, such as `sys.argv`."""
    if type(value) not in (list, set, dict) or len(value) > _MOST_PLAIN:
        return False
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return all([exact(item) is not None for item in items])


def decimal_context(_: None) -> Any:
    """What results of `decimal` depend on in this thread."""
    context = sys.modules["decimal"].getcontext()
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    return [getattr(context, name) for name in names], list(context.traps.items())


def answer(function: Callable[[], Any]) -> Any:
    """What a function without arguments returns; an error where it raises one."""
    try:
        return function()
    except Exception as error:
        return type(error)


def file_in_memory(value: Any) -> Any:
    """Content and position of a StringIO or BytesIO."""
    return None if value.closed else (value.getvalue(), value.tell())


def elements(raw: _c.Tensor) -> Any:
    """A token for the elements of a tensor, as `exact`."""
    return wrap(raw, False).numpy().tobytes()


def random_numbers(of_torch: bool = False) -> dict[str, Any]:
    """The states of the global random generators of Python and NumPy, and with `of_torch` of
    PyTorch, if they are imported."""
    found: dict[str, Any] = {}
    torch: Any = sys.modules.get("torch")
    if of_torch and hasattr(torch, "get_rng_state"):
        found["torch"] = torch.get_rng_state().numpy().tobytes()
    if "random" in sys.modules:
        found["random"] = sys.modules["random"].getstate()
    if "numpy.random" in sys.modules:
        found["numpy.random"] = _flat(np.random.get_state(legacy=False))  # noqa: NPY002
    return found


class Drawing:
    """Context manager that tells which of several threads draws from the global random generators
    of Python, NumPy and PyTorch."""

    def __init__(self) -> None:
        # A profile function sees calls of built-in functions, which NumPy's are not from 2.5 on.
        self._watched = {
            name: function.__self__
            for name in ("random", "numpy.random")
            if threading.active_count() > 1
            and name in sys.modules
            and isinstance(function := sys.modules[name].random, BuiltinFunctionType)
        }
        self._of_torch = threading.active_count() > 1 and "torch" in sys.modules
        self._called: set[str] = set()
        self._sees = False

    def __enter__(self) -> Self:
        self._before = sys.getprofile()
        if self._watched or self._of_torch:
            self._sees = self._before is None or callable(self._before)  # cProfile's is not
        if self._sees:
            sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._sees:
            sys.setprofile(self._before)

    def by_this_thread(self, moved: Iterable[str]) -> bool:
        """Whether one of the generators that moved may have done so for this thread."""
        watched = {*self._watched, *(["torch"] if self._of_torch else [])} if self._sees else set()
        return any([name in self._called or name not in watched for name in moved])

    def _note(self, frame: FrameType, event: Any, argument: Any) -> None:
        if event == "c_call":
            of = getattr(argument, "__self__", None)
            self._called.update([name for name, own in self._watched.items() if own is of])
            if self._of_torch and getattr(argument, "__name__", "") in _TORCHS_DRAWS:
                self._called.add("torch")
        if self._before is not None:
            self._before(frame, event, argument)


def slot_identity(name: str, value: Any) -> int:
    """Identity of an attribute in __slots__."""
    return id(getattr(value, name, ABSENT))


def class_and_attributes(holder: weakref.ref[Any]) -> tuple[int, int]:
    """Identities of an object's class and `__dict__`, through a reference that lets it go."""
    value = holder()
    return id(type(value)), id(getattr(value, "__dict__", None))


def foreign_elements(value: Any) -> Any:
    """Type, shape and elements of a tensor of another library, such as PyTorch's."""
    if hasattr(value, "detach"):  # it may need gradients, and lie on a GPU
        value = value.detach().cpu()
    raw = _c.from_dlpack(value.__dlpack__())
    return raw.data_type(), tuple(raw.shape()), elements(raw)


def buffer_size(value: Any) -> int | None:
    """Bytes that an object written in C, such as a bytearray, lends; None if it lends none."""
    try:
        return memoryview(value).nbytes
    except (TypeError, ValueError):
        return None


def buffer_elements(value: Any) -> bytes:
    """A copy of these bytes."""
    return memoryview(value).tobytes()


def referents(value: Any) -> list[int]:
    """Identities of the objects to which an object written in C leads."""
    return identities(gc.get_referents(value))


def array_state(value: np.ndarray) -> Any:
    """Type, shape and elements of an array."""
    return value.dtype.str, value.shape, value.tobytes()


def identities(values: Iterable[Any]) -> list[int]:
    """Identities of the items."""
    return list(map(id, values))


def local_identity(value: threading.local) -> int:
    """Identity of the attributes in this thread."""
    return id(value.__dict__)


def context_identity(value: contextvars.ContextVar[Any]) -> int:
    """Identity of the value in this context."""
    return id(value.get(ABSENT))


def object_identities(value: np.ndarray) -> Any:
    """Shape of an array of objects, and their identities."""
    return value.shape, identities(value.reshape(-1).tolist())


def classes(module: str, *names: str) -> tuple[type, ...]:
    """Classes of a module. Empty if it is not imported, since no objects of them exist then."""
    found = sys.modules.get(module)
    return () if found is None else tuple([getattr(found, name) for name in names])


def generator_state(generator: Any) -> Any:
    """The state of a random generator of Python or NumPy."""
    if hasattr(generator, "getstate"):  # random.Random
        return generator.getstate()
    if hasattr(generator, "get_state"):
        return _flat(generator.get_state(legacy=False))
    return _flat(getattr(generator, "bit_generator", generator).state)


def _flat(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple([(name, _flat(value)) for name, value in state.items()])
    return state.tobytes() if isinstance(state, np.ndarray) else state

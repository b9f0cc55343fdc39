"""Choice of implementations by timing. Choices can be saved and used by later runs.

    singa.tuning.tune(net, x, y)           # once, for the whole network
    singa.tuning.save("choices.json")
    ...
    singa.tuning.load("choices.json")      # in a later run: the same implementations, the same bits

The process has one table of choices. An entry maps an operation with its parameters to an
implementation and its layouts, and operations use it by default. With SINGA_PREFER=autotune, an
operation without an entry is timed on its own at its first call. `tune` times whole steps, and
therefore also accounts for reorders between operations.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import singa_wrap as _c
from .raw.check import number

if TYPE_CHECKING:
    from .model import Model
    from .singa_wrap import Device
    from .tensor import Tensor

__all__ = ["choices", "clear", "load", "save", "tune"]

_FORMAT = "singa tuning"
_VERSION = 1
_FIELDS = ("signature", "candidate", "machine", "measured")


def choices() -> list[dict[str, str]]:
    """The entries of the table, as dicts of text.

    signature  operation and parameters
    candidate  the implementation and layouts that were chosen
    machine    CPU, libraries and threads; the entry is used only if they are the same
    measured   the measured times; may be empty

    >>> isinstance(singa.tuning.choices(), list)
    True
    """
    return [{field: getattr(c, field) for field in _FIELDS} for c in _c.GetTuningChoices()]


def clear() -> None:
    """Removes all entries and all measurements.

    >>> singa.tuning.clear()
    >>> singa.tuning.choices()
    []
    """
    _c.ClearTuningChoices()
    _c.ForgetMeasurements()


def add(entries: Sequence[dict[str, str]]) -> None:
    """Adds entries in the form that `choices` returns. They replace entries of the same signature
    and machine.

    Raises ValueError, and adds nothing, if an entry is malformed.
    """
    made = []
    for entry in checked(entries):
        choice = _c.TuningChoice()
        for field in _FIELDS:
            setattr(choice, field, entry[field])
        made.append(choice)
    _c.AddTuningChoices(made)


def checked(entries: Any) -> list[dict[str, str]]:
    """Returns `entries`. Raises ValueError if one is malformed."""
    if not isinstance(entries, list | tuple):
        raise ValueError(f"[tuning] expected a list of choices, got {type(entries).__name__}")
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != set(_FIELDS):
            raise ValueError(f"[tuning] a choice has {', '.join(_FIELDS)}, got {entry!r:.80}")
        for field, value in entry.items():
            if not isinstance(value, str) or not (value or field == "measured"):
                raise ValueError(f"[tuning] {field} of a choice must be text, got {value!r:.80}")
            if not value.isprintable():
                raise ValueError(f"[tuning] {field} of a choice is not printable: {value!r:.80}")
    return list(entries)


def save(path: str | os.PathLike[str]) -> None:
    """Writes the table as JSON. The write is atomic: a failure leaves the old file.

    Raises OSError if the file cannot be written.

    >>> singa.tuning.clear()
    >>> singa.tuning.save("choices.json")
    >>> singa.tuning.load("choices.json")
    >>> singa.tuning.choices()
    []
    """
    from .files.atomic import atomic_write

    with atomic_write(path, "w") as file:
        json.dump({"format": _FORMAT, "version": _VERSION, "choices": choices()}, file, indent=1)


def load(path: str | os.PathLike[str]) -> None:
    """Adds the entries of a file that `save` wrote.

    Entries of other machines are kept but not used. Raises FileNotFoundError if there is no such
    file, and ValueError that names the file if it is damaged or in another format. The table is
    unchanged after an error.

    >>> singa.tuning.clear()
    >>> singa.tuning.save("choices.json")
    >>> singa.tuning.load("choices.json")
    >>> singa.tuning.choices()
    []
    """
    where = os.fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError("not written by tuning.save")
        if content.get("version") != _VERSION:
            raise ValueError(f"version {content.get('version')!r:.20}, expected {_VERSION}")
        entries = checked(content.get("choices"))
    except (ValueError, RecursionError) as error:  # JSON's and UTF-8's errors are ValueErrors
        raise ValueError(f"[tuning.load] {where}: {error}") from error
    add(entries)


def tune(model: Model, *batch: Tensor, limit: float = 120.0) -> dict[str, Any]:
    """Chooses implementations and layouts for a whole model by timing its steps.

    batch  arguments of a call of the model, which trains or infers according to its mode
    limit  time limit in seconds (default 120). At least three steps run in any case. An operation
           that is not timed before the limit keeps its default implementation.

    Three rules for the layouts of images are tried: each convolution in its own fastest layout,
    all blocked, and all channels-last. Under each rule, convolutions are timed one by one,
    including reorders, and then the whole step is timed. The step with default choices is timed,
    too. The choices of the fastest step are added to the table. Parameters, statistics, optimizer
    state and random generators are restored at the end.

    Returns a dict: "seconds" (duration), "steps" (milliseconds of a step by rule) and "chosen"
    (the fastest rule). Raises RuntimeError if the model has no parameters yet, ValueError if
    `limit` is NaN.

    >>> net = models.Sequential(layer.Conv2d(4, 3), layer.Flatten(), layer.Linear(2))
    >>> x = tensor.ones((2, 3, 8, 8))
    >>> net.compile([x])
    >>> net.eval()
    >>> sorted(singa.tuning.tune(net, x, limit=0.1))
    ['chosen', 'seconds', 'steps']
    """
    limit = number("tuning.tune", "limit", limit)
    start = time.monotonic()
    before = choices()
    steps: dict[str, float] = {}
    found: dict[str, list[dict[str, str]]] = {}

    def left(share: float) -> float:
        """Seconds left of a share of the limit, less the time of three steps."""
        reserve = 3e-3 * steps.get("default", 0.0)
        return share * limit - (time.monotonic() - start) - reserve

    with _as_before(model), _autotune():
        _c.ForgetMeasurements()
        for rule in dict.fromkeys(("default", "", _blocked(model), "nhwc")):
            if steps and left(0.75) <= 0:
                break
            _c.ClearTuningChoices()
            _c.SetTuningScope(rule, max(left(0.75), 0.0))
            name = rule or "each by itself"
            steps[name] = _settled_step(model, batch)
            found[name] = choices()
        # Load on the machine varies, so the default and the fastest rules are timed in turn.
        for _ in range(3):
            fastest = min(steps.values())
            for name in [n for n in steps if n == "default" or steps[n] < 1.2 * fastest]:
                if len(steps) > 1 and left(1.0) > 0:
                    _c.ClearTuningChoices()
                    add(found[name])
                    steps[name] = min(steps[name], _settled_step(model, batch))
    chosen = min(steps, key=lambda rule: steps[rule])
    if steps[chosen] > 0.98 * steps["default"]:  # the gain is within the noise of measurements
        chosen = "default"
    _c.ClearTuningChoices()
    add(before)
    add(found[chosen])
    seconds = round(time.monotonic() - start, 1)
    return {"seconds": seconds, "steps": steps, "chosen": chosen}


def _blocked(model: Model) -> str:
    """Name of the blocked layout for the model's CPU; "nhwc" on a GPU, which has none."""
    device = next(iter(model.get_states().values())).device
    image = _c.Full((1, 32, 2, 2), 0.0, device, _c.kFloat32)
    return str(_c.ToBlocked(image).layout_name())


def _settled_step(model: Model, batch: tuple[Tensor, ...]) -> float:
    """Milliseconds of the fastest of a few steps.

    A first step is not timed: it measures new operations, and parameters change to the layouts of
    their gradients.
    """
    model(*batch)
    times: list[float] = []
    while not times or (sum(times) < 0.5 and len(times) < 10):
        known, start = len(choices()), time.perf_counter()
        model(*batch)
        if len(choices()) == known:
            times.append(time.perf_counter() - start)
    return round(min(times) * 1e3, 3)


@contextlib.contextmanager
def only_choices(entries: Sequence[dict[str, str]]) -> Iterator[None]:
    """Context manager in which the table has these entries and no others."""
    before = choices()
    _c.ClearTuningChoices()
    add(entries)
    try:
        yield
    finally:
        _c.ClearTuningChoices()
        add(before)


@contextlib.contextmanager
def _autotune() -> Iterator[None]:
    preference, scope = _c.GetPreference(), _c.GetTuningScope()
    _c.SetPreference(_c.Preference_kAutotune)
    try:
        yield
    finally:
        _c.SetTuningScope(scope)
        _c.SetPreference(preference)


@contextlib.contextmanager
def _as_before(model: Model) -> Iterator[None]:
    """Context manager that restores a model's states, optimizer and random generators."""
    states = {name: value.deepcopy() for name, value in model.get_states().items()}
    if not states:
        raise RuntimeError("[tuning.tune] the model has no parameters yet: call compile() first")
    optimizer = model.__dict__.get("optimizer")
    kept = None if optimizer is None else copy.deepcopy(optimizer.get_states())
    device = next(iter(states.values())).device
    try:
        with random_as_before(device), model.executed():
            yield
    finally:
        model.set_states(states)
        if optimizer is not None:
            optimizer.set_states(kept)


@contextlib.contextmanager
def random_as_before(device: Device) -> Iterator[None]:
    """Context manager that restores the random generators of a device, of NumPy and of Python."""
    generators = device.random_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        device.set_random_state(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
        random.setstate(generators[2])

"""Everything that a training run needs to go on as if it had never stopped, in one file.

    checkpoint.save("run/last.safetensors", net, net.optimizer, epoch=3, loader=loader.state_dict())
    progress = checkpoint.load("run/last.safetensors", net, net.optimizer)
    loader.load_state_dict(progress["loader"])

The file is a .safetensors one, so that others can read the weights; what is no tensor lies in its
metadata as JSON.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import device as device_module
from .. import tuning
from .._assignment import checked
from ..dtypes import numpy_dtype
from ..state_files import (
    Arrays,
    UnfitStatesError,
    check_fit,
    load_safetensors,
    save_safetensors,
)
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..model import Model
    from ..opt import Optimizer

_FORMAT = "singa checkpoint"
_VERSION = 1
_MODEL, _OPTIMIZER = "model/", "optimizer/"


def save(
    path: str | os.PathLike[str], model: Model, optimizer: Optimizer | None = None, **progress: Any
) -> None:
    """Saves parameters and running statistics, the optimizer with its step, random states (the
    model's device, NumPy's and Python's global ones), the choices of `singa.tuning`, and
    `progress`, any values that JSON has.

    The file is replaced as a whole or not at all. Raises RuntimeError if the model has no
    parameters yet, TypeError for progress that JSON does not have.
    """
    states = model.get_states()
    if not states:
        raise RuntimeError(
            "[checkpoint.save] the model has no parameters yet: call compile() first"
        )
    arrays: Arrays = {_MODEL + name: value.numpy() for name, value in states.items()}
    metadata: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "random": _random_states(model),
        "tuning": tuning.choices(),
        "progress": progress,
    }
    if optimizer is not None:
        numbers: dict[str, Any] = {"class": type(optimizer).__name__}
        for key, value in optimizer.get_states().items():
            if isinstance(value, Mapping):
                for name, kept in value.items():
                    arrays[f"{_OPTIMIZER}{key}/{name}"] = kept.numpy()
            else:
                numbers[key] = value
        metadata["optimizer"] = numbers
    save_safetensors(path, arrays, metadata)


def load(
    path: str | os.PathLike[str], model: Model, optimizer: Optimizer | None = None
) -> dict[str, Any]:
    """Restores what save() wrote into a compiled model and an optimizer of the same kind, and the
    random states, and adds the choices of `singa.tuning` to the table; returns the progress.

    Raises ValueError, naming the file, if it is damaged, no checkpoint, or one of another model or
    optimizer; everything is then as before. FileNotFoundError if there is none.
    """
    arrays, metadata = load_safetensors(path)
    where = os.fspath(path)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"[checkpoint.load] {where}: no checkpoint of a training run")
    if metadata.get("version") != _VERSION:
        raise ValueError(
            f"[checkpoint.load] {where}: version {metadata.get('version')}, expected {_VERSION}"
        )
    try:
        states = _below(_MODEL, arrays)
        own = model.get_states()
        expected = {name: tuple(value.shape) for name, value in own.items()}
        check_fit(where, expected, {name: value.shape for name, value in states.items()})
        ready = checked(f"[checkpoint.load] {where}:", own, states)
        optimizer_states = None
        if optimizer is not None:
            optimizer_states = _optimizer_states(where, metadata, arrays, optimizer, model)
        generators = _checked_random(metadata["random"])
        choices = tuning.checked(metadata.get("tuning", []))  # files of before had none
        progress = dict(metadata["progress"])
    except UnfitStatesError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"[checkpoint.load] {where}: damaged ({error!r})") from error
    if optimizer is not None and optimizer_states is not None:
        try:
            optimizer.set_states(optimizer_states)  # the only one that may still refuse
        except (TypeError, ValueError) as error:
            raise UnfitStatesError(f"[checkpoint.load] {where}: {error}") from error
    model.set_states(ready)
    _restore_random(model, *generators)
    tuning.add(choices)
    return progress


def read_progress(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The progress alone, for looking at a checkpoint before there is a model for it."""
    progress = load_safetensors(path)[1].get("progress")
    if not isinstance(progress, dict):
        raise ValueError(f"[checkpoint.read_progress] {os.fspath(path)}: no checkpoint")
    return progress


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {name[len(prefix) :]: v for name, v in arrays.items() if name.startswith(prefix)}


def _optimizer_states(
    where: str,
    metadata: dict[str, Any],
    arrays: Arrays,
    optimizer: Optimizer,
    model: Model,
) -> dict[str, Any]:
    numbers = dict(metadata.get("optimizer") or {})
    kind = numbers.pop("class", None)
    if kind != type(optimizer).__name__:
        raise UnfitStatesError(
            f"[checkpoint.load] {where}: holds the state of {kind or 'no optimizer'}, not of "
            f"{type(optimizer).__name__}"
        )
    states: dict[str, Any] = {
        key: value if isinstance(value, float) or _is_json(value) else int(value)
        for key, value in numbers.items()
    }
    if "step_counter" not in states:
        raise KeyError("step_counter")
    params, device = model.get_states(), _device_of(model)
    for full_name, value in _below(_OPTIMIZER, arrays).items():
        key, _, name = full_name.partition("/")
        param = params.get(name.partition("#")[0])
        if param is not None and value.shape != param.shape:
            raise UnfitStatesError(
                f"[checkpoint.load] {where}: {key} of {name} is {value.shape}, not {param.shape}"
            )
        # bfloat16 comes as float32.
        types = [t for t in optimizer.state_types(key, param) if numpy_dtype(t) == value.dtype]
        if not types:
            raise UnfitStatesError(
                f"[checkpoint.load] {where}: {key} of {name} is {value.dtype}, which "
                f"{type(optimizer).__name__} does not keep for it"
            )
        kept = Tensor(value.shape, device, types[0], requires_grad=False)
        kept.copy_from_numpy(value)
        states.setdefault(key, {})[name] = kept
    return states


def _is_json(value: Any) -> bool:
    """Whether it is a schedule as an optimizer saves it."""
    return isinstance(value, str) and value.startswith("{")


def _random_states(model: Model) -> dict[str, Any]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - augmentation of users draws from it
    kind, words, gauss = random.getstate()
    return {
        "device": [int(number) for number in _device_of(model).random_state()],
        "numpy": {**numpy, "state": {**numpy["state"], "key": numpy["state"]["key"].tolist()}},
        "python": [kind, list(words), gauss],
    }


def _checked_random(states: dict[str, Any]) -> tuple[list[int], dict[str, Any], tuple]:
    numpy = dict(states["numpy"])
    numpy["state"] = {**numpy["state"], "key": np.array(numpy["state"]["key"], np.uint32)}
    np.random.RandomState().set_state(numpy)  # raises for a state that is none
    kind, words, gauss = states["python"]
    python = (kind, tuple(words), gauss)
    random.Random().setstate(python)
    seed, position = (int(number) for number in states["device"])
    if not 0 <= min(seed, position) <= max(seed, position) < 1 << 64:
        raise ValueError(f"random state {seed}, {position} of the device")
    return [seed, position], numpy, python


def _restore_random(model: Model, device: list[int], numpy: dict[str, Any], python: tuple) -> None:
    _device_of(model).set_random_state(device)
    np.random.set_state(numpy)  # noqa: NPY002
    random.setstate(python)


def _device_of(model: Model) -> Any:
    first = next(iter(model.get_states().values()), None)
    return device_module.get_default_device() if first is None else first.device

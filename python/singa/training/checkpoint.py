"""Checkpoints of training runs. A run that continues from one gives the same bits as a run that
was never interrupted.

    checkpoint.save("run/last.safetensors", net, net.optimizer, epoch=3, loader=loader.state_dict())
    progress = checkpoint.load("run/last.safetensors", net, net.optimizer)
    loader.load_state_dict(progress["loader"])

A checkpoint is a .safetensors file, so other programs can read the weights. Values other than
tensors are in its metadata as JSON. docs/file_formats.md describes all fields.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .. import device as device_module
from .. import distributed, tuning
from .._version import __version__
from ..dtypes import numpy_dtype
from ..files.fit import UnfitStatesError, fit, say_renamed
from ..files.state_files import Arrays, load_safetensors, save_safetensors
from ..layer import late
from ..layer.parameters import each_once
from ..opt.dist_opt import DistOpt
from ..tape.assignment import checked
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..model import Model
    from ..opt import EMA, SWA, Optimizer

_FORMAT = "singa checkpoint"
_VERSION = 2
_MODEL, _OPTIMIZER, _EMA = "model/", "optimizer/", "ema/"
# In the states of an optimizer: residuals of compression, and numbers of updates by parameter.
_RESIDUALS, _PARAMETER_STEPS = "residuals", "parameter_steps"
_NO_DESCRIPTION = {"class": None, "architecture": None, "class_names": None}


def save(
    path: str | os.PathLike[str],
    model: Model,
    optimizer: Optimizer | DistOpt | None = None,
    *,
    ema: EMA | SWA | None = None,
    **progress: Any,
) -> None:
    """Saves everything from which training continues.

    model      its parameters and running statistics, by path; its class, and where they are known
               its architecture and class names
    optimizer  its state and step counts, and the gradients of an unfinished accumulation; None
               leaves it out
    ema        its averages; None leaves them out
    progress   further values, which must be JSON values. NumPy's numbers become Python's, arrays
               and tensors lists.

    The file also has the states of random generators (the device's, and the global ones of NumPy
    and Python) and the choices of `singa.tuning`. The write is atomic: a failure leaves the old
    file. Raises RuntimeError if the model has no parameters yet, or if a DistOpt has made some of
    the calls for an update, whose gradients only its ranks have; TypeError, which says where, if
    `progress` has another value.

    Of several ranks, all call it, and return when rank 0 has written the file. It has the random
    states of each, and the parameters, states and progress of rank 0. If rank 0 fails, the others
    raise RuntimeError with the reason.

    >>> from singa.training import checkpoint
    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> checkpoint.save("run.safetensors", net, epoch=3)
    >>> checkpoint.load("run.safetensors", net)
    {'epoch': 3}
    """
    arrays, metadata = _snapshot(model, optimizer, ema, progress)
    distributed.on_main(lambda: save_safetensors(path, arrays, metadata), "checkpoint.save")


def json_value(where: str, value: Any) -> Any:
    """The value as JSON keeps it: numbers of NumPy as Python's, arrays and tensors as lists.

    Raises TypeError for what is no JSON value. The message begins with `where`, such as
    "[checkpoint.save] best", and says where in it that is.

    >>> from singa.training import checkpoint
    >>> checkpoint.json_value("best", {"loss": np.float32(0.5), "at": (1, np.int64(2))})
    {'loss': 0.5, 'at': [1, 2]}
    """
    if isinstance(value, Tensor):
        value = value.numpy()
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        kept = {}
        for key, item in value.items():
            name = json_value(f"{where}: a key", key)
            kept[name] = json_value(f"{where}[{key!r}]", item)
        return kept
    if isinstance(value, list | tuple):
        return [json_value(f"{where}[{i}]", item) for i, item in enumerate(value)]
    raise TypeError(f"{where} is a {type(value).__name__}, which is no JSON value: {value!r:.80}")


class BackgroundSaver:
    """Saves checkpoints while training goes on.

        with checkpoint.BackgroundSaver() as saver:
            for epoch in range(10):
                ...
                saver.save("run/last.safetensors", net, net.optimizer, epoch=epoch)

    A thread writes the file, from a copy of everything that it holds, so memory for one checkpoint
    more is needed, on rank 0. The file is written like that of `checkpoint.save`: a process that is
    killed leaves the last one that was complete.

    >>> from singa.training import checkpoint
    >>> net = models.Sequential(layer.Linear(2))
    >>> net.compile([tensor.random((4, 3))])
    >>> with checkpoint.BackgroundSaver() as saver:
    ...     saver.save("last.safetensors", net, epoch=7)
    >>> checkpoint.load("last.safetensors", net)["epoch"]
    7
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(
        self,
        path: str | os.PathLike[str],
        model: Model,
        optimizer: Optimizer | DistOpt | None = None,
        *,
        ema: EMA | SWA | None = None,
        **progress: Any,
    ) -> None:
        """As `checkpoint.save`, but returns when everything is copied. Waits for the file before,
        and raises its error. All ranks call it."""
        self.wait()
        arrays, metadata = _snapshot(model, optimizer, ema, progress)
        if not distributed.is_main():
            return
        text = json.dumps(metadata)  # training changes what `progress` refers to

        def write() -> None:
            try:
                save_safetensors(path, arrays, json.loads(text))
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=write, name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Returns when the last file is complete, or raises why it could not be written. All ranks
        call it; the others raise RuntimeError with the reason of rank 0."""
        distributed.on_main(self._finish, "checkpoint.BackgroundSaver")

    def _finish(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.wait()
            return
        try:
            self._finish()  # without the other ranks, which may have failed
        except Exception as unsaved:
            error.add_note(f"[checkpoint.BackgroundSaver] the last file was not written: {unsaved}")


def _snapshot(
    model: Model,
    optimizer: Optimizer | DistOpt | None,
    ema: EMA | SWA | None,
    progress: dict[str, Any],
) -> tuple[Arrays, dict[str, Any]]:
    """Copies of all arrays of a checkpoint, on rank 0, and its metadata."""
    states = model.get_states()
    if not states:
        raise RuntimeError(
            "[checkpoint.save] the model has no parameters yet: call compile() first"
        )
    if isinstance(optimizer, DistOpt) and optimizer.calls_made:
        raise RuntimeError(
            f"[checkpoint.save] {optimizer.calls_made} of {optimizer.calls} calls for an update "
            "were made, and their gradients cannot be saved: save after the last of them"
        )
    description = json_value("[checkpoint.save] the model", _description(model))
    arrays: Arrays = {}

    def add(prefix: str, tensors: Mapping[str, Tensor]) -> None:
        if distributed.is_main():
            arrays.update({prefix + name: value.numpy() for name, value in tensors.items()})

    add(_MODEL, states)
    arrays.update({_MODEL + name: value for name, value in late.waiting(model).items()})
    own = _random_states(model)
    metadata: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "singa": __version__,
        "model": description,
        "random_of_ranks": distributed.gather(own) if distributed.world_size() > 1 else [own],
        "tuning": tuning.choices(),
        "progress": {k: json_value(f"[checkpoint.save] {k}", v) for k, v in progress.items()},
    }
    if optimizer is not None:
        if isinstance(optimizer, DistOpt):  # of which rank 0 alone needs the whole state
            kept_states = optimizer.get_states(rank=0)
        else:
            kept_states = optimizer.get_states()
        paths = _paths(model, optimizer)
        numbers: dict[str, Any] = {"class": _kind(optimizer)}
        for slot, value in kept_states.items():
            if not isinstance(value, Mapping):
                numbers[slot] = json_value(f"[checkpoint.save] {slot}", value)
                continue
            by_path = {key: kept for key, kept in value.items() if key not in paths}
            by_path |= {path: value[key] for key, path in paths.items() if key in value}
            if slot == _PARAMETER_STEPS:
                numbers[slot] = by_path
            else:
                add(f"{_OPTIMIZER}{slot}/", by_path)
        metadata["optimizer"] = numbers
    if ema is not None:
        averages = ema.get_states()
        metadata["ema"] = {"updates": averages["updates"]}
        add(_EMA, averages["averages"])
    return arrays, metadata


def load(
    path: str | os.PathLike[str],
    model: Model,
    optimizer: Optimizer | DistOpt | None = None,
    *,
    ema: EMA | SWA | None = None,
) -> dict[str, Any]:
    """Restores what save() wrote into a compiled model, an optimizer of the same kind and an EMA of
    the model, and the random states, and adds the choices of `singa.tuning` to the table; returns
    the progress. Reads the files of all earlier versions, and files that were written before the
    model became part of another one, as `Model.load_states` does.

    Of several ranks, each reads the file by itself. It gets its own random states. Where a job with
    fewer ranks wrote the file, further ranks get new ones, which depend on rank 0's and the rank,
    and the device's of rank 0, of which DistOpt makes streams for all ranks.

    Raises ValueError, naming the file, if it is damaged, no checkpoint, one of another model or
    optimizer, or one without averages for `ema`; everything is then as before. FileNotFoundError if
    there is none.

    >>> from singa.training import checkpoint
    >>> net, optimizer = models.create("lenet"), opt.SGD(lr=0.1, momentum=0.9)
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> checkpoint.save("run.safetensors", net, optimizer, epoch=3)
    >>> checkpoint.load("run.safetensors", net, optimizer)["epoch"]
    3
    """
    where = os.fspath(path)
    arrays, metadata = _read(path, "load")
    try:
        states = _below(_MODEL, arrays)
        own = model.get_states()
        awaited = late.awaited(model, states.keys() - own.keys())
        shapes = {name: value.shape for name, value in states.items() if name not in awaited}
        names, _ = fit(f"[checkpoint.load] {where}", own, shapes)
        given = {here: states[there] for here, there in names.items()}
        ready = checked(f"[checkpoint.load] {where}:", own, given)
        params = {there: own[here] for here, there in names.items()}
        optimizer_states = None
        if optimizer is not None:
            optimizer_states = _optimizer_states(where, metadata, arrays, optimizer, params)
        averages = None
        if ema is not None:
            averages = _averages(where, metadata, arrays, ema, params)
        rank = distributed.rank()
        of_ranks = metadata["random_of_ranks"]
        generators = _checked_random(of_ranks[rank if rank < len(of_ranks) else 0])
        if rank >= len(of_ranks):
            generators = _random_of_new_rank(generators, rank)
        choices = tuning.checked(metadata.get("tuning", []))  # older files have none
        progress = dict(metadata["progress"])
        class_names = _checked_description(metadata["model"])["class_names"]
    except UnfitStatesError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(f"[checkpoint.load] {where}: damaged ({error!r})") from error
    if optimizer is not None and optimizer_states is not None:
        try:
            optimizer.set_states(optimizer_states)  # first, because the others cannot fail
        except (TypeError, ValueError) as error:
            raise UnfitStatesError(f"[checkpoint.load] {where}: {error}") from error
    say_renamed(f"[checkpoint.load] {where}", names)
    model.set_states(ready)
    late.give(model, {name: states[name] for name in awaited})
    if model.class_names is None:
        model.class_names = class_names
    if ema is not None and averages is not None:
        ema.set_states(averages)
    _restore_random(model, *generators)
    tuning.add(choices)
    return progress


def read_progress(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The progress in a checkpoint. It can be read before a model exists.

    Raises FileNotFoundError if there is no such file, ValueError if it is damaged or not a
    checkpoint.

    >>> from singa.training import checkpoint
    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> checkpoint.save("run.safetensors", net, epoch=3)
    >>> checkpoint.read_progress("run.safetensors")
    {'epoch': 3}
    """
    progress = _read(path, "read_progress")[1].get("progress")
    if not isinstance(progress, dict):
        raise ValueError(f"[checkpoint.read_progress] {os.fspath(path)}: damaged (no progress)")
    return progress


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says of its model, which need not exist.

    "class"         the name of its class; None in files of version 1
    "architecture"  `Model.architecture`: what `models.create` was given, or None
    "class_names"   `Model.class_names`: a list of text, or None

    Raises as read_progress does.

    >>> from singa.training import checkpoint
    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> checkpoint.save("run.safetensors", net)
    >>> checkpoint.read_model("run.safetensors")["architecture"]
    {'name': 'lenet', 'arguments': {}}
    """
    metadata = _read(path, "read_model")[1]
    try:
        return _checked_description(metadata["model"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"[checkpoint.read_model] {os.fspath(path)}: damaged ({error!r})"
        ) from error


def _read(path: str | os.PathLike[str], function: str) -> tuple[Arrays, dict[str, Any]]:
    """The arrays of a checkpoint, and its metadata in the form of the present version."""
    arrays, metadata = load_safetensors(path)
    where = f"[checkpoint.{function}] {os.fspath(path)}"
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{where}: not a checkpoint of a training run")
    version = metadata.get("version")
    if version not in (1, _VERSION):
        raise ValueError(
            f"{where}: it has version {version!r} of the format, and singa {__version__} reads "
            f"versions 1 to {_VERSION}; use the version of singa that wrote it, or a later one"
        )
    if version == 1:
        metadata.setdefault("model", _NO_DESCRIPTION)
        if not metadata.get("random_of_ranks") and "random" in metadata:
            metadata["random_of_ranks"] = [metadata["random"]]
    return arrays, metadata


def _description(model: Model) -> dict[str, Any]:
    names = model.class_names
    return {
        "class": type(model).__name__,
        "architecture": model.architecture,
        "class_names": None if names is None else [str(name) for name in names],
    }


def _checked_description(description: Mapping[str, Any]) -> dict[str, Any]:
    """The description in a file, checked. Raises TypeError or KeyError."""
    kind, architecture = description["class"], description["architecture"]
    names = description["class_names"]
    if not isinstance(kind, str | None) or not isinstance(architecture, dict | None):
        raise TypeError(f"class {kind!r:.80}, architecture {architecture!r:.80}")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise TypeError(f"class_names {names!r:.80}")
    return {"class": kind, "architecture": architecture, "class_names": names}


def _paths(model: Model, optimizer: Optimizer | DistOpt) -> dict[str, str]:
    """The paths of the model's parameters, by their keys in the optimizer's state."""
    params = each_once(model.get_params())
    return {optimizer.state_key(param): path for path, param in params.items()}


def _below(prefix: str, arrays: Arrays) -> Arrays:
    return {name[len(prefix) :]: v for name, v in arrays.items() if name.startswith(prefix)}


def _optimizer_states(
    where: str,
    metadata: dict[str, Any],
    arrays: Arrays,
    optimizer: Optimizer | DistOpt,
    params: Mapping[str, Tensor],
) -> dict[str, Any]:
    """The optimizer's state in a file, by its own keys. `params` are the model's tensors by their
    names in the file."""
    numbers = dict(metadata.get("optimizer") or {})
    kind = numbers.pop("class", None)
    if kind != _kind(optimizer):
        raise UnfitStatesError(
            f"[checkpoint.load] {where}: holds the state of {kind or 'no optimizer'}, not of "
            f"{_kind(optimizer)}"
        )
    device = next(iter(params.values())).device

    def key_of(path: str) -> str:
        return path if path not in params else optimizer.state_key(params[path])

    steps = dict(numbers.pop(_PARAMETER_STEPS, {}))
    states: dict[str, Any] = {
        key: value if isinstance(value, float) or _is_json(value) else int(value)
        for key, value in numbers.items()
    }
    if "step_counter" not in states:
        raise KeyError("step_counter")
    if steps:
        states[_PARAMETER_STEPS] = {key_of(path): int(count) for path, count in steps.items()}
    # Sorted, since safetensors has another order in each process, and ranks must have the same.
    for full_name, value in sorted(_below(_OPTIMIZER, arrays).items()):
        slot, _, path = full_name.partition("/")
        if slot == _RESIDUALS and not isinstance(optimizer, DistOpt):
            continue  # one process compresses nothing
        param = params.get(path)
        of_ranks = int(slot == _RESIDUALS)  # the first axis is that of the ranks
        if param is not None and value.shape[of_ranks:] != tuple(param.shape):
            raise UnfitStatesError(
                f"[checkpoint.load] {where}: {slot} of {path} is {value.shape}, not {param.shape}"
            )
        # load_safetensors gives bfloat16 as float32.
        types = [t for t in optimizer.state_types(slot, param) if numpy_dtype(t) == value.dtype]
        if not types:
            raise UnfitStatesError(
                f"[checkpoint.load] {where}: {slot} of {path} is {value.dtype}, which "
                f"{_kind(optimizer)} does not use for it"
            )
        kept = Tensor(value.shape, device, types[0], requires_grad=False)
        kept.copy_from_numpy(value)
        states.setdefault(slot, {})[key_of(path)] = kept
    return states


def _kind(optimizer: Optimizer | DistOpt) -> str:
    """The name of the optimizer; of a DistOpt that of its own, so that any number of ranks reads
    the checkpoint."""
    return type(optimizer.opt if isinstance(optimizer, DistOpt) else optimizer).__name__


def _averages(
    where: str,
    metadata: dict[str, Any],
    arrays: Arrays,
    ema: EMA | SWA,
    params: Mapping[str, Tensor],
) -> dict[str, Any]:
    if "ema" not in metadata:
        raise UnfitStatesError(f"[checkpoint.load] {where}: holds no averages of weights")
    names = {id(weight): name for name, weight in ema.weights().items()}
    averages = {
        names.get(id(params.get(name)), name): value for name, value in _below(_EMA, arrays).items()
    }
    states = {"updates": metadata["ema"]["updates"], "averages": averages}
    try:
        ema.checked_states(f"[checkpoint.load] {where}:", states)
    except (TypeError, ValueError) as error:
        raise UnfitStatesError(str(error)) from error
    return states


def _is_json(value: Any) -> bool:
    """Whether a value is a schedule, which optimizers save as JSON text."""
    return isinstance(value, str) and value.startswith("{")


def _random_states(model: Model) -> dict[str, Any]:
    numpy = np.random.get_state(legacy=False)  # noqa: NPY002 - users' augmentation may draw from it
    kind, words, gauss = random.getstate()
    return {
        "device": [int(number) for number in _device_of(model).random_state()],
        "numpy": {**numpy, "state": {**numpy["state"], "key": numpy["state"]["key"].tolist()}},
        "python": [kind, list(words), gauss],
    }


def _checked_random(states: dict[str, Any]) -> tuple[list[int], dict[str, Any], tuple]:
    numpy = dict(states["numpy"])
    numpy["state"] = {**numpy["state"], "key": np.array(numpy["state"]["key"], np.uint32)}
    np.random.RandomState().set_state(numpy)  # raises for a malformed state
    kind, words, gauss = states["python"]
    python = (kind, tuple(words), gauss)
    random.Random().setstate(python)
    seed, position = (int(number) for number in states["device"])
    if not 0 <= min(seed, position) <= max(seed, position) < 1 << 64:
        raise ValueError(f"random state {seed}, {position} of the device")
    return [seed, position], numpy, python


def _random_of_new_rank(
    of_main: tuple[list[int], dict[str, Any], tuple], rank: int
) -> tuple[list[int], dict[str, Any], tuple]:
    """Random states for a rank that the checkpoint does not know, from those of rank 0."""
    device, numpy, python = of_main
    words = [int(word) for word in numpy["state"]["key"]] + list(python[1])
    sequence = np.random.SeedSequence([rank, *words])
    new_numpy = np.random.RandomState(np.random.MT19937(sequence)).get_state(legacy=False)
    new_python = random.Random(int(sequence.generate_state(1, np.uint64)[0])).getstate()
    return device, dict(new_numpy), new_python


def _restore_random(model: Model, device: list[int], numpy: dict[str, Any], python: tuple) -> None:
    _device_of(model).set_random_state(device)
    np.random.set_state(numpy)  # noqa: NPY002
    random.setstate(python)


def _device_of(model: Model) -> Any:
    first = next(iter(model.get_states().values()), None)
    return device_module.get_default_device() if first is None else first.device

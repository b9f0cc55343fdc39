"""`Model.fit`, `evaluate` and `predict`, with arrays or loaders. `Model` has their defaults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import distributed
from ..data import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    ArrayDataset,
    DataLoader,
    Dataset,
    ImageFolder,
    ImageSet,
    Normalize,
)
from ..device import get_default_device
from ..metric import Metric
from ..models.common import Classifier
from ..raw.calls import argument_error, keywords
from ..raw.words import ARGUMENTS
from ..tensor import Tensor, from_dlpack
from .callbacks import Record
from .picture_classifier import PictureBatches, is_file
from .program import say
from .task import TASKS, set_task, task_of
from .trainer import Trainer
from .use import has_levels, keep_transform

if TYPE_CHECKING:
    from ..model import Model

#: Rows of a batch by default, as `Model` has it.
BATCH_SIZE = 32


def fit(
    model: Model,
    x: Any,
    y: Any,
    *,
    epochs: int,
    batch_size: int,
    validation: Any,
    shuffle: bool,
    seed: int,
    resume: bool,
    overwrite: bool,
    **options: Any,
) -> list[Record]:
    """See `Model.fit`."""
    _check_options("fit", model, options)
    if y is None:  # a list may be one of batches without targets
        x, y = _parts(x, tuple)
    _check_sets(x, validation)
    for said in (_normalize(model, x), _take_task(model, x, options)):
        if said and options.get("verbose", True):
            say(said)
    loader = as_loader(model, x, y, batch_size, shuffle, seed)
    is_ours, given = loader is not x, validation
    if is_ours:
        loader.set_epoch(model._epochs_fitted)
    if validation is not None:
        x_of, y_of = _validation_parts(validation)
        if (kept := keep_transform(model, loader, x_of)) and options.get("verbose", True):
            say(f"the model keeps {kept}")
        _check_transform(model, loader, x_of)
        validation = as_loader(model, x_of, y_of, batch_size)
    if not is_ours:
        unused = {"shuffle": (shuffle, True), "seed": (seed, 0)}
        if validation is given:
            unused["batch_size"] = (batch_size, BATCH_SIZE)
        _refuse_unused("fit", x, unused)
    trainer = Trainer(model, **options)
    alone = [name for name, each in trainer.metrics.items() if isinstance(each, Metric)]
    if alone and validation is None:
        raise ValueError(
            f"[fit] metrics: {alone[0]!r} is computed in validation alone: give validation=(x, y)"
        )
    try:
        return trainer.fit(loader, epochs, validation, resume=resume, overwrite=overwrite)
    except TypeError as error:
        if y is None and "train_one_batch() missing 1 required positional" in str(error):
            given = "a batch" if is_ours else f"each item of the {type(x).__name__}"
            raise TypeError(
                f"[fit] {given} has no targets: fit(x, y) takes two arrays, and batches of a "
                "loader or a list are pairs (x, y)"
            ) from error
        raise
    finally:
        if is_ours:
            model._epochs_fitted = loader.epoch


def evaluate(model: Model, x: Any, y: Any, *, batch_size: int, **options: Any) -> dict[str, Any]:
    """See `Model.evaluate`."""
    _check_options("evaluate", model, options)
    if y is None:
        x, y = _parts(x)
    _check_sets(x, None)
    loader = as_loader(model, x, y, batch_size)
    if loader is x:
        _refuse_unused("evaluate", x, {"batch_size": (batch_size, BATCH_SIZE)})
    return Trainer(model, **options).evaluate(loader)


def predict(model: Model, x: Any, *, batch_size: int) -> NDArray[Any]:
    """See `Model.predict`."""
    several = x if isinstance(x, list | tuple) else [x]
    if several and all(map(is_file, several)):
        loader: Any = PictureBatches(model, several, batch_size)
    else:
        loader = as_loader(model, x, None, batch_size, shard=(0, 1))
        if loader is x:
            _refuse_unused("predict", x, {"batch_size": (batch_size, BATCH_SIZE)})
    return Trainer(model, verbose=False).predict(loader)


def _check_options(function: str, model: Model, options: dict[str, Any]) -> None:
    """Raises TypeError for an option that neither the function nor a Trainer has."""
    of_trainer = keywords(Trainer)[1:]  # without the model
    for name in options:
        if name not in of_trainer:
            known = [*keywords(getattr(type(model), function)), *of_trainer]
            raise argument_error(function, name, known, ARGUMENTS["Trainer"])


def _refuse_unused(function: str, loader: Any, given: dict[str, tuple[Any, Any]]) -> None:
    """Raises TypeError for an argument for which a loader has no use, {name: (value, default)},
    unless it has the same value itself."""
    for name, (value, default) in given.items():
        if value != default and getattr(loader, name, default) != value:
            raise TypeError(
                f"[{function}] {name} is for arrays and Datasets: a loader has its own, so "
                f"{name}={value!r} would not be used"
            )


def _check_sets(x: Any, validation: Any) -> None:
    """Raises ValueError for pictures of which a column says that they are held out, and were not
    split."""
    for each in (getattr(each, "dataset", each) for each in (x, validation)):
        if isinstance(each, ImageFolder) and each.held_out is not None and each.held_out.any():
            raise ValueError(
                f"[fit] a column of {each.name}'s label file says which pictures are held out: "
                "train, test = data.ImageFolder(...).split() follows it, and `held_out = None` of "
                "the set takes all"
            )


def as_loader(
    model: Model,
    x: Any,
    y: Any,
    batch_size: int,
    shuffle: bool = False,
    seed: int = 0,
    shard: tuple[int, int] | None = None,
) -> Any:
    """Batches of arrays (N, ...) or tensors, or of a Dataset such as an ImageFolder. What is a
    loader already, or a list of batches, comes back. `shard` is that of this rank by default.

    Pictures of an ImageSet or an ImageFolder are prepared by `model.transform`.

    Raises TypeError for targets `y` beside a loader or a Dataset, and for the name of a file.
    """
    if isinstance(x, str | bytes | os.PathLike):
        raise TypeError(
            f"[fit] {x!r:.80} is a name: data.ImageFolder reads a folder of pictures, or a file of "
            "labels"
        )
    if str(getattr(x, "dtype", "")) == "torch.bfloat16":  # which NumPy does not have
        x = from_dlpack(x).as_type("float32")
    if isinstance(x, Tensor | np.ndarray) or _is_array_of_others(x):
        dataset: Any = ArrayDataset(x) if y is None else ArrayDataset(x, y)
    elif _holds_numbers(x):
        raise TypeError(
            f"[fit] x is a {type(x).__name__} of numbers: give a NumPy array, np.asarray(x)"
        )
    elif y is not None and isinstance(x, list | tuple):
        raise TypeError(
            f"[fit] x is a {type(x).__name__} of {len(x)}: give np.asarray(x) for one array, or "
            "data.ArrayDataset(x1, x2, y) for several inputs"
        )
    elif isinstance(x, dict | set | None) or hasattr(x, "toarray"):  # that of SciPy
        given = "None" if x is None else f"a {type(x).__name__}"
        raise TypeError(
            f"[fit] x is {given}: give an array; or data.ArrayDataset(x1, x2, y) for several inputs"
        )
    elif y is not None:
        raise TypeError(f"[fit] targets are for arrays; {type(x).__name__} has its own")
    elif isinstance(x, list) and x and _is_sample(x[0]):
        dataset = x
    elif isinstance(x, list | tuple) or hasattr(x, "state_dict") or not isinstance(x, Dataset):
        return x
    else:
        dataset = x
    device = next((p.device for p in model.get_params().values()), get_default_device())
    shard = distributed.shard() if shard is None else shard
    transform = model.transform if _has_pictures(dataset) else None
    return DataLoader(dataset, batch_size, shuffle, seed, transform, device=device, shard=shard)


def _check_transform(model: Model, loader: Any, validation: Any) -> None:
    """Raises ValueError if the pictures of the validation would not be prepared as those of the
    training are."""
    if not _has_pictures(validation) or model.transform is not None:
        return
    if getattr(loader, "transform", None) is not None:
        raise ValueError(
            "[fit] the training's pictures have a transform, which draws or is not singa's, and "
            "the validation's have none: give a DataLoader with one, or set net.transform = "
            "data.evaluation_transform(size, mean, std)"
        )


def _has_pictures(x: Any) -> bool:
    """Whether it is a set of pictures with levels from 0 to 255."""
    return isinstance(x, ImageFolder | ImageSet) and has_levels(x)


def _normalize(model: Model, x: Any) -> str:
    """Gives a model without a transform one that normalises the pictures x; returns a sentence on
    it, or ""."""
    if model.transform is not None or not _has_pictures(x) or not len(x):
        return ""
    if isinstance(x, ImageSet):
        mean, std = x.mean_std()
        std = tuple(each or 1.0 for each in std)  # of a channel with one level
        what = "their own"
    else:
        mean, std, what = IMAGENET_MEAN, IMAGENET_STD, "ImageNet's"
        if x.channels == 1:
            mean, std = ((sum(each) / 3,) for each in (mean, std))
    model.transform = Normalize(mean, std)
    return f"{x.name}: pictures are normalised by {what} mean and spread, which the model keeps"


def _take_task(model: Model, x: Any, options: dict[str, Any]) -> str:
    """Gives a network of `models.create`, unless it has a loss of the caller, the task of the
    pictures x; returns a sentence on it, or "". Raises ValueError for one with another task."""
    if not isinstance(x, ImageFolder) or options.get("loss") is not None:
        return ""
    own = task_of(model).kind
    if x.task == own:
        return ""
    if model.task is not None:
        raise ValueError(f"[fit] the model's task is {own!r}, and that of {x.name} {x.task!r}")
    if not isinstance(model, Classifier) or "loss" in vars(model):
        return ""
    set_task(model, TASKS[x.task].of(x.classes, x.labels))
    return f"{x.name}: the model gets the task {x.task!r} with its loss (docs/data.md)"


def _is_array_of_others(x: Any) -> bool:
    """Whether x is an array of another library, such as a tensor of PyTorch or a table of pandas,
    of which NumPy makes one."""
    return hasattr(x, "__array__") and not isinstance(x, ImageSet)


def _holds_numbers(x: Any) -> bool:
    """Whether x is a list or tuple of Python's numbers, or of lists of them."""
    if not isinstance(x, list | tuple) or not x:
        return False
    return isinstance(x[0], int | float) or _holds_numbers(x[0])


def _is_sample(item: Any) -> bool:
    """Whether an item of a list is a pair of an input and a number, and no batch."""
    return isinstance(item, tuple) and len(item) > 1 and np.ndim(item[-1]) == 0


def _parts(data: Any, kinds: Any = (tuple, list)) -> tuple[Any, Any]:
    """(x, y) of a pair of arrays with equally many rows; a loader, a Dataset or a list of batches,
    and None."""
    if isinstance(data, kinds) and len(data) == 2:
        x, y = data
        arrays = all(isinstance(x, Tensor) or hasattr(x, "__array__") for x in data)
        if arrays and all(x.shape for x in data) and x.shape[0] == y.shape[0]:
            return x, y
    return data, None


def _validation_parts(validation: Any) -> tuple[Any, Any]:
    """The same for a validation. Raises TypeError for what is none."""
    if isinstance(validation, tuple) and len(validation) == 2:
        return validation[0], validation[1]
    if isinstance(validation, Tensor | np.ndarray | tuple | int | float):
        given = type(validation).__name__
        if isinstance(validation, int | float):
            given = f"{validation!r}; a share of the data is set apart before: x[:n], x[n:]"
        raise TypeError(
            "[fit] validation: expected a pair (x, y), a Dataset or a loader of batches, got "
            f"{given}"
        )
    return _parts(validation)

"""Files with a whole network: what `Model.save` writes and `singa.load` reads.

    net.save("pets.singa")
    net = singa.load("pets.singa")      # compiled, in inference mode
    scores = net(x)

A file is a .safetensors file, whatever its name. docs/file_formats.md describes it. Loading
executes nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import device as device_module
from .. import models
from .._version import __version__
from ..data import build_transform, describe_transform
from ..data.picture_list import some
from ..data.pictures import check_channels
from ..data.transforms import Transform
from ..dtypes import DType
from ..files.state_files import Arrays, load_safetensors, save_safetensors
from ..launcher.command_line import closest
from ..layer.creation import room_for
from ..model import Model
from ..models.description import (
    UndescribedError,
    build,
    build_layer,
    describe,
    describe_layer,
)
from ..raw.calls import says_what_to_write
from ..tensor import Tensor
from .task import build_task, set_task

#: Name of the file in the folder of a run.
FILE_NAME = "model.safetensors"

#: Files with a task have version 2, since earlier versions of singa would take it for classes.
_FORMAT, _VERSION, _TASK_VERSION = "singa model", 1, 2
#: Before there was a file for any network.
_CLASSIFIER, _CLASSIFIER_VERSION = "singa picture classifier", 1
#: Keys in the metadata of an ONNX file.
_NAMES_KEY, _TRANSFORM_KEY, _TASK_KEY = "singa.class_names", "singa.transform", "singa.task"
#: The tensor with the bytes of an ONNX model.
_ONNX = "onnx"
#: Largest number in a transform, and largest length of an axis and number of elements of an input.
_MOST_OF_TRANSFORM, _MOST_LENGTH, _MOST_ELEMENTS = 4096, 1 << 16, 1 << 27
_TYPES = {kind.name: kind for kind in DType}
#: What wrong values in a file raise where they are used.
_DAMAGE = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Writes a network to a file; see `Model.save`."""
    write(path, model, model.class_names, model.transform)


def write(
    path: str | os.PathLike[str],
    net: Model,
    class_names: Sequence[str] | None,
    transform: Transform | None,
) -> None:
    """Writes a network with these class names and this transform. Raises as `Model.save` does."""
    if str(path).lower().endswith(".onnx"):  # which `load` reads as one
        raise ValueError(f"[save] {path}: singa.onnx.save(net, file, [x]) writes ONNX files")
    described = None if transform is None else describe_transform(transform)
    names = None if class_names is None else [str(name) for name in class_names]
    if names is not None and (wrong := _miscounted(names, net)):
        raise ValueError(f"[save] {wrong}")
    inputs = net._examples("Model.save")
    network, arrays = _parts(net, inputs)
    metadata = {
        "format": _FORMAT,
        "version": _VERSION,
        "singa": __version__,
        "network": network,
        "inputs": [_likeness(x) for x in inputs],
        "class_names": names,
        "transform": described,
    }
    if net.task is not None:
        metadata |= {"version": _TASK_VERSION, "task": net.task.described()}
    save_safetensors(path, arrays, metadata)


def _parts(net: Model, inputs: list[Any]) -> tuple[dict[str, Any], Arrays]:
    """The description of a network, and the arrays that belong to it."""
    from ..torch_networks import TorchModel, saved

    if isinstance(net, TorchModel):
        network, arrays = saved.describe(net)
        loss = None if net.task is not None else _described_loss(net.loss)  # the task has it
        return network | {"loss": loss}, arrays
    try:
        network = describe(net)
        _check_empty_batch(net, inputs)
    except UndescribedError as error:
        reason = str(error)
    else:
        return network, {name: value.numpy() for name, value in net.get_states().items()}
    graph = _onnx_graph(net, inputs, reason)
    if net.architecture is not None or isinstance(net, models.Sequential):
        warnings.warn(
            f"[save] {reason}: the file has the network as an ONNX graph, which predicts and "
            "trains, but has no layers",
            stacklevel=5,
        )
    return {"kind": "onnx"}, {_ONNX: graph}


def _described_loss(loss: Any) -> Any:
    """The description of a loss; None, with a warning, if it has none."""
    try:
        return describe_layer(loss)
    except UndescribedError as error:
        warnings.warn(
            f"[save] {error}: set `loss` of the network that singa.load returns", stacklevel=5
        )
        return None


def _without_loss(outputs: Any, y: Tensor) -> Tensor:
    raise RuntimeError("[load] the file of this network has no loss: set its `loss` to train it")


def _onnx_graph(net: Model, inputs: list[Any], reason: str) -> NDArray[np.uint8]:
    """The bytes of an ONNX model. Its errors begin with the reason why there has to be one."""
    try:
        from ..onnx.save import to_batched_model

        proto = to_batched_model(net, inputs)
        content = proto.SerializeToString()
    except ImportError as error:
        raise ImportError(f"[save] {reason}. Its ONNX graph needs a package: {error}") from error
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(f"[save] {reason}, and it has no ONNX graph: {error}") from error
    lengths = proto.graph.input[0].type.tensor_type.shape.dim
    if lengths and not lengths[0].dim_param:
        warnings.warn(
            f"[save] the file predicts batches of {inputs[0].shape[0]} only, as compile() had",
            stacklevel=6,
        )
    return np.frombuffer(content, np.uint8)


def _check_empty_batch(net: Model, inputs: list[Any]) -> None:
    """Raises UndescribedError if a network cannot be made by a forward pass of no inputs, which
    takes no memory, whatever the sizes in a file."""
    try:
        with net.executed():
            net._infer(*[_example(_likeness(x), x.device) for x in inputs])
    except _DAMAGE as error:
        raise UndescribedError(
            f"{type(net).__name__} does not take an empty batch ({error})"
        ) from error


@says_what_to_write("load")
def load(path: str | os.PathLike[str], device: Any = None) -> Model:
    """Loads a network from a file of `Model.save`, or of `python -m singa train`.

        net = singa.load("pets.singa")
        scores = net(x)

    path    the file, or the folder of a run, which has it as model.safetensors; or an ONNX file,
            whose name ends in .onnx
    device  where it computes (default: the default device)

    The network is compiled, for batches of any length, and in inference mode. `class_names`,
    `transform` and `task` are what they were; `training.picture_classifier.PictureClassifier(net)`
    predicts from pictures by them. A network of `models.create`, `models.Sequential` or
    `from_torch` is one again, also without PyTorch; any other one is a `singa.onnx.ImportedModel`,
    which needs the package onnx. All of them can be trained.

    Nothing in the file is executed, and its size bounds the memory. Raises FileNotFoundError if
    there is no such file, ValueError if it is damaged, or holds no network.

    >>> net = models.create("lenet")
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> net.save("lenet.singa")
    >>> singa.load("lenet.singa")(tensor.zeros((2, 1, 28, 28))).shape
    (2, 10)
    """
    file = located(path)
    if file.suffix.lower() == ".onnx":
        return _from_onnx(file, device)
    arrays, metadata = load_safetensors(file, "[load] {}: not a readable file with a network")
    kind = metadata.get("format"), metadata.get("version")
    if kind[0] not in (_FORMAT, _CLASSIFIER):
        meant = ""
        if (file.parent / "config.json").exists():
            meant = (
                f"; training.pretrained.load_pretrained({str(file.parent)!r}) reads folders of "
                "timm and transformers"
            )
        elif (file.parent / FILE_NAME).exists():
            meant = f"; did you mean {file.parent}?"
        raise ValueError(
            f"[load] {file} has arrays, but not how to use them: it is not of Model.save or "
            f"`python -m singa train`{meant}"
        )
    known = (_FORMAT, _VERSION), (_FORMAT, _TASK_VERSION), (_CLASSIFIER, _CLASSIFIER_VERSION)
    if kind not in known:
        raise ValueError(
            f"[load] {file} has version {kind[1]!r} of the format, and singa {__version__} reads "
            f"versions {_VERSION} and {_TASK_VERSION}"
        )
    device = device_module.get_default_device() if device is None else device
    try:
        return _loaded(metadata if kind[0] == _FORMAT else _upgraded(metadata), arrays, device)
    except _DAMAGE as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else error
        writer = str(metadata.get("singa", __version__))[:20]
        if writer != __version__:  # it may have what this version does not know
            raise ValueError(
                f"[load] {file}: singa {__version__} cannot read it ({what}); "
                f"singa {writer} wrote it"
            ) from error
        raise ValueError(f"[load] {file}: damaged ({what})") from error


def located(path: str | os.PathLike[str]) -> Path:
    """The file with the network that `path` means for `load`. Raises FileNotFoundError if there is
    none."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
        if not file.exists():
            raise FileNotFoundError(
                f"[load] {path} holds no {FILE_NAME}: a run writes it after its first epoch"
                f"{_runs_in(Path(path), path)}"
            )
    elif not file.exists():
        raise FileNotFoundError(f"[load] {path} does not exist{_runs_in(file.parent, path)}")
    return file


def _runs_in(folder: Path, wanted: str | os.PathLike[str]) -> str:
    """What an error about a missing run adds: one with nearly the same name, or those there are."""
    runs = {file.parent.name: file.parent for file in sorted(folder.glob(f"*/{FILE_NAME}"))}
    if (name := closest(Path(wanted).stem, runs)) is not None:
        return f"; did you mean {runs[name]}?"
    return f"; there are the runs {some([*runs.values()])}" if runs else ""


def _from_onnx(file: Path, device: Any) -> Model:
    from .. import onnx

    net = onnx.load(file, device)
    with contextlib.suppress(RuntimeError):  # it has open lengths that cannot be guessed
        net.compile(net._examples("load"), is_train=False)
    return net


def _loaded(metadata: Mapping[str, Any], arrays: Arrays, device: Any) -> Model:
    network, names, transform = (metadata[k] for k in ("network", "class_names", "transform"))
    inputs = [_example(each, device) for each in metadata["inputs"]]
    if not inputs:
        raise ValueError("the network has no inputs")
    if network["kind"] == "onnx":
        from .. import onnx

        net: Model = onnx.load(arrays[_ONNX].tobytes(), device)
    elif network["kind"] == "torch":
        from ..torch_networks import saved

        described = network["loss"]
        loss = _without_loss if described is None else build_layer(described)
        net = saved.build(network, arrays, loss, device)
    else:
        net = build(network)
        with room_for(sum(array.size for array in arrays.values())):
            net.compile(inputs, is_train=False)
        net.set_states(arrays, strict=True)
    net._inputs = [_like(each) for each in metadata["inputs"]]
    _set_use(net, names, transform, metadata.get("task"))
    net.eval()
    return net


def _set_use(net: Model, names: Any, transform: Any, task: Any) -> None:
    if names is not None:
        net.class_names = _checked_names(names, net)
    if transform is not None:
        check_transform(transform)
        net.transform = build_transform(transform)
    if task is not None:
        set_task(net, build_task(task, None if names is None else len(names)))


# The use of a network in the metadata of an ONNX file.


def _texts_of_use(model: Model) -> dict[str, str]:
    """See `Model._texts_of_use`. Warns of a transform that is not singa's, which is left out."""
    texts = {}
    if model.class_names is not None:
        texts[_NAMES_KEY] = json.dumps([str(name) for name in model.class_names])
    if model.transform is not None:
        try:
            texts[_TRANSFORM_KEY] = json.dumps(describe_transform(model.transform))
        except TypeError as error:
            warnings.warn(f"[onnx.save] the file has no transform: {error}", stacklevel=5)
    if model.task is not None:
        texts[_TASK_KEY] = json.dumps(model.task.described())
    return texts


def _take_use(model: Model, texts: Mapping[str, str]) -> None:
    """See `Model._take_use`."""
    try:
        names, transform, task = (
            json.loads(texts[key]) if key in texts else None
            for key in (_NAMES_KEY, _TRANSFORM_KEY, _TASK_KEY)
        )
        _set_use(model, names, transform, task)
    except _DAMAGE as error:
        raise ValueError(f"what the file says of its use is damaged: {error}") from error


def _upgraded(old: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a picture classifier, as files of this version have them."""
    check_transform(old["transform"])
    blank = np.zeros((1, check_channels("load", old["channels"]), 64, 64), np.uint8)
    shape = build_transform(old["transform"])(blank, np.random.default_rng(0)).shape
    return {
        "network": {"kind": "architecture", **old["architecture"]},
        "inputs": [{"shape": list(shape), "dtype": "float32"}],
        "class_names": old["class_names"],
        "transform": old["transform"],
    }


def _miscounted(names: Sequence[str], net: Model) -> str:
    """What is wrong with the number of names; "" if it is right, or not known."""
    classes = getattr(net, "num_classes", len(names))
    return (
        "" if len(names) == classes else f"{len(names)} class names, and the network has {classes}"
    )


def _checked_names(names: Any, net: Model) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"class_names are {names!r:.80}")
    if wrong := _miscounted(names, net):
        raise ValueError(wrong)
    return names


def check_transform(described: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError if transforms ask for larger pictures than a network takes."""
    for step in described:
        for name, value in step["arguments"].items():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int | float) and not abs(number) <= _MOST_OF_TRANSFORM:
                    raise ValueError(
                        f"{name} of {step['name']} is {number}: at most {_MOST_OF_TRANSFORM}"
                    )


# An input of a network as JSON: its shape and type, or a list of such.


def _likeness(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return [_likeness(item) for item in x]
    return {"shape": list(x.shape), "dtype": x.dtype.name}


def _like(described: Any) -> Any:
    """The shape and type of an input, as `Model.compile` keeps them."""
    if isinstance(described, list):
        return [_like(item) for item in described]
    shape = tuple(described["shape"])
    if not all(isinstance(n, int) and 0 <= n <= _MOST_LENGTH for n in shape):
        raise ValueError(f"an input has the shape {shape}")
    if math.prod(shape[1:]) > _MOST_ELEMENTS:
        raise ValueError(f"an input has the shape {shape}: at most {_MOST_ELEMENTS} elements")
    return shape, _TYPES[described["dtype"]]


def _example(described: Any, device: Any) -> Any:
    """An input without elements: its first axis, the batch, is empty."""
    if isinstance(described, list):
        return [_example(item, device) for item in described]
    shape, dtype = _like(described)
    return Tensor((0, *shape[1:]) if shape else (), device, dtype)

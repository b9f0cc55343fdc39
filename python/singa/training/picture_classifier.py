"""PictureClassifier: a trained network with what it needs to classify picture files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import device as device_module
from .. import models
from .._version import __version__
from ..data import build_transform, describe_transform, read_picture
from ..data.pictures import File, check_channels
from ..data.transforms import Transform
from ..files.state_files import load_safetensors, save_safetensors
from ..model import Model
from ..raw.check import integer
from ..tensor import from_numpy

_FORMAT = "singa picture classifier"
_VERSION = 1
# What a file may ask for: arguments of models.create, and numbers in transforms.
_ARGUMENTS = {"num_classes", "label_smoothing", "dropout", "drop_path"}
_LARGEST = 4096
FILE_NAME = "model.safetensors"

Prediction = list[tuple[str, float]]


class PictureClassifier:
    """Classifies pictures.

        classifier = PictureClassifier.load("runs/pets")        # of `python -m singa train`
        for name, probability in classifier.predict(["cat.jpg"], top=3)[0]:
            print(f"{name} {probability:.1%}")

    net          a compiled network that was made by `models.create`; predictions are made in
                 evaluation mode
    class_names  the names of its classes
    transform    what makes its inputs of a picture, such as `data.evaluation_transform`; all
                 pictures must get one size
    channels     3 (the default): pictures are read in colours; 1: in grey

    `predict` may be called from one thread at a time.
    Raises ValueError without an architecture, or for another number of names, and TypeError for a
    transform that is not singa's.
    """

    def __init__(
        self, net: Model, class_names: Sequence[str], transform: Transform, channels: int = 3
    ) -> None:
        if net.architecture is None:
            raise ValueError(
                "[PictureClassifier] the network was not made by models.create, so a file could "
                "not say how to make it"
            )
        describe_transform(transform)
        classes = getattr(net, "num_classes", len(class_names))
        if len(class_names) != classes:
            raise ValueError(
                f"[PictureClassifier] {len(class_names)} class names, and the network has {classes}"
            )
        self.net = net
        self.class_names = tuple(str(name) for name in class_names)
        self.transform = transform
        self.channels = check_channels("PictureClassifier", channels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes weights, architecture, class names and transforms to a .safetensors file, from
        which `load` makes the classifier. Model.load_states reads the weights. The write is atomic.

        Raises RuntimeError if the network is not compiled, OSError if writing fails.
        """
        states = self.net.get_states()
        if not states:
            raise RuntimeError("[PictureClassifier.save] the network has no parameters: compile it")
        metadata = {
            "format": _FORMAT,
            "version": _VERSION,
            "singa": __version__,
            "architecture": self.net.architecture,
            "class_names": list(self.class_names),
            "channels": self.channels,
            "transform": describe_transform(self.transform),
        }
        save_safetensors(path, {name: value.numpy() for name, value in states.items()}, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Any = None) -> PictureClassifier:
        """Makes the classifier that `save` wrote. Nothing in the file is executed.

        path    the file, or a folder that has it as model.safetensors
        device  where it computes (default: the default device)

        Raises FileNotFoundError if there is no such file, ValueError if it is damaged or none of
        `save`.
        """
        file = Path(path)
        if file.is_dir():
            file = file / FILE_NAME
            if not file.exists():
                raise FileNotFoundError(
                    f"[PictureClassifier] {path} holds no {FILE_NAME}: a run writes it after its "
                    "first epoch"
                )
        _, metadata = load_safetensors(file)
        if metadata.get("format") != _FORMAT:
            raise ValueError(
                f"[PictureClassifier] {file} has weights, but not how to use them: it is not of "
                "PictureClassifier.save or `python -m singa train`"
            )
        if metadata.get("version") != _VERSION:
            raise ValueError(
                f"[PictureClassifier] {file} has version {metadata.get('version')!r} of the "
                f"format, and singa {__version__} reads version {_VERSION}"
            )
        try:
            architecture, described = metadata["architecture"], metadata["transform"]
            check_bounds(architecture["arguments"], described)
            net = models.create(architecture["name"], **architecture["arguments"])
            transform = build_transform(described)
            classifier = cls(net, metadata["class_names"], transform, metadata["channels"])
            blank = np.zeros((classifier.channels, 64, 64), np.uint8)
            inputs = classifier.inputs([blank])
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"[PictureClassifier] {file}: damaged ({error})") from error
        dev = device if device is not None else device_module.get_default_device()
        net.compile([from_numpy(inputs, dev)], is_train=False, use_graph=False)
        net.load_states(file)
        net.class_names = list(classifier.class_names)
        net.eval()
        return classifier

    def read(self, path: File) -> NDArray[np.uint8]:
        """Decodes a picture for `predict`; see `data.read_picture`, also for errors."""
        return read_picture(path, self.channels)

    def inputs(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """The network's inputs (n, C, H, W) of decoded pictures uint8 (C, H, W) of any size."""
        rng = np.random.default_rng(0)  # transforms for evaluation draw nothing
        prepared = [self.transform(picture[None], rng) for picture in pictures]
        return np.ascontiguousarray(np.concatenate(prepared), np.float32)

    def probabilities(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float64]:
        """The probability of each class (n, classes) for decoded pictures uint8 (C, H, W), of any
        size, in one batch."""
        if not len(pictures):
            return np.zeros((0, len(self.class_names)))
        dev = next(iter(self.net.get_states().values())).device
        self.net.eval()
        scores = self.net(from_numpy(self.inputs(pictures), dev)).numpy().astype(np.float64)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    def predict(
        self, pictures: Sequence[File | NDArray[np.uint8]], top: int = 5
    ) -> list[Prediction]:
        """The `top` most probable classes of each picture with their probabilities, best first.

        Pictures are names of files, open binary files, or arrays uint8 (C, H, W); they are one
        batch. Raises as `data.read_picture` does.
        """
        integer("PictureClassifier", "top", top, 1)
        decoded = [p if isinstance(p, np.ndarray) else self.read(p) for p in pictures]
        best = []
        for row in self.probabilities(decoded):
            order = np.argsort(-row, kind="stable")[:top]
            best.append([(self.class_names[place], float(row[place])) for place in order])
        return best


def check_bounds(arguments: Mapping[str, Any], described: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValueError if a file asks for more than a network for pictures needs, so that a
    hostile one cannot take unbounded time or memory."""
    if unknown := arguments.keys() - _ARGUMENTS:
        raise ValueError(f"unexpected arguments of a network: {sorted(unknown)}")
    for step in described:
        for name, value in step["arguments"].items():
            for number in value if isinstance(value, list) else [value]:
                if isinstance(number, int | float) and not abs(number) <= _LARGEST:
                    raise ValueError(f"{name} of {step['name']} is {number}: at most {_LARGEST}")

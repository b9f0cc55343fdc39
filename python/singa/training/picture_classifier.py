"""PictureClassifier: a trained network with what it needs to be asked for picture files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..data import describe_transform, read_picture
from ..data.pictures import File, check_channels, is_pillow
from ..data.transforms import Transform
from ..model import Model
from ..raw.check import distinct_texts, integer
from ..raw.words import counted
from ..tensor import from_numpy
from .model_file import FILE_NAME, load, write
from .task import Answer, Task, task_of

_NO_NAMES = "names of classes: set net.class_names = [...]"
_NO_TRANSFORM = (
    "transform for pictures: set net.transform = data.evaluation_transform(size, mean, std)"
)
Picture = File | bytes | Any  # Any: a Pillow image, or an array
Prediction = Answer


class PictureClassifier:
    """Classifies pictures.

        classifier = PictureClassifier.load("runs/pets")        # of `python -m singa train`
        for name, probability in classifier.predict(["cat.jpg"], top=3)[0]:
            print(f"{name} {probability:.1%}")

    net          a compiled network; predictions are made in inference mode. Its `task` says whether
                 a picture has a class, several labels, or numbers
    class_names  the names of its classes, labels or numbers (default: `net.class_names`)
    transform    what makes its inputs of a picture, such as `data.evaluation_transform`; all
                 pictures must get one size (default: `net.transform`)
    channels     3: pictures are read in colours; 1: in grey (default: those of the network's input)

    `predict` may be called from one thread at a time.
    Raises ValueError without class names or a transform, for another number of names, for a name
    that two classes have, and for inputs that are no images; TypeError for a transform that is not
    singa's.

    >>> from singa.training.picture_classifier import PictureClassifier
    >>> net = models.create("lenet", num_classes=2)
    >>> net.compile([tensor.zeros((1, 1, 28, 28))])
    >>> classifier = PictureClassifier(net, ("cat", "dog"), data.Normalize([0.5], [0.25]))
    >>> picture = np.zeros((1, 28, 28), np.uint8)
    >>> sorted(name for name, probability in classifier.predict([picture])[0])
    ['cat', 'dog']
    >>> classifier.probabilities([picture]).shape
    (1, 2)
    """

    def __init__(
        self,
        net: Model,
        class_names: Sequence[str] | None = None,
        transform: Transform | None = None,
        channels: int | None = None,
    ) -> None:
        class_names = net.class_names if class_names is None else class_names
        transform = net.transform if transform is None else transform
        if class_names is None or transform is None:
            lacks = _NO_NAMES if class_names is None else _NO_TRANSFORM
            raise ValueError(f"[PictureClassifier] the network has no {lacks} before net.save")
        describe_transform(transform)
        classes = getattr(net, "num_classes", len(class_names))
        class_names = distinct_texts("PictureClassifier", "class_names", class_names)
        if len(class_names) != classes:
            raise ValueError(
                f"[PictureClassifier] {len(class_names)} class names, and the network has {classes}"
            )
        if channels is None:
            channels = _channels_of(net)
        self.net = net
        self.class_names = class_names
        self.transform = transform
        self.channels = check_channels("PictureClassifier", channels)

    def blank(self) -> NDArray[np.uint8]:
        """A black picture, which the network takes, to try it."""
        shape: Any = self.net._inputs[0][0] if self.net._inputs else ()
        return np.zeros((self.channels, *(shape[2:] or (64, 64))), np.uint8)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the network with these class names and this transform to a file, from which `load`
        makes the classifier, and `singa.load` the network. See `Model.save`, also for errors."""
        write(path, self.net, self.class_names, self.transform)

    @property
    def task(self) -> Task:
        """What the network's outputs mean; see `singa.training.task`."""
        return task_of(self.net)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: Any = None) -> PictureClassifier:
        """Makes the classifier that `save`, `Model.save` or `python -m singa train` wrote. Nothing
        in the file is executed.

        path    the file, or the folder of a run, which has it as model.safetensors; or an ONNX file
                of `singa export`, `onnx.save` or `Model.quantize`
        device  where it computes (default: the default device)

        Raises FileNotFoundError if there is no such file, ValueError if it is damaged, or its
        network does not classify pictures.
        """
        net = load(path, device)
        try:
            return cls(net)
        except ValueError as error:
            raise ValueError(f"{error}: {os.fspath(path)} cannot classify pictures") from error

    def read(self, path: Picture) -> NDArray[np.uint8]:
        """Decodes a picture for `predict`; see `data.read_picture`, also for errors. It may also be
        a Pillow image, or the bytes of a file."""
        return read_picture(path, self.channels)

    def inputs(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """The network's inputs (n, C, H, W) of decoded pictures uint8 (C, H, W) of any size."""
        return prepared("PictureClassifier", pictures, self.transform)

    def probabilities(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float64]:
        """The probability of each class or label (n, classes) for decoded pictures uint8 (C, H, W),
        of any size, in one batch. Raises ValueError for a network that predicts numbers."""
        self._check_probabilities()
        return self.values(pictures)

    def probabilities_of_inputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The same for what `inputs` returned. Raises ValueError if the network has not one output
        for each class."""
        self._check_probabilities()
        return self.values_of_inputs(inputs)

    def _check_probabilities(self) -> None:
        if self.task.key == "numbers":
            raise ValueError(
                "[PictureClassifier] the network predicts numbers, which values() returns"
            )

    def values(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float64]:
        """What the network says (n, outputs) of decoded pictures uint8 (C, H, W), of any size, in
        one batch: the probability of each class or label, or numbers in the units of the training
        data."""
        if not len(pictures):
            return np.zeros((0, len(self.class_names)))
        return self.values_of_inputs(self.inputs(pictures))

    def values_of_inputs(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """The same for what `inputs` returned. Raises ValueError if the network has not one output
        for each class, label or number, and for outputs that are not finite, which say nothing."""
        dev = next(iter(self.net.get_states().values())).device
        self.net.eval()
        outputs = self.net(from_numpy(inputs, dev)).numpy()
        if outputs.shape != (len(inputs), len(self.class_names)):
            raise ValueError(
                f"[PictureClassifier] there are {len(self.class_names)} class names, and the "
                f"network computes {outputs.shape} for {counted(len(inputs), 'picture')}"
            )
        with np.errstate(invalid="ignore"):
            values = self.task.values(outputs)
        if len(wrong := np.flatnonzero(~np.isfinite(values).all(1))):
            raise ValueError(
                f"[PictureClassifier] the network computes {outputs[wrong[0]].tolist()!s:.80} for "
                f"picture {wrong[0] + 1} of {len(inputs)}, which is no answer: are its weights "
                "finite?"
            )
        return values

    def predict(
        self,
        pictures: Picture | Sequence[Picture],
        top: int | None = None,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """The `top` most probable classes (default 5) of each picture with their probabilities,
        best first. Of several labels, those whose probability is larger than `threshold` (default
        0.5), `top` of them at most (default: all). Of numbers all, in their order.

        Pictures are names of files, open binary files, bytes of files, Pillow images, or arrays
        uint8 (C, H, W) or (H, W, C); they are one batch. A single one is a batch of one. Raises as
        `data.read_picture` does, ValueError for arrays of another shape, and for options that the
        network's task does not have.
        """
        if top is not None:
            integer("PictureClassifier", "top", top, 1)
        is_one = is_file(pictures) or (isinstance(pictures, np.ndarray) and pictures.ndim < 4)
        several = [pictures] if is_one else cast("Sequence[Picture]", pictures)
        rows = self.values([self._decoded(picture) for picture in several])
        return [self.task.answer(self.class_names, row, top, threshold) for row in rows]

    def _decoded(self, picture: Picture) -> NDArray[np.uint8]:
        """A picture uint8 (channels, H, W)."""
        if not isinstance(picture, np.ndarray):
            return self.read(picture)
        shape = picture.shape
        if picture.ndim == 3 and shape[0] != self.channels and shape[2] == self.channels:
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
        if picture.ndim == 2 and self.channels == 1:
            return picture[None]
        if picture.ndim != 3 or shape[0] != self.channels:
            raise ValueError(
                f"[PictureClassifier] expected a picture ({self.channels}, H, W) or (H, W, "
                f"{self.channels}), or the path of a file, got an array of shape {shape}"
            )
        return picture


class PictureBatches:
    """The inputs that `net` makes of the pictures in files, in batches.

    files       names of files, open binary files, bytes of files, or Pillow images
    batch_size  pictures of a batch

    Raises ValueError if the network has no transform.
    """

    def __init__(self, net: Model, files: Sequence[Any], batch_size: int) -> None:
        if net.transform is None:
            raise ValueError(
                "[predict] the network has no transform, which makes its inputs of pictures: set "
                "net.transform = data.evaluation_transform(size, mean, std), or what the loader of "
                "the validation has"
            )
        self._files, self._size, self._transform = files, batch_size, net.transform
        self._channels = _channels_of(net)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        for first in range(0, len(self._files), self._size):
            part = self._files[first : first + self._size]
            pictures = [read_picture(file, self._channels) for file in part]
            yield prepared("predict", pictures, self._transform)


def prepared(
    op: str, pictures: Sequence[NDArray[np.uint8]], transform: Transform
) -> NDArray[np.float32]:
    """A network's inputs (n, C, H, W) of decoded pictures uint8 (C, H, W) of any size. Raises
    ValueError if the transform does not give them one size."""
    rng = np.random.default_rng(0)  # transforms for evaluation draw nothing
    images = [transform(picture[None], rng) for picture in pictures]
    if len(sizes := list(dict.fromkeys(image.shape[1:] for image in images))) > 1:
        raise ValueError(
            f"[{op}] the transform leaves pictures of shapes {sizes[0]} and {sizes[1]}, of which "
            "no batch can be made: data.evaluation_transform(size, mean, std) gives all one size"
        )
    return np.ascontiguousarray(np.concatenate(images), np.float32)


def is_file(given: Any) -> bool:
    """Whether it is a picture as `read_picture` takes it: the name of a file, an open one, the
    bytes of one, or a Pillow image."""
    return (
        isinstance(given, str | bytes | bytearray | memoryview | os.PathLike)
        or hasattr(given, "read")
        or is_pillow(given)
    )


def _channels_of(net: Model) -> int:
    """The channels of the images that a network takes; 3 before it is compiled."""
    if not net._inputs:
        return 3
    like = net._inputs[0]
    shape: tuple[int, ...] = ()
    if len(net._inputs) == 1 and isinstance(like, tuple):
        shape = like[0]
    if len(shape) != 4:
        raise ValueError(
            "[PictureClassifier] the network's input is no batch of images (N, C, H, W)"
        )
    return int(shape[1])


__all__ = ["FILE_NAME", "PictureClassifier", "Prediction"]

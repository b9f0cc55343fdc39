"""Networks with trained weights from which `python -m singa train --weights` starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import layer
from ..data import Compose, Normalize
from ..model import Model
from ..onnx.checking import quantizes
from ..training.picture_classifier import PictureClassifier
from ..training.pretrained import load_pretrained
from ..training.task import OneClass, Task, task_of


@dataclass
class Start:
    """A trained network, and what its images were.

    name        of the architecture; that of the class for a network that `models.create` did not
                make
    side        of the images in pixels
    statistics  mean and standard deviation of each channel by which they were normalised
    """

    net: Model
    name: str
    classes: tuple[str, ...]
    side: int
    statistics: tuple[Sequence[float], Sequence[float]]

    def for_classes(self, classes: Sequence[str], label_smoothing: float, task: Task) -> str:
        """Gives the network a new last layer for these classes, labels or numbers, unless it has
        them already. Returns what was done. Numbers keep the scale of the network that has them."""
        said = f"with its last layer, since the {task.key} are the same"
        if (self.classes, task_of(self.net).kind) != (tuple(classes), task.kind):
            self.net.replace_head(len(classes))
            said = f"with a new last layer for {len(classes)} {task.key}"
        net: Any = self.net
        if task.kind != OneClass.kind:
            return said  # the task has the loss
        if hasattr(net, "label_smoothing"):
            net.label_smoothing = label_smoothing
            if net.architecture is not None:  # of which a file makes the network again
                arguments = {**net.architecture["arguments"], "label_smoothing": label_smoothing}
                net.architecture = {**net.architecture, "arguments": arguments}
        elif label_smoothing or getattr(net, "loss", None) is None:
            net.loss = layer.CrossEntropyLoss(label_smoothing=label_smoothing)
        return said


def load_start(path: str, name: str | None) -> Start:
    """The network in a run's folder, a file of `Model.save`, or what `load_pretrained` reads, to
    which `name` says which network it is.

    Raises FileNotFoundError if there is nothing; ValueError for other contents, another network
    than `name`, and one that is not for pictures in colours.
    """
    classifier = _read(path, name)
    net = classifier.net
    own = (net.architecture or {}).get("name") or type(net).__name__
    if name not in (None, own):
        raise ValueError(f"--weights {path} is of {own}, and --model {name}")
    like: Any = net._inputs[0] if net._inputs else None
    shape: tuple[int, ...] = like[0] if isinstance(like, tuple) else ()
    graph: Any = getattr(net, "_graph", None)  # of an ONNX file
    if graph is not None and any(quantizes(node.op) for node in graph.nodes):
        raise ValueError(
            f"--weights {path} is of a quantised network, of which only the scales would be "
            "trained: start from the network of which it was made"
        )
    if classifier.channels != 3 or len(shape) != 4:
        raise ValueError(f"--weights {path} is of a network that is not for pictures in colours")
    try:
        classifier.values([classifier.blank()])
    except ValueError as error:
        raise ValueError(f"--weights {path}: {error}") from None
    steps = classifier.transform
    last = steps.transforms[-1] if isinstance(steps, Compose) and steps.transforms else steps
    mean, std = (last.mean, last.std) if isinstance(last, Normalize) else ((0.0,) * 3, (1.0,) * 3)
    return Start(net, own, classifier.class_names, int(shape[-1]), (mean, std))


def _read(path: str, name: str | None) -> PictureClassifier:
    try:
        return PictureClassifier.load(path)
    except (OSError, ValueError) as error:
        ours = error
    try:
        return load_pretrained(path, name)
    except FileNotFoundError:
        raise
    except ValueError as theirs:
        raise ValueError(f"--weights: {ours}; and no pretrained network: {theirs}") from None

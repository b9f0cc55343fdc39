"""What the outputs of a network for pictures mean: a class, several labels, or numbers.

    net = singa.load("runs/beach")
    net.task                                  # None (a class), SeveralLabels or Regression
    singa.training.task.task_of(net).values(net(x).numpy())     # probabilities, or numbers

`python -m singa train --multilabel` and `--regression` make such networks, and their files keep the
task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import autograd, device, metric, models
from ..model import Model
from ..raw.check import integer, number
from ..tensor import Tensor, from_numpy
from .totals import Measure

__all__ = [
    "TASKS",
    "OneClass",
    "Regression",
    "SeveralLabels",
    "Task",
    "build_task",
    "set_task",
    "task_of",
]

#: Classes of an answer, unless another number is asked for.
_TOP = 5
#: Labels of an answer have a larger probability.
_THRESHOLD = 0.5

Answer = list[tuple[str, float]]


class Task(ABC):
    """What outputs (n, outputs) mean. The class is described where `task_of` is.

    kind  the name in files, and of `data.ImageFolder(task=)`
    key   what an answer has: "classes", "labels" or "numbers"

    >>> from singa.training.task import SeveralLabels, Task
    >>> isinstance(SeveralLabels(), Task)
    True
    """

    kind: ClassVar[str]
    key: ClassVar[str]

    @classmethod
    def of(cls, names: Sequence[str], targets: ArrayLike) -> Self:
        """The task for these training targets of outputs with these names.

        >>> from singa.training.task import SeveralLabels
        >>> SeveralLabels.of(["cat", "dog"], [[0, 1], [1, 1]]).key
        'labels'
        """
        return cls()

    def loss(self, out: Tensor, y: Tensor) -> Tensor:
        """The loss of outputs for targets in the units of the user. Of no images it is 0: a rank
        may have no part of a short batch."""
        return self._loss(out, y) if out.shape[0] else autograd.reduce_sum(out)

    @abstractmethod
    def _loss(self, out: Tensor, y: Tensor) -> Tensor: ...

    @abstractmethod
    def metrics(self, outputs: int) -> dict[str, Measure]:
        """What a `Trainer` computes beside the loss, for so many outputs."""

    @abstractmethod
    def values(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """What the outputs (n, outputs) of a network say: probabilities, or numbers in the units of
        the targets."""

    @abstractmethod
    def drawn(self, random: np.random.Generator, count: int, outputs: int) -> NDArray[Any]:
        """Random targets of `count` pictures, for a step that is timed."""

    @abstractmethod
    def answer(
        self,
        names: Sequence[str],
        values: NDArray[np.float64],
        top: int | None = None,
        threshold: float | None = None,
    ) -> Answer:
        """The names that matter for one picture, with their values. Raises ValueError for an option
        that the task does not have."""

    def shown(self, value: float) -> str:
        """A value as text: a probability in per cent."""
        return f"{value:.1%}"

    def rounded(self, answer: Answer) -> dict[str, float]:
        """An answer as a JSON object, with six decimals."""
        return {name: round(value, 6) for name, value in answer}

    def described(self) -> dict[str, Any]:
        """The task as JSON values, from which `build_task` makes it again."""
        return {"kind": self.kind}


class OneClass(Task):
    """Each picture has one class: outputs are scores whose softmax are probabilities.

    >>> from singa.training.task import OneClass
    >>> OneClass().answer(("cat", "dog"), np.array([0.2, 0.8]), top=1)
    [('dog', 0.8)]
    """

    kind, key = "classes", "classes"

    def _loss(self, out: Tensor, y: Tensor) -> Tensor:
        return autograd.softmax_cross_entropy(out, y)

    def metrics(self, outputs: int) -> dict[str, Measure]:
        found: dict[str, Measure] = {"top1": metric.count_top_k}
        if outputs > _TOP:
            found["top5"] = metric.Accuracy(5)
        return found

    def values(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        scores = outputs.astype(np.float64)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    def drawn(self, random: np.random.Generator, count: int, outputs: int) -> NDArray[Any]:
        """Class indices, int32 (count)."""
        return random.integers(0, outputs, count).astype(np.int32)

    def answer(
        self,
        names: Sequence[str],
        values: NDArray[np.float64],
        top: int | None = None,
        threshold: float | None = None,
    ) -> Answer:
        """The `top` most probable classes (default 5), best first."""
        if threshold is not None:
            raise ValueError("[predict] a threshold is for several labels; top=1 gives the class")
        return _best(names, values, _TOP if top is None else top)


class SeveralLabels(Task):
    """Each picture has any number of labels: outputs are scores, and the sigmoid of each is the
    probability of its label. The loss is binary cross-entropy, the mean over pictures and labels.

    >>> from singa.training.task import SeveralLabels
    >>> SeveralLabels().answer(("cat", "dog", "red"), np.array([0.7, 0.1, 0.9]))
    [('red', 0.9), ('cat', 0.7)]
    """

    kind, key = "multilabel", "labels"

    def _loss(self, out: Tensor, y: Tensor) -> Tensor:
        return autograd.binary_cross_entropy_with_logits(out, y)

    def metrics(self, outputs: int) -> dict[str, Measure]:
        return {
            "exact": _exact,
            "map": metric.AveragePrecision(),
            "f1": metric.F1(from_logits=True),
        }

    def values(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        scores = outputs.astype(np.float64)
        small = np.exp(-np.abs(scores))  # does not overflow
        return np.where(scores >= 0, 1.0, small) / (1.0 + small)

    def drawn(self, random: np.random.Generator, count: int, outputs: int) -> NDArray[Any]:
        """0 and 1, float32 (count, outputs)."""
        return random.integers(0, 2, (count, outputs)).astype(np.float32)

    def answer(
        self,
        names: Sequence[str],
        values: NDArray[np.float64],
        top: int | None = None,
        threshold: float | None = None,
    ) -> Answer:
        """The labels whose probability is larger than `threshold` (default 0.5), best first; at
        most `top` of them."""
        limit = _THRESHOLD if threshold is None else number("predict", "threshold", threshold)
        best = _best(names, values, len(names) if top is None else top)
        return [(name, value) for name, value in best if value > limit]


class Regression(Task):
    """Each picture has numbers: outputs are (number - mean) / std, and the loss is the mean of the
    squares of their errors.

    mean, std  of each number over the training pictures, in its units

    Raises ValueError for numbers that are not finite, a `std` that is not positive, and for
    different lengths.

    >>> from singa.training.task import Regression
    >>> age = Regression([40.0], [10.0])
    >>> age.values(np.array([[0.5]]))
    array([[45.]])
    """

    kind, key = "regression", "numbers"

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = tuple(float(each) for each in mean)
        self.std = tuple(float(each) for each in std)
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(
                f"[Regression] {len(self.mean)} means and {len(self.std)} standard deviations"
            )
        if not np.isfinite([*self.mean, *self.std]).all() or min(self.std) <= 0:
            raise ValueError(f"[Regression] mean {self.mean} and standard deviation {self.std}")
        self._scale: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, names: Sequence[str], targets: ArrayLike) -> Self:
        """That of targets (n, numbers) with these names. Raises ValueError if a number is always
        the same.

        >>> from singa.training.task import Regression
        >>> Regression.of(["age"], [[1.0], [3.0]]).std
        (1.0,)
        """
        array = np.asarray(targets, np.float64)
        mean, std = array.mean(0), array.std(0)
        if same := [name for name, each in zip(names, std, strict=True) if each == 0]:
            raise ValueError(f"[Regression] all pictures have the same {', '.join(same)}")
        return cls(mean.tolist(), std.tolist())

    def _loss(self, out: Tensor, y: Tensor) -> Tensor:
        mean, factor = self._constants(out.device)
        return autograd.mse_loss(out, (y - mean) * factor)

    def _constants(self, place: Any) -> tuple[Tensor, Tensor]:
        """The mean and 1 / std on a device. Made once, so that recorded steps are replayed."""
        if self._scale is None or self._scale[0].device.id() != place.id():
            numbers = np.array(self.mean), 1.0 / np.array(self.std)
            mean, factor = (from_numpy(each.astype(np.float32), place) for each in numbers)
            mean.requires_grad = factor.requires_grad = False
            self._scale = mean, factor
        return self._scale

    def metrics(self, outputs: int) -> dict[str, Measure]:
        self._constants(device.get_default_device())
        return {"mae": self._errors, "r2": _R2(self)}

    def _errors(self, out: Tensor, y: Tensor) -> float:
        """The sum over the pictures of the absolute error, averaged over the numbers."""
        errors = np.abs(self.values(out.numpy()) - y.numpy().astype(np.float64))
        return float(errors.mean(1).sum())

    def values(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        return outputs.astype(np.float64) * np.array(self.std) + np.array(self.mean)

    def drawn(self, random: np.random.Generator, count: int, outputs: int) -> NDArray[Any]:
        """Numbers with this mean and standard deviation, float32 (count, outputs)."""
        return self.values(random.standard_normal((count, outputs))).astype(np.float32)

    def answer(
        self,
        names: Sequence[str],
        values: NDArray[np.float64],
        top: int | None = None,
        threshold: float | None = None,
    ) -> Answer:
        """All numbers in their order."""
        for option, given in (("top", top), ("threshold", threshold)):
            if given is not None:
                raise ValueError(f"[predict] the network predicts numbers, which have no {option}")
        return [(name, float(value)) for name, value in zip(names, values, strict=True)]

    def shown(self, value: float) -> str:
        """A number with six digits."""
        return f"{value:.6g}"

    def rounded(self, answer: Answer) -> dict[str, float]:
        """An answer as a JSON object, with the seven digits of float32."""
        return {name: float(f"{value:.7g}") for name, value in answer}

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "mean": list(self.mean), "std": list(self.std)}


class _R2(metric.R2):
    """R² of outputs for targets in the units of the user."""

    def __init__(self, task: Regression) -> None:
        self._task = task
        super().__init__()

    def update(self, x: Any, y: Any) -> None:
        super().update(self._task.values(x.numpy()), y)


def _exact(out: Tensor, y: Tensor) -> float:
    """The number of pictures all of whose labels are right."""
    return float(((out.numpy() > 0) == (y.numpy() > 0.5)).all(1).sum())


def _best(names: Sequence[str], values: NDArray[np.float64], top: int) -> Answer:
    order = np.argsort(-values, kind="stable")[: integer("predict", "top", top, 1)]
    return [(names[place], float(values[place])) for place in order]


#: By `kind`.
TASKS: dict[str, type[Task]] = {each.kind: each for each in (OneClass, SeveralLabels, Regression)}


def task_of(net: Model) -> Task:
    """What the outputs of a network mean: its `task`, or else a class.

    >>> from singa.training.task import task_of
    >>> task_of(models.create("lenet")).kind
    'classes'
    """
    return OneClass() if net.task is None else net.task


def set_task(net: Model, task: Task | None) -> None:
    """Gives a network a task, and its loss. None: a class, with the network's own loss.

    >>> from singa.training.task import SeveralLabels, set_task
    >>> net = models.create("lenet", num_classes=3)
    >>> set_task(net, SeveralLabels())
    >>> float(net.loss(tensor.zeros((1, 3)), tensor.zeros((1, 3)))) == float(np.float32(np.log(2)))
    True
    """
    net.task = task
    if isinstance(net, models.Sequential):
        if task is not None:
            net.loss = task.loss
    elif task is not None:
        vars(net)["loss"] = task.loss  # no layer of the network
    elif isinstance(getattr(vars(net).get("loss"), "__self__", None), Task):
        del vars(net)["loss"]


def build_task(described: Mapping[str, Any] | None, outputs: int | None = None) -> Task | None:
    """The task that `described` made these JSON values of; of None and of classes None.

    outputs  how many the network has, if that is known

    Raises ValueError, TypeError or KeyError for anything else.

    >>> from singa.training.task import build_task
    >>> build_task({"kind": "regression", "mean": [1.0], "std": [2.0]}).std
    (2.0,)
    """
    if described is None:
        return None
    arguments = {name: value for name, value in described.items() if name != "kind"}
    task = TASKS[described["kind"]](**arguments)
    if isinstance(task, Regression) and outputs not in (None, len(task.mean)):
        raise ValueError(f"a scale of {len(task.mean)} numbers for {outputs} outputs")
    return None if isinstance(task, OneClass) else task

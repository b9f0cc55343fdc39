"""Sums of the loss and of metrics over the batches of an epoch, or of a validation."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import distributed, tensor
from ..metric import Metric
from ..tensor import Tensor

#: A Metric, or a function of outputs and targets that returns a sum over the batch.
Measure = Metric | Callable[[Any, Any], float]
#: Sums that are no sums over a loss or a metric.
_COUNTS = ("images", "counted")


class NonFiniteLossError(ValueError):
    """The loss became infinite or NaN. `loss` is what it became.

    >>> issubclass(training.NonFiniteLossError, FloatingPointError)
    False
    """

    def __init__(self, loss: float) -> None:
        super().__init__(f"the loss became {loss}: a lower learning rate may help")
        self.loss = loss


class Totals:
    """Sums over this rank's batches so far.

    metrics   what is computed beside the loss, by name: functions, whose sums are in `sums`, and
              Metrics, which are reset
    together  batches whose results are read at once. Reading a result waits for a GPU, which then
              has nothing to do until the next step starts.
    sums      where to start: the sums so far
    has_loss  whether batches have a loss

    `sums` has the number of "images" (rows of the batches), the number of "counted" targets (see
    `Tensor.counted`; of other losses the rows), the "loss" summed over these, and the sums of the
    functions.
    """

    def __init__(
        self,
        metrics: Mapping[str, Measure],
        together: int = 1,
        sums: Mapping[str, float] | None = None,
        has_loss: bool = True,
    ) -> None:
        self._functions = {n: m for n, m in metrics.items() if not isinstance(m, Metric)}
        self._metrics = {n: m for n, m in metrics.items() if isinstance(m, Metric)}
        for metric in self._metrics.values():
            metric.reset()
        self.sums: dict[str, float] = {"images": 0}
        self.sums |= {"counted": 0.0, "loss": 0.0} if has_loss else {}
        self.sums |= dict.fromkeys(self._functions, 0)
        if sums and "counted" not in sums:  # of an older version
            sums = {**sums, "counted": sums["images"]}
        self.sums |= {name: value for name, value in (sums or {}).items() if name in self.sums}
        self._names = list(metrics)
        self._together = together
        self._batches: list[tuple[Any, Tensor | None, Any, int]] = []

    def add(self, out: Any, loss: Tensor | None, y: Any, rows: int) -> None:
        """Adds a batch of `rows` rows: outputs, loss or None, and targets."""
        if rows:
            self._batches.append((out, loss, y, rows))
        if len(self._batches) >= self._together:
            self.settle()

    def settle(self) -> None:
        """Reads the results of all batches. Raises NonFiniteLossError."""
        batches, self._batches = self._batches, []
        for _, loss, _, rows in batches:
            self.sums["images"] += rows
            if loss is None:
                continue
            counted = rows if loss.counted is None else float(loss.counted)
            if counted:  # else the loss is NaN
                self.sums["counted"] += counted
                self.sums["loss"] += float(loss) * counted
        if not math.isfinite(total := self.sums.get("loss", 0.0)):
            raise NonFiniteLossError(total)
        if not self._names:
            return
        for out, y in _joined([(out, y) for out, _, y, _ in batches]):
            for name, function in self._functions.items():
                self.sums[name] += _number(name, function(out, y))
            for metric in self._metrics.values():
                metric.update(out, y)

    def means(self) -> dict[str, float]:
        """The means over this rank's rows so far, without the Metrics; of the loss over the targets
        that counted, NaN if none did."""
        return self._means(self.sums)

    def of_all(self, prefix: str = "") -> dict[str, Any]:
        """The loss and all metrics of all ranks, with `prefix` before each name. All ranks call
        it."""
        self.settle()
        values: dict[str, Any] = self._means(distributed.total(self.sums))
        for name, metric in self._metrics.items():
            values[name] = metric.compute()
        return {prefix + name: values[name] for name in ("loss", *self._names) if name in values}

    def _means(self, sums: Mapping[str, float]) -> dict[str, float]:
        images = max(sums["images"], 1)
        means = {name: value / images for name, value in sums.items() if name not in _COUNTS}
        if "loss" in sums and sums["images"]:
            counted = sums["counted"]
            means["loss"] = sums["loss"] / counted if counted else math.nan
        return means


def images_of(saved: list[dict[str, float]] | dict[str, float]) -> float:
    """The images of all ranks in the sums that a checkpoint holds."""
    return sum(sums["images"] for sums in ([saved] if isinstance(saved, dict) else saved))


def own_sums(saved: list[dict[str, float]] | dict[str, float]) -> dict[str, float]:
    """This rank's part of the sums that a checkpoint holds for each rank. If there were more ranks,
    or fewer, rank 0 has all."""
    if isinstance(saved, dict):  # of an older version
        saved = [saved]
    if len(saved) == distributed.world_size():
        return saved[distributed.rank()]
    together = {name: sum(sums[name] for sums in saved) for name in saved[0]}
    return together if distributed.is_main() else {}


def described(record: Mapping[str, Any], validation_name: str = "val") -> list[str]:
    """The numbers of a record: "train loss 0.312 top-1 91.2%" and "val loss ...".

    Names that begin with "acc" or "top" are fractions, and shown in per cent.
    """
    parts = []
    for prefix in ("train_", f"{validation_name}_"):
        numbers = {
            name.removeprefix(prefix): value
            for name, value in record.items()
            if name.startswith(prefix) and isinstance(value, int | float)
        }
        if numbers:
            words = [_described(name, value) for name, value in numbers.items()]
            parts.append(" ".join([prefix[:-1], *words]))
    return parts


def in_columns(title: str, parts: Sequence[str], most: int = 80) -> str:
    """The title and the parts in a line, if it has `most` columns at most. Otherwise the first part
    stands beside the title and the others in lines below it. Words stay whole."""
    line = "  ".join([title, *parts])
    if len(line) <= most or not parts:
        return line
    indent = " " * (len(title) + 2)
    texts = [parts[0], "  ".join(parts[1:])]
    wrapped = [line for text in texts for line in textwrap.wrap(text, most - len(indent))]
    return f"{title}  " + f"\n{indent}".join(wrapped)


def _described(name: str, value: float) -> str:
    if name.startswith("top") and name[3:].isdigit():
        return f"top-{name[3:]} {value:.1%}"
    if name.startswith(("acc", "top")):
        return f"{name} {value:.1%}"
    return f"{name} {value:.3f}" if name == "loss" or math.isnan(value) else f"{name} {value:.4g}"


def _joined(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Outputs and targets of all batches in one pair of tensors, where they can be joined."""
    if len(pairs) < 2 or not all(_is_like(pairs[0], pair) for pair in pairs):
        return pairs
    outs, targets = zip(*pairs, strict=True)
    return [(tensor.concatenate(outs, 0), tensor.concatenate(targets, 0))]


def _is_like(first: tuple[Any, Any], pair: tuple[Any, Any]) -> bool:
    return all(
        isinstance(a, Tensor)
        and isinstance(b, Tensor)
        and (a.shape[1:], a.dtype) == (b.shape[1:], b.dtype)
        for a, b in zip(first, pair, strict=True)
    )


def _number(name: str, value: Any) -> float:
    """What the function of a metric has returned, as a number."""
    if (shape := getattr(value, "shape", ())) and math.prod(shape) != 1:
        raise TypeError(
            f"[Trainer] metrics: {name!r} returned shape {tuple(shape)}; expected a number, a sum "
            "over the batch"
        )
    return float(value)

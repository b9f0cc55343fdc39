"""The epochs of `python -m singa train`: steps, tests, log, checkpoints, and an orderly stop."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import data, distributed, metric, opt, tensor
from ..models.common import Classifier
from ..training import JsonLinesLog, checkpoint, plot_curves
from ..training.program import StopSignals, say
from ..training.progress import Progress


@dataclass
class Run:
    """A run of training, and where it writes.

    net, optimizer    compiled
    loader, test_loader  of training and test images
    out               folder for log.jsonl, curves.png and what `save_model` writes
    checkpoint        the checkpoint's file
    settings          saved in the checkpoint
    epochs            number of epochs
    checkpoint_steps  also save a checkpoint every so many steps; 0: only after an epoch
    top5              whether the test counts labels among the five best classes
    together          batches whose results are read at once: reading waits for a GPU
    title             of the picture of curves
    save_model        called on rank 0 after each epoch, or if none is left
    """

    net: Classifier
    optimizer: opt.Optimizer | opt.DistOpt
    loader: data.DataLoader
    test_loader: data.DataLoader
    out: Path
    checkpoint: Path
    settings: Mapping[str, Any]
    epochs: int
    checkpoint_steps: int
    top5: bool
    together: int
    title: str
    save_model: Callable[[], None]

    def __post_init__(self) -> None:
        self.totals = Totals(self.together, self.top5)
        self.parts = self.loader.virtual_ranks // distributed.world_size()

    def resume(self) -> None:
        """Continues from the checkpoint. Raises as `checkpoint.load` does."""
        progress = checkpoint.load(self.checkpoint, self.net, self.optimizer)
        self.loader.load_state_dict(progress["loader"])
        self.totals = Totals(self.together, self.top5, **_own(progress["totals"]))
        say(f"resumed after step {self.optimizer.steps}")

    def save(self) -> None:
        """Saves a checkpoint. All ranks call it."""
        self.totals.settle()
        state: dict[str, Any] = {"settings": self.settings, "loader": self.loader.state_dict()}
        sums = distributed.gather(self.totals.sums)
        checkpoint.save(self.checkpoint, self.net, self.optimizer, **state, totals=sums)

    def fit(self) -> int:
        """Trains the epochs that are left; returns the exit status. After the first Ctrl-C or
        SIGTERM, the step or the test ends, and a checkpoint is saved.

        Raises ValueError if the loss is not finite.
        """
        stopped = StopSignals()
        first_epoch = self.loader.epoch + 1
        log_path = self.out / "log.jsonl"
        with contextlib.ExitStack() as closing:
            log = None
            if distributed.is_main():
                log = JsonLinesLog(log_path, lambda record: record["epoch"] < first_epoch)
                closing.enter_context(log)
            for epoch in range(first_epoch, self.epochs + 1):
                began, title = time.monotonic(), f"epoch {epoch}/{self.epochs}"
                rate = self._train(title, stopped)
                if not stopped.anywhere():
                    record: dict[str, float] = {"epoch": epoch, "step": self.optimizer.steps}
                    record["lr"] = self.optimizer.now("lr")
                    record |= self.totals.means_of_all("train_", "loss", "top1")
                    record |= self._test()
                    seconds = time.monotonic() - began
                    if log is not None:
                        log.append(record, images_per_s=round(rate, 1), seconds=round(seconds, 3))
                    say(f"{title}  {_line(record)}  {rate:.0f} images/s")
                    self.totals = Totals(self.together, self.top5)
                    self.save()
                    distributed.on_main(self.save_model, "save_model")
                    if log is not None:
                        try:
                            plot_curves(log_path, self.out / "curves.png", title=self.title)
                        except ImportError as error:
                            say(error)
                if stopped.anywhere():
                    say(f"stopped after step {self.optimizer.steps}; --resume continues from there")
                    return stopped.status
        if first_epoch > self.epochs:  # the run may have been killed before it saved the model
            distributed.on_main(self.save_model, "save_model")
        say(f"weights, curves and log are in {self.out}")
        return 0

    def _train(self, title: str, stopped: StopSignals) -> float:
        """Trains until the end of the epoch or a signal. Returns images per second."""
        began, seen = time.monotonic(), self.totals.sums["images"]

        def rate_until(end: float) -> float:
            trained = self.totals.sums["images"] - seen
            return distributed.world_size() * trained / max(end - began, 1e-9)

        start = self.loader.state_dict()["batch"]
        with Progress(len(self.loader), title, start=start) as bar:
            for number, (x, y) in enumerate(self.loader, 1):
                # Parts with fewer images of a batch count less.
                uneven = [] if self.loader.weight == 1.0 else [self.loader.weight]
                out, loss = self.net(x, y, *uneven)
                self.totals.add(out, loss, y)
                if number % self.parts:
                    continue
                figures = {"images/s": rate_until(time.monotonic())}
                bar.step(**self.totals.means("loss", "top1"), **figures)
                every = self.checkpoint_steps
                stop = stopped.anywhere()
                if stop or (every and self.optimizer.steps % every == 0):
                    self.save()
                if stop:
                    break
        self.totals.settle()
        return rate_until(time.monotonic())

    def _test(self) -> dict[str, float]:
        """Loss and accuracy on the test images, of all ranks."""
        self.net.eval()
        totals = Totals(self.together, self.top5)
        with Progress(len(self.test_loader), "test") as bar:
            for x, y in self.test_loader:
                if len(y):  # a short batch may have no image for this rank
                    out = self.net(x)
                    totals.add(out, self.net.loss(out, y), y)
                bar.step()
        self.net.train()
        return totals.means_of_all("test_")


class Totals:
    """Sums of loss and correct predictions over this rank's batches so far, from `sums` on.

    Results are read for `together` batches at once, because reading waits for a GPU.
    """

    def __init__(self, together: int, top5: bool, /, **sums: float) -> None:
        self.sums: dict[str, float] = {"images": 0, "loss": 0.0, "top1": 0}
        if top5:
            self.sums["top5"] = 0
        self.sums |= sums
        self.together = together
        self._batches: list[tuple[tensor.Tensor, tensor.Tensor, tensor.Tensor]] = []

    def add(self, out: tensor.Tensor, loss: tensor.Tensor, y: tensor.Tensor) -> None:
        """Adds a batch: scores, loss and labels."""
        self._batches.append((out, loss, y))
        if len(self._batches) >= self.together:
            self.settle()

    def settle(self) -> None:
        """Reads the results of all batches. Raises ValueError if the loss is not finite."""
        if not self._batches:
            return
        outs, losses, labels = zip(*self._batches, strict=True)
        self._batches = []
        scores = tensor.concatenate(outs, 0) if len(outs) > 1 else outs[0]
        classes = tensor.concatenate(labels, 0) if len(outs) > 1 else labels[0]
        for loss, y in zip(losses, labels, strict=True):
            self.sums["images"] += y.shape[0]
            self.sums["loss"] += float(loss) * y.shape[0]
        if not math.isfinite(self.sums["loss"]):
            raise ValueError(f"the loss became {self.sums['loss']}: a lower --lr may help")
        self.sums["top1"] += metric.count_top_k(scores, classes)
        if "top5" in self.sums:
            self.sums["top5"] += metric.count_top_k(scores, classes, 5)

    def means(self, *names: str) -> dict[str, float]:
        """Means per image of this rank; by default of all sums."""
        return _means(self.sums, names)

    def means_of_all(self, prefix: str, *names: str) -> dict[str, float]:
        """Means per image of all ranks, with `prefix` before each name. All ranks call it."""
        self.settle()
        means = _means(distributed.total(self.sums), names)
        return {prefix + name: value for name, value in means.items()}


def _means(sums: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    images = max(sums["images"], 1)
    return {name: sums[name] / images for name in names or sums if name != "images"}


def _line(record: Mapping[str, float]) -> str:
    text = f"train loss {record['train_loss']:.3f} top-1 {record['train_top1']:.1%}  "
    text += f"test loss {record['test_loss']:.3f} top-1 {record['test_top1']:.1%}"
    return text + (f" top-5 {record['test_top5']:.1%}" if "test_top5" in record else "")


def _own(saved: list[dict[str, float]] | dict[str, float]) -> dict[str, float]:
    """This rank's part of the sums that a checkpoint holds for each rank. Of another number of
    ranks, rank 0 has all."""
    if isinstance(saved, dict):  # of an older version
        saved = [saved]
    if len(saved) == distributed.world_size():
        return saved[distributed.rank()]
    together = {name: sum(sums[name] for sums in saved) for name in saved[0]}
    return together if distributed.is_main() else {}

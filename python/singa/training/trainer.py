"""Trainer: the loop over epochs and batches, with validation, logs, checkpoints and exact resume.

    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    trainer = training.Trainer(net, out="runs/1", metrics={"accuracy": metric.count_top_k})
    history = trainer.fit(loader, epochs=10, validation=test_loader)

docs/training.md shows more.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import distributed, opt
from ..layer.named_losses import advising, named_loss
from ..metric import Metric
from ..raw.calls import says_what_to_write
from ..raw.check import facts_of, integer
from ..tensor import Tensor
from . import checkpoint
from .callbacks import Callback, Record, check_methods
from .checkpoint import BackgroundSaver, json_value
from .curves import plot_curves
from .evaluator import (
    Evaluator,
    check_batches,
    nonfinite_inputs,
    say_if_averages_lag,
    say_if_unnormalised,
)
from .log import JsonLinesLog, read_log
from .log_base import Log
from .program import StopSignals, say
from .progress import Progress
from .totals import (
    Measure,
    NonFiniteLossError,
    Totals,
    described,
    images_of,
    in_columns,
    own_sums,
)
from .use import check_classes, keep_names, keep_transform

if TYPE_CHECKING:
    from ..model import Model


class Trainer(Evaluator):
    """Trains a model on the batches of a loader, epoch by epoch.

    model       a Model with an optimizer. In training it is called with all parts of a batch, and
                `train_one_batch` returns (outputs, ..., loss), or the loss alone. In validation it
                gets all parts but the last, the targets, and `model.loss(outputs, targets)` is the
                loss. A model that is not compiled yet is compiled for recorded steps.
    metrics     what is computed beside the loss, by name. A function of outputs and targets that
                returns a sum over the batch, such as `metric.count_top_k`: its mean over the rows,
                in training and validation. A `Metric`: in validation alone. Or a list of names
                among "accuracy", "top5", "mae", "mse" (in training, too), "auc" and "r2"
    loss        function of outputs and targets, which becomes `model.loss`; or a name:
                "cross_entropy", "bce_with_logits", "mse", "mae", "smooth_l1", "huber", "nll" or
                "focal", the layer with its defaults
    dtype       type of convolutions and products, "bfloat16" or "float16"; see `Model.compile`
    ema         averages of the weights, or their decay. They are updated after each update of the
                optimizer, and validated and saved by BestModel in the place of the weights.
    callbacks   see Callback; called in this order
    loggers     logs that get the record of each epoch, such as CsvLog and TensorBoardLog. With
                `out`, records that a resumed run makes again are removed first.
    out         folder for log.jsonl, curves.png (with matplotlib) and checkpoint.safetensors. The
                first Ctrl-C or SIGTERM then saves a checkpoint and ends `fit`, which says so; see
                `exit_status`.
                By default nothing is written.
    checkpoint_steps  also save a checkpoint every so many updates; 0: only after an epoch
    save_in_background  write checkpoints while training goes on, as `BackgroundSaver` does
    settings    JSON values that checkpoints keep: "settings" of `checkpoint.read_progress`
    title       of curves.png
    validation_name   prefix of a validation's fields (default "val")
    verbose     whether rank 0 shows bars, and prints a line for each epoch

    Accumulation, clipping and loss scaling are settings of the optimizer. On several ranks, each
    calls the same, with `DataLoader(shard=distributed.shard())`; an optimizer that is no DistOpt is
    put into one.

    Raises TypeError or ValueError for wrong arguments.

    >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    >>> net.set_optimizer(opt.SGD(lr=0.1))
    >>> x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    >>> loader = data.DataLoader(data.ArrayDataset(x, x.sum(1, keepdims=True)), 16, shuffle=True)
    >>> history = training.Trainer(net, verbose=False).fit(loader, epochs=3)
    >>> [record["epoch"] for record in history]
    [1, 2, 3]
    >>> history[-1]["train_loss"] < history[0]["train_loss"]
    True
    """

    def __init__(
        self,
        model: Model,
        *,
        metrics: Mapping[str, Measure | str] | Sequence[str] | None = None,
        loss: Callable[[Any, Any], Tensor] | str | None = None,
        dtype: Any = None,
        ema: opt.EMA | float | None = None,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Log] = (),
        out: str | os.PathLike[str] | None = None,
        checkpoint_steps: int = 0,
        save_in_background: bool = False,
        settings: Mapping[str, Any] | None = None,
        title: str | None = None,
        validation_name: str = "val",
        verbose: bool = True,
    ) -> None:
        super().__init__(model, metrics, dtype, ema, bool(verbose))
        self._loss_name = loss if isinstance(loss, str) else ""
        if loss is not None:
            model.loss = named_loss(loss)
        self.callbacks = _checked_callbacks(callbacks)
        if isinstance(loggers, Log):
            raise TypeError(f"[Trainer] loggers: expected a list, [{type(loggers).__name__}(...)]")
        self.loggers = list(loggers)
        for logger in self.loggers:
            if not isinstance(logger, Log):
                raise TypeError(f"[Trainer] loggers: expected a training.Log, got {logger!r:.80}")
        self.out = None if out is None else Path(out)
        self.checkpoint_steps = integer("Trainer", "checkpoint_steps", checkpoint_steps, 0)
        self.save_in_background = bool(save_in_background)
        self.settings = settings
        self.title = title
        self.validation_name = validation_name
        #: Number of the epoch, from 1, and of the last one.
        self.epoch, self.epochs = 0, 0
        #: Whether `fit` continues from a checkpoint.
        self.resumed = False
        #: A callback sets it to end the training after this epoch.
        self.should_stop = False
        #: 0, or 128 and the number of the signal that has stopped `fit`.
        self.exit_status = 0
        #: What continues a run that a signal has stopped, in the line that says so.
        self.resume_with = "resume=True"
        self._totals = Totals({})
        self._can_plot = True
        self._kept = ""  # what the model has got of the data; see `use`
        #: The loader until the first outputs tell whether its names are theirs.
        self._data: Any = None
        self._began = time.monotonic()
        #: Images of all ranks, and seconds, of the epoch before it was resumed.
        self._earlier = (0.0, 0.0)
        self._first = 0  # the loader's epoch at the beginning of the run

    @property
    def optimizer(self) -> Any:
        """The model's optimizer."""
        return self.model.optimizer

    @property
    def checkpoint(self) -> Path | None:
        """Path of the checkpoint; None without `out`."""
        return None if self.out is None else self.out / "checkpoint.safetensors"

    # Training.

    @says_what_to_write("Trainer.fit", "fit")
    def fit(
        self,
        loader: Any,
        epochs: int,
        validation: Any = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
    ) -> list[Record]:
        """Trains for `epochs` epochs; returns the records of those that this call has finished.

        loader      a DataLoader, or another iterable of batches that has a length, such as a list.
                    Checkpoints need `state_dict` and `load_state_dict`, as a DataLoader has them.
        validation  batches for `evaluate` after each epoch
        resume      continue from the checkpoint in `out`, if there is one: with the same bits as if
                    it had never stopped. `epochs` are those of the whole run.
        overwrite   replace the run in `out`

        A model without `class_names` gets those of the training's data, and one without a
        `transform` that of the validation's pictures, or of the training's, unless it draws: what
        `singa predict` needs of `Model.save`.

        A record has "epoch", "step" (updates), "lr", the loss and the metrics of training
        ("train_loss", ...) and validation ("val_loss", ...), "images_per_s" and "seconds".

        Raises NonFiniteLossError if the loss becomes infinite or NaN, ValueError if the validation
        has other classes than the training, FileExistsError if `out` has a run that is neither
        resumed nor overwritten, and what `checkpoint` raises.

        >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        >>> net.set_optimizer(opt.SGD(lr=0.1))
        >>> x, y = np.ones((32, 2), np.float32), np.zeros((32, 1), np.float32)
        >>> loader = data.DataLoader(data.ArrayDataset(x, y), 16)
        >>> history = training.Trainer(net, verbose=False).fit(loader, epochs=2, validation=loader)
        >>> [sorted(record)[:2] for record in history]
        [['epoch', 'images_per_s'], ['epoch', 'images_per_s']]
        >>> history[-1]["val_loss"] < history[0]["val_loss"]
        True
        """
        self.epochs = integer("Trainer", "epochs", epochs, 1)
        self._prepare(loader)
        check_classes(loader, validation)
        self._kept = keep_transform(self.model, loader, validation)
        self._data = loader
        self._totals = Totals(self._functions(), self._together())
        self.should_stop, self.exit_status, self._first = False, 0, getattr(loader, "epoch", 0)
        self._open_run(loader, resume, overwrite)
        if self.verbose and validation is not None and not self.resumed:
            say_if_averages_lag(self.ema, self.epochs * len(loader), self.optimizer)
        start = getattr(loader, "epoch", 0) - self._first + 1
        history: list[Record] = []
        with contextlib.ExitStack() as closing:
            stopped = closing.enter_context(StopSignals()) if self.out else None
            background = self.save_in_background and closing.enter_context(BackgroundSaver())
            self._save_checkpoint = background.save if background else checkpoint.save
            loggers = list(self.loggers)
            if self.out is not None and distributed.is_main():
                loggers.insert(0, closing.enter_context(self._own_log(start)))
            self.model.train()
            self._call("on_train_begin")
            for epoch in range(start, self.epochs + 1):
                if self.should_stop:
                    break
                self.epoch = epoch
                try:
                    with advising(self._loss_name):
                        record = self._run_epoch(loader, validation, loggers, stopped)
                except NonFiniteLossError as error:
                    if place := nonfinite_inputs(loader, self._tensors):
                        error.args = (f"the loss became {error.loss}, since {place}",)
                    error.add_note(f"[Trainer] in epoch {epoch}, update {self.optimizer.steps}")
                    raise
                if record is not None:
                    history.append(record)
                if stopped is not None and stopped.anywhere():
                    self.exit_status = stopped.status
                    if self.verbose:
                        done = f"stopped after step {self.optimizer.steps}"
                        say(f"{done}; {self.resume_with} continues from there")
                    break
            self._call("on_train_end")
        return history

    def _run_epoch(
        self, loader: Any, validation: Any, loggers: Sequence[Log], stopped: StopSignals | None
    ) -> Record | None:
        """Trains an epoch, and what follows. Returns its record; None if a signal came first."""
        title = f"epoch {self.epoch}/{self.epochs}"
        self._call("on_epoch_begin")
        rate = self._train(loader, title, stopped)
        if rate is None:
            return None
        record: Record = {"epoch": self.epoch, "step": self.optimizer.steps}
        record["lr"] = self.optimizer.now("lr")
        record |= self._totals.of_all("train_")
        if validation is not None:
            self._call("on_validation_begin")
            results = self._evaluate(validation, f"{self.validation_name}_")
            self._call("on_validation_end", results)
            record |= results
        record["images_per_s"] = round(rate, 1)
        record["seconds"] = round(self._seconds(), 3)
        self._call("on_epoch_end", record)
        if distributed.is_main():
            for logger in loggers:
                logger.append(record)
        if self.verbose:
            if self._kept:
                say(f"the model keeps {self._kept}")
            self._kept = ""
            parts = [*described(record, self.validation_name), f"{rate:.0f} images/s"]
            say(in_columns(title, parts))
        self._totals = Totals(self._functions(), self._together())
        self._earlier = (0.0, 0.0)
        if self.out is not None:
            self._save(loader, record)
            self._plot(self.out)
        return record

    def _train(self, loader: Any, title: str, stopped: StopSignals | None) -> float | None:
        """Trains until the end of the epoch. Returns images per second; None after a signal, when
        a checkpoint is saved."""
        self._began, seen = time.monotonic(), self._totals.sums["images"]

        def rate() -> float:
            trained = distributed.world_size() * (self._totals.sums["images"] - seen)
            return (self._earlier[0] + trained) / max(self._seconds(), 1e-9)

        parts = getattr(loader, "virtual_ranks", 1) // distributed.world_size() or 1
        done = loader.state_dict()["batch"] if hasattr(loader, "state_dict") else 0
        with Progress(len(loader), title, start=done, shown=self.verbose) as bar:
            for number, given in enumerate(loader, 1):
                batch = self._tensors(given)
                if self.verbose and number == 1 and self.epoch == 1 and not self.resumed:
                    say_if_unnormalised(batch[0])
                self._step(batch, getattr(loader, "weight", 1.0))
                if number % parts:
                    continue
                bar.step(**self._totals.means(), **{"images/s": rate()})
                if self.optimizer.calls_made:
                    continue
                if self.ema is not None:
                    self.ema.update()
                if stopped is not None:
                    every = self.checkpoint_steps
                    stop = stopped.anywhere()
                    if stop or (every and self.optimizer.steps % every == 0):
                        self._save(loader, None)
                    if stop:
                        return None
        self._totals.settle()
        return rate()

    def _seconds(self) -> float:
        """What this epoch has taken so far, also before it was resumed."""
        return self._earlier[1] + time.monotonic() - self._began

    def _step(self, batch: tuple[Any, ...], weight: float) -> None:
        self._call("on_batch_begin", batch)
        # Parts with fewer images of a batch count less.
        uneven = {} if weight == 1.0 else {"weight": weight}
        result = self.model(*batch, **uneven)
        several = isinstance(result, tuple | list)
        out, loss = (result[0], result[-1]) if several else (None, result)
        if self._functions() and (not several or len(result) < 2):
            raise ValueError(
                "[Trainer] functions in `metrics` need outputs: train_one_batch must return "
                "(outputs, loss)"
            )
        self._totals.add(out, loss, batch[-1], len(batch[0]))
        if self._data is not None:
            kept = [text for text in (keep_names(self.model, self._data, out), self._kept) if text]
            self._kept, self._data = " and ".join(kept), None
        self._call("on_batch_end", batch, result)

    def _needs_execution(self) -> bool:
        # Replayed inference rounds differently (see Model.graph), and a resumed run replays later.
        # Callbacks that decide by its results, and have a state, must see the same bits.
        return self.out is not None and any(each.state_dict() for each in self.callbacks)

    # Files.

    def _open_run(self, loader: Any, resume: bool, overwrite: bool) -> None:
        """Makes the folder, and continues from the checkpoint or removes it."""
        self.resumed = False
        if self.out is None or self.checkpoint is None:
            if resume:
                raise ValueError("[Trainer] resume needs `out`, the folder of the checkpoint")
            return
        self.out.mkdir(parents=True, exist_ok=True)
        if not self.checkpoint.exists():
            return
        if resume:
            self._load(self.checkpoint, loader)
        elif not overwrite:
            raise FileExistsError(
                f"[Trainer] {self.out} has a run: use resume=True, overwrite=True, or another out"
            )
        elif distributed.is_main():
            self.checkpoint.unlink()

    def _save(self, loader: Any, record: Record | None) -> None:
        """Saves a checkpoint. All ranks call it."""
        self._totals.settle()
        state: dict[str, Any] = {} if self.settings is None else {"settings": self.settings}
        state["loader"] = loader.state_dict()
        state["totals"] = distributed.gather(self._totals.sums)
        if record is None:
            state["seconds"] = self._seconds()
        if self._first:
            state["first"] = self._first
        kept = []
        for callback in self.callbacks:
            name = type(callback).__name__
            if own := json_value(f"[Trainer] state_dict() of {name}", callback.state_dict()):
                kept.append([name, own])
        if kept:
            state["callbacks"] = kept
        assert self.checkpoint is not None
        self._save_checkpoint(self.checkpoint, self.model, self.optimizer, ema=self.ema, **state)
        self._call("on_checkpoint", record)

    def _load(self, path: Path, loader: Any) -> None:
        progress = checkpoint.load(path, self.model, self.optimizer, ema=self.ema)
        try:
            loader.load_state_dict(progress["loader"])
        except ValueError as error:
            facts = facts_of(error)
            if facts.get("kind") != "other_batches":
                raise
            raise ValueError(
                f"[Trainer] {path} is of a run with {facts['setting']} {facts['saved']!r}, and "
                f"here it is {facts['given']!r}: resume it with the data and the batches that it "
                "had"
            ) from error
        sums = own_sums(progress["totals"])
        if "seconds" in progress:  # an older version wrote none
            self._earlier = images_of(progress["totals"]), float(progress["seconds"])
        self._totals = Totals(self._functions(), self._together(), sums)
        self._first = progress.get("first", 0)
        kept = list(progress.get("callbacks", []))
        for callback in self.callbacks:
            name = type(callback).__name__
            if own := next((each for each in kept if each[0] == name), None):
                kept.remove(own)
                callback.load_state_dict(own[1])
        if kept:
            raise ValueError(
                f"[Trainer] {path} has the state of a {kept[0][0]}, which is not in `callbacks`"
            )
        self.resumed = True
        if self.verbose:
            say(f"resumed after step {self.optimizer.steps}")

    def _own_log(self, start: int) -> JsonLinesLog:
        """log.jsonl without the records from the epoch `start` on, which are made again. They are
        removed from the other logs, too. (The checkpoint's step does not tell them apart: it may be
        that of a record, or of the moment before it was logged.)"""
        assert self.out is not None
        path = self.out / "log.jsonl"
        log = JsonLinesLog(path, lambda record: record["epoch"] < start)
        kept = read_log(path)
        if kept or start == 1:
            for logger in self.loggers:
                logger.rewind(kept[-1]["step"] if kept else 0)
        return log

    def _plot(self, out: Path) -> None:
        if distributed.is_main() and self._can_plot:
            try:
                plot_curves(out / "log.jsonl", out / "curves.png", title=self.title)
            except ImportError as error:
                self._can_plot = False
                if self.verbose:
                    say(error)

    # Preparations.

    def _prepare(self, loader: Any) -> None:
        """Checks the loader, compiles the model, and puts the optimizer into a DistOpt if there are
        several ranks, or parts of a batch."""
        check_batches(loader)
        if self.out is not None and not hasattr(loader, "state_dict"):
            raise TypeError(
                f"[Trainer] checkpoints need a loader with state_dict(), such as a DataLoader; "
                f"{type(loader).__name__} has none: leave `out` away"
            )
        ranks = distributed.world_size()
        parts = getattr(loader, "virtual_ranks", ranks)
        if parts % ranks or getattr(loader, "shard", (0, ranks))[1] != ranks:
            raise ValueError(
                f"[Trainer] each of the {ranks} ranks would train on all batches: make the "
                "DataLoader with shard=distributed.shard()"
            )
        self._compile(loader)
        optimizer: Any = self.optimizer
        if parts > 1 and not isinstance(optimizer, opt.DistOpt):
            optimizer = opt.DistOpt(optimizer, virtual_ranks=None if parts == ranks else parts)
            self.model.set_optimizer(optimizer)
        calls = len(loader) * (parts // ranks)
        if self.out is not None and isinstance(optimizer, opt.DistOpt) and calls % optimizer.calls:
            raise ValueError(
                f"[Trainer] an epoch of {calls} calls ends amid an update of {optimizer.calls}, "
                "where a DistOpt cannot be saved"
            )

    def _functions(self) -> dict[str, Measure]:
        """The metrics of training."""
        return {n: m for n, m in self.metrics.items() if not isinstance(m, Metric)}

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)


def _checked_callbacks(callbacks: Any) -> list[Callback]:
    """The callbacks as a list. Raises TypeError for one in no list, and for other things."""
    if isinstance(callbacks, Callback):
        raise TypeError(f"[Trainer] callbacks: expected a list, [{type(callbacks).__name__}(...)]")
    found = list(callbacks)
    for each in found:
        if not isinstance(each, Callback):
            raise TypeError(
                f"[Trainer] callbacks: expected objects of training.Callback, got {each!r:.80}: a "
                "class of your own is class Own(training.Callback), with methods such as "
                "on_epoch_end(self, trainer, record)"
            )
        check_methods(each)
    return found

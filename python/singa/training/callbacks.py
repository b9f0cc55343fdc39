"""Callbacks of `Trainer.fit`: the base class, early stopping, and the best model."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import distributed
from ..raw.check import integer, number
from ..raw.words import CALLBACKS

if TYPE_CHECKING:
    from .trainer import Trainer

Record = dict[str, Any]


class Callback:
    """Methods that `Trainer.fit` calls. A subclass implements some of them.

        class Plateau(training.Callback):
            def on_epoch_end(self, trainer, record):
                trainer.optimizer.lr.update(record["val_loss"])

    `trainer.model`, `trainer.optimizer`, `trainer.epoch` (from 1) and `trainer.epochs` are there in
    each, and `trainer.should_stop = True` ends the training after this epoch. Every rank calls all
    of them, at the same places, and all ranks must decide alike.

    >>> class Print(training.Callback):
    ...     def on_epoch_end(self, trainer, record):
    ...         print("epoch", trainer.epoch)
    ...
    >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    >>> net.set_optimizer(opt.SGD(lr=0.1))
    >>> x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    >>> history = net.fit(x, y, epochs=2, callbacks=[Print()], verbose=False)
    epoch 1
    epoch 2
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Before the first epoch, after a checkpoint was loaded (`trainer.resumed`)."""

    def on_epoch_begin(self, trainer: Trainer) -> None:
        """Before an epoch, or the rest of one that was interrupted."""

    def on_batch_begin(self, trainer: Trainer, batch: tuple[Any, ...]) -> None:
        """Before a step with the tensors `batch`."""

    def on_batch_end(self, trainer: Trainer, batch: tuple[Any, ...], result: Any) -> None:
        """After a step; `result` is what `train_one_batch` returned, such as (outputs, loss).
        Reading its values waits for a GPU."""

    def on_validation_begin(self, trainer: Trainer) -> None:
        """Before a validation."""

    def on_validation_end(self, trainer: Trainer, record: Record) -> None:
        """After a validation with the results `record`."""

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        """After an epoch and its validation, before `record` is logged and a checkpoint is saved.
        What it adds to the record is logged, too."""

    def on_checkpoint(self, trainer: Trainer, record: Record | None) -> None:
        """After a checkpoint was saved, or copied to be saved in the background: `record` is that
        of the epoch, None within an epoch."""

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last epoch, or when a signal has stopped the training. Not after an error."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the callback: JSON values, of which NumPy's numbers become
        Python's. By default nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from what `state_dict` returned."""


#: Methods that a Trainer calls.
_CALLED = [name for name in vars(Callback) if name.startswith("on_")]
#: What other frameworks call the first argument of such methods.
_FIRST = ("batch", "batch_idx", "epoch", "logs")


def check_methods(callback: Callback) -> None:
    """Raises TypeError for a method that a Trainer never calls, since it has a name of another
    framework or a misspelled one, or that takes the arguments of another framework."""
    kind = type(callback)
    for name in dir(kind):
        method = getattr(kind, name)
        if not name.startswith(("on_", "before_", "after_")) or not callable(method):
            continue
        if name not in _CALLED:
            import difflib  # which is slow to import

            close = difflib.get_close_matches(name, _CALLED, 1, 0.9)  # misspelled, and no helper
            if meant := CALLBACKS.get(name) or next(iter(close), None):
                raise TypeError(
                    f"[Trainer] {kind.__name__}.{name} is never called: use {meant}; there are "
                    f"{', '.join(_CALLED)}"
                )
        elif method is not getattr(Callback, name):
            first = method.__code__.co_varnames[1:2] if hasattr(method, "__code__") else ()
            if first and first[0] in _FIRST:
                import inspect

                right = ", ".join(inspect.signature(getattr(Callback, name)).parameters)
                raise TypeError(
                    f"[Trainer] {kind.__name__}.{name} takes {first[0]!r} first: write "
                    f"{name}({right}), with trainer.epoch and trainer.model"
                )


class _Monitor(Callback):
    """Keeps the best value of a field of the records, and when it was."""

    def __init__(self, monitor: str, mode: str | None, min_delta: float) -> None:
        kind = type(self).__name__
        if mode in (None, "auto") and monitor.endswith("loss"):
            mode = "min"
        if mode not in ("min", "max"):
            raise ValueError(
                f"[{kind}] mode must be 'min' or 'max' for {monitor!r}, whichever is better, got "
                f"{mode!r}"
            )
        self.monitor, self.mode = monitor, mode
        self.min_delta = number(kind, "min_delta", min_delta)
        self._forget()

    def _forget(self) -> None:
        self.best = math.inf if self.mode == "min" else -math.inf
        self.best_epoch = 0  # 0: none yet
        self.waited = 0  # epochs since then

    def on_train_begin(self, trainer: Trainer) -> None:
        if not trainer.resumed:
            self._forget()

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        if self.monitor not in record:
            raise ValueError(
                f"[{type(self).__name__}] there is no {self.monitor!r} to monitor; there are "
                f"{', '.join(record)}"
            )
        value = float(record[self.monitor])
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.min_delta:
            self.best, self.best_epoch, self.waited = value, trainer.epoch, 0
        else:
            self.waited += 1

    def state_dict(self) -> dict[str, Any]:
        best = self.best if self.best_epoch else None  # JSON has no infinity
        return {"best": best, "best_epoch": self.best_epoch, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._forget()
        if state["best"] is not None:
            self.best = float(state["best"])
        self.best_epoch, self.waited = int(state["best_epoch"]), int(state["waited"])


class EarlyStopping(_Monitor):
    """Ends the training when a value has not improved for some epochs.

    monitor    field of the records (default "val_loss")
    patience   so many epochs in a row without improvement end it (default 10)
    mode       "min" if smaller is better, or "max"; by default "min" for names that end in "loss",
               and for others it has to be given
    min_delta  an improvement is larger than this (default 0)

    `best` and `best_epoch` say when it was best; `BestModel` keeps the weights.

    Raises ValueError for another mode, or none for a name that does not end in "loss".

    >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    >>> net.set_optimizer(opt.SGD(lr=0.0))  # nothing improves
    >>> x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    >>> stop = training.EarlyStopping(patience=2)
    >>> history = net.fit(x, y, epochs=9, validation=(x, y), callbacks=[stop], verbose=False)
    >>> len(history), stop.best_epoch
    (3, 1)
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 10,
        mode: str | None = None,
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = integer("EarlyStopping", "patience", patience, 1)

    def on_train_begin(self, trainer: Trainer) -> None:
        super().on_train_begin(trainer)
        self._decide(trainer)

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        super().on_epoch_end(trainer, record)
        self._decide(trainer)

    def _decide(self, trainer: Trainer) -> None:
        if self.waited >= self.patience:
            trainer.should_stop = True


class BestModel(_Monitor):
    """Saves the weights whenever a value is better than before, those of the EMA if there is one.

    path       file for `Model.save_states`, such as "runs/best.safetensors"
    monitor, mode, min_delta  as for EarlyStopping
    restore    whether the model has the best weights after `fit` (default False)

    Raises ValueError for another mode, or none for a name that does not end in "loss".

    >>> net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    >>> net.set_optimizer(opt.SGD(lr=0.1))
    >>> x, y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    >>> best = training.BestModel("best.safetensors")
    >>> history = net.fit(x, y, epochs=3, validation=(x, y), callbacks=[best], verbose=False)
    >>> best.best_epoch, best.best == history[-1]["val_loss"]
    (3, True)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "val_loss",
        mode: str | None = None,
        min_delta: float = 0.0,
        restore: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.path = Path(path)
        self.restore = bool(restore)

    def on_epoch_end(self, trainer: Trainer, record: Record) -> None:
        super().on_epoch_end(trainer, record)
        if self.best_epoch == trainer.epoch:
            with trainer.averaged():
                distributed.on_main(lambda: trainer.model.save_states(self.path), "BestModel")

    def on_train_end(self, trainer: Trainer) -> None:
        if self.restore and self.best_epoch and not trainer.exit_status:
            trainer.model.load_states(self.path)

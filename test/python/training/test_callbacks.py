"""Callbacks of Trainer: their order, early stopping, the best model, and loggers."""

import math

import numpy as np
import pytest
from fitted_net import Given, classes, loader, made, states
from singa import layer, models, training
from singa.training import BestModel, Callback, EarlyStopping, Trainer, read_log

pytestmark = pytest.mark.usefixtures("tape_off_again", "plots")


class Noting(Callback):
    def __init__(self, calls, name=""):
        self.calls, self.name = calls, name

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda trainer, *given: self.calls.append(self.name + name)
        return super().__getattribute__(name)


def test_callbacks_are_called_in_order(tmp_path):
    x, y = classes(8)
    calls = []
    Trainer(made(), callbacks=[Noting(calls), Noting(calls, "2 ")], out=tmp_path).fit(
        loader(x, y, 4), 1, [(x, y)]
    )
    first = [call for call in calls if not call.startswith("2 ")]
    assert first == [
        "on_train_begin", "on_epoch_begin", "on_batch_begin", "on_batch_end", "on_batch_begin",
        "on_batch_end", "on_validation_begin", "on_validation_end", "on_epoch_end", "on_checkpoint",
        "on_train_end",
    ]  # fmt: skip
    assert calls == [word for call in first for word in (call, "2 " + call)]


def test_stops_early_and_keeps_the_best_model(tmp_path):
    x, y = classes()
    after = []

    class Weights(Callback):
        def on_epoch_end(self, trainer, record):
            after.append(states(trainer.model))

    net, early = made(), EarlyStopping(patience=2, min_delta=0.1)
    best = BestModel(tmp_path / "best.npz", restore=True)
    given = Given(3.0, math.nan, 2.0, 1.95, 1.92, 1.0)
    trainer = Trainer(net, callbacks=[given, early, best, Weights()], verbose=False)
    history = trainer.fit(loader(x, y), 10)
    assert [record["epoch"] for record in history] == [1, 2, 3, 4, 5]
    assert (early.best, early.best_epoch, early.waited) == (2.0, 3, 2)
    assert (best.best, best.best_epoch) == (1.92, 5)
    for name, value in states(net).items():
        np.testing.assert_array_equal(value, after[4][name], name)
    # Again from the start: what it waited for before does not count.
    assert len(trainer.fit(loader(x, y), 2)) == 2
    assert (early.best_epoch, best.best_epoch) == (1, 1)
    for name, value in states(net).items():
        np.testing.assert_array_equal(value, after[5][name], name)


def test_the_best_model_has_the_averages(tmp_path):
    x, y = classes()
    net = made()
    best = BestModel(tmp_path / "best.npz", "train_loss")
    trainer = Trainer(net, ema=0.5, callbacks=[best], verbose=False)
    trainer.fit(loader(x, y), 1)
    saved = np.load(tmp_path / "best.npz")
    for name, average in trainer.ema.get_states()["averages"].items():
        np.testing.assert_array_equal(saved[name], average.numpy(), name)
        assert (saved[name] != net.get_params()[name].numpy()).any()


def test_loggers_get_the_records(tmp_path):
    x, y = classes()
    with training.JsonLinesLog(tmp_path / "log.jsonl") as log:
        history = made().fit(x, y, epochs=2, loggers=[log], verbose=False)
    assert read_log(tmp_path / "log.jsonl") == history
    assert [*history[0]] == ["epoch", "step", "lr", "train_loss", "images_per_s", "seconds"]


def test_a_logger_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"\[Trainer\] loggers: expected a training.Log, got \[\]"):
        Trainer(made(), loggers=[[]])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("on_train_batch_end", "Own.on_train_batch_end is never called: use on_batch_end; there"),
        ("before_fit", "Own.before_fit is never called: use on_train_begin"),
        ("on_epoch_ends", "Own.on_epoch_ends is never called: use on_epoch_end"),
    ],
)
def test_methods_that_are_never_called_are_refused(name, message):
    kind = type("Own", (training.Callback,), {name: lambda self, *rest: None})
    with pytest.raises(TypeError, match=message):
        training.Trainer(models.Sequential(layer.Linear(2)), callbacks=[kind()])


def test_arguments_of_keras_are_refused():
    class Own(training.Callback):
        def on_epoch_end(self, epoch, logs=None):
            pass

    message = r"on_epoch_end takes 'epoch' first: write on_epoch_end\(self, trainer, record\)"
    with pytest.raises(TypeError, match=message):
        training.Trainer(models.Sequential(layer.Linear(2)), callbacks=[Own()])


def test_other_methods_of_a_callback_are_its_own():
    class Own(training.Callback):
        def on_improvement(self, value):
            pass

        def on_epoch_end(self, run, record):
            self.on_improvement(record["train_loss"])

    trainer = training.Trainer(models.Sequential(layer.Linear(2)), callbacks=[Own()])
    assert len(trainer.callbacks) == 1


def test_mode_auto_is_that_of_the_name():
    assert training.EarlyStopping("val_loss", mode="auto").mode == "min"
    with pytest.raises(ValueError, match=r"mode must be 'min' or 'max' for 'val_accuracy'"):
        training.EarlyStopping("val_accuracy", mode="auto")

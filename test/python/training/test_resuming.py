"""Files of Trainer, and runs that are stopped and resumed: they are as never stopped."""

import signal
import threading
import types

import numpy as np
import pytest
import singa
from fitted_net import Given, Net, classes, loader, made
from singa import autograd, layer, metric, opt, training
from singa.files import state_files
from singa.training import BestModel, Callback, EarlyStopping, Trainer, checkpoint, read_log
from singa.training.totals import described

pytestmark = pytest.mark.usefixtures("tape_off_again", "plots")

CALLS = {"accuracy": metric.count_top_k}


def trainer_at(out, *more, epochs=3, **options):
    """A trainer with all that has a state, and its loaders."""
    net = made(opt.Adam(opt.CosineDecay(0.05, 9)))
    callbacks = [EarlyStopping(patience=5), BestModel(out / "best.npz"), *more]
    options = {"ema": 0.9, "checkpoint_steps": 1, "verbose": False} | options
    return Trainer(net, metrics=CALLS, callbacks=callbacks, out=out, **options)


def go_on(trainer, epochs=3, **options):
    x, y = classes()
    return trainer.fit(loader(x, y), epochs, loader(*classes(9, 2)), **options)


def outcome(out):
    arrays, metadata = state_files.load_safetensors(out / "checkpoint.safetensors")
    times = ("images_per_s", "seconds")
    log = [{k: v for k, v in r.items() if k not in times} for r in read_log(out / "log.jsonl")]
    best = {name: value.tobytes() for name, value in np.load(out / "best.npz").items()}
    in_bytes = {name: value.tobytes() for name, value in arrays.items()}
    random = metadata["random_of_ranks"][0]["device"]
    return in_bytes, metadata["optimizer"], metadata["progress"], random, log, best


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    go_on(trainer_at(out))
    autograd.training = False
    return outcome(out)


def test_a_resumed_run_removes_later_records_of_its_loggers(tmp_path):
    path = tmp_path / "log.csv"
    for epochs in (2, 3):
        with training.CsvLog(path) as log:
            go_on(trainer_at(tmp_path, loggers=[log]), epochs, resume=True)
            log.append(step=1000)  # of an epoch of which no checkpoint was saved
    assert [record.get("epoch") for record in read_log(path)] == [1, 2, 3, None]


class Kill(Callback):
    """Raises KeyboardInterrupt at a call of a hook."""

    def __init__(self, hook, call):
        self.left = call

        def strike(*_):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

        setattr(self, hook, strike)


@pytest.mark.parametrize(
    ("hook", "calls"),
    [
        ("on_batch_begin", (1, 2, 4, 5)),
        ("on_batch_end", (1, 3, 5)),
        ("on_validation_begin", (1, 3)),
        ("on_epoch_end", (1, 2)),
        ("on_checkpoint", (1, 3, 4, 2)),
        ("on_train_end", (1,)),
    ],
)
def test_killed_and_resumed_is_as_never_stopped(whole, tmp_path, hook, calls):
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            go_on(trainer_at(tmp_path, Kill(hook, call)), resume=True)
    go_on(trainer_at(tmp_path), resume=True)
    assert outcome(tmp_path) == whole


def test_with_checkpoints_that_are_written_in_the_background(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        go_on(trainer_at(tmp_path, Kill("on_batch_end", 5), save_in_background=True))
    assert checkpoint.read_progress(tmp_path / "checkpoint.safetensors")["loader"]["batch"]
    go_on(trainer_at(tmp_path, save_in_background=True), resume=True)
    assert outcome(tmp_path) == whole


def test_a_file_that_cannot_be_written_in_the_background_ends_it(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "save_safetensors", full_disk)
    with pytest.raises(OSError, match="no space"):
        go_on(trainer_at(tmp_path, epochs=1, save_in_background=True), epochs=1)


def full_disk(*_):
    raise OSError("no space")


@pytest.mark.parametrize("steps", [1, 3])
def test_a_resumed_epoch_counts_what_was_trained_before(tmp_path, monkeypatch, steps):
    """Also where nothing was left of it. There are 3 steps in an epoch; each takes 2 seconds."""
    clock = types.SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("singa.training.trainer.time", clock)

    class Clock(Callback):
        def on_batch_end(self, trainer, *_):
            clock.now += 2.0
            if trainer.optimizer.steps == steps and not trainer.resumed:
                signal.raise_signal(signal.SIGTERM)

    assert go_on(trainer_at(tmp_path, Clock())) == []
    clock.now += 100.0
    first, second = go_on(trainer_at(tmp_path, Clock()), epochs=2, resume=True)
    images = len(classes()[0])
    for record in (first, second):
        assert (record["images_per_s"], record["seconds"]) == (round(images / 6, 1), 6.0)


def test_a_signal_saves_a_checkpoint_and_ends_it(whole, tmp_path, capsys):
    class Signal(Callback):
        def on_batch_end(self, trainer, *_):
            if trainer.optimizer.steps == 5:
                signal.raise_signal(signal.SIGTERM)

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    trainer = trainer_at(tmp_path, Signal(), checkpoint_steps=0, verbose=True)
    assert [record["epoch"] for record in go_on(trainer)] == [1]
    out = capsys.readouterr().out
    assert out.endswith("stopped after step 5; resume=True continues from there\n")
    assert trainer.exit_status == 128 + signal.SIGTERM
    assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    trainer = trainer_at(tmp_path, verbose=True)
    history = go_on(trainer, resume=True)
    assert [record["epoch"] for record in history] == [2, 3]
    assert trainer.exit_status == 0
    assert outcome(tmp_path) == whole
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "resumed after step 5"
    assert out[1].startswith(f"epoch 2/3  {described(history[0])[0]}")


def test_a_run_that_stopped_early_stays_stopped(tmp_path):
    given = Given(1.0, 2.0, 3.0, 4.0)

    def fit():
        net = made()
        callbacks = [given, EarlyStopping(patience=2)]
        trainer = Trainer(net, callbacks=callbacks, out=tmp_path, verbose=False)
        return len(trainer.fit(loader(*classes()), 4, resume=True)), net.optimizer.steps

    assert fit() == (3, 9)
    assert fit() == (0, 9)


def test_decisions_after_resuming_see_the_same_bits(tmp_path):
    """Also where replayed inference rounds differently, because batch norm is folded."""

    class Convolution(Net):
        def __init__(self):
            super().__init__()
            self.conv = layer.Conv2d(8, 3, padding=1, bias=False)

        def forward(self, x):
            return self.out(autograd.flatten(autograd.relu(self.norm(self.conv(x)))))

    y = (np.arange(24) % 3).astype(np.int32)
    x = np.random.default_rng(0).standard_normal((24, 3, 8, 8)).astype(np.float32)
    x += y[:, None, None, None]

    def fit(out, *more):
        singa.seed(1)
        net = Convolution()
        net.set_optimizer(opt.SGD(0.01))
        callbacks = [EarlyStopping(), *more]
        trainer = Trainer(net, callbacks=callbacks, out=out, verbose=False)
        records = trainer.fit(loader(x, y), 6, loader(x, y), resume=True)
        return [record["val_loss"] for record in records]

    losses = fit(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", Kill("on_epoch_begin", 5))
    assert fit(tmp_path / "run") == losses[4:]


def test_what_it_leaves(tmp_path, plots):
    plots.clear()
    out = tmp_path / "new" / "run"
    history = Trainer(made(), out=out, settings={"lr": 0.05}, title="net", verbose=False).fit(
        loader(*classes()), 2
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoint.safetensors", "log.jsonl"
    ]  # fmt: skip
    assert plots == 2 * [((out / "log.jsonl", out / "curves.png"), {"title": "net"})]
    assert read_log(out / "log.jsonl") == history
    progress = training.checkpoint.read_progress(out / "checkpoint.safetensors")
    assert progress.keys() == {"settings", "loader", "totals"}
    assert progress["settings"] == {"lr": 0.05}
    with pytest.raises(FileExistsError, match="has a run: use resume=True, overwrite=True"):
        made().fit(*classes(), out=out, verbose=False)
    made().fit(*classes(), out=out, overwrite=True, verbose=False)
    assert [record["epoch"] for record in read_log(out / "log.jsonl")] == [1]


class Numbers(Callback):
    """Has NumPy's numbers in its state."""

    best, lowest = 0.0, np.arange(2)

    def on_epoch_end(self, trainer, record):
        self.best = max(self.best, np.float32(record["train_loss"]))

    def state_dict(self):
        return {"best": self.best, "lowest": self.lowest, "epochs": np.int64(3)}

    def load_state_dict(self, state):
        self.best, self.lowest = state["best"], state["lowest"]


def test_numbers_of_numpy_in_a_checkpoint(tmp_path):
    x, y = classes()
    sums = {"rows": lambda out, y: np.int64(len(y))}  # of an epoch that was cut off, too
    options = {"out": tmp_path, "metrics": sums, "checkpoint_steps": 1, "verbose": False}
    kept = Numbers()
    Trainer(made(), callbacks=[kept], **options).fit(loader(x, y), 1)
    again = Numbers()
    Trainer(made(), callbacks=[again], **options).fit(loader(x, y), 1, resume=True)
    assert type(again.best) is float
    assert (again.best, again.lowest) == (float(kept.best), [0, 1])
    again.best = tmp_path
    with pytest.raises(TypeError, match=r"state_dict\(\) of Numbers\['best'\] is a PosixPath"):
        Trainer(made(), callbacks=[again], **options).fit(loader(x, y), 1, overwrite=True)


def test_outside_of_the_main_thread(whole, tmp_path):
    thread = threading.Thread(target=lambda: go_on(trainer_at(tmp_path)))
    thread.start()
    thread.join()
    assert outcome(tmp_path) == whole


def test_a_callback_that_a_checkpoint_has_and_the_trainer_lacks(tmp_path):
    go_on(trainer_at(tmp_path), epochs=1)
    trainer = trainer_at(tmp_path)
    del trainer.callbacks[0]
    with pytest.raises(ValueError, match="has the state of a EarlyStopping"):
        go_on(trainer, resume=True)

"""Trainer and Model.fit: results beside loops written by hand, ranks, errors, and lines."""

import json
import math
import subprocess
import sys

import fitted_net
import numpy as np
import pytest
import singa
from fitted_net import BATCH, ROWS, Affine, classes, loader, made, states
from singa import autograd, data, layer, metric, models, opt, tensor, training
from singa.training import EarlyStopping, NonFiniteLossError, Trainer
from singa.training.totals import described, in_columns

pytestmark = pytest.mark.usefixtures("tape_off_again", "plots")

ONES = np.ones((4, 2), np.float32)


# Results.


def test_a_classifier_beside_a_loop_by_hand():
    x, y = classes()
    test_x, test_y = classes(10, seed=1)
    net = made()
    metrics = {"accuracy": metric.count_top_k, "f1": metric.F1(3)}
    history = Trainer(net, metrics=metrics, verbose=False).fit(
        loader(x, y), 3, loader(test_x, test_y, 4, False)
    )
    assert net.graph_mode

    own = made()
    own.compile([tensor.from_numpy(x[:BATCH])], use_graph=False)
    batches = loader(x, y)
    for epoch, record in enumerate(history, 1):
        losses, right = 0.0, 0
        for inputs, targets in batches:
            out = own.forward(tensor.from_numpy(inputs))
            loss = autograd.softmax_cross_entropy(out, tensor.from_numpy(targets))
            own.optimizer(loss)
            losses += float(loss) * len(targets)
            right += int((out.numpy().argmax(1) == targets).sum())
        assert (record["epoch"], record["step"], record["lr"]) == (epoch, 3 * epoch, 0.05)
        assert record["train_loss"] == pytest.approx(losses / ROWS, rel=1e-12)
        assert record["train_accuracy"] == right / ROWS
        own.eval()
        scores = own(tensor.from_numpy(test_x)).numpy().astype(np.float64)
        own.train()
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        assert record["val_loss"] == pytest.approx(-logs[range(10), test_y].mean(), rel=1e-5)
        assert record["val_accuracy"] == np.mean(scores.argmax(1) == test_y)
        f1 = metric.F1(3)
        f1.update(scores, test_y)
        assert record["val_f1"] == f1.compute()
        assert "train_f1" not in record
    for name, value in states(own).items():
        np.testing.assert_array_equal(states(net)[name], value, name)


def test_a_regression_of_arrays():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    y = (x @ [[1.0], [-2.0], [0.5]] + 0.25).astype(np.float32)
    net = Affine()
    net.set_optimizer(opt.SGD(0.2))
    history = net.fit(
        x, y, epochs=30, batch_size=16, validation=(x[:10], y[:10]), verbose=False,
        metrics={"mae": lambda out, t: float(abs(out - t).sum()), "r2": metric.R2()},
    )  # fmt: skip
    np.testing.assert_allclose(net.fc.W.numpy(), [[1.0], [-2.0], [0.5]], atol=1e-4)
    np.testing.assert_allclose(net.fc.b.numpy(), [0.25], atol=1e-4)
    assert history[0]["val_loss"] > 100 * history[-1]["val_loss"]
    assert history[-1]["val_r2"] == pytest.approx(1.0)
    predicted = net.predict(x, batch_size=10)
    assert predicted.shape == (64, 1)
    errors = predicted.astype(np.float64) - y
    found = net.evaluate(
        x, y, batch_size=24, metrics={"mae": lambda out, t: float(abs(out - t).sum())},
        verbose=False,
    )  # fmt: skip
    assert found["loss"] == pytest.approx(np.square(errors).mean() / 2, rel=1e-4)  # SINGA's half
    assert found["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)


def pictures(shift=0):
    images = np.random.default_rng(0).integers(40, 120, (40, 3, 4, 4), dtype=np.uint8) + shift
    return data.ImageSet(images.astype(np.uint8), np.arange(40, dtype=np.int32) % 2, ("a", "b"))


def test_pictures_are_normalised_by_default(tmp_path, capsys):
    train, test = pictures(), pictures(100)
    nets = []
    for given in (train, data.DataLoader(train, 20, transform=data.Normalize(*train.mean_std()))):
        singa.seed(0)
        net = models.Sequential(layer.Flatten(), layer.Linear(2))
        net.set_optimizer(opt.SGD(0.1))
        net.fit(given, batch_size=20, shuffle=False, epochs=2)
        nets.append(net)
    own, by_hand = nets
    assert "pictures are normalised by their own mean and spread" in capsys.readouterr().out
    for name, value in states(by_hand).items():
        np.testing.assert_array_equal(states(own)[name], value, name)
    assert own.transform == data.Normalize(*train.mean_std())
    assert by_hand.transform == own.transform  # that of its loader
    loader = data.DataLoader(test, 20, transform=own.transform)
    np.testing.assert_array_equal(own.predict(test), own.predict(loader))
    found = own.evaluate(test, batch_size=20, verbose=False)
    assert found == own.evaluate(loader, verbose=False)
    own.save(tmp_path / "net.singa")
    (kept,) = singa.load(tmp_path / "net.singa").transform.transforms
    assert kept == own.transform
    own.fit(test, verbose=False)  # a model that has a transform keeps it
    assert own.transform == kept


def test_a_folder_of_pictures_is_normalised(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    for name in "ab":
        (tmp_path / "set" / name).mkdir(parents=True)
        image_module.new("RGB", (4, 4), "red").save(tmp_path / "set" / name / "0.png")
    net = models.Sequential(layer.Flatten(), layer.Linear(2))
    net.set_optimizer(opt.SGD(0.1))
    net.fit(data.ImageFolder(tmp_path / "set"), verbose=False)
    assert net.transform == data.Normalize(data.IMAGENET_MEAN, data.IMAGENET_STD)


@pytest.mark.parametrize(
    ("scale", "shift", "said"),
    [
        (1.0, 0.0, False),
        (0.29, 0.5, True),  # of numbers from 0 to 1
        (70.0, 0.0, True),
        (0.1, 0.0, True),
        (2.0, 1.0, False),
    ],
)
def test_inputs_far_from_mean_0_and_spread_1_are_named(capsys, scale, shift, said):
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32) * scale + shift
    net = models.Sequential(layer.Linear(2))
    net.set_optimizer(opt.SGD(1e-6))
    net.fit(x, np.arange(40, dtype=np.int32) % 2, epochs=2)
    assert capsys.readouterr().out.count("networks learn better from mean 0") == said
    net.fit(x, np.arange(40, dtype=np.int32) % 2, verbose=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["mse", "mae", "l1", "huber", "smooth_l1"])
def test_a_loss_by_name(name):
    x, y = ONES, 3 * ONES[:, :1]
    net = models.Sequential(layer.Linear(1))
    net.compile([x])
    apart = net.predict(x).astype(np.float64) - y
    near = np.where(abs(apart) < 1, apart**2 / 2, abs(apart) - 0.5)
    expected = {"mse": apart**2, "mae": abs(apart), "l1": abs(apart)}.get(name, near)
    found = net.evaluate(x, y, loss=name, metrics=["mse", "mae"], verbose=False)
    assert found["loss"] == pytest.approx(expected.mean(), rel=1e-6)
    assert found["mse"] == pytest.approx((apart**2).mean(), rel=1e-6)
    assert found["mae"] == pytest.approx(abs(apart).mean(), rel=1e-6)


def test_metrics_by_name_are_those_of_training_too():
    x, y = classes()
    records = []
    for metrics in ({"accuracy": metric.count_top_k}, ["accuracy"], {"accuracy": "acc"}):
        (record,) = made().fit(
            x, y, batch_size=20, validation=(x, y), loss="cross_entropy", metrics=metrics,
            verbose=False,
        )  # fmt: skip
        records.append({name: record[name] for name in record if "accuracy" in name})
    assert records[0] == records[1] == records[2]
    assert sorted(records[0]) == ["train_accuracy", "val_accuracy"]


def test_accuracy_of_one_hot_targets_and_of_pixels():
    net = models.Sequential(layer.Identity())
    scores = np.array([[2, 1, 0], [0, 1, 2], [1, 0, 0], [0, 3, 0]], np.float32)
    net.compile([scores])
    hot = np.eye(3, dtype=np.float32)[[0, 1, 2, 1]]
    found = net.evaluate(scores, hot, batch_size=3, metrics=["accuracy"], verbose=False)
    assert found["accuracy"] == 0.5
    pixels = scores.reshape(2, 2, 3, 1).transpose(0, 2, 1, 3)
    labels = np.array([[[0], [1]], [[0], [1]]], np.int32)
    found = net.evaluate(pixels, labels, batch_size=1, metrics=["accuracy"], verbose=False)
    assert found["accuracy"] == 0.75


@pytest.mark.parametrize("kind", ["float64", "bfloat16", "float16"])
def test_models_of_another_type(kind):
    """Loaders make float32 of floats, also for them."""
    x, y = classes()
    net = models.Sequential(layer.Linear(4), layer.ReLU(), layer.Linear(3))
    net.compile([x[:1]])
    net.to_type(kind)
    net.set_optimizer(opt.SGD(0.05))
    (record,) = net.fit(x, y, epochs=1, metrics=["accuracy"], verbose=False)
    assert math.isfinite(record["train_loss"])
    net.eval()
    expected = net(tensor.from_numpy(x).as_type(kind)).numpy()
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-2, atol=1e-3)


def test_accuracy_of_soft_labels_takes_the_largest_share():
    """In training with MixUp. Numbers that are no shares are refused as before."""
    net = models.Sequential(layer.Identity())
    scores = np.array([[0.1, 2.0, 0.3], [3.0, 0.0, 1.0], [0.2, 0.4, 0.3]], np.float32)
    soft = np.array([[0.3, 0.6, 0.1], [0.4, 0.0, 0.6], [0.5, 0.5, 0.0]], np.float32)
    found = net.evaluate(scores, soft, metrics=["accuracy"], verbose=False)
    assert found["accuracy"] == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="no probabilities"):
        net.evaluate(scores, np.ones_like(soft), metrics=["accuracy"], verbose=False)


def test_predictions_are_in_the_order_of_the_items():
    x = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    net = models.Sequential(layer.Linear(2))
    net.compile([x[:1]])
    batches = data.DataLoader(data.ArrayDataset(x, x[:, 0]), 20, shuffle=True, seed=1)
    next(iter(batches))
    place = batches.state_dict()
    for predicted in (net.predict(batches), Trainer(net, verbose=False).predict(batches)):
        np.testing.assert_array_equal(predicted, net.predict(x, batch_size=20))
    assert batches.state_dict() == place  # shuffled again, and where it was

    class Shuffling(list):
        shuffle = True

    with pytest.raises(ValueError, match=r"\[predict\] the loader shuffles"):
        net.predict(Shuffling([(x, x)]))


class _OfAnotherLibrary:
    """An array as PyTorch and pandas have them."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, index):
        raise AssertionError("it is no Dataset")


def test_arrays_of_other_libraries():
    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    records = []
    for kind in (np.asarray, _OfAnotherLibrary):
        singa.seed(0)
        net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
        net.set_optimizer(opt.SGD(lr=0.1))
        (record,) = net.fit(kind(x), kind(y), verbose=False)
        records.append(record["train_loss"])
        np.testing.assert_array_equal(net.predict(kind(x)), net.predict(x))
    assert records[0] == records[1]


@pytest.mark.parametrize(("place", "what"), [(0, "the inputs have"), (1, "the targets have")])
def test_numbers_that_are_not_finite_are_named(place, what):
    x = np.ones((12, 2), np.float32)
    arrays = [x, x[:, :1].copy()]
    arrays[place][7, 0] = np.nan
    net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.1))
    with pytest.raises(NonFiniteLossError, match=rf"nan, since {what} 1 NaN or .* of \d+ in batch"):
        net.fit(*arrays, batch_size=4, verbose=False)


def test_accumulation_is_a_larger_batch():
    x, y = classes(32)
    y = y[:, None].astype(np.float32)
    nets = []
    for batch, calls in ((16, 1), (4, 4)):
        net = Affine().start(x)
        net.set_optimizer(opt.SGD(0.1, momentum=0.9, accumulate=calls))
        ema = opt.EMA(net, 0.5)
        batches = loader(x, y, batch, shuffle=False)
        history = Trainer(net, ema=ema, verbose=False).fit(batches, 3)
        assert [record["step"] for record in history] == [2, 4, 6]
        assert ema.updates == 6
        nets.append(net)
    for name, value in states(nets[0]).items():
        np.testing.assert_allclose(states(nets[1])[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "options", [{"ignore_index": 2}, {"weight": [1.0, 5.0, 0.1]}, {"ignore_index": -100}], ids=str
)
def test_losses_are_means_over_the_targets_that_count(options, graph):
    """Of the batches of 8, 8 and 6 rows together, whatever counts in each."""
    x, y = classes()
    if options.get("ignore_index") == -100:
        y[:8], y[11] = -100, -100  # the whole first batch
    net, batches = Affine(3).start(x), loader(x, y, shuffle=False)
    net.loss, net.graph_mode = layer.CrossEntropyLoss(**options), graph
    net.set_optimizer(opt.SGD(0.0))
    net.fc.W.set_value(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
    scores = tensor.from_numpy(net.predict(x))
    expected = pytest.approx(net.loss(scores, tensor.from_numpy(y)).item(), rel=1e-5)
    for record in Trainer(net, verbose=False).fit(batches, 4, batches):  # the last are replayed
        assert (record["train_loss"], record["val_loss"]) == (expected, expected)
    assert net.evaluate(batches)["loss"] == expected


@pytest.mark.parametrize("graph", [False, True])
def test_parts_of_a_batch_weigh_by_the_targets_that_count(graph):
    """Of the last batch, of 3 rows, one part has no row, and another one no target."""
    x, y = classes(19)
    y[[0, 3, 8, 9, 10, 17]] = -100
    nets = []
    for parts in (1, 4):
        singa.seed(1)
        net = models.Sequential(layer.Linear(3), loss=layer.CrossEntropyLoss(ignore_index=-100))
        net.set_optimizer(opt.SGD(0.1, momentum=0.9))
        net.compile([tensor.from_numpy(x[:8])], use_graph=graph)
        batches = data.DataLoader(data.ArrayDataset(x, y), 8, virtual_ranks=parts)
        record = Trainer(net, verbose=False).fit(batches, 3)[-1]
        nets.append((states(net), record["train_loss"]))
    (whole, loss), (found, loss_of_parts) = nets
    assert loss_of_parts == pytest.approx(loss, rel=1e-5)
    for name, value in whole.items():
        np.testing.assert_allclose(found[name], value, 1e-4, 1e-6, err_msg=name)


def test_an_epoch_in_which_no_target_counts():
    x, y = classes()
    net = Affine(3).start(x)
    net.loss = layer.CrossEntropyLoss(ignore_index=-100)
    net.set_optimizer(opt.SGD(0.1, momentum=0.9, weight_decay=0.1))
    net.fit(x, y, verbose=False)
    before, steps = states(net), net.optimizer.steps
    (record,) = net.fit(x, np.full_like(y, -100), verbose=False)
    assert np.isnan(record["train_loss"])
    assert net.optimizer.steps == record["step"] == steps
    for name, value in states(net).items():
        np.testing.assert_array_equal(value, before[name], name)


def test_the_ema_is_validated():
    x, y = classes()
    net = made()
    trainer = Trainer(net, ema=0.6, verbose=False)
    (record,) = trainer.fit(loader(x, y), 1, loader(x, y, ROWS, False))

    own = made()
    own.compile([tensor.from_numpy(x[:BATCH])])
    average = None
    for inputs, targets in loader(x, y):
        own(inputs, targets)
        weights = {name: value.numpy() for name, value in own.get_params().items()}
        average = average or weights
        average = {name: 0.6 * average[name] + 0.4 * weights[name] for name in weights}
    for name, value in weights.items():
        np.testing.assert_array_equal(net.get_params()[name].numpy(), value, name)
    own.set_params(average)
    own.eval()
    expected = float(autograd.softmax_cross_entropy(own(x), tensor.from_numpy(y)))
    assert record["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert trainer.evaluate([(x, y)])["loss"] == pytest.approx(expected, rel=1e-5)
    assert not np.allclose(trainer.predict([(x, y)]), net.predict(x))


def test_results_are_the_same_when_they_are_read_together():
    draw = np.random.default_rng(0)
    metrics = [{"top1": metric.count_top_k, "f1": metric.F1(10)} for _ in range(2)]
    once, later = training.totals.Totals(metrics[0]), training.totals.Totals(metrics[1], 3)
    for size in (4, 4, 4, 2, 0):
        scores = tensor.from_numpy(draw.standard_normal((size, 10)).astype(np.float32))
        labels = tensor.from_numpy(draw.integers(0, 10, size).astype(np.int32))
        loss = tensor.from_numpy(np.float32(draw.random()))
        once.add(scores, loss, labels, size)
        later.add(scores, loss, labels, size)
    assert (once.sums["images"], later.sums["images"]) == (14, 12)
    assert later.of_all("test_") == once.of_all("test_")
    assert later.of_all().keys() == {"loss", "top1", "f1"}


def test_outputs_of_several_shapes_are_read_together():
    totals = training.totals.Totals({"sum": lambda out, y: float(out.sum() + y.sum())}, 2)
    for length in (2, 3):
        ones = tensor.from_numpy(np.ones((1, length), np.float32))
        totals.add(ones, tensor.from_numpy(np.float32(1)), ones, 1)
    assert totals.sums == {"images": 2, "counted": 2, "loss": 2.0, "sum": 10.0}


def test_in_16_bits():
    x, y = classes()
    history = made().fit(x, y, epochs=1, dtype="bfloat16", verbose=False)
    exact = made().fit(x, y, epochs=1, verbose=False)
    assert history[0]["train_loss"] != exact[0]["train_loss"]
    assert history[0]["train_loss"] == pytest.approx(exact[0]["train_loss"], rel=0.02)


def test_a_step_that_returns_the_loss_alone_and_takes_three_parts():
    class Two(Affine):
        def train_one_batch(self, x, more, y):
            loss = autograd.mse_loss(self.forward(x, more), y)
            self.optimizer(loss)
            return loss

        def forward(self, x, more):
            return self.fc(x + more)

    x, y = np.ones((4, 2), np.float32), np.full((4, 1), 3, np.float32)
    batches = [(x[:2], x[:2], y[:2]), (x[2:], x[2:], y[2:])]
    net = Two()
    net.set_optimizer(opt.SGD(0.05))
    trainer = Trainer(net, verbose=False)
    history = trainer.fit(batches, 40, batches)
    assert history[-1]["val_loss"] < 1e-6 < history[0]["train_loss"]
    np.testing.assert_allclose(trainer.predict(batches), y, atol=1e-3)
    trainer.metrics["sum"] = lambda out, y: 0
    with pytest.raises(ValueError, match="train_one_batch must return"):
        trainer.fit(batches, 1)


def test_the_same_loader_for_training_and_validation():
    x, y = classes()
    batches, test = loader(x, y), loader(x, y)
    own = Trainer(net := made(), verbose=False).fit(batches, 3, batches)
    other = Trainer(same := made(), verbose=False).fit(loader(x, y), 3, test)
    assert [r["val_loss"] for r in own] == [r["val_loss"] for r in other]
    assert (batches.epoch, test.epoch) == (3, 0)
    for name, value in states(net).items():
        np.testing.assert_array_equal(states(same)[name], value, name)


def test_a_second_fit_counts_from_one():
    x, y = classes()
    batches, net = loader(x, y), made()
    trainer = Trainer(net, verbose=False)
    assert [record["epoch"] for record in trainer.fit(batches, 2)] == [1, 2]
    assert [record["epoch"] for record in trainer.fit(batches, 1)] == [1]
    assert (batches.epoch, net.optimizer.steps) == (3, 9)


def test_a_second_fit_goes_on_in_the_order_of_items():
    x, y = classes()
    whole = made()
    history = whole.fit(x, y, epochs=3, batch_size=16, verbose=False)
    halves = made()
    apart = halves.fit(x, y, epochs=1, batch_size=16, verbose=False)
    apart += halves.fit(x, y, epochs=2, batch_size=16, verbose=False)
    losses = [record["train_loss"] for record in history]
    assert [record["train_loss"] for record in apart] == losses
    for name, value in states(whole).items():
        np.testing.assert_array_equal(states(halves)[name], value, name)


# Ranks.


@pytest.mark.cpu("the ranks are programs on the CPU")
def test_two_ranks_are_one_process_with_two_parts():
    command = [sys.executable, "-m", "singa", "launch", "-n", "2", fitted_net.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("[0] [[")]
    history, kept = json.loads(line.removeprefix("[0] "))
    net = made()
    trainer = Trainer(
        net, metrics={"accuracy": metric.count_top_k, "f1": metric.F1(3)}, verbose=False
    )
    x, y = classes()
    own = trainer.fit(loader(x, y, virtual_ranks=2), 2, [classes(9, 1)])
    assert isinstance(net.optimizer, opt.DistOpt)
    for record, expected in zip(history, own, strict=True):
        for name in ("epoch", "step", "train_accuracy", "val_accuracy", "val_f1"):
            assert record[name] == expected[name]
        assert record["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-12)
        assert record["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-6)
    for name, value in states(net).items():
        np.testing.assert_array_equal(np.array(kept[name], value.dtype), value, name)


# Errors.


def test_stops_when_the_loss_is_no_number():
    net = made(opt.SGD(1e30))
    message = r"the loss became (nan|inf): a lower learning rate may help"
    with pytest.raises(NonFiniteLossError, match=message) as raised:
        net.fit(*classes(), batch_size=ROWS, epochs=7, verbose=False)
    steps = net.optimizer.steps  # one in each epoch
    assert 1 < steps < 7
    assert raised.value.__notes__ == [f"[Trainer] in epoch {steps}, update {steps}"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t, b: t.fit(iter(b), 1), TypeError, "another loader with a length"),
        (lambda t, b: t.fit([], 1), ValueError, "the loader has no batches"),
        (lambda t, b: t.fit(b, 1, []), ValueError, "the loader has no batches"),
        (lambda t, b: t.fit(b, 0), ValueError, "epochs must be at least 1"),
        (lambda t, b: t.fit(b, 1, resume=True), ValueError, "resume needs `out`"),
        (lambda t, b: t.fit(b, 1, [b[0][:1]]), ValueError, "expected inputs and targets"),
        (lambda t, b: Trainer(t.model, out=".").fit(b, 1), TypeError, "state_dict"),
        (lambda t, b: Trainer(t.model, metrics={"a": metric.F1}), TypeError, "'a' is <class"),
        (lambda t, b: Trainer(t.model, metrics={"loss": len}), ValueError, "another meaning"),
        (lambda t, b: Trainer(t.model, patience=3), TypeError, "has no argument 'patience'"),
        (lambda t, b: t.model.fit(data.ArrayDataset(ONES), ONES), TypeError, "are for arrays"),
        (lambda t, b: t.model.fit(b, b), TypeError, "x is a list of 1: give np"),
        (lambda t, b: Trainer(t.model, metrics=[len]), TypeError, r"metric\.Accuracy\(\)"),
        (lambda t, b: Trainer(t.model, metrics="acc"), TypeError, r"such as \['accuracy'\]"),
        (lambda t, b: Trainer(t.model, metrics=["f1"]), ValueError, r"use .*metric\.F1\(num"),
        (lambda t, b: Trainer(t.model, metrics=["acuracy"]), ValueError, "use 'accuracy'"),
        (lambda t, b: Trainer(t.model, metrics=["xyz"]), ValueError, "use one of accuracy"),
        (lambda t, b: Trainer(t.model, loss=3), TypeError, r"such as layer\.MSELoss\(\)"),
        (lambda t, b: Trainer(t.model, loss="binary_crossentropy"), ValueError, "bce_with_logits"),
        (lambda t, b: Trainer(t.model, loss="entropy"), ValueError, "use one of cross_entropy, "),
        (lambda t, b: Trainer(t.model, loss="mse").fit(b, 1), ValueError, "for classes use loss="),
        (lambda t, b: Trainer(t.model, loss="mae").fit(b, 1), ValueError, "for classes use loss="),
        (lambda t, b: Trainer(t.model, loss="huber").fit(b, 1), ValueError, "for classes use loss"),
        (lambda t, b: t.model.fit(ONES, validation_data=b), TypeError, "use validation, a pair"),
        (lambda t, b: t.model.fit(ONES, class_weight={}), TypeError, "CrossEntropyLoss.weight="),
        (lambda t, b: t.model.fit(ONES, optimizer="adam"), TypeError, "set_optimizer"),
        (lambda t, b: t.model.compile(optimizer="adam"), TypeError, "set_optimizer"),
        (lambda t, b: t.model.compile(b, metrics=[]), TypeError, "fit.metrics="),
        (lambda t, b: models.create("lenet", pretrained=True), TypeError, "load_pretrained"),
        (lambda t, b: opt.Adam(learning_rate=0.1), TypeError, "use lr"),
        (lambda t, b: data.DataLoader(ONES, 2, collate_fn=len), TypeError, "use collate"),
        (lambda t, b: EarlyStopping("val_f1"), ValueError, "mode must be 'min' or 'max'"),
        (
            lambda t, b: Trainer(t.model, callbacks=[EarlyStopping()], verbose=False).fit(b, 1),
            ValueError,
            "no 'val_loss' to monitor; there are epoch, step, lr, train_loss",
        ),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    trainer = Trainer(made(), verbose=False)
    with pytest.raises(error, match=message):
        call(trainer, [classes()])


def test_nothing_to_evaluate():
    net = made()
    net.loss = None
    with pytest.raises(ValueError, match="Net has no loss, and there are no metrics"):
        net.evaluate(*classes(), verbose=False)
    assert net.evaluate(*classes(), metrics=["accuracy"], verbose=False).keys() == {"accuracy"}


def test_an_update_that_an_epoch_would_cut(tmp_path):
    net = made(opt.DistOpt(opt.SGD(0.1, accumulate=2)))
    with pytest.raises(ValueError, match="an epoch of 3 calls ends amid an update of 2"):
        net.fit(*classes(), batch_size=BATCH, out=tmp_path, verbose=False)


# What is printed.


@pytest.mark.parametrize(
    ("record", "line"),
    [
        ({"epoch": 1, "train_loss": 0.5}, "train loss 0.500"),
        (
            {"train_loss": 2.0, "train_top1": 0.25, "val_accuracy": 0.5, "val_r2": 0.123456},
            "train loss 2.000 top-1 25.0%  val accuracy 50.0% r2 0.1235",
        ),
        ({"train_loss": 2.0, "val_f1": np.ones(2), "val_x": math.nan},
         "train loss 2.000  val x nan"),
    ],
)  # fmt: skip
def test_lines(record, line):
    assert "  ".join(described(record)) == line


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["train loss 1.553", "9 images/s"], "epoch 1/3  train loss 1.553  9 images/s"),
        (
            ["train loss 1.553 top-1 30.9%", "test loss 1.405 top-1 40.6%", "122 images/s"],
            "epoch 1/3  train loss 1.553 top-1 30.9%\n"
            "           test loss 1.405 top-1 40.6%  122 images/s",
        ),
        (
            ["train" + 9 * " metric 0.123", "122 images/s"],
            "epoch 1/3  train metric 0.123 metric 0.123 metric 0.123 metric 0.123 metric\n"
            "           0.123 metric 0.123 metric 0.123 metric 0.123 metric 0.123\n"
            "           122 images/s",
        ),
        ([], "epoch 1/3"),
    ],
)
def test_lines_of_an_epoch_have_80_columns(parts, text):
    assert in_columns("epoch 1/3", parts) == text
    assert max(map(len, text.splitlines())) <= 80

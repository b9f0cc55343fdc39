"""What `Model.fit`, `evaluate` and `predict` take of sets and loaders, or refuse."""

import numpy as np
import pytest
import singa
from fitted_net import classes
from picture_folders import write_colours
from singa import data, layer, metric, models, opt
from singa.training import CsvLog, EarlyStopping, Trainer

X, Y = np.ones((8, 3), np.float32), np.array([0, 1] * 4, np.int32)
SIZE = data.Compose(data.Resize((28, 28)), data.Normalize((0.5,) * 3, (0.25,) * 3))


@pytest.fixture
def net():
    net = models.create("lenet", num_classes=3)
    net.set_optimizer(opt.SGD(0.01))
    net.transform = SIZE
    return net


def test_predictions_are_of_all_items():
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    net = models.Sequential(layer.Linear(2))
    net.compile([x[:1]])
    loader = data.DataLoader(data.ArrayDataset(x, x[:, 0]), 3, drop_last=True)
    for predicted in (net.predict(loader), Trainer(net, verbose=False).predict(loader)):
        np.testing.assert_allclose(predicted, net.predict(x), rtol=1e-6, atol=1e-7)
    assert (loader.drop_last, len(loader)) == (True, 2)

    class Dropping(list):
        drop_last = True

    with pytest.raises(ValueError, match=r"drops a short batch, .* of all .* drop_last=False"):
        net.predict(Dropping([(x, x)]))


def test_a_validation_has_the_classes_of_the_training(net, tmp_path):
    """Its numbers would be those of other classes, where the folder of a class is missing."""
    train = data.ImageFolder(write_colours(tmp_path / "train", 1))
    part = write_colours(tmp_path / "val", 1, ("green", "red"))
    validation = data.ImageFolder(part)
    message = r"class 0 is 'blue' in training and 'green' in the validation: .*classes=train"
    for pair in (
        (train, validation),
        (data.DataLoader(train, 2, transform=SIZE), data.DataLoader(validation, 2, transform=SIZE)),
    ):
        with pytest.raises(ValueError, match=message):
            net.fit(pair[0], validation=pair[1], verbose=False)
    validation = data.ImageFolder(part, classes=train.classes)
    (record,) = net.fit(train, validation=validation, verbose=False)
    assert "val_loss" in record
    fewer = data.ImageFolder(write_colours(tmp_path / "few", 1, ("blue", "green")))
    with pytest.raises(ValueError, match="class 2 is 'red' in training and None in the validation"):
        net.fit(train, validation=fewer, verbose=False)


def test_what_a_column_holds_out_is_not_trained_on(net, tmp_path):
    folder = write_colours(tmp_path / "colours", 2)
    lines = [
        f"{name}/{n}.{'png' if n else 'jpg'},{name},{n}" for name in ("blue", "red") for n in (0, 1)
    ]
    (folder / "list.csv").write_text("\n".join(["file,label,is_valid", *lines]))
    whole = data.ImageFolder(folder / "list.csv")
    for call in (net.fit, net.evaluate):
        with pytest.raises(ValueError, match=r"which pictures are held out: train, test = "):
            call(whole, verbose=False)
    train, test = whole.split()
    net.fit(train, validation=test, verbose=False)
    whole.held_out = None
    net.fit(whole, verbose=False)


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 8}, {"shuffle": False}, {"seed": 3}],
    ids=lambda each: next(iter(each)),
)
def test_a_loader_has_its_own_batches(arguments):
    x = np.ones((12, 2), np.float32)
    net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.1))
    loader = data.DataLoader(data.ArrayDataset(x, x[:, :1]), 4, shuffle=True)
    name = next(iter(arguments))
    with pytest.raises(TypeError, match=rf"\[fit\] {name} is for arrays .*{name}=.* not be used"):
        net.fit(loader, verbose=False, **arguments)
    net.fit(x, x[:, :1], verbose=False, **arguments)
    net.fit(loader, batch_size=4, verbose=False)  # which it has
    net.fit(loader, validation=(x, x[:, :1]), batch_size=8, verbose=False)  # for the validation
    for function in (net.evaluate, net.predict):
        with pytest.raises(TypeError, match=rf"\[{function.__name__}\] batch_size is for arrays"):
            function(loader, batch_size=8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": None}, TypeError, r"\[fit\] a batch has no targets: fit\(x, y\) takes two arrays"),
        ({"validation": 0.2}, TypeError, r"got 0\.2; a share of the data is set apart before"),
        ({"validation": (X, Y, Y)}, TypeError, r"expected a pair \(x, y\), .* got tuple"),
        ({"validation": X}, TypeError, r"expected a pair \(x, y\), .* got ndarray"),
        (
            {"callbacks": EarlyStopping()},
            TypeError,
            r"expected a list, \[EarlyStopping\(\.\.\.\)\]",
        ),
        (
            {"callbacks": [print]},
            TypeError,
            r"class Own\(training\.Callback\), with methods such as",
        ),
        ({"metrics": ["Accuracy"]}, ValueError, "there is no metric 'Accuracy': use 'accuracy'"),
        ({"loss": "MSELoss"}, ValueError, r"use loss='mse', or layer\.MSELoss\(\)"),
        ({"initial_epoch": 3}, TypeError, "use resume=True, with out=FOLDER in both calls"),
        ({"scheduler": 3}, TypeError, r"use set_optimizer\(opt\.SGD\(opt\.CosineDecay"),
    ],
)
def test_what_to_write_instead(arguments, error, message):
    net = models.Sequential(layer.Linear(2))
    net.set_optimizer(opt.SGD(0.1))
    with pytest.raises(error, match=message):
        net.fit(X, **{"y": Y, "verbose": False, **arguments})


def test_a_pair_of_arrays_is_inputs_and_targets():
    x, y = classes(32)
    histories = []
    for given in ((x, y), ((x, y),)):
        singa.seed(0)
        net = models.Sequential(layer.Linear(3))
        net.set_optimizer(opt.SGD(0.1))
        for validation in ((x, y), [x, y]):
            net.fit(*given, validation=validation, verbose=False)
            histories.append(net.evaluate([x, y], verbose=False))
            assert histories[-1] == net.evaluate(x, y, verbose=False)
    assert histories[:2] == histories[2:]
    with pytest.raises(TypeError, match="has no targets"):  # two batches without targets
        net.fit([x, x], verbose=False)


def two_classes(outputs=2):
    net = models.Sequential(layer.Linear(outputs))
    net.set_optimizer(opt.SGD(0.01))
    return net


@pytest.mark.parametrize(
    ("outputs", "y", "loss", "error", "message"),
    [
        (2, Y + 1, None, IndexError, r"index 2 .*; the outputs are scores of 2 classes, whose"),
        (2, Y - 1, None, IndexError, r"index -1 .*: give the last layer an output for each class"),
        (1, Y, None, IndexError, r"one score of two classes has loss='bce_with_logits'"),
        (2, Y + 0.5, None, ValueError, "not a whole number; these are classes; for numbers use"),
        (1, Y + 0.5, "mse", ValueError, r"give targets of shape \(8, 1\), such as y\[:, None\]"),
        (1, Y + 0.5, "bce_with_logits", ValueError, r"give targets of shape \(8, 1\)"),
        (2, Y, "mae", ValueError, r"loss='mae' compares .*for classes use loss='cross_entropy'"),
        (3, np.eye(2)[Y], None, ValueError, r"class numbers \(8\) or probabilities \(8, 3\), got"),
    ],
)
def test_targets_that_do_not_fit_the_outputs(outputs, y, loss, error, message):
    for call in ("fit", "evaluate"):
        with pytest.raises(error, match=message):
            getattr(two_classes(outputs), call)(X, y, loss=loss, verbose=False)


def test_errors_of_the_network_are_not_about_targets():
    net = models.Sequential(layer.Embedding(3, 4), layer.Flatten(), layer.Linear(2))
    net.set_optimizer(opt.SGD(0.01))
    with pytest.raises(IndexError) as caught:
        net.fit(np.full((8, 3), 7, np.int32), Y, verbose=False)
    assert "scores" not in str(caught.value)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X.tolist(), Y, r"x is a list of numbers: give a NumPy array, np\.asarray\(x\)"),
        ([X.tolist(), Y.tolist()], None, "x is a list of numbers"),
        ((X.tolist(), Y.tolist()), None, "x is a tuple of numbers"),
        ([X, X], Y, r"x is a list of 2: .*data\.ArrayDataset\(x1, x2, y\) for several inputs"),
        ({"x": X}, Y, "x is a dict: give an array"),
        (None, None, "x is None: give an array"),
        ([X, Y], None, r"each item of the list has no targets: fit\(x, y\) takes two arrays"),
        (zip([X], [Y], strict=True), None, "a list of batches, got <zip"),
        (X, np.array(["cat", "dog"] * 4), r"part 1 .* np\.unique\(names, return_inverse=True\)"),
        (X.astype(object), Y, r"part 0 of the items is object, .*x\.astype\(np\.float32\)"),
    ],
)
def test_data_that_are_neither_arrays_nor_batches(x, y, message):
    with pytest.raises(TypeError, match=message):
        two_classes().fit(x, y, verbose=False)


def test_inputs_of_integers_are_refused_with_what_to_write():
    with pytest.raises(TypeError, match=r"x must be of a float type, got .* int32") as caught:
        two_classes().fit(X.astype(np.int64), Y, verbose=False)
    assert caught.value.__notes__[0] == (
        "in layer 0 (Linear): x.astype(np.float32) makes floats of an array"
    )


def test_a_list_of_samples_is_a_dataset():
    """As a loader of PyTorch takes it. Items of other lists are batches."""
    trained = []
    for x, y in ((list(zip(X, Y, strict=True)), None), (X, Y)):
        singa.seed(0)
        net = two_classes()
        trained.append(net.fit(x, y, epochs=2, batch_size=3, verbose=False)[-1]["train_loss"])
    assert trained[0] == trained[1]


class Own(singa.model.Model):
    def __init__(self):
        super().__init__()
        self.fc = layer.Linear(2)

    def forward(self, x):
        return self.fc(x)


def own(kind=Own):
    net = kind()
    net.set_optimizer(opt.SGD(0.01))
    return net


def test_a_model_without_a_loss_names_the_argument_of_fit():
    with pytest.raises(NotImplementedError, match=r"nor a loss, as fit\(loss='cross_entropy'\)"):
        own().fit(X, Y, verbose=False)


def test_a_loss_may_be_a_name_in_the_class_or_an_attribute():
    class Named(Own):
        loss = "cross_entropy"

    losses = []
    for kind in (Own, Named):
        singa.seed(0)
        net = own(kind)
        if kind is Own:
            net.loss = "cross_entropy"
        assert isinstance(net.fit(X, Y, verbose=False), list)
        assert type(net.loss) is layer.CrossEntropyLoss
        losses.append(net.evaluate(X, Y, verbose=False)["loss"])
    assert losses[0] == losses[1]
    assert own(Named).evaluate(X, Y, verbose=False)["loss"] > 0
    with pytest.raises(ValueError, match=r"\[Own\] there is no loss 'mce'"):
        own().loss = "mce"


def test_forward_without_return():
    class Forgets(Own):
        def forward(self, x):
            self.fc(x)

    with pytest.raises(TypeError, match=r"Forgets\.forward\(\) returns None: it lacks a `return`"):
        own(Forgets).fit(X, Y, loss="mse", verbose=False)


def test_metrics_that_nothing_would_compute():
    for metrics in (["auc"], {"f1": metric.F1(2)}):
        name = next(iter(metrics))
        with pytest.raises(ValueError, match=f"{name!r} is computed in validation alone: give"):
            two_classes().fit(X, Y, metrics=metrics, verbose=False)
    with pytest.raises(TypeError, match=r"'m' returned shape \(3,\); expected a number, a sum"):
        two_classes().fit(X, Y, metrics={"m": lambda out, y: np.ones(3)}, verbose=False)
    with pytest.raises(TypeError, match=r"loggers: expected a list, \[CsvLog\(\.\.\.\)\]"):
        two_classes().fit(X, Y, loggers=CsvLog("a.csv"), verbose=False)

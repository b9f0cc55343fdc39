"""Model.save and singa.load."""

import os
import subprocess
import sys

import numpy as np
import pytest
import singa
from singa import autograd, data, layer, model, models, opt, tensor
from singa.files.state_files import load_safetensors, save_safetensors
from singa.training import task
from singa.training.picture_classifier import PictureClassifier

X = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)
TRANSFORM = data.evaluation_transform(8, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3))


class Own(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3)
        self.fc = layer.Linear(2)

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.conv(x))))


class Pair(model.Model):
    def __init__(self):
        super().__init__()
        self.fc = layer.Linear(2)

    def forward(self, a, b):
        return self.fc(a) + b


def compiled(net, *inputs, **options):
    net.compile([tensor.from_numpy(x) for x in inputs or (X,)], is_train=False, **options)
    return net


def chain():
    net = models.Sequential(
        *(layer.Conv2d(4, 3, padding=1, bias=False), layer.BatchNorm2d(), layer.ReLU()),
        *(layer.MaxPool2d(2), layer.Flatten(), layer.Dropout(0.3), layer.Linear(2)),
        loss=layer.CrossEntropyLoss(label_smoothing=0.1),
    )
    return compiled(net)


@pytest.fixture
def file(tmp_path):
    net = chain()
    net.class_names, net.transform = ("cat", "dög"), TRANSFORM
    net.save(tmp_path / "pets.singa")
    return tmp_path / "pets.singa"


def make(kind):
    if kind is Own:
        pytest.importorskip("onnx")
    return {
        "architecture": lambda: compiled(models.create("resnet20_cifar", num_classes=2), X),
        "sequential": chain,
        Own: lambda: compiled(Own()),
    }[kind]()


@pytest.mark.parametrize("kind", ["architecture", "sequential", Own])
def test_what_is_loaded_predicts_the_same(kind, tmp_path):
    net = make(kind)
    net.class_names = ["cat", "dög"]
    net.transform = TRANSFORM
    net.save(tmp_path / "net.singa")
    assert os.listdir(tmp_path) == ["net.singa"]
    again = singa.load(tmp_path / "net.singa")
    assert not again.training
    for batch in (X, X[:1], np.concatenate([X, X])):
        expected = net(batch).numpy()
        np.testing.assert_allclose(again(batch).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert again.class_names == ["cat", "dög"]
    assert data.describe_transform(again.transform) == data.describe_transform(TRANSFORM)
    assert type(again).__name__ == ("ImportedModel" if kind is Own else type(net).__name__)
    again.save(tmp_path / "again.singa")
    third = singa.load(tmp_path / "again.singa")
    np.testing.assert_array_equal(third(X).numpy(), again(X).numpy())
    assert third.class_names == ["cat", "dög"]


@pytest.mark.parametrize("kind", ["sequential", Own])
def test_what_is_loaded_trains_on(kind, tmp_path):
    singa.seed(0)  # initial values and dropout
    net = make(kind)
    net.save(tmp_path / "net.singa")
    again = singa.load(tmp_path / "net.singa")
    again.set_optimizer(opt.SGD(lr=0.01))
    again.train()
    y = np.int32([0, 1, 1, 0, 1])
    losses = [float(again(X, y)[1]) for _ in range(8)]
    assert losses[-1] < losses[0]


def test_another_process_loads_it(file):
    """It has no class of this file."""
    code = (
        "import sys, numpy as np, singa\n"
        "net = singa.load(sys.argv[1])\n"
        "x = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)\n"
        "print([row.hex() for row in net(x).numpy().astype(np.float64).sum(1).tolist()])\n"
        "net.summary()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True
    )
    expected = [row.hex() for row in singa.load(file)(X).numpy().astype(float).sum(1).tolist()]
    first, *summary = done.stdout.splitlines()
    assert first == str(expected)
    assert any("Conv2d" in line for line in summary)


def test_pictures(file, tmp_path):
    pictures = np.random.default_rng(1).integers(0, 256, (3, 3, 20, 30)).astype(np.uint8)
    classifier = PictureClassifier.load(file)
    assert (classifier.class_names, classifier.channels) == (("cat", "dög"), 3)
    scores = singa.load(file)(classifier.inputs(pictures)).numpy().astype(np.float64)
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    np.testing.assert_allclose(classifier.probabilities(pictures), expected, rtol=1e-6)
    chain().save(tmp_path / "bare.singa")
    with pytest.raises(ValueError, match=r"no names of classes: .*bare\.singa cannot classify"):
        PictureClassifier.load(tmp_path / "bare.singa")
    tokens = compiled(models.Sequential(layer.Embedding(9, 4), layer.Linear(2)), np.int32([[1]]))
    with pytest.raises(ValueError, match="no batch of images"):
        PictureClassifier(tokens, ("a", "b"), TRANSFORM)


def test_inputs_of_other_kinds(tmp_path):
    tokens = compiled(models.Sequential(layer.Embedding(9, 4), layer.Linear(2)), np.int32([[1, 2]]))
    tokens.save(tmp_path / "a")
    x = np.int32([[3, 8], [1, 0], [2, 2]])
    again = singa.load(tmp_path / "a")
    np.testing.assert_array_equal(again(x).numpy(), tokens(x).numpy())
    pytest.importorskip("onnx")
    a, b = X[:, 0, 0], X[:, 0, 1, :2]
    pair = compiled(Pair(), a, b)
    pair.save(tmp_path / "b")
    again = singa.load(tmp_path / "b")
    np.testing.assert_allclose(again(a[:2], b[:2]).numpy(), pair(a[:2], b[:2]).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: models.create("lenet", num_classes=np.int64(3)),
        lambda: models.Sequential(layer.Flatten(), layer.Linear(np.int64(3), bias=np.bool_(True))),
    ],
)
def test_arguments_of_numpy(make, tmp_path):
    net = make()
    net.compile([tensor.zeros((1, 1, 28, 28))])
    net.save(tmp_path / "net.singa")
    again = singa.load(tmp_path / "net.singa")
    assert type(again) is type(net)
    assert again(tensor.zeros((2, 1, 28, 28))).shape == (2, 3)


def test_parameters_of_float64(tmp_path):
    x = tensor.from_numpy(X[:, 0, 0], dtype=tensor.float64)
    net = models.Sequential(layer.Linear(2))
    net.compile([x], is_train=False)
    net.save(tmp_path / "net")
    again = singa.load(tmp_path / "net")
    assert again.get_params()["0.W"].dtype == tensor.float64
    np.testing.assert_array_equal(again(x).numpy(), net(x).numpy())


def test_a_changed_network_is_saved_as_its_graph(tmp_path):
    pytest.importorskip("onnx")
    net = models.create("resnet20_cifar", num_classes=2)
    net.fc = layer.Sequential(layer.Linear(4), layer.ReLU(), layer.Linear(3))
    compiled(net)
    with pytest.warns(
        UserWarning, match=r"Sequential fc is not what .* has the network as an ONNX"
    ):
        net.save(tmp_path / "net")
    expected = net(X).numpy()
    assert expected.shape == (5, 3)
    found = singa.load(tmp_path / "net")(X).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class Fixed(Own):
    def forward(self, x):
        return self.fc(autograd.reshape(x, (5, 192)))


def test_a_graph_that_takes_one_batch_size_is_told(tmp_path):
    pytest.importorskip("onnx")
    net = compiled(Fixed())
    with pytest.warns(UserWarning, match="the file predicts batches of 5 only"):
        net.save(tmp_path / "net")
    found = singa.load(tmp_path / "net")(X).numpy()
    np.testing.assert_allclose(found, net(X).numpy(), rtol=1e-5, atol=1e-6)


class Odd(autograd.Operator):
    def forward(self, x):
        return x

    def backward(self, dy):
        return dy


class OddLayer(layer.Layer):
    def forward(self, x):
        return Odd()(x)


def test_a_name_of_an_onnx_file_is_refused(tmp_path):
    """`singa.load` reads such a file as ONNX."""
    net = compiled(models.create("lenet", num_classes=2), np.zeros((1, 1, 28, 28), np.float32))
    with pytest.raises(
        ValueError, match=r"net\.ONNX: singa\.onnx\.save\(net, file, \[x\]\) writes"
    ):
        net.save(tmp_path / "net.ONNX")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_saved(tmp_path, monkeypatch):
    path = tmp_path / "net.singa"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match=r"\[Model.save\] call compile\(\) first"):
        models.create("lenet").save(path)
    net = chain()
    net.transform = lambda images, rng: images
    with pytest.raises(TypeError, match="no transform of singa"):
        net.save(path)
    net = compiled(models.create("resnet20_cifar", num_classes=2))
    net.class_names = ["a"]
    with pytest.raises(ValueError, match=r"\[save\] 1 class names, and the network has 2"):
        net.save(path)
    odd = compiled(models.Sequential(layer.ReLU(), OddLayer()))
    pytest.importorskip("onnx")
    message = r"OddLayer 1 is not a layer .* no ONNX graph: .*operator Odd \(layer 1\)"
    with pytest.raises(ValueError, match=message):
        odd.save(path)
    own = compiled(Own())
    monkeypatch.setitem(sys.modules, "singa.onnx.save", None)
    with pytest.raises(ImportError, match=r"Own is neither .* Its ONNX graph needs a package"):
        own.save(path)
    assert path.read_bytes() == b"old"


def changed(file, change):
    arrays, metadata = load_safetensors(file)
    network = metadata["network"]
    change(metadata, network, arrays)
    save_safetensors(file, arrays, metadata)


def hostile(change, message):
    return pytest.param(change, message, id=message[:30])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        hostile(lambda m, n, a: m.update(format="x"), "has arrays, but not how to use them"),
        hostile(
            lambda m, n, a: m.update(version=3), "version 3 of the format, and singa .* 1 and 2"
        ),
        hostile(lambda m, n, a: m.pop("inputs"), "damaged .it lacks 'inputs'"),
        hostile(lambda m, n, a: m.update(inputs=[]), "damaged"),
        hostile(lambda m, n, a: m["inputs"][0].update(shape=[1, 3, 10**9, 1]), "input has the sha"),
        hostile(lambda m, n, a: m["inputs"][0].update(shape=[1, 3, 65536, 65536]), "at most 1342"),
        hostile(lambda m, n, a: m["inputs"][0].update(shape=[1, 3, 8.0, 8]), "input has the shape"),
        hostile(lambda m, n, a: m["inputs"][0].update(shape=[1, 2, 8, 8]), "wrong shape|shape"),
        hostile(lambda m, n, a: m["inputs"][0].update(dtype="object"), "damaged"),
        hostile(lambda m, n, a: m["inputs"].append(m["inputs"][0]), "damaged"),
        hostile(lambda m, n, a: m.update(class_names=["a"] * 2 + [3]), "class_names are"),
        hostile(lambda m, n, a: m.update(transform=[{"name": "exec", "arguments": {}}]), "exec"),
        hostile(lambda m, n, a: m["transform"][0]["arguments"].update(size=9999), "at most 4096"),
        hostile(lambda m, n, a: n.update(kind="pickle"), "unknown kind 'pickle'"),
        hostile(lambda m, n, a: n.update(kind="onnx"), "damaged"),
        hostile(lambda m, n, a: n["layers"].pop(), "6\\.W"),
        hostile(lambda m, n, a: n["layers"].append(n["layers"][-1]), "no values for|missing"),
        hostile(lambda m, n, a: n["layers"][-1].update(layer="system"), "no layer 'system'"),
        hostile(
            lambda m, n, a: n["layers"][-1]["arguments"].update(out_features=1 << 24),
            r"\[Linear 6\] there are no values for parameters of this size",
        ),
        hostile(
            lambda m, n, a: n["layers"][0]["arguments"].update(kernel_size=5), "Conv2d 0. there are"
        ),
        hostile(lambda m, n, a: n["layers"][0]["arguments"].update(kernel_size=1), "0\\.W"),
        hostile(lambda m, n, a: n["layers"][0]["arguments"].update(kernel_size=[3] * 99), "dama"),
        hostile(lambda m, n, a: a.pop("0.W"), "0\\.W|no values"),
        hostile(lambda m, n, a: a.update({"0.W": np.zeros((4, 3, 3), np.float32)}), "0\\.W|no val"),
        hostile(lambda m, n, a: n.update(layers=[n["layers"]] * 3), "damaged"),
        hostile(lambda m, n, a: n.update(layers={"layer": 3}), "damaged"),
    ],
)
def test_hostile_files(file, change, message):
    changed(file, change)
    with pytest.raises(ValueError, match=message) as error:
        singa.load(file)
    assert "pets.singa" in str(error.value)


def test_hostile_graphs(tmp_path):
    pytest.importorskip("onnx")
    file = tmp_path / "net.singa"
    compiled(Own()).save(file)
    arrays, metadata = load_safetensors(file)
    for content in (b"", b"x" * 50, arrays["onnx"].tobytes()[:-40]):
        save_safetensors(file, {"onnx": np.frombuffer(content, np.uint8)}, metadata)
        with pytest.raises(ValueError, match=r"net\.singa: damaged"):
            singa.load(file)


def test_a_file_of_another_version(file):
    """Its network or its transform may be unknown here, though the format has the same number."""
    arrays, metadata = load_safetensors(file)
    network = {"kind": "architecture", "name": "resnet9000", "arguments": {}}
    save_safetensors(file, arrays, {**metadata, "network": network, "singa": "9.1"})
    with pytest.raises(ValueError, match=r"cannot read it \(.*resnet9000.*; singa 9\.1 wrote it"):
        singa.load(file)
    save_safetensors(file, arrays, {**metadata, "network": network})
    with pytest.raises(ValueError, match=r"pets\.singa: damaged \(.*resnet9000"):
        singa.load(file)


def test_damaged_and_missing_files(file, tmp_path):
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"pets\.singa: not a readable .*checksum"):
        singa.load(file)
    file.write_bytes(content[:-3])
    with pytest.raises(ValueError, match=r"pets\.singa: not a readable file with a network"):
        singa.load(file)
    with pytest.raises(FileNotFoundError):
        singa.load(tmp_path / "no.singa")
    with pytest.raises(FileNotFoundError, match=r"holds no model\.safetensors"):
        singa.load(tmp_path)


@pytest.mark.parametrize("kind", ["architecture", "sequential", Own])
@pytest.mark.parametrize(
    "what", [task.SeveralLabels(), task.Regression([3.0, -2e9], [0.5, 1e7])], ids=lambda t: t.key
)
@pytest.mark.filterwarnings("ignore:.*the file has the network as an ONNX graph")
def test_a_task_is_kept(kind, what, tmp_path):
    if kind == "sequential":
        pytest.importorskip("onnx")
    net = make(kind)
    net.class_names = ["height", "weight"]
    task.set_task(net, what)
    net.save(tmp_path / "net.singa")
    again = singa.load(tmp_path / "net.singa")
    assert again.task.described() == what.described()
    y = np.float32([[3, -2e9], [3.5, -2.01e9], [0, 1], [1, 0], [1, 1]])
    out = net(X)
    expected = float(what.loss(out, tensor.from_numpy(y)))
    assert float(again.loss(again(X), tensor.from_numpy(y))) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(
        task.task_of(again).values(again(X).numpy()), what.values(out.numpy())
    )
    if kind == "architecture":
        again.replace_head(3)
        assert again.task is None
        assert "loss" not in vars(again)


def test_a_damaged_task_is_refused(tmp_path):
    net = make("architecture")
    task.set_task(net, task.Regression([1.0, 2.0], [2.0, 3.0]))
    net.save(tmp_path / "net.singa")
    arrays, metadata = load_safetensors(tmp_path / "net.singa")
    metadata["class_names"] = None
    damaged = [
        {"kind": "regression", "mean": [1.0], "std": [0.0]},
        {"kind": "regression", "mean": [1.0], "std": []},
        {"kind": "regression", "mean": ["x"], "std": [1.0]},
        {"kind": "regression"},
        {"kind": "other"},
        {"kind": ["multilabel"]},
        {"kind": "multilabel", "mean": [1.0]},
        ["multilabel"],
    ]
    for described in damaged:
        save_safetensors(tmp_path / "bad.singa", arrays, {**metadata, "task": described})
        with pytest.raises(ValueError, match="damaged"):
            singa.load(tmp_path / "bad.singa")

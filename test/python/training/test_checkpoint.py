"""Checkpoints: everything is restored, or an error is raised and nothing has changed."""

import json
import os
import random
import struct

import bits
import numpy as np
import pytest
import safetensors.numpy
import singa
from singa import models, opt, singa_wrap, tensor, tuning
from singa.files import state_files
from singa.training import checkpoint
from small_net import Whole, batch
from updates import RULES


def new(optimizer, seed=1, width=6):
    singa.seed(seed)
    net = Whole(width)
    net.set_optimizer(optimizer)
    net.compile([batch(0)[0]])
    return net


def train(net, start, end):
    """The losses of the batches from start to end."""
    return [float(net(*batch(number))[1]) for number in range(start, end)]


def everything(net):
    """Everything that training depends on, as bytes."""
    device = next(iter(net.get_states().values())).device
    return bits.everything(net) | {"random": tuple(device.random_state())}


def edit(path, change):
    """Applies `change(arrays, metadata)` to a checkpoint."""
    arrays, metadata = state_files.load_safetensors(path)
    arrays = dict(arrays)
    change(arrays, metadata)
    state_files.save_safetensors(path, arrays, metadata)


OPTIMIZERS = {
    "accumulating": lambda: opt.SGD(0.1, momentum=0.9, accumulate=3),
    "sgd": lambda: opt.SGD(0.1),
    "nesterov": lambda: opt.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "schedule": lambda: opt.SGD(opt.OneCycle(0.2, 8), momentum=opt.Constant(0.8), dampening=0.1),
    **{
        rule.__name__: lambda rule=rule: rule(0.01, weight_decay=0.01)
        for rule in RULES
        if rule is not opt.SGD
    },
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_goes_on_as_if_it_had_never_stopped(make, tmp_path):
    path = tmp_path / "last.safetensors"
    net = new(make())
    train(net, 0, 4)  # 4 is not a multiple of 3, so sums are incomplete
    checkpoint.save(path, net, net.optimizer, epoch=2, loader={"batch": 4})
    numbers = random.random(), np.random.rand()  # noqa: NPY002
    expected = train(net, 4, 8)

    other = new(make(), seed=77)
    train(other, 0, 1)
    assert checkpoint.load(path, other, other.optimizer) == {"epoch": 2, "loader": {"batch": 4}}
    assert (random.random(), np.random.rand()) == numbers  # noqa: NPY002
    assert train(other, 4, 8) == expected
    assert everything(other) == everything(net)
    assert len(set(expected)) == 4  # each step changes something


@pytest.mark.parametrize("use_graph", [False, True])
@pytest.mark.parametrize("rate", [lambda: 0.02, lambda: opt.CosineDecay(0.02, 50)])
def test_a_rate_that_was_assigned_goes_on(rate, use_graph, tmp_path):
    def make():
        net = new(opt.SGD(lr=0.1, momentum=0.9))
        net.graph(use_graph)
        return net

    net, path = make(), tmp_path / "assigned.safetensors"
    train(net, 0, 4)
    net.optimizer.lr = rate()
    train(net, 4, 5)
    checkpoint.save(path, net, net.optimizer)
    losses = train(net, 5, 9)
    other = make()
    checkpoint.load(path, other, other.optimizer)
    assert train(other, 5, 9) == losses
    assert everything(other) == everything(net)


def test_the_device_of_the_dropout_goes_on(tmp_path):
    """Without the device's random state the losses would differ."""
    path = tmp_path / "last.safetensors"
    net = new(opt.SGD(0.1))
    checkpoint.save(path, net, net.optimizer)
    expected = train(net, 0, 2)
    checkpoint.load(path, net, net.optimizer)
    singa.seed(5)
    assert train(net, 0, 2) != expected
    checkpoint.load(path, net, net.optimizer)
    assert train(net, 0, 2) == expected


def test_others_can_read_the_weights(tmp_path):
    path = tmp_path / "last.safetensors"
    net = new(opt.SGD(0.1, momentum=0.9))
    train(net, 0, 1)
    checkpoint.save(path, net, net.optimizer)
    arrays = safetensors.numpy.load_file(path)
    for name, value in net.get_states().items():
        np.testing.assert_array_equal(arrays["model/" + name], value.numpy())
    momentum = net.optimizer.get_states()["moments"]
    assert momentum.keys() == net.get_params().keys()
    for name, value in momentum.items():
        np.testing.assert_array_equal(arrays["optimizer/moments/" + name], value.numpy())


def test_the_description_of_the_model(tmp_path):
    path = tmp_path / "last.safetensors"
    net = new(opt.SGD(0.1))
    net.class_names = ("cat", "dog", "bird")
    checkpoint.save(path, net, net.optimizer)
    names = ["cat", "dog", "bird"]
    assert checkpoint.read_model(path) == {
        "class": "Whole", "architecture": None, "class_names": names
    }  # fmt: skip
    other, named = new(opt.SGD(0.1)), new(opt.SGD(0.1))
    named.class_names = ["A", "B", "C"]
    for each in (other, named):
        checkpoint.load(path, each, each.optimizer)
    assert other.class_names == names
    assert named.class_names == ["A", "B", "C"]  # one's own names stay


def test_the_architecture_makes_the_network_again(tmp_path):
    path = tmp_path / "last.safetensors"
    net = models.create("lenet", num_classes=7)
    net.compile([tensor.zeros((1, 1, 28, 28))])
    checkpoint.save(path, net)
    made = checkpoint.read_model(path)["architecture"]
    assert made == {"name": "lenet", "arguments": {"num_classes": 7}}
    again = models.create(made["name"], **made["arguments"])
    again.compile([tensor.zeros((1, 1, 28, 28))])
    checkpoint.load(path, again)
    assert bits.bits(again) == bits.bits(net)


def test_without_an_optimizer(tmp_path):
    path = tmp_path / "weights.safetensors"
    net = new(opt.SGD(0.1))
    train(net, 0, 2)
    checkpoint.save(path, net, note="weights only")
    other = new(opt.SGD(0.1), seed=9)
    assert checkpoint.load(path, other) == {"note": "weights only"}
    for name, value in net.get_states().items():
        np.testing.assert_array_equal(other.get_states()[name].numpy(), value.numpy())
    with pytest.raises(ValueError, match="holds the state of no optimizer, not of SGD"):
        checkpoint.load(path, other, other.optimizer)


# Writing.


@pytest.fixture
def saved(tmp_path):
    """(net, path, bytes of its checkpoint), trained for one step after saving."""
    path = tmp_path / "last.safetensors"
    net = new(opt.Adam(0.01))
    train(net, 0, 2)
    checkpoint.save(path, net, net.optimizer, epoch=1)
    train(net, 2, 3)
    return net, path, path.read_bytes()


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_one(saved, monkeypatch, fault):
    net, path, old = saved

    def half(file, *_):
        file.write(b"half of it")
        raise OSError("disk full")

    def fail(*_):
        raise OSError("disk full")

    if fault == "write":
        monkeypatch.setattr(state_files, "_write_safetensors", half)
    else:
        monkeypatch.setattr(os, fault, fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, net, net.optimizer)
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_progress_has_to_be_json(saved):
    net, path, old = saved
    with pytest.raises(TypeError, match=r"when\['at'\]\[1\] is a object, which is no JSON value"):
        checkpoint.save(path, net, net.optimizer, when={"at": [1, object()]})
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_numbers_of_numpy_become_numbers(saved):
    net, path, _ = saved
    values = {
        "best": np.float32(0.5),
        "epoch": np.int64(3),
        "done": np.bool_(True),
        "scores": {"mean": np.array(2.0), "each": np.arange(3), 7: [np.float64(0.25)]},
        "last": tensor.Tensor(data=[1.5]),
    }
    expected = {
        "best": 0.5,
        "epoch": 3,
        "done": True,
        "scores": {"mean": 2.0, "each": [0, 1, 2], "7": [0.25]},
        "last": [1.5],
    }
    net.optimizer.lr = np.float32(0.5)
    checkpoint.save(path, net, net.optimizer, **values)
    progress = checkpoint.load(path, net, net.optimizer)
    assert progress == expected
    assert type(progress["done"]) is bool


def test_a_model_without_parameters_yet(tmp_path):
    with pytest.raises(RuntimeError, match=r"\[checkpoint.save\].*call compile\(\) first"):
        checkpoint.save(tmp_path / "c", Whole())
    assert os.listdir(tmp_path) == []


# Reading.


def check_refused(saved, match, optimizer=None):
    """Checks that loading raises ValueError that names the file, and that nothing has changed."""
    net, path, _ = saved
    before, numbers = everything(net), (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    with pytest.raises(ValueError, match=match) as caught:
        checkpoint.load(path, net, optimizer or net.optimizer)
    assert str(path) in str(caught.value)
    assert everything(net) == before
    assert (random.getstate(), np.random.get_state()[1].tolist()) == numbers  # noqa: NPY002


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.5, -8, -1])
def test_truncated(saved, keep):
    _, path, old = saved
    path.write_bytes(old[: int(len(old) * keep) if isinstance(keep, float) else keep])
    check_refused(saved, "not a readable file")
    with pytest.raises(ValueError, match="not a readable file"):
        checkpoint.read_progress(path)


def data_start(content):
    """Offset of the tensors' bytes."""
    return 8 + struct.unpack("<Q", content[:8])[0]


@pytest.mark.parametrize("place", ["first", "middle", "last", "progress"])
def test_one_damaged_bit(saved, place):
    """The file is still well-formed, so only the checksum can detect it."""
    _, path, old = saved
    start = data_start(old)
    position = {
        "first": start,
        "middle": (start + len(old)) // 2,
        "last": len(old) - 1,
        "progress": old.index(b'\\"epoch\\": 1') + len(b'\\"epoch\\": '),
    }[place]
    damaged = bytearray(old)
    damaged[position] ^= 2
    path.write_bytes(damaged)
    safetensors.numpy.load_file(path)
    check_refused(saved, "not a readable file.*checksum")
    with pytest.raises(ValueError, match="checksum"):
        checkpoint.read_progress(path)


def test_exchanged_tensors(saved):
    """Two tensors of the same type and shape: all bytes are there, under the wrong names."""
    _, path, old = saved
    head, data = old[8 : data_start(old)], old[data_start(old) :]
    one, other = b'"model/norm.scale"', b'"model/norm.bias"'
    head = head.replace(one, b"#").replace(other, one).replace(b"#", other)
    path.write_bytes(old[:8] + head + data)
    check_refused(saved, "checksum")


def test_files_without_a_checksum(saved):
    """Earlier versions wrote no checksum."""
    net, path, _ = saved
    arrays, metadata = state_files.load_safetensors(path)
    safetensors.numpy.save_file(arrays, path, {"singa": json.dumps(metadata)})
    assert checkpoint.load(path, net, net.optimizer) == {"epoch": 1}
    np.testing.assert_array_equal(net.get_states()["conv.W"].numpy(), arrays["model/conv.W"])


@pytest.mark.parametrize(
    "content",
    [
        b"no tensors here", b"\xff" * 64, struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 4) + b"null", b"PK\x03\x04" + b"\0" * 60,
    ],
)  # fmt: skip
def test_other_files(saved, content):
    saved[1].write_bytes(content)
    check_refused(saved, "not a readable file")


def test_weights_are_no_checkpoint(saved):
    net, path, _ = saved
    net.save_states(path)
    check_refused(saved, "not a checkpoint of a training run")
    with pytest.raises(ValueError, match="not a checkpoint"):
        checkpoint.read_progress(path)


@pytest.mark.parametrize("version", [0, 3, "2", None])
def test_another_version(saved, version):
    edit(saved[1], lambda _, metadata: metadata.update(version=version))
    check_refused(saved, f"version {version!r} of the format.*reads versions 1 to 2")


def without(*keys):
    def change(_, metadata):
        for key in keys[:-1]:
            metadata = metadata[key]
        del metadata[keys[-1]]

    return change


def with_value(value, *keys):
    def change(_, metadata):
        for key in keys[:-1]:
            metadata = metadata[key]
        metadata[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (without("random_of_ranks"), "damaged.*random_of_ranks"),
        (with_value([], "random_of_ranks"), "damaged"),
        (without("random_of_ranks", 0, "device"), "damaged.*device"),
        (without("random_of_ranks", 0, "numpy"), "damaged.*numpy"),
        (without("random_of_ranks", 0, "numpy", "state"), "damaged.*state"),
        (without("random_of_ranks", 0, "python"), "damaged.*python"),
        (without("model"), "damaged.*model"),
        (without("model", "class_names"), "damaged.*class_names"),
        (with_value([1, 2], "model", "class_names"), "damaged.*class_names"),
        (with_value("cat", "model", "class_names"), "damaged.*class_names"),
        (with_value("resnet", "model", "architecture"), "damaged.*architecture"),
        (with_value(3, "optimizer", "parameter_steps"), "damaged"),
        (with_value({"fc.W": "two"}, "optimizer", "parameter_steps"), "damaged"),
        (with_value({"fc.W": -1}, "optimizer", "parameter_steps"), "parameter_steps of fc.W"),
        (without("progress"), "damaged.*progress"),
        (without("optimizer"), "no optimizer, not of Adam"),
        (without("optimizer", "class"), "no optimizer, not of Adam"),
        (without("optimizer", "step_counter"), "damaged.*step_counter"),
        (with_value("many", "optimizer", "step_counter"), "damaged.*many"),
        (with_value([1], "random_of_ranks", 0, "device"), "damaged"),
        (with_value([-1, 0], "random_of_ranks", 0, "device"), "damaged"),
        (with_value([0, 1 << 64], "random_of_ranks", 0, "device"), "damaged"),
        (with_value(["a", "b"], "random_of_ranks", 0, "device"), "damaged"),
        (with_value([3, [1, 2], None], "random_of_ranks", 0, "python"), "damaged"),
        (with_value([-1] * 624, "random_of_ranks", 0, "numpy", "state", "key"), "damaged"),
        (with_value([1] * 10, "random_of_ranks", 0, "numpy", "state", "key"), "damaged"),
        (with_value(7, "progress"), "damaged"),
        (with_value("Adagrad", "optimizer", "class"), "the state of Adagrad, not of Adam"),
    ],
)  # fmt: skip
def test_missing_and_damaged_metadata(saved, change, match):
    edit(saved[1], change)
    check_refused(saved, match)


def test_states_that_do_not_fit(saved):
    _, path, old = saved

    def change(arrays, _):
        arrays["model/new"] = arrays.pop("model/fc.b")

    edit(path, change)
    check_refused(saved, r"missing: fc.b; unexpected: new")

    path.write_bytes(old)
    edit(path, lambda arrays, _: arrays.update({"model/fc.b": np.zeros(4, np.float32)}))
    check_refused(saved, r"fc.b is \(4,\) instead of \(3,\)")

    path.write_bytes(old)
    key = "optimizer/m/fc.b"
    assert key in state_files.load_safetensors(path)[0]
    edit(path, lambda arrays, _: arrays.update({key: np.zeros(4, np.float32)}))
    check_refused(saved, r"of fc.b is \(4,\), not \(3,\)")


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_moments_of_another_type(saved, dtype):
    """Rejected by load, not by the next step."""
    _, path, _ = saved
    key = "optimizer/v/fc.b"
    edit(path, lambda arrays, _: arrays.update({key: arrays[key].astype(dtype)}))
    check_refused(saved, rf"v of fc.b is {np.dtype(dtype).name}, which Adam does not use for it")


def test_sums_of_bfloat16_come_back_as_such(tmp_path):
    path = tmp_path / "last.safetensors"

    def net_of_bfloat16():
        net = new(opt.SGD(0.1, accumulate=2))
        for value in net.get_params().values():
            value.to_type(tensor.bfloat16)
        return net

    net, other = net_of_bfloat16(), net_of_bfloat16()
    params = net.get_params()
    waiting = {"accumulated": params, "accumulated_calls": 1}
    net.optimizer.set_states(net.optimizer.get_states() | waiting)
    checkpoint.save(path, net, net.optimizer)
    checkpoint.load(path, other, other.optimizer)
    sums = other.optimizer.get_states()["accumulated"]
    assert {value.dtype for value in sums.values()} == {tensor.bfloat16}
    for name, value in net.optimizer.get_states()["accumulated"].items():
        np.testing.assert_array_equal(sums[name].numpy(), value.numpy())


def test_an_optimizer_that_refuses_leaves_the_model(saved, monkeypatch):
    net, _, _ = saved

    def refuse(states):
        raise TypeError("not mine")

    monkeypatch.setattr(net.optimizer, "set_states", refuse)
    check_refused(saved, "not mine")


def test_of_another_model_and_optimizer(saved):
    _, path, _ = saved
    other = new(opt.Adam(0.01), width=7)
    check_refused((other, path, None), r"wrong shape: .*conv.W is \(6, 2, 3, 3\) instead of")
    check_refused(saved, "holds the state of Adam, not of SGD", opt.SGD(0.1))


def test_no_file(tmp_path):
    net = new(opt.SGD(0.1))
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none", net, net.optimizer)
    with pytest.raises(FileNotFoundError):
        checkpoint.read_progress(tmp_path / "none")


def test_read_progress_needs_no_model(saved):
    assert checkpoint.read_progress(saved[1]) == {"epoch": 1}
    header = json.loads(saved[2][8 : 8 + struct.unpack("<Q", saved[2][:8])[0]])
    assert "__metadata__" in header


def test_loading_costs_other_models_no_graph(tmp_path):
    """A process that serves one network and loads checkpoints of another one still replays."""
    path = tmp_path / "last.safetensors"
    served, net = new(opt.SGD(0.1)), new(opt.SGD(0.1))
    choice = {"signature": "none", "candidate": "reference", "machine": "none", "measured": ""}
    tuning.add([choice])
    try:
        checkpoint.save(path, net, net.optimizer)
        served.eval()
        served.graph(True)
        x = batch(0)[0]
        for _ in range(20):  # more often than settings of a model may change
            checkpoint.load(path, net, net.optimizer)
            served(x)
        assert len(served.memory_plan()["graphs"]) == 1
        before = singa_wrap.TuningVersion()
        tuning.add([choice | {"measured": "again"}])
        assert singa_wrap.TuningVersion() == before
        tuning.add([choice | {"candidate": "other"}])
        assert singa_wrap.TuningVersion() != before
    finally:
        tuning.clear()


def test_between_the_calls_of_dist_opt(tmp_path):
    """Only its ranks have the gradients of the calls that were made."""
    path = tmp_path / "last.safetensors"
    net = new(opt.DistOpt(opt.SGD(0.1), virtual_ranks=3))
    train(net, 0, 2)
    with pytest.raises(RuntimeError, match="2 of 3 calls for an update were made"):
        checkpoint.save(path, net, net.optimizer)
    assert os.listdir(tmp_path) == []
    train(net, 2, 3)
    checkpoint.save(path, net, net.optimizer)
    expected = train(net, 3, 6)
    train(net, 6, 7)  # whose gradients the loaded states know nothing of
    checkpoint.load(path, net, net.optimizer)
    assert train(net, 3, 6) == expected

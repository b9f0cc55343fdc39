"""Model: compile, modes, threads, summary, copies, and state files: valid, damaged and
malicious."""

import copy
import io
import json
import pickle
import re
import struct
import threading
import zipfile

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, layer, model, models, opt, tensor
from singa.files import state_files

RANDOM = np.random.default_rng(3)


def image(*shape):
    return tensor.from_numpy(RANDOM.standard_normal(shape).astype(np.float32))


class Net(model.Model):
    def __init__(self, width=4):
        super().__init__()
        self.conv = layer.Conv2d(width, 3, bias=False)
        self.bn = layer.BatchNorm2d(momentum=0.1)
        self.fc = layer.Linear(3)
        self.drop = layer.Dropout(0.5)
        self.seen = []

    def forward(self, x):
        self.seen.append(autograd.training)
        return self.fc(self.drop(autograd.flatten(autograd.relu(self.bn(self.conv(x))))))

    def train_one_batch(self, x, y):
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def compiled(width=4, **kwargs):
    net = Net(width)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([image(5, 2, 6, 6)], **kwargs)
    return net


LABELS = tensor.from_numpy(np.array([0, 1, 2, 1, 0], np.int32))


def states_of(net):
    return {name: value.numpy() for name, value in net.get_states().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.fixture(autouse=True)
def seed_and_mode():
    singa.seed(11)
    yield
    autograd.training = False


# --- compile and modes


def test_compile_makes_parameters_and_changes_nothing_else():
    device = singa.device.get_default_device()
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1))
    with pytest.raises(RuntimeError, match="no parameters yet"):
        net.save_states("never.zip")
    net.compile([image(5, 2, 6, 6)], is_train=True, use_graph=True, sequential=False)
    assert net.seen == [False]
    assert autograd.training
    assert net.graph_mode
    np.testing.assert_array_equal(net.bn.running_mean.numpy(), np.zeros(4))
    position = device.random_state()
    again = Net()
    again.compile([image(5, 2, 6, 6)])
    for ours, theirs in zip(net.get_params(), again.get_params(), strict=True):
        assert ours == theirs
    assert device.random_state() != position  # both calls of compile drew weights


def test_call_trains_or_infers():
    net = compiled()
    before = states_of(net)
    out, loss = net(image(5, 2, 6, 6), LABELS)
    assert out.shape == (5, 3)
    assert loss.size() == 1
    assert all(not np.array_equal(before[name], now) for name, now in states_of(net).items())
    net.eval()
    x, before = image(2, 2, 6, 6), states_of(net)
    y = net(x)
    np.testing.assert_array_equal(y.numpy(), net(x).numpy())
    assert_same(states_of(net), before)
    assert y.is_dummy()
    assert net.seen[1:] == [True, False, False]
    net.train()
    assert net.training
    net.compile([image(5, 2, 6, 6)], is_train=False)
    assert not net.training
    assert not autograd.training


def test_models_do_not_change_each_others_mode():
    one, other = compiled(), compiled()
    other.eval()
    assert not autograd.training
    before = states_of(one)
    one(image(5, 2, 6, 6), LABELS)  # it trains, although the flag was changed
    assert not np.array_equal(before["conv.W"], one.conv.W.numpy())
    assert not autograd.training


def test_modes_of_threads():
    net = compiled()
    x = image(2, 2, 6, 6)
    net.eval()
    expected = net(x).numpy()
    net.train()
    results, errors = [], []

    def infer():
        try:
            assert net.training  # uses the mode of the thread that created the model
            net.eval()
            for _ in range(20):
                results.append(net(x).numpy())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=infer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert net.training
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_threads_that_meet_a_new_layer_make_one_set_of_parameters():
    net, x = layer.Linear(50), image(2, 30)
    weights = []
    barrier = threading.Barrier(4)

    def use():
        barrier.wait()
        net(x)
        weights.append(net.W)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(weight) for weight in weights}) == 1


def test_batch_sizes_alternate():
    net = compiled()
    for batch in (5, 2, 5, 3):
        labels = tensor.from_numpy(np.zeros(batch, np.int32))
        assert net(image(batch, 2, 6, 6), labels)[0].shape == (batch, 3)
    net.eval()
    assert net(image(7, 2, 6, 6)).shape == (7, 3)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: Net().compile([]), TypeError, "expected a list of tensors"),
        (lambda: Net().compile(image(1, 2, 6, 6)), TypeError, "expected a list of tensors"),
        (lambda: Net().compile([np.array(["a"])]), TypeError, "got ndarray"),
        (lambda: model.Model().compile([image(1)]), NotImplementedError, "forward"),
        (lambda: model.Model()(image(1)), NotImplementedError, "train_one_batch"),
        (lambda: Net().summary(), RuntimeError, r"call compile\(\) first"),
        (lambda: compiled().memory_plan(), RuntimeError, "no step was recorded"),
    ],
)
def test_wrong_use(use, error, message):
    with pytest.raises(error, match=message):
        use()


def test_failure_leaves_the_model_usable():
    net = compiled()
    with pytest.raises(ValueError, match=r"\(5, 3, 6, 6\)") as caught:
        net(image(5, 3, 6, 6), LABELS)
    assert "in layer conv (Conv2d)" in caught.value.__notes__
    with pytest.raises(IndexError, match="index 9 at position 0"):
        net(image(5, 2, 6, 6), tensor.from_numpy(np.full(5, 9, np.int32)))[1].numpy()
    assert np.isfinite(float(net(image(5, 2, 6, 6), LABELS)[1]))


def test_a_forgotten_mode_is_named():
    net = compiled()
    with pytest.raises(TypeError, match=r"'y': the model is in training mode; call eval\(\) first"):
        net(image(5, 2, 6, 6))
    net.graph()
    with pytest.raises(TypeError, match=r"call eval\(\) first"):
        net(image(5, 2, 6, 6))
    net.eval()
    with pytest.raises(TypeError, match=r"given: the model is in inference mode; call train\(\)"):
        net(image(5, 2, 6, 6), LABELS)
    with pytest.raises(TypeError, match=r"call train\(\) first"):
        net(image(5, 2, 6, 6), y=LABELS)
    with pytest.raises(TypeError) as caught:  # which neither mode takes
        net(image(5, 2, 6, 6), LABELS, LABELS)
    assert "mode" not in str(caught.value)


def test_a_model_without_training_step_names_the_mode():
    class Only(model.Model):
        def forward(self, x):
            return autograd.relu(x)

    net = Only()
    with pytest.raises(NotImplementedError, match=r"call eval\(\) first"):
        net(image(2))
    net.eval()
    net(image(2))


def test_a_type_error_of_the_step_itself_stays():
    class Broken(Net):
        def train_one_batch(self, x, y):
            return self.forward(x, y)

    net = Broken()
    net.compile([image(5, 2, 6, 6)])
    with pytest.raises(TypeError) as caught:
        net(image(5, 2, 6, 6), LABELS)
    assert "mode" not in str(caught.value)


@pytest.mark.parametrize("use_graph", [False, True])
def test_arrays_are_taken_as_tensors(use_graph):
    images = RANDOM.standard_normal((5, 2, 6, 6))  # float64
    labels = LABELS.numpy().astype(np.int64)
    results = []
    for x, y in ((image(5, 2, 6, 6), LABELS), (images, labels)):
        RANDOM.bit_generator.state = np.random.default_rng(5).bit_generator.state
        singa.seed(1)
        net = Net()
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([x], use_graph=use_graph)
        net.drop.ratio = 0.0
        x = images if isinstance(x, np.ndarray) else tensor.from_numpy(images)
        losses = [float(net(x, y)[1]) for _ in range(3)] + [float(net(x, y=y)[1])]
        net.eval()
        results.append((losses, net(x).numpy().tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("use_graph", [False, True])
def test_arrays_of_float64_stay_so_in_a_network_of_float64(use_graph):
    x = RANDOM.standard_normal((4, 3))
    y = x.sum(1, keepdims=True) + 1e-12 * np.arange(4)[:, None]
    net = models.Sequential(layer.Linear(1), loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([tensor.Tensor((4, 3), dtype="float64")], use_graph=use_graph)
    for name, p in net.get_params().items():
        p.set_value(1.0 if name.endswith("W") else 0.0)
    _, loss = net(x, y)
    assert loss.dtype == tensor.float64
    np.testing.assert_allclose(float(loss), np.mean((1e-12 * np.arange(4)) ** 2), rtol=1e-2)
    net.eval()
    np.testing.assert_allclose(net(x).numpy(), x.sum(1, keepdims=True), rtol=0, atol=1e-11)


@pytest.mark.parametrize("options", [{}, {"use_graph": True}, {"dtype": "bfloat16"}], ids=str)
def test_a_direct_training_step_is_a_call(options):
    """SINGA's metaclass records `net.train_one_batch(x, y)`, too."""

    class Seen(Net):
        not_settings = ("seen",)

    x, y = image(5, 2, 6, 6), LABELS.numpy()
    found = []
    for direct in (False, True):
        singa.seed(1)
        net = Seen()
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        net.compile([x], **options)
        step = net.train_one_batch if direct else net
        losses = [float(step(x, y)[1]) for _ in range(5)]
        found.append((losses, len(net.seen), states_of(net)))
        if options.get("use_graph"):
            assert len(graphs(net)) == 1
    assert found[0][:2] == found[1][:2]
    assert_same(found[0][2], found[1][2])
    net.eval()
    with pytest.raises(RuntimeError, match=r"train\(\)"):  # without a tape
        net.train_one_batch(x, LABELS)


def test_a_training_step_of_another_class_stays_its_own():
    class Warm(Net):
        def train_one_batch(self, x, y):
            out, loss = super().train_one_batch(x, y)
            return out, loss * 3.0

        def warm_up(self, x, y):
            return super().train_one_batch(x, y)

    singa.seed(1)
    net, x = Warm(), image(5, 2, 6, 6)
    net.drop.ratio = 0.0
    net.set_optimizer(opt.SGD(lr=0.0))
    net.compile([x], use_graph=True)
    alone = float(net.warm_up(x, LABELS)[1])
    for _ in range(4):
        assert float(net.train_one_batch(x, LABELS)[1]) == pytest.approx(3 * alone, rel=1e-6)


def test_arrays_in_lists_are_taken_and_lists_of_others_stay():
    class Both(model.Model):
        def forward(self, xs, notes):
            notes.append(type(xs[0]).__name__)
            return autograd.add(*xs)

    net, notes = Both(), []
    net.eval()
    assert net([np.ones(2), np.ones(2)], notes).numpy().tolist() == [2, 2]
    assert notes == ["Tensor"]


# --- summary


def test_inputs_may_be_lists():
    class Steps(model.Model):
        def __init__(self):
            super().__init__()
            self.rnn = layer.RNN(3, 4)

        def forward(self, xs, h):
            return self.rnn(xs, h)[1]

    net = Steps()
    net.compile([[image(2, 3), image(2, 3)], image(2, 4)], is_train=False)
    assert net.rnn.Wx.shape == (3, 4)
    summary = net.summary(io.StringIO())
    assert [row.output for row in summary.rows] == ["(2, 4), (2, 4), (2, 4)"]
    assert summary.params == 3 * 4 + 4 * 4 + 4
    with pytest.raises(TypeError, match="expected tensors, got int"):
        net.compile([[image(2, 3), 1], image(2, 4)])


def test_summary():
    net, text = compiled(), io.StringIO()
    before = states_of(net)
    summary = net.summary(text)
    assert text.getvalue().splitlines() == [
        "layer  type         output        parameters",
        "--------------------------------------------",
        "conv   Conv2d       (5, 4, 4, 4)          72",
        "bn     BatchNorm2d  (5, 4, 4, 4)           8",
        "drop   Dropout      (5, 64)                0",
        "fc     Linear       (5, 3)               195",
        "--------------------------------------------",
        "Net: 275 parameters; 8 more values of state",
    ]
    assert (summary.params, summary.trainable, summary.states) == (275, 275, 8)
    assert_same(states_of(net), before)
    net.fc.freeze()
    assert "195 of them frozen" in str(net.summary(io.StringIO()))


def test_a_summary_has_80_columns():
    class Deep(model.Model):
        def __init__(self):
            super().__init__()
            self.blocks_with_a_long_name = layer.Sequential(
                layer.Sequential(layer.Linear(3), layer.Linear(3)), layer.RNN(3, 4)
            )
            self.another_long_name_of_a_layer_that_has_more_than_fifty_letters = layer.Linear(2)

        def forward(self, xs, h):
            first, rnn = self.blocks_with_a_long_name
            hs, _ = rnn([first(x) for x in xs], h)
            return self.another_long_name_of_a_layer_that_has_more_than_fifty_letters(hs[0])

    net = Deep()
    net.compile([[image(2, 3), image(2, 3)], image(2, 4)], is_train=False)
    summary = net.summary(io.StringIO())
    lines = str(summary).splitlines()
    assert max(map(len, lines)) == 80
    for line, row in zip(lines[2:-2], summary.rows, strict=True):
        assert line.endswith(f" {row.params:,}")
    assert re.match(r"…\w*more_than_fifty_letters  Linear ", lines[-3])
    assert summary.rows[-1].name == "another_long_name_of_a_layer_that_has_more_than_fifty_letters"


# --- state files

FORMATS = ["a.zip", "a.npz", "a.safetensors", "without_suffix"]


@pytest.mark.parametrize("name", FORMATS)
def test_saved_and_loaded(tmp_path, name):
    net, twin = compiled(), compiled()
    net(image(5, 2, 6, 6), LABELS)
    aux = {
        "epoch": 3,
        "moments": tensor.from_numpy(np.arange(4, dtype=np.float32)),
        "table": np.eye(2, dtype=np.float32),
    }
    net.save_states(tmp_path / name, aux)
    back = twin.load_states(tmp_path / name)
    assert_same(states_of(twin), states_of(net))
    assert back.keys() == aux.keys()
    assert int(back["epoch"].numpy()) == 3
    np.testing.assert_array_equal(back["moments"].numpy(), np.arange(4))
    np.testing.assert_array_equal(back["table"].numpy(), np.eye(2))
    net.save_states(tmp_path / name)  # replaces the old file
    assert twin.load_states(str(tmp_path / name)) == {}
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_zip_is_as_singa_writes_it(tmp_path):
    net = compiled()
    net.save_states(tmp_path / "a.zip", {"lr": np.float32(0.5)})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert set(archive.namelist()) == {"tensor_dict.npz", "states_attr.json"}
        attributes = json.loads(archive.read("states_attr.json"))
        arrays = np.load(io.BytesIO(archive.read("tensor_dict.npz")))
        assert attributes["conv.W"] == {"state_type": 0, "shape": [4, 2, 3, 3], "dtype": 0}
        assert attributes["lr"]["state_type"] == 1
        np.testing.assert_array_equal(arrays["conv.W"], net.conv.W.numpy())


def test_zip_of_singa_is_read(tmp_path):
    # As SINGA writes it: numpy.savez, and json.dump with lists.
    net = compiled()
    values = {
        name: np.full(v.shape, i, np.float32) for i, (name, v) in enumerate(states_of(net).items())
    }
    values["epoch"] = np.array([7], np.int32)
    np.savez(tmp_path / "tensor_dict.npz", **values)
    attributes = {
        name: {"state_type": int(name == "epoch"), "shape": list(v.shape), "dtype": 0}
        for name, v in values.items()
    }
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "tensor_dict.npz", "tensor_dict.npz")
        archive.writestr("states_attr.json", json.dumps(attributes))
    aux = net.load_states(tmp_path / "b.zip")
    assert int(aux["epoch"].numpy()[0]) == 7
    for name, value in states_of(net).items():
        np.testing.assert_array_equal(value, values[name])


def test_npz_is_numpys(tmp_path):
    net = compiled()
    net.save_states(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as arrays:
        assert_same({name: arrays[name] for name in arrays.files}, states_of(net))
    fortran = {name: np.asfortranarray(value) for name, value in states_of(net).items()}
    np.savez_compressed(tmp_path / "b.npz", **fortran)
    twin = compiled()
    twin.load_states(tmp_path / "b.npz")
    assert_same(states_of(twin), states_of(net))


@pytest.mark.parametrize("dtype", [">f4", "<f8", ">i2", "?", "u1"])
def test_auxiliary_arrays_of_any_byte_order(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    aux = {"a": np.arange(6).reshape(2, 3).astype(dtype).T, "none": np.zeros((0, 2), dtype)}
    state_files.save_states(path, {}, aux, {})
    found = state_files.load_states(path)[1]
    assert found.keys() == aux.keys()
    for name, value in aux.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_damaged_tensor_in_safetensors(tmp_path):
    net = compiled()
    path = tmp_path / "a.safetensors"
    net.save_states(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = states_of(net)
    with pytest.raises(ValueError, match=r"a\.safetensors: .*checksum"):
        net.load_states(path)
    assert_same(states_of(net), before)


def test_safetensors_is_read_by_its_own_library(tmp_path):
    from safetensors.numpy import load_file

    net = compiled()
    net.save_states(tmp_path / "a.safetensors")
    assert_same(load_file(tmp_path / "a.safetensors"), states_of(net))


def test_states_that_do_not_fit_are_listed(tmp_path):
    net = compiled()
    before = states_of(net)
    other = {name: value for name, value in before.items() if name != "fc.b"}
    other["fc.W"] = np.zeros((64, 4), np.float32)
    other["fc.c"] = np.zeros(1, np.float32)
    np.savez(tmp_path / "a.npz", **other)
    with pytest.raises(ValueError, match="does not fit the model") as caught:
        net.load_states(tmp_path / "a.npz")
    message = str(caught.value)
    assert "missing: fc.b" in message
    assert "unexpected: fc.c" in message
    assert "fc.W is (64, 4) instead of (64, 3)" in message
    assert "a.npz" in message
    assert_same(states_of(net), before)


def npy(array, claim=None, **kwargs):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **kwargs)
    data = stream.getvalue()
    if claim:
        data = data.replace(str(array.shape).encode(), claim.encode().ljust(len(str(array.shape))))
    return data


def archive_of(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "."), data)
    return stream.getvalue()


def safetensors_of(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("a file of states was executed",))


HOSTILE = {
    "empty": b"",
    "text": b"not a file of states",
    "huge header": struct.pack("<Q", 1 << 60) + b"{}",
    "no zip after all": b"PK\x03\x04 and nothing else",
    "pickled objects": archive_of(x__npy=npy(np.array([Boom()], object), allow_pickle=True)),
    "shape without data": archive_of(x__npy=npy(np.zeros((10, 10)), "(9999999999,)")),
    "negative shape": archive_of(x__npy=npy(np.zeros((10, 10)), "(-10, 10)")),
    "no array": archive_of(x__npy=b"\x93NUMPY\x01\x00"),
    "header that is code": archive_of(
        x__npy=b"\x93NUMPY\x01\x00" + struct.pack("<H", 30) + b"__import__('os').abort()".ljust(30)
    ),
    "program in a zip": archive_of(x__py=b"print()"),
    "attributes without arrays": archive_of(states_attr__json=b"{}"),
    "attributes of another kind": archive_of(
        states_attr__json=b"[1, 2]", tensor_dict__npz=archive_of()
    ),
    "attributes nested deep": archive_of(
        states_attr__json=b"[" * 100_000, tensor_dict__npz=archive_of()
    ),
    "offsets outside": safetensors_of(
        {"x": {"dtype": "F32", "shape": [100], "data_offsets": [0, 400]}}, b"1234"
    ),
    "offsets that overflow": safetensors_of(
        {"x": {"dtype": "F32", "shape": [1 << 62, 8], "data_offsets": [0, 4]}}, b"1234"
    ),
    "unknown type": safetensors_of(
        {"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, b"1234"
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files(tmp_path, kind):
    net = compiled()
    before = states_of(net)
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(ValueError, match="hostile"):
        net.load_states(path)
    assert_same(states_of(net), before)


@pytest.mark.parametrize("name", ["a.zip", "a.npz", "a.safetensors"])
def test_truncated_and_flipped_files(tmp_path, name):
    net = compiled()
    net.save_states(tmp_path / name, {"epoch": 1})
    data, before = (tmp_path / name).read_bytes(), states_of(net)
    for length in (0, 3, 10, len(data) // 3, len(data) // 2, len(data) - 30, len(data) - 1):
        (tmp_path / "broken").write_bytes(data[:length])
        with pytest.raises(ValueError, match="broken"):
            net.load_states(tmp_path / "broken")
    flips = np.random.default_rng(0).integers(0, len(data), 60)
    for place in flips:
        flipped = bytearray(data)
        flipped[place] ^= 0x55
        (tmp_path / "broken").write_bytes(flipped)
        refused = ""
        try:
            net.load_states(tmp_path / "broken")  # some flips do no harm
        except ValueError as error:
            refused = str(error)
        if refused:
            assert "broken" in refused
            assert_same(states_of(net), before)
        net.set_states(before)


def test_missing_file_and_wrong_aux(tmp_path):
    net = compiled()
    with pytest.raises(FileNotFoundError):
        net.load_states(tmp_path / "nowhere.zip")
    with pytest.raises(TypeError, match="aux state a: expected numbers"):
        net.save_states(tmp_path / "a.zip", {"a": "text"})
    with pytest.raises(ValueError, match=r"names of the model: \['conv.W'\]"):
        net.save_states(tmp_path / "a.zip", {"conv.W": 3})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS[:3])
def test_bfloat16_goes_through_files(tmp_path, name):
    net = compiled()
    net.fc.W.to_type(tensor.bfloat16)
    net.fc.b.to_type(tensor.bfloat16)
    net.save_states(tmp_path / name)
    before = states_of(net)
    net.fc.W.set_value(0.0)
    net.load_states(tmp_path / name)
    assert net.fc.W.dtype == tensor.bfloat16
    assert_same(states_of(net), before)


# --- PyTorch's weights


def test_load_torch_from_state_dict_and_file(torch, tmp_path):
    from safetensors.torch import save_file

    theirs = torch.nn.ModuleDict(
        {
            "conv": torch.nn.Conv2d(2, 4, 3, bias=False),
            "bn": torch.nn.BatchNorm2d(4),
            "fc": torch.nn.Linear(64, 3),
        }
    ).eval()
    theirs["bn"].running_mean.uniform_(-1, 1)
    theirs["bn"].running_var.uniform_(0.5, 2)
    net = compiled(is_train=False)
    x = RANDOM.standard_normal((3, 2, 6, 6)).astype(np.float32)
    with torch.no_grad():
        hidden = torch.relu(theirs["bn"](theirs["conv"](torch.from_numpy(x))))
        expected = theirs["fc"](hidden.flatten(1)).numpy()
    save_file(theirs.state_dict(), tmp_path / "torch.safetensors")
    for source in (theirs.state_dict(), tmp_path / "torch.safetensors"):
        for param in net.get_params().values():
            param.set_value(0.0)
        net.load_torch(source)
        np.testing.assert_allclose(
            net(tensor.from_numpy(x)).numpy(), expected, rtol=1e-4, atol=1e-5
        )
    state = theirs.bfloat16().state_dict()
    save_file(state, tmp_path / "half.safetensors")
    net.load_torch(tmp_path / "half.safetensors")
    np.testing.assert_array_equal(net.fc.b.numpy(), state["fc.bias"].float().numpy())


@pytest.mark.parametrize("dtype", [">f4", "u2", np.longdouble])
def test_load_torch_of_any_type_and_byte_order(dtype):
    net, names = compiled(), {"W": "weight", "b": "bias", "scale": "weight"}
    state = {}
    for name, own in net.get_states().items():
        place, _, last = name.rpartition(".")
        value = np.arange(own.size(), dtype=dtype).reshape(own.shape)
        state[f"{place}.{names.get(last, last)}"] = value.T if name == "fc.W" else value
    net.load_torch(state)
    for own in net.get_states().values():
        np.testing.assert_array_equal(own.numpy().ravel(), np.arange(own.size()))


def test_load_torch_that_does_not_fit():
    net = compiled()
    before = states_of(net)
    state = {
        "conv.weight": np.zeros((4, 2, 3, 3), np.float32),
        "fc.weight": np.zeros((3, 65), np.float32),
        "bn.num_batches_tracked": np.array(3),
        "head.weight": np.zeros(3),
    }
    with pytest.raises(ValueError, match="the state dict does not fit") as caught:
        net.load_torch(state)
    message = str(caught.value)
    assert "missing: bn.weight" in message
    assert "unexpected: head.weight" in message
    assert "fc.weight is (3, 65) instead of (3, 64)" in message  # PyTorch's order, as in the dict
    assert "num_batches_tracked" not in message
    assert_same(states_of(net), before)
    with pytest.raises(ValueError, match=r"expected a \.safetensors file"):
        net.load_torch("weights.pth")


def test_load_torch_of_a_matrix_with_other_axes():
    net = compiled()
    state = {"fc.weight": np.zeros((3, 64, 1, 1), np.float32)}
    with pytest.raises(ValueError, match=r"fc.weight is \(3, 64, 1, 1\) instead of \(3, 64\)"):
        net.load_torch(state)


# --- copies


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copy_goes_on_to_the_same_bits(how):
    net = compiled()
    batches = [(image(5, 2, 6, 6), LABELS) for _ in range(4)]
    for batch in batches[:2]:
        net(*batch)
    twin = copy.deepcopy(net) if how == "deepcopy" else pickle.loads(pickle.dumps(net))
    device = singa.device.get_default_device()
    state = device.random_state()
    for batch in batches[2:]:
        net(*batch)
    device.set_random_state(state)
    for batch in batches[2:]:
        twin(*batch)
    assert_same(states_of(twin), states_of(net))
    moments = twin.optimizer.get_states()["moments"]
    assert_same(
        {name: value.numpy() for name, value in net.optimizer.get_states()["moments"].items()},
        {name: value.numpy() for name, value in moments.items()},
    )
    twin.eval()
    assert net.training

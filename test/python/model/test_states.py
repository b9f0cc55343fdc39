"""States of a Model: their files, valid, damaged and malicious, and PyTorch's weights."""

import io
import json
import struct
import zipfile

import numpy as np
import pytest
from arrays import RANDOM, image
from conv_net import LABELS, assert_same, compiled, states_of
from singa import tensor
from singa.files import state_files

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

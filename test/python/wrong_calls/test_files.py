"""Files that are missing, damaged or made to do harm: data sets, states, checkpoints."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from singa import data, layer, model, opt, replay_file, snapshot
from singa.training import checkpoint
from wrong_call import NAN, Row, check, make, parametrize

RECORD = 1 + 3 * 32 * 32


# What a file holds. Each function gets a folder and writes into it.


def cifar(name, content):
    """Loads CIFAR-10 from a folder with this one file."""

    def load(folder):
        (folder / name).write_bytes(content)
        data.load_cifar10(folder)

    return load


def checksum(folder):
    (folder / "data_batch_1.bin").write_bytes(bytes(RECORD))
    (folder / "SHA256SUMS").write_text("0" * 64 + "  data_batch_1.bin\n")
    data.load_cifar10(folder)


class Hostile:
    """Unpickled by the book, it would make a folder."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


def batch(**entries):
    """One batch in CIFAR's Python format."""
    images = np.zeros((2, RECORD - 1), np.uint8)
    return pickle.dumps(
        {b"data": images, b"labels": [0, 1]} | {k.encode(): v for k, v in entries.items()}
    )


def mnist(images, labels):
    def load(folder):
        (folder / "train-images-idx3-ubyte").write_bytes(images)
        (folder / "train-labels-idx1-ubyte").write_bytes(labels)
        data.load_mnist(folder)

    return load


IMAGE_HEAD = bytes((0, 0, 8, 3))
LABELS = bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + b"\3"


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.fc = layer.Linear(4)

    def forward(self, x):
        return self.fc(x)


def net():
    made = Net()
    made.compile([make(2, 3)], is_train=False)
    return made


def states(name, content):
    """Loads a file with this content as the states of a model, which stays as it is."""

    def load(folder):
        (folder / name).write_bytes(content)
        unchanged(lambda target: target.load_states(folder / name))

    return load


def unchanged(use):
    target = net()
    before = {name: value.numpy() for name, value in target.get_states().items()}
    try:
        use(target)
    finally:
        for name, value in target.get_states().items():
            np.testing.assert_array_equal(value.numpy(), before[name])


def safetensors(header, payload=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + payload


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


W, B = entry([3, 4], 0, 48), entry([4], 48, 64)
WHOLE = safetensors({"fc.W": W, "fc.b": B}, bytes(64))


def npy(array, allow_pickle=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return file.getvalue()


GOOD = {"fc.W.npy": npy(np.zeros((3, 4), np.float32)), "fc.b.npy": npy(np.zeros(4, np.float32))}
OBJECTS = npy(np.array([Hostile()], object), allow_pickle=True)


def announced(*shape):
    """The head of an array, without its data."""
    file = io.BytesIO()
    head = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()


def climbs():
    """A zip whose member would be written outside the folder, if members were written."""
    return npz(**GOOD, **{"../../harm.npy": npy(np.zeros(1, np.float32))})


def saved(folder, **progress):
    path = folder / "run.safetensors"
    checkpoint.save(path, net(), opt.SGD(0.1, momentum=0.9), **progress)
    return path


def truncated_checkpoint(folder):
    path = saved(folder)
    path.write_bytes(path.read_bytes()[:-5])
    unchanged(lambda target: checkpoint.load(path, target))


def foreign_checkpoint(folder):
    (folder / "weights.safetensors").write_bytes(WHOLE)
    unchanged(lambda target: checkpoint.load(folder / "weights.safetensors", target))


def other_optimizer(folder):
    unchanged(lambda target: checkpoint.load(saved(folder), target, opt.Adam(0.1)))


def other_model(folder):
    other = layer.Linear(7)
    other(make(2, 3))
    checkpoint.load(saved(folder), other)


def replay(content):
    def run(folder):
        (folder / "call.safetensors").write_bytes(content)
        replay_file.replay(folder / "call.safetensors")

    return run


def loader(**arguments):
    images, labels = np.ones((4, 3, 2, 2)), np.ones(4, int)
    return data.DataLoader((images, labels), **({"batch_size": 2} | arguments))


def pair(images, labels):
    return lambda folder: data.DataLoader((images, labels), 2)


IMAGES = np.ones((4, 3, 2, 2))

ROWS = [
    # data sets
    Row(
        "cifar: no folder",
        lambda f: data.load_cifar10(f / "no"),
        FileNotFoundError,
        r"\[cifar10\] the folder .*no does not exist",
    ),
    Row(
        "cifar: empty folder",
        lambda f: data.load_cifar10(f),
        FileNotFoundError,
        r"\[cifar10\].*data_batch_1",
    ),
    Row(
        "cifar: split",
        lambda f: data.load_cifar10(f, "val"),
        ValueError,
        r"\[cifar10\] split must be 'train' or 'test', got 'val'",
    ),
    Row(
        "cifar: format",
        lambda f: data.load_cifar10(f, format="xml"),
        ValueError,
        r"format must be 'binary' or 'python'",
    ),
    Row("cifar: None", lambda f: data.load_cifar10(None), TypeError, r"NoneType"),
    Row(
        "cifar: truncated",
        cifar("data_batch_1.bin", bytes(RECORD - 5)),
        ValueError,
        r"data_batch_1.bin.*3068",
    ),
    Row("cifar: no record", cifar("data_batch_1.bin", b""), ValueError, r"data_batch_1.bin"),
    Row(
        "cifar: a byte too many",
        cifar("data_batch_1.bin", bytes(RECORD + 1)),
        ValueError,
        r"data_batch_1.bin.*3074",
    ),
    Row(
        "cifar: label",
        cifar("data_batch_1.bin", b"\x0b" + bytes(RECORD - 1)),
        ValueError,
        r"label 11 of record 0 is out of range",
    ),
    Row("cifar: checksum", checksum, ValueError, r"data_batch_1.bin.*0000"),
    Row(
        "cifar: hostile pickle",
        cifar("data_batch_1", pickle.dumps(Hostile())),
        ValueError,
        r"data_batch_1.*mkdir",
    ),
    Row(
        "cifar: hostile entry",
        cifar("data_batch_1", batch(labels=[Hostile(), 1])),
        ValueError,
        r"data_batch_1.*mkdir",
    ),
    Row(
        "cifar: truncated pickle", cifar("data_batch_1", batch()[:-20]), ValueError, r"data_batch_1"
    ),
    Row("cifar: text", cifar("data_batch_1", b"hello"), ValueError, r"data_batch_1"),
    Row(
        "cifar: too few labels",
        cifar("data_batch_1", batch(labels=[1])),
        ValueError,
        r"data_batch_1",
    ),
    Row(
        "cifar: wrong width",
        cifar("data_batch_1", batch(data=np.zeros((2, 9), np.uint8))),
        ValueError,
        r"data_batch_1.*9",
    ),
    Row(
        "cifar: float pixels",
        cifar("data_batch_1", batch(data=np.zeros((2, RECORD - 1)))),
        ValueError,
        r"data_batch_1",
    ),
    Row(
        "mnist: no folder",
        lambda f: data.load_mnist(f / "no"),
        FileNotFoundError,
        r"\[mnist\] the folder",
    ),
    Row(
        "mnist: magic",
        mnist(b"\1\2\3\4" * 5, LABELS),
        ValueError,
        r"wrong magic number: found 01020304",
    ),
    Row(
        "mnist: truncated",
        mnist(IMAGE_HEAD + struct.pack(">III", 1, 28, 28) + bytes(700), LABELS),
        ValueError,
        r"truncated: found 700 bytes",
    ),
    Row(
        "mnist: announces 4 GB",
        mnist(IMAGE_HEAD + b"\xff" * 12, LABELS),
        ValueError,
        r"bytes of data announced",
    ),
    Row(
        "mnist: counts differ",
        mnist(IMAGE_HEAD + struct.pack(">III", 2, 1, 1) + bytes(2), LABELS),
        ValueError,
        r"holds 2 images",
    ),
    # loader and transforms
    Row(
        "loader: batch 0",
        lambda f: loader(batch_size=0),
        ValueError,
        r"\[DataLoader\] batch_size must be at least 1, got 0",
    ),
    Row(
        "loader: batch NaN",
        lambda f: loader(batch_size=NAN),
        TypeError,
        r"\[DataLoader\] batch_size must be an integer, got nan",
    ),
    Row(
        "loader: workers",
        lambda f: loader(num_workers=-1),
        ValueError,
        r"\[DataLoader\] num_workers must be at least 0",
    ),
    Row(
        "loader: prefetch",
        lambda f: loader(prefetch="2"),
        TypeError,
        r"\[DataLoader\] prefetch must be an integer",
    ),
    Row(
        "loader: epoch NaN",
        lambda f: loader().set_epoch(NAN),
        ValueError,
        r"\[DataLoader\] epoch must be a whole number",
    ),
    Row(
        "loader: epoch",
        lambda f: loader().set_epoch(-1),
        ValueError,
        r"\[DataLoader\] epoch must not be negative",
    ),
    Row(
        "loader: no state",
        lambda f: loader().load_state_dict({}),
        ValueError,
        r"\[DataLoader\] not a loader's state",
    ),
    Row(
        "loader: state of another",
        lambda f: loader().load_state_dict(loader(seed=3).state_dict()),
        ValueError,
        r"loader with seed 3, this one has 0",
    ),
    Row(
        "loader: transform",
        lambda f: loader(transform=5),
        TypeError,
        r"\[DataLoader\] transform cannot be called: 5",
    ),
    Row(
        "loader: transform's result",
        lambda f: next(iter(loader(transform=lambda x, r: x[0]))),
        ValueError,
        r"transform returned shape \(3, 2, 2\)",
    ),
    Row(
        "loader: None",
        lambda f: data.DataLoader(None, 2),
        TypeError,
        r"expected an ImageSet or \(images, labels\), got NoneType",
    ),
    Row(
        "loader: counts differ",
        pair(IMAGES, np.ones(5, int)),
        ValueError,
        r"got \(4, 3, 2, 2\) and \(5,\)",
    ),
    Row(
        "loader: rank",
        pair(np.ones((4, 3)), np.ones(4, int)),
        ValueError,
        r"expected images \(N, C, H, W\)",
    ),
    Row(
        "loader: float labels",
        pair(IMAGES, np.ones(4) / 2),
        TypeError,
        r"labels of integers, got float64 and float64",
    ),
    Row(
        "loader: huge labels",
        pair(IMAGES, np.full(4, 1 << 40)),
        ValueError,
        r"labels from 1099511627776 to 1099511627776 do not fit int32",
    ),
    Row(
        "crop: negative",
        lambda f: data.RandomCrop(-1),
        ValueError,
        r"\[RandomCrop\] padding must not be negative, got -1",
    ),
    Row(
        "crop: NaN",
        lambda f: data.RandomCrop(NAN),
        ValueError,
        r"\[RandomCrop\] padding must be a whole number, got nan",
    ),
    Row(
        "crop: text",
        lambda f: data.RandomCrop("a"),
        TypeError,
        r"\[RandomCrop\] padding must be an integer, got str",
    ),
    Row(
        "flip: 2",
        lambda f: data.RandomHorizontalFlip(2),
        ValueError,
        r"\[RandomHorizontalFlip\] p must lie in \[0, 1\], got 2",
    ),
    Row(
        "normalize: std 0",
        lambda f: data.Normalize((1,), (0,)),
        ValueError,
        r"\[Normalize\] mean must be finite and std positive",
    ),
    Row(
        "cutout: 0",
        lambda f: data.Cutout(0),
        ValueError,
        r"\[Cutout\] size must be at least 1, got 0",
    ),
    # states of models
    Row("states: no file", lambda f: net().load_states(f / "no.zip"), FileNotFoundError, r"no.zip"),
    Row("states: a folder", lambda f: net().load_states(f), OSError, r"director"),
    Row(
        "states: no folder to save in",
        lambda f: net().save_states(f / "no" / "a.zip"),
        FileNotFoundError,
        r"no",
    ),
    Row(
        "states: not compiled",
        lambda f: Net().save_states(f / "a.zip"),
        RuntimeError,
        r"\[save_states\] Net has no parameters yet",
    ),
    Row("states: empty file", states("a.zip", b""), ValueError, r"\[load_states\] .*a.zip"),
    Row(
        "states: text",
        states("a.npz", b"weights"),
        ValueError,
        r"\[load_states\] .*a.npz: not a readable file of states",
    ),
    Row(
        "safetensors: truncated",
        states("a.safetensors", WHOLE[:-5]),
        ValueError,
        r"\[load_states\] .*a.safetensors",
    ),
    Row(
        "safetensors: truncated header",
        states("a.safetensors", WHOLE[:20]),
        ValueError,
        r"\[load_states\] .*a.safetensors",
    ),
    Row(
        "safetensors: header longer than the file",
        states("a.safetensors", safetensors({"fc.W": W}, bytes(48), 1 << 20)),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: header of 2^63",
        states("a.safetensors", safetensors({"fc.W": W}, bytes(48), 1 << 63)),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: no JSON",
        states("a.safetensors", safetensors(b"{{{{", bytes(64))),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: overlap",
        states("a.safetensors", safetensors({"fc.W": W, "fc.b": entry([4], 40, 56)}, bytes(64))),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: backwards",
        states("a.safetensors", safetensors({"fc.W": entry([3, 4], 48, 0)}, bytes(48))),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: beyond the end",
        states(
            "a.safetensors", safetensors({"fc.W": W, "fc.b": entry([4], 48, 1 << 40)}, bytes(64))
        ),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: shape and bytes differ",
        states("a.safetensors", safetensors({"fc.W": entry([3, 5], 0, 48), "fc.b": B}, bytes(64))),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: 2^62 elements",
        states(
            "a.safetensors",
            safetensors({"fc.W": entry([1 << 31, 1 << 31], 0, 48), "fc.b": B}, bytes(64)),
        ),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: unknown type",
        states(
            "a.safetensors", safetensors({"fc.W": entry([3, 4], 0, 48, "Q7"), "fc.b": B}, bytes(64))
        ),
        ValueError,
        r"a.safetensors",
    ),
    Row(
        "safetensors: wrong shape",
        states("a.safetensors", safetensors({"fc.W": entry([4, 3], 0, 48), "fc.b": B}, bytes(64))),
        ValueError,
        r"wrong shape: fc.W is \(4, 3\) instead of \(3, 4\)",
    ),
    Row(
        "safetensors: missing name",
        states("a.safetensors", safetensors({"fc.W": W}, bytes(48))),
        ValueError,
        r"missing: fc.b",
    ),
    Row(
        "safetensors: unknown name",
        states("a.safetensors", safetensors({"fc.W": W, "fc.c": B}, bytes(64))),
        ValueError,
        r"missing: fc.b; unexpected: fc.c",
    ),
    Row(
        "zip: a member climbs out", states("a.npz", climbs()), ValueError, r"unexpected: ../../harm"
    ),
    Row(
        "zip: truncated",
        states("a.npz", npz(**GOOD)[:-30]),
        ValueError,
        r"a.npz: not a readable file of states",
    ),
    Row(
        "zip: flipped bytes",
        states("a.npz", npz(**GOOD).replace(bytes(48), bytes([7]) * 48)),
        ValueError,
        r"a.npz: not a readable file of states",
    ),
    Row(
        "zip: no array in it",
        states("a.zip", npz(**{"readme.txt": b"hello"})),
        ValueError,
        r"member 'readme.txt' is no array",
    ),
    Row(
        "npz: pickled objects",
        states("a.npz", npz(**{**GOOD, "fc.W.npy": OBJECTS})),
        ValueError,
        r"holds Python objects, which are not loaded",
    ),
    Row(
        "npz: announces 1 TiB",
        states("a.npz", npz(**{**GOOD, "fc.W.npy": announced(1 << 19, 1 << 19)})),
        ValueError,
        r"does not have the size of its shape",
    ),
    Row(
        "npz: wrong shape",
        states("a.npz", npz(**{**GOOD, "fc.b.npy": npy(np.zeros(5))})),
        ValueError,
        r"wrong shape: fc.b is \(5,\) instead of \(4,\)",
    ),
    Row(
        "npz: missing name",
        states("a.npz", npz(**{"fc.W.npy": GOOD["fc.W.npy"]})),
        ValueError,
        r"missing: fc.b",
    ),
    Row(
        "states: aux of no number",
        lambda f: net().save_states(f / "a.zip", {"a": object()}),
        TypeError,
        r"\[save_states\] aux state a: expected numbers",
    ),
    Row(
        "load_torch: pickle",
        lambda f: net().load_torch(f / "a.pth"),
        ValueError,
        r"\[load_torch\] .*a.pth: expected a .safetensors file",
    ),
    Row("load_torch: None", lambda f: net().load_torch(None), TypeError, r"NoneType"),
    Row(
        "load_torch: names",
        lambda f: net().load_torch({"a": np.ones(1)}),
        ValueError,
        r"missing: fc.weight, fc.bias; unexpected: a",
    ),
    Row(
        "load_torch: objects",
        lambda f: net().load_torch({"fc.weight": object(), "fc.bias": np.ones(4)}),
        TypeError,
        r"\[load_torch\] fc.weight: expected numbers",
    ),
    # checkpoints, snapshots, replay files
    Row(
        "checkpoint: no file", lambda f: checkpoint.load(f / "no", net()), FileNotFoundError, r"no"
    ),
    Row("checkpoint: truncated", truncated_checkpoint, ValueError, r"run.safetensors"),
    Row(
        "checkpoint: only weights",
        foreign_checkpoint,
        ValueError,
        r"\[checkpoint.load\] .*: no checkpoint of a training run",
    ),
    Row(
        "checkpoint: another optimizer",
        other_optimizer,
        ValueError,
        r"holds the state of SGD, not of Adam",
    ),
    Row("checkpoint: another model", other_model, ValueError, r"missing: W, b|wrong shape"),
    Row("checkpoint: progress", lambda f: saved(f, best=object()), TypeError, r"JSON"),
    Row(
        "snapshot: no file",
        lambda f: snapshot.Snapshot(f / "no", False),
        FileNotFoundError,
        r"\[Snapshot\] .*no.npz does not exist",
    ),
    Row(
        "snapshot: objects",
        lambda f: (
            (f / "a.npz").write_bytes(npz(**{"a.npy": OBJECTS})),
            snapshot.Snapshot(f / "a", False),
        ),
        ValueError,
        r"\[Snapshot\] .*a.npz cannot be read",
    ),
    Row(
        "replay: no file",
        lambda f: replay_file.replay(f / "no"),
        FileNotFoundError,
        r"No such file or directory: .*no",
    ),
    Row(
        "replay: other bytes",
        replay(b"hello\n"),
        ValueError,
        r"\[replay\] .*call.safetensors is no replay file: ",
    ),
    Row(
        "replay: damaged head",
        replay(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"),
        ValueError,
        r"\[replay\] .*call.safetensors is no replay file: ",
    ),
    Row(
        "replay: another safetensors file",
        replay(b"\x02\0\0\0\0\0\0\0{}"),
        ValueError,
        r"\[replay\] the file is no replay file of this version .*call.safetensors",
    ),
]


@parametrize(ROWS)
def test_wrong_file(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(row, tmp_path)
    assert not (tmp_path / "harm").exists()
    assert not (tmp_path.parent / "harm.npy").exists()


@pytest.mark.parametrize("kind", [opt.SGD(0.1), opt.Adam(0.1)], ids=["SGD", "Adam"])
def test_the_files_that_the_rows_damage_are_read_when_whole(tmp_path, kind):
    for name, content in (("a.safetensors", WHOLE), ("a.npz", npz(**GOOD))):
        (tmp_path / name).write_bytes(content)
        target = net()
        target.load_states(tmp_path / name)
        assert not target.fc.W.numpy().any()
    (tmp_path / "data_batch_1").write_bytes(batch())
    assert len(data.load_cifar10(tmp_path)) == 2
    path = tmp_path / "run.safetensors"
    checkpoint.save(path, net(), kind, best=1.5)
    assert checkpoint.load(path, net(), kind) == {"best": 1.5}

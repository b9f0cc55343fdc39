"""Missing, damaged and malicious files: data sets, states, checkpoints."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from singa import data, layer, opt, snapshot
from singa.files import replay_file
from singa.training import checkpoint
from wrong_call import make, net, table


@pytest.fixture(autouse=True)
def _nothing_is_done():
    """Calls run in an empty folder (test/python/conftest.py)."""
    yield
    for folder in (".", "..", "../.."):
        assert not Path(folder, "harm").exists()
        assert not Path(folder, "harm.npy").exists()


# Functions that write a file and read it back.

RNG = np.random.default_rng(0)
RECORD = 1 + 3 * 32 * 32
IMAGES = np.ones((4, 3, 2, 2))


def cifar(name, content):
    Path(name).write_bytes(content)
    data.load_cifar10(Path())


def checksum():
    Path("SHA256SUMS").write_text("0" * 64 + "  data_batch_1.bin\n")
    cifar("data_batch_1.bin", bytes(RECORD))


class Hostile:
    """Python's pickle would create a folder for it."""

    def __reduce__(self):
        return os.mkdir, ("harm",)


def batch(**entries):
    """One batch in CIFAR's Python format."""
    images = np.zeros((2, RECORD - 1), np.uint8)
    return pickle.dumps(
        {b"data": images, b"labels": [0, 1]} | {k.encode(): v for k, v in entries.items()}
    )


def mnist(images):
    Path("train-images-idx3-ubyte").write_bytes(images)
    Path("train-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + b"\3")
    data.load_mnist(Path())


def image_head(*extents):
    return bytes((0, 0, 8, 3)) + struct.pack(">III", *extents)


def loader(**arguments):
    return data.DataLoader((IMAGES, np.ones(4, int)), **({"batch_size": 2} | arguments))


def states(name, content):
    """Loads a file with this content as states of a model, which must not change."""
    Path(name).write_bytes(content)
    unchanged(lambda target: target.load_states(Path(name)))


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


def tensors(*file):
    states("a.safetensors", safetensors(*file))


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
            archive.writestr(name, content)
    return file.getvalue()


GOOD = {"fc.W.npy": npy(np.zeros((3, 4), np.float32)), "fc.b.npy": npy(np.zeros(4, np.float32))}
OBJECTS = npy(np.array([Hostile()], object), allow_pickle=True)
# A member with a path outside of the folder.
CLIMBS = {"../../harm.npy": npy(np.zeros(1, np.float32))}


def announced(*shape):
    """The header of an array, without data."""
    file = io.BytesIO()
    head = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()


def saved(**progress):
    checkpoint.save(Path("run.safetensors"), net(), opt.SGD(0.1, momentum=0.9), **progress)
    return Path("run.safetensors")


def truncated_checkpoint():
    path = saved()
    path.write_bytes(path.read_bytes()[:-5])
    unchanged(lambda target: checkpoint.load(path, target))


def foreign_checkpoint():
    Path("weights.safetensors").write_bytes(WHOLE)
    unchanged(lambda target: checkpoint.load(Path("weights.safetensors"), target))


def other_optimizer():
    unchanged(lambda target: checkpoint.load(saved(), target, opt.Adam(0.1)))


def other_model():
    other = layer.Linear(7)
    other(make(2, 3))
    checkpoint.load(saved(), other)


def snapshot_of(content):
    Path("a.npz").write_bytes(content)
    snapshot.Snapshot(Path("a"), False)


def replay(content):
    Path("call.safetensors").write_bytes(content)
    replay_file.replay(Path("call.safetensors"))


test_wrong_call = table(r"""
# Data sets.
data.load_cifar10(Path("no")) -> FileNotFoundError: [cifar10] no
data.load_cifar10(Path()) -> FileNotFoundError: [cifar10] data_batch_1
data.load_cifar10(Path(), "val") -> ValueError: [cifar10] val
data.load_cifar10(Path(), format="xml") -> ValueError: format xml
data.load_cifar10(None) -> TypeError: NoneType
cifar("data_batch_1.bin", bytes(RECORD - 5)) -> ValueError: data_batch_1.bin CIFAR 3068
cifar("data_batch_1.bin", b"") -> ValueError: data_batch_1.bin
cifar("data_batch_1.bin", bytes(RECORD + 1)) -> ValueError: data_batch_1.bin CIFAR 3074
cifar("data_batch_1.bin", b"\x0b" + bytes(RECORD - 1)) -> ValueError: data_batch_1.bin label 11 0
checksum()
    -> ValueError: data_batch_1.bin 0000000000000000000000000000000000000000000000000000000000000000
cifar("data_batch_1", pickle.dumps(Hostile())) -> ValueError: data_batch_1 posix.mkdir
cifar("data_batch_1", batch(labels=[Hostile(), 1])) -> ValueError: data_batch_1 posix.mkdir
cifar("data_batch_1", batch()[:-20]) -> ValueError: data_batch_1
cifar("data_batch_1", b"hello") -> ValueError: data_batch_1
cifar("data_batch_1", batch(labels=[1])) -> ValueError: data_batch_1 labels (1,) (2,)
cifar("data_batch_1", batch(data=np.zeros((2, 9), np.uint8)))
    -> ValueError: data_batch_1 'data' (2, 9)
cifar("data_batch_1", batch(data=np.zeros((2, RECORD - 1))))
    -> ValueError: data_batch_1 'data' bytes
data.load_mnist(Path("no")) -> FileNotFoundError: [mnist] no
mnist(b"\1\2\3\4" * 5) -> ValueError: train-images-idx3-ubyte 01020304
mnist(image_head(1, 28, 28) + bytes(700)) -> ValueError: train-images-idx3-ubyte 700 784 (1, 28, 28)
mnist(image_head(*[(1 << 32) - 1] * 3))
    -> ValueError: train-images-idx3-ubyte (4294967295, 4294967295, 4294967295)
mnist(image_head(2, 1, 1) + bytes(2))
    -> ValueError: train-images-idx3-ubyte 2 images train-labels-idx1-ubyte 1 labels
# Loader and transforms.
loader(batch_size=0) -> ValueError: [DataLoader] batch_size 1 0
loader(batch_size=NAN) -> TypeError: [DataLoader] batch_size nan
loader(num_workers=-1) -> ValueError: [DataLoader] num_workers 0 -1
loader(prefetch="2") -> TypeError: [DataLoader] prefetch 2
loader().set_epoch(NAN) -> ValueError: [DataLoader] epoch nan
loader().set_epoch(-1) -> ValueError: [DataLoader] epoch -1
loader().load_state_dict({}) -> ValueError: [DataLoader] 'epoch'
loader().load_state_dict(loader(seed=3).state_dict()) -> ValueError: [DataLoader] seed 3 0
loader(transform=5) -> TypeError: [DataLoader] transform 5
next(iter(loader(transform=lambda x, r: x[0]))) -> ValueError: transform (3, 2, 2) 2 (N, C, H, W)
data.DataLoader(None, 2) -> TypeError: ImageSet (images, labels) NoneType
data.DataLoader((IMAGES, np.ones(5, int)), 2) -> ValueError: (4, 3, 2, 2) (5,)
data.DataLoader((np.ones((4, 3)), np.ones(4, int)), 2)
    -> ValueError: (N, C, H, W) labels (N,) (4, 3) (4,)
data.DataLoader((IMAGES, np.ones(4) / 2), 2) -> TypeError: labels float64 float64
data.DataLoader((IMAGES, np.full(4, BIG)), 2)
    -> ValueError: labels 1099511627776 1099511627776 int32
data.RandomCrop(-1) -> ValueError: [RandomCrop] padding -1
data.RandomCrop(NAN) -> ValueError: [RandomCrop] padding nan
data.RandomCrop("a") -> TypeError: [RandomCrop] padding str
data.RandomHorizontalFlip(2) -> ValueError: [RandomHorizontalFlip] p [0, 1] 2
data.Normalize((1,), (0,)) -> ValueError: [Normalize] mean std (1,) (0,)
data.Cutout(0) -> ValueError: [Cutout] size 1 0
data.RandomCrop(4, 0) -> ValueError: [RandomCrop] size 1 0
data.Resize(0) -> ValueError: [Resize] size 1 0
data.Resize((1, 2, 3)) -> ValueError: [Resize] size (height, width) (1, 2, 3)
data.Resize("a") -> TypeError: [Resize] size str
data.Resize(3, "cubic") -> ValueError: [Resize] interpolation nearest bilinear bicubic lanczos cubic
data.CenterCrop(0) -> ValueError: [CenterCrop] size 1 0
data.RandomRotation(-3) -> ValueError: [RandomRotation] degrees -3
data.RandomRotation((3, 1)) -> ValueError: [RandomRotation] degrees (3, 1)
data.RandomRotation(3, "lanczos") -> ValueError: [RandomRotation] interpolation bicubic lanczos
data.RandomResizedCrop(3, (0.5, 2.0)) -> ValueError: [RandomResizedCrop] scale 0 1 (0.5, 2.0)
data.RandomResizedCrop(3, ratio=(0, 1)) -> ValueError: [RandomResizedCrop] ratio (0, 1)
data.ColorJitter(hue=0.7) -> ValueError: [ColorJitter] hue -0.5 0.5
data.ColorJitter(contrast=-1) -> ValueError: [ColorJitter] contrast -1
data.ColorJitter("a") -> TypeError: [ColorJitter] brightness str
data.RandAugment(2, 31) -> ValueError: [RandAugment] magnitude [0, 31) 31
data.RandAugment(-1) -> ValueError: [RandAugment] num_ops -1
data.TrivialAugment(1) -> ValueError: [TrivialAugment] num_magnitude_bins 2 1
data.RandomErasing(2) -> ValueError: [RandomErasing] p [0, 1] 2
data.RandomErasing(value="noise") -> TypeError: [RandomErasing] value str
data.RandomVerticalFlip(2) -> ValueError: [RandomVerticalFlip] p [0, 1] 2
data.RandAugment()(np.zeros((1, 3, 5, 5)), RNG) -> TypeError: [RandAugment] uint8 float64 Normalize
data.Resize(3)(np.zeros((3, 5, 5)), RNG) -> ValueError: [Resize] (N, C, H, W) (3, 5, 5)
data.Resize(3).with_masks(np.zeros((1, 3, 5, 5)), np.zeros((1, 4, 5)), RNG)
    -> ValueError: [Resize] masks (N, H, W) (1, 3, 5, 5) (1, 4, 5)
data.training_transform(3, (0,), (1,), "auto")
    -> ValueError: [training_transform] augment standard trivial rand auto
data.evaluation_transform(3, (0,), (1,), 0) -> ValueError: [evaluation_transform] crop
data.ImageFolder("no", kind=1) -> TypeError: [ImageFolder] 'kind' csv classes cache task
data.ImageFolder("no", transform=1) -> TypeError: [ImageFolder] 'transform' DataLoader
data.ImageFolder("no", label_delim=" ") -> TypeError: [ImageFolder] 'label_delim' task='multilabel'
data.MaskFolder("no", transform=1) -> TypeError: [MaskFolder] 'transform' images masks
data.ImageFolder("no") -> FileNotFoundError: [ImageFolder] no
data.ImageFolder(".", task="both")
    -> ValueError: [ImageFolder] task classes multilabel regression 'both'
data.ImageFolder(".", task="regression") -> ValueError: [ImageFolder] task='regression' CSV
data.ImageFolder(".", channels=2) -> ValueError: [ImageFolder] channels 1 3 2
data.ImageFolder(".", shorter_side=0) -> ValueError: [ImageFolder] shorter_side 1 0
data.MaskFolder("no") -> FileNotFoundError: [MaskFolder] no/images
data.TarShards("no.tar") -> FileNotFoundError: [TarShards] no.tar
data.TarShards([]) -> FileNotFoundError: [TarShards]
data.TarShards("no.tar", buffer=0) -> ValueError: [TarShards] buffer 1 0
data.read_picture("no.png", 4) -> ValueError: [read_picture] channels 1 3 4
data.split_indices(np.ones(3), 20, 0) -> ValueError: [split] fraction [0, 1] 20
data.split_indices(np.ones(3), 0.2, -1) -> ValueError: [split] seed -1
loader(collate=5) -> TypeError: [DataLoader] collate 5
# States of models.
net().load_states(Path("no.zip")) -> FileNotFoundError: no.zip
net().load_states(Path()) -> OSError: directory
net().save_states(Path("no/a.zip")) -> FileNotFoundError: no/a.zip
net(compiled=False).save_states(Path("a.zip")) -> RuntimeError: [save_states] Net compile()
states("a.zip", b"") -> ValueError: [load_states] a.zip
states("a.npz", b"weights") -> ValueError: [load_states] a.npz
states("a.safetensors", WHOLE[:-5]) -> ValueError: [load_states] a.safetensors
states("a.safetensors", WHOLE[:20]) -> ValueError: [load_states] a.safetensors
# A header that is longer than the file, and no JSON.
tensors({"fc.W": W}, bytes(48), 1 << 20) -> ValueError: a.safetensors
tensors({"fc.W": W}, bytes(48), 1 << 63) -> ValueError: a.safetensors
tensors(b"{{{{", bytes(64)) -> ValueError: a.safetensors
# Data that overlap, run backwards, end beyond the file, or do not fit shape and type.
tensors({"fc.W": W, "fc.b": entry([4], 40, 56)}, bytes(64)) -> ValueError: a.safetensors
tensors({"fc.W": entry([3, 4], 48, 0)}, bytes(48)) -> ValueError: a.safetensors
tensors({"fc.W": W, "fc.b": entry([4], 48, BIG)}, bytes(64)) -> ValueError: a.safetensors
tensors({"fc.W": entry([3, 5], 0, 48), "fc.b": B}, bytes(64)) -> ValueError: a.safetensors
tensors({"fc.W": entry([1 << 31, 1 << 31], 0, 48), "fc.b": B}, bytes(64))
    -> ValueError: a.safetensors
tensors({"fc.W": entry([3, 4], 0, 48, "Q7"), "fc.b": B}, bytes(64)) -> ValueError: a.safetensors
# Another shape, names that are missing or unknown.
tensors({"fc.W": entry([4, 3], 0, 48), "fc.b": B}, bytes(64)) -> ValueError: fc.W (4, 3) (3, 4)
tensors({"fc.W": W}, bytes(48)) -> ValueError: a.safetensors missing: fc.b
tensors({"fc.W": W, "fc.c": B}, bytes(64)) -> ValueError: missing: fc.b unexpected: fc.c
# A member that climbs out, a file cut off, flipped bytes, other content.
states("a.npz", npz(**GOOD, **CLIMBS)) -> ValueError: a.npz unexpected: ../../harm
states("a.npz", npz(**GOOD)[:-30]) -> ValueError: a.npz
states("a.npz", npz(**GOOD).replace(bytes(48), bytes([7]) * 48)) -> ValueError: a.npz fc.W.npy
states("a.zip", npz(**{"readme.txt": b"hello"})) -> ValueError: a.zip 'readme.txt'
states("a.npz", npz(**{**GOOD, "fc.W.npy": OBJECTS})) -> ValueError: a.npz fc.W.npy objects
states("a.npz", npz(**{**GOOD, "fc.W.npy": announced(1 << 19, 1 << 19)}))
    -> ValueError: a.npz fc.W.npy (524288, 524288)
states("a.npz", npz(**{**GOOD, "fc.b.npy": npy(np.zeros(5))})) -> ValueError: a.npz fc.b (5,) (4,)
states("a.npz", npz(**{"fc.W.npy": GOOD["fc.W.npy"]})) -> ValueError: a.npz missing: fc.b
net().save_states(Path("a.zip"), {"a": object()}) -> TypeError: [save_states] a object
net().load_torch(Path("a.pth")) -> ValueError: [load_torch] a.pth
net().load_torch(None) -> TypeError: NoneType
net().load_torch({"a": np.ones(1)}) -> ValueError: missing: fc.weight fc.bias unexpected: a
net().load_torch({"fc.weight": object(), "fc.bias": np.ones(4)})
    -> TypeError: [load_torch] fc.weight object
# Checkpoints, snapshots, replay files.
checkpoint.load(Path("no"), net()) -> FileNotFoundError: 'no'
truncated_checkpoint() -> ValueError: run.safetensors
foreign_checkpoint() -> ValueError: [checkpoint.load] weights.safetensors
other_optimizer() -> ValueError: run.safetensors SGD Adam
other_model() -> ValueError: run.safetensors missing: W, b
saved(best=object()) -> TypeError: object JSON
snapshot.Snapshot(Path("no"), False) -> FileNotFoundError: [Snapshot] no.npz
snapshot_of(npz(**{"a.npy": OBJECTS})) -> ValueError: [Snapshot] a.npz
replay_file.replay(Path("no")) -> FileNotFoundError: no
replay(b"hello\n") -> ValueError: [replay] call.safetensors
replay(b"\xff\xff\xff\xff\xff\xff\xff\x7f{}") -> ValueError: [replay] call.safetensors
replay(b"\x02\x00\x00\x00\x00\x00\x00\x00{}") -> ValueError: [replay] call.safetensors
""")


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

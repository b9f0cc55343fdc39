"""CIFAR-10 and CIFAR-100 in both published formats: complete, partial and damaged files."""

import hashlib
import pickle

import file_formats
import numpy as np
import pytest
from singa.data import CIFAR10_CLASSES, cifar, load_cifar10, load_cifar100
from singa.data.integrity import Published

RECORD = 3073


@pytest.fixture
def folder(tmp_path):
    """Two binary training files of 5 and 3 records, and a test file of 4."""
    train, labels = file_formats.random_set(8)
    test, test_labels = file_formats.random_set(4, seed=1)
    (tmp_path / "data_batch_1.bin").write_bytes(file_formats.binary_records(train[:5], labels[:5]))
    (tmp_path / "data_batch_4.bin").write_bytes(file_formats.binary_records(train[5:], labels[5:]))
    (tmp_path / "test_batch.bin").write_bytes(file_formats.binary_records(test, test_labels))
    return tmp_path


def expect(result, images, labels):
    assert result.images.dtype == np.uint8
    assert result.labels.dtype == np.int32
    assert result.images.flags.c_contiguous
    np.testing.assert_array_equal(result.images, images)
    np.testing.assert_array_equal(result.labels, labels)


def test_binary(folder):
    train = load_cifar10(folder)
    expect(train, *file_formats.random_set(8))
    assert train.classes == CIFAR10_CLASSES
    assert train.name == "cifar10 train (8 of 50000)"
    expect(load_cifar10(str(folder), "test"), *file_formats.random_set(4, seed=1))


def test_pixels_lie_as_planes_of_rows(tmp_path):
    record = bytearray(RECORD)
    record[0] = 7
    record[1 + 1024 * 2 + 32 * 3 + 5] = 200  # blue, row 3, column 5
    (tmp_path / "data_batch_1.bin").write_bytes(record)
    train = load_cifar10(tmp_path)
    assert train.images[0, 2, 3, 5] == 200
    assert train.images.sum() == 200
    assert train.labels.tolist() == [7]


@pytest.mark.parametrize("writer", ["python 2", 0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("labels_as", ["list", "array"])
def test_python(tmp_path, writer, labels_as):
    images, labels = file_formats.random_set(6)
    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    flat = images.reshape(6, -1)
    if writer == "python 2":
        batch = {b"labels": labels.tolist(), b"data": flat, b"filenames": [b"a.png"] * 6}
        meta = {b"label_names": [f"n{i}".encode() for i in range(10)], b"num_vis": 3072}
        dump = file_formats.python2_pickle
    else:
        stored = labels.tolist() if labels_as == "list" else labels.astype(np.int64)
        batch, meta = (
            {"labels": stored, "data": flat},
            {"label_names": [f"n{i}" for i in range(10)]},
        )
        dump = lambda value: pickle.dumps(value, writer)  # noqa: E731
    (base / "data_batch_2").write_bytes(dump(batch))
    (base / "batches.meta").write_bytes(dump(meta))
    train = load_cifar10(tmp_path)
    expect(train, images, labels)
    assert train.classes == tuple(f"n{i}" for i in range(10))


def test_both_formats_of_cifar100(tmp_path):
    images, fine = file_formats.random_set(7, classes=100)
    coarse = fine % 20
    base = tmp_path / "cifar-100-binary"
    base.mkdir()
    (base / "train.bin").write_bytes(file_formats.binary_records(images, coarse, fine))
    (base / "fine_label_names.txt").write_text("".join(f"f{i}\n" for i in range(100)))
    expect(load_cifar100(tmp_path), images, fine)
    assert load_cifar100(tmp_path).classes[99] == "f99"
    expect(load_cifar100(tmp_path, coarse=True), images, coarse)
    assert len(load_cifar100(tmp_path, coarse=True).classes) == 20

    batch = {"fine_labels": fine.tolist(), "coarse_labels": coarse.tolist(),
             "data": images.reshape(7, -1)}  # fmt: skip
    (tmp_path / "test").write_bytes(pickle.dumps(batch))
    expect(load_cifar100(tmp_path, "test"), images, fine)
    expect(load_cifar100(tmp_path, "test", coarse=True), images, coarse)


def test_format_chooses_when_both_are_there(folder):
    images, labels = file_formats.random_set(3, seed=9)
    batch = {"labels": labels.tolist(), "data": images.reshape(3, -1)}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch))
    assert len(load_cifar10(folder)) == 8
    expect(load_cifar10(folder, format="python"), images, labels)
    with pytest.raises(ValueError, match="format must be"):
        load_cifar10(folder, format="matlab")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("data_batch_1.bin", lambda b: b[:-1], r"found 15364 bytes, expected a multiple of 3073"),
        (
            "data_batch_1.bin",
            lambda b: b + b"\0",
            r"found 15366 bytes, expected a multiple of 3073",
        ),
        ("data_batch_1.bin", lambda b: b"", r"found 0 bytes, expected .* from 3073 to 30730000"),
        ("data_batch_4.bin", lambda b: b"\x0a" + b[1:], r"label 10 of record 0 .* 0 to 9"),
        (
            "data_batch_4.bin",
            lambda b: b[:RECORD] + b"\xff" + b[RECORD + 1 :],
            r"label 255 of record 1 .* expected 0 to 9",
        ),
        ("data_batch_1.bin", lambda b: b"\x80\x02}q\x01.", r"found 6 bytes"),
        ("batches.meta.txt", lambda b: b"a\nb\n", r"found 2 class names, expected 10"),
        ("batches.meta.txt", lambda b: b"\0" * 70_000, r"70000 bytes, expected at most 65536"),
    ],
)
def test_damaged_binary_files(folder, name, change, message):
    path = folder / name
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    with pytest.raises(ValueError, match=message) as caught:
        load_cifar10(folder)
    assert str(path) in str(caught.value)
    assert str(caught.value).startswith("[cifar10] ")


def test_an_oversized_file_is_not_read(folder):
    with open(folder / "data_batch_1.bin", "wb") as file:
        file.truncate(200 * RECORD * 1_000_000)  # sparse
    with pytest.raises(ValueError, match="614600000000 bytes, expected at most 30730000"):
        load_cifar10(folder)


GOOD = {"labels": [1, 2], "data": np.zeros((2, 3072), np.uint8)}


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1, 2], "found a list, expected a dict"),
        ({}, "'data' is not an array of bytes"),
        (GOOD | {"data": [0] * 3072}, "'data' is not an array of bytes"),
        (GOOD | {"data": GOOD["data"].astype(np.float32)}, "'data' is not an array of bytes"),
        (GOOD | {"data": GOOD["data"][:, :-1]}, r"\(2, 3071\), expected \(1 to 10000, 3072\)"),
        (GOOD | {"data": GOOD["data"][:0], "labels": []}, r"\(0, 3072\), expected \(1 to 10000"),
        (GOOD | {"data": GOOD["data"].reshape(-1)}, r"\(6144,\), expected"),
        (GOOD | {"data": np.zeros((10_001, 3072), np.uint8)}, r"\(10001, 3072\), expected"),
        (GOOD | {"labels": [1]}, r"labels of shape \(1,\), expected \(2,\)"),
        (GOOD | {"labels": [1, 10]}, "label 10 of record 1 .* 0 to 9"),
        (GOOD | {"labels": [-1, 1]}, "label -1 of record 0 .* 0 to 9"),
        (GOOD | {"labels": [10**40, 1]}, "label 255 of record 0 .* 0 to 9"),
        (GOOD | {"labels": [1, "2"]}, "'labels' is not a list of integers"),
        (GOOD | {"labels": [1, True]}, "'labels' is not a list of integers"),
        (GOOD | {"labels": [1, [2]]}, "'labels' is not a list of integers"),
        (GOOD | {"labels": np.zeros(2)}, "'labels' is not a list of integers"),
        (GOOD | {"labels": np.array([1, 2**63], np.uint64)}, "label 9223372036854775808 of"),
        ({"data": GOOD["data"]}, "'labels' is not a list of integers"),
        ({"data": __import__("os").system, "labels": [1]}, "system' is refused"),
    ],
)
def test_damaged_python_files(tmp_path, batch, message):
    path = tmp_path / "data_batch_1"
    path.write_bytes(pickle.dumps(batch))
    with pytest.raises(ValueError, match=message) as caught:
        load_cifar10(tmp_path)
    assert str(path) in str(caught.value)


def test_truncated_python_file_names_its_size(tmp_path):
    content = pickle.dumps(GOOD)
    for size in (0, 1, 100, len(content) - 1):
        (tmp_path / "test_batch").write_bytes(content[:size])
        with pytest.raises(ValueError, match=rf"test_batch \({size} bytes\): not a readable"):
            load_cifar10(tmp_path, "test")


def test_what_is_not_there(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match=r"none of data_batch_1, .*data_batch_5"):
        load_cifar10(folder.parent / folder.name, "train", format="python")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"none of test_batch\.bin, test_batch"):
        load_cifar10(tmp_path / "empty", "test")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_cifar10(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="not a folder"):
        load_cifar10(folder / "test_batch.bin")
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'valid'"):
        load_cifar10(folder, "valid")
    (tmp_path / "odd" / "data_batch_1.bin").mkdir(parents=True)
    with pytest.raises(ValueError, match="not a regular file"):
        load_cifar10(tmp_path / "odd")


def test_a_file_with_the_published_size_must_be_the_published_one(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes(30_730_000))
    digest = hashlib.sha1(bytes(30_730_000)).hexdigest()
    with pytest.raises(ValueError, match=rf"damaged: found sha1 {digest}, expected aadd24ac"):
        load_cifar10(tmp_path)
    whole = load_cifar10(tmp_path, verify=False)
    assert whole.images.shape == (10_000, 3, 32, 32)
    path.write_bytes(bytes(30_730_000 - RECORD))  # the size is not the published one
    assert len(load_cifar10(tmp_path)) == 9_999


def test_the_right_published_file_is_accepted(folder, monkeypatch):
    content = (folder / "test_batch.bin").read_bytes()
    files = cifar._CIFAR10.formats["binary"].files["test"]
    published = Published(len(content), hashlib.sha1(content).hexdigest())
    monkeypatch.setitem(files, "test_batch.bin", published)
    assert len(load_cifar10(folder, "test")) == 4
    (folder / "test_batch.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"damaged.*published file of this name"):
        load_cifar10(folder, "test")


def test_every_published_file_has_a_digest_of_the_right_kind():
    for collection in (cifar._CIFAR10, cifar._CIFAR100):
        for kind, form in collection.formats.items():
            files = [item for split in form.files.values() for item in split.values()]
            assert {len(item.digest) for item in files} == {40 if kind == "binary" else 32}
            assert len({item.digest for item in files}) == len(files)
            assert len(form.archive.digest) == 32


def sums(folder, **changes):
    lines = []
    for path in sorted(folder.glob("*.bin")):
        digest = changes.get(path.stem) or hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.name}\n")
    (folder / "SHA256SUMS").write_text("".join(lines))


def test_sha256sums_is_honoured(folder):
    sums(folder)
    assert len(load_cifar10(folder)) == 8
    sums(folder, data_batch_4="0" * 64)
    with pytest.raises(ValueError, match=r"data_batch_4.bin .* expected 0{64} of SHA256SUMS"):
        load_cifar10(folder)
    assert len(load_cifar10(folder, verify=False)) == 8
    assert len(load_cifar10(folder, "test")) == 4  # the test file is undamaged
    (folder / "SHA256SUMS").write_text("\nnonsense\n")
    with pytest.raises(ValueError, match="SHA256SUMS, line 2"):
        load_cifar10(folder)


def test_channel_statistics_and_head(folder):
    train = load_cifar10(folder)
    mean, std = train.mean_std()
    pixels = train.images / 255.0
    np.testing.assert_allclose(mean, pixels.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std((0, 2, 3)), rtol=1e-12)
    expect(train.head(3), train.images[:3], train.labels[:3])
    assert len(train.head(100)) == 8
    with pytest.raises(ValueError, match="empty"):
        train.head(0).mean_std()

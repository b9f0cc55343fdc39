"""MNIST's IDX files, plain and gzipped."""

import gzip
import hashlib
import struct

import file_formats
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from singa.data import mnist
from singa.data.integrity import Published
from singa.data.mnist import load_mnist, read_idx


@pytest.fixture
def data():
    images, labels = file_formats.random_set(6, shape=(28, 28))
    return images, labels.astype(np.uint8)


@pytest.mark.parametrize(
    ("subfolder", "pattern"),
    [("", "{}-idx{}-ubyte"), ("", "{}-idx{}-ubyte.gz"), ("MNIST/raw", "{}.idx{}-ubyte"),
     ("raw", "{}.idx{}-ubyte.gz")],
)  # fmt: skip
def test_reads_all_spellings(tmp_path, data, subfolder, pattern):
    images, labels = data
    folder = tmp_path / subfolder
    file_formats.write(folder / pattern.format("t10k-images", 3), file_formats.idx_bytes(images))
    file_formats.write(folder / pattern.format("t10k-labels", 1), file_formats.idx_bytes(labels))
    test = load_mnist(tmp_path, "test")
    np.testing.assert_array_equal(test.images, images[:, None])
    np.testing.assert_array_equal(test.labels, labels)
    assert (test.images.dtype, test.labels.dtype) == (np.uint8, np.int32)
    assert test.classes == tuple("0123456789")
    with pytest.raises(FileNotFoundError, match="none of train-images-idx3-ubyte, "):
        load_mnist(tmp_path)


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b"", "wrong magic number: found , expected 00000803|truncated: found 0 bytes"),
        (lambda b: b[:3], "truncated: found 3 bytes, expected a header of 16"),
        (lambda b: b[:15], "truncated: found 15 bytes, expected a header of 16"),
        (lambda b: b"\x80\x02}q" + b[4:], "wrong magic number: found 80027d71, expected 00000803"),
        (lambda b: b"\0\0\x08\x01" + b[4:], "wrong magic number: found 00000801"),
        (lambda b: b"\0\0\x0d\x03" + b[4:], "wrong magic number: found 00000d03"),
        (lambda b: b[:-1], "truncated: found 4703 bytes of data, expected 4704"),
        (lambda b: b + b"\0", "too long: found more than 4704 bytes of data, expected 4704"),
        (lambda b: b[:4] + b"\xff" * 12 + b[16:], "expected at most 784000016"),
        (lambda b: b[:4] + struct.pack(">3I", 7, 28, 28) + b[16:], "expected 5488"),
    ],
)
def test_damaged_images(tmp_path, data, change, message, packed):
    images, labels = data
    path = tmp_path / f"train-images-idx3-ubyte{packed}"
    file_formats.write(path, change(file_formats.idx_bytes(images)))
    file_formats.write(tmp_path / "train-labels-idx1-ubyte", file_formats.idx_bytes(labels))
    with pytest.raises(ValueError, match=message) as caught:
        load_mnist(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, 2, 3, 4, 10], np.uint8), "label 10 of record 5 .* 0 to 9"),
        (np.zeros(5, np.uint8), "holds 6 images, .*labels-idx1-ubyte 5 labels"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, data, labels, message):
    file_formats.write(tmp_path / "train-images-idx3-ubyte", file_formats.idx_bytes(data[0]))
    file_formats.write(tmp_path / "train-labels-idx1-ubyte", file_formats.idx_bytes(labels))
    with pytest.raises(ValueError, match=message):
        load_mnist(tmp_path)


def test_no_images_and_wrong_arguments(tmp_path):
    file_formats.write(
        tmp_path / "train-images-idx3-ubyte", b"\0\0\x08\x03" + struct.pack(">3I", 0, 28, 28)
    )
    file_formats.write(tmp_path / "train-labels-idx1-ubyte", b"\0\0\x08\x01" + struct.pack(">I", 0))
    with pytest.raises(ValueError, match="holds no image"):
        load_mnist(tmp_path)
    with pytest.raises(ValueError, match="split must be"):
        load_mnist(tmp_path, "val")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_mnist(tmp_path / "nowhere")


def test_damaged_gzip(tmp_path, data):
    content = gzip.compress(file_formats.idx_bytes(data[0]), mtime=0)
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0x55
    path = tmp_path / "train-images-idx3-ubyte.gz"
    for damaged in (content[:-9], content[:100], b"not gzip at all!", bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged gzip file|truncated"):
            read_idx(path, 3)


def test_a_gzip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """At most one byte more than the header announces is unpacked."""
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 10) + bytes(50_000_000), 9))
    asked = []
    real = gzip.GzipFile.read
    monkeypatch.setattr(
        gzip.GzipFile, "read", lambda self, size=-1: (asked.append(size), real(self, size))[1]
    )
    with pytest.raises(ValueError, match="more than 10 bytes of data, expected 10"):
        read_idx(path, 1)
    assert asked == [8, 11]


def test_published_gzip_and_sha256sums(tmp_path, data, monkeypatch):
    path = file_formats.write(
        tmp_path / "t10k-labels-idx1-ubyte.gz", file_formats.idx_bytes(data[1])
    )
    content = path.read_bytes()
    right = Published(len(content), hashlib.md5(content).hexdigest())
    monkeypatch.setitem(mnist._PUBLISHED, path.name, right)
    np.testing.assert_array_equal(read_idx(path, 1), data[1])
    monkeypatch.setitem(mnist._PUBLISHED, path.name, Published(len(content), "0" * 32))
    with pytest.raises(ValueError, match="damaged: found md5"):
        read_idx(path, 1)
    np.testing.assert_array_equal(read_idx(path, 1, verify=False), data[1])
    monkeypatch.delitem(mnist._PUBLISHED, path.name)
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64} *{path.name}\n")
    with pytest.raises(ValueError, match="damaged: found sha256"):
        read_idx(path, 1)


@given(st.binary(max_size=40), st.booleans(), st.integers(1, 3))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_random_bytes_raise_valueerror_or_fit(tmp_path_factory, content, magic, dimensions):
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes((bytes((0, 0, 8, dimensions)) if magic else b"") + content)
    try:
        array = read_idx(path, dimensions)
    except ValueError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert array.size == path.stat().st_size - 4 - 4 * dimensions

"""Snapshot: named tensors in an .npz file."""

import struct
import zipfile

import numpy as np
import pytest
from singa.snapshot import Snapshot

VALUES = {
    "conv1.W": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "file": np.array(3.5),  # a name that numpy.savez cannot have
    "a/b.npy": np.zeros((0, 4), np.int32),
}


def test_writes_what_numpy_reads_when_it_is_closed(tmp_path):
    with Snapshot(str(tmp_path / "model"), True, 30) as snapshot:
        for name, value in VALUES.items():
            snapshot.write(name, value)
        assert list(tmp_path.iterdir()) == []
    snapshot.close()
    with np.load(tmp_path / "model.npz") as archive:
        assert [name.removesuffix(".npy") for name in archive.files] == ["conv1.W", "file", "a/b"]
        np.testing.assert_array_equal(archive["conv1.W"], VALUES["conv1.W"])


def test_a_value_is_taken_as_it_is_now(tmp_path):
    value = np.ones(3)
    snapshot = Snapshot(tmp_path / "a.npz", True)
    snapshot.write("x", value)
    value[:] = 2
    del snapshot  # old scripts do not call close()
    with np.load(tmp_path / "a.npz") as archive:
        assert archive["x"].tolist() == [1, 1, 1]


def test_an_exception_leaves_the_old_file(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), Snapshot(tmp_path / "a", True) as snapshot:
        snapshot.write("x", np.ones(3) / (1 // 0))
    assert (tmp_path / "a.npz").read_bytes() == b"old"


def test_reads_tensors_back_in_order(tmp_path):
    from singa import tensor

    with Snapshot(tmp_path / "a", True) as snapshot:
        snapshot.write("second", tensor.from_numpy(VALUES["conv1.W"]))
        snapshot.write("first", np.arange(3, dtype=np.int32))
    found = Snapshot(tmp_path / "a", False).read()
    assert type(found) is dict
    assert list(found) == ["second", "first"]
    np.testing.assert_array_equal(tensor.to_numpy(found["second"]), VALUES["conv1.W"])
    np.testing.assert_array_equal(tensor.to_numpy(found["first"]), [0, 1, 2])


def npz(path, **values):
    np.savez(path, **values)
    return path.read_bytes()


def test_any_flipped_byte_is_found_or_harmless(tmp_path):
    path = tmp_path / "a.npz"
    value = np.arange(100, dtype=np.uint8)
    content = npz(path, x=value)
    for where in range(0, len(content), 3):
        path.write_bytes(content[:where] + bytes([content[where] ^ 0x41]) + content[where + 1 :])
        try:
            loaded = Snapshot(path, False).read()
        except ValueError as error:
            assert "cannot be read" in str(error)  # noqa: PT017
        else:
            assert [array.numpy().tolist() for array in loaded.values()] in ([value.tolist()], [])


def test_damaged_files(tmp_path):
    path = tmp_path / "a.npz"
    content = npz(path, x=np.arange(1000))
    np.save(tmp_path / "single.npy", np.ones(3))
    for damaged in (
        b"", b"PK", content[:100], content[:-30], b"x" * 100,
        content.replace(b"NUMPY", b"MUMPY"), (tmp_path / "single.npy").read_bytes(),
        npz(path, x=np.array([object()])),
    ):  # fmt: skip
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.npz cannot be read"):
            Snapshot(path, False)
    with pytest.raises(FileNotFoundError, match=r"missing\.npz does not exist"):
        Snapshot(tmp_path / "missing", False)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3,",  # NumPy raises TokenError
        "{1: 2, 'descr': '<f4'}",  # TypeError
        "{'descr': 3, 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<U2', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 62,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
        "[" * 5000,
    ],
)
def test_hostile_headers(tmp_path, header):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        text = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
        archive.writestr("x.npy", text + bytes(24))
    with pytest.raises(ValueError, match=r"\[Snapshot\] .*a\.npz cannot be read"):
        Snapshot(path, False).read()


def test_refusals(tmp_path):
    snapshot = Snapshot(tmp_path / "a", True)
    snapshot.write("x", np.ones(1))
    with pytest.raises(ValueError, match="'x' is empty or taken"):
        snapshot.write("x", np.ones(1))
    with pytest.raises(ValueError, match="'' is empty or taken"):
        snapshot.write("", np.ones(1))
    with pytest.raises(TypeError, match="cannot store object"):
        snapshot.write("y", np.array([None]))
    for dtype in ("c8", "U3", "M8[s]"):
        with pytest.raises(TypeError, match=r"\[Snapshot\] y: cannot store"):
            snapshot.write("y", np.zeros(2, dtype))
    with pytest.raises(ValueError, match="is open for writing"):
        snapshot.read()
    snapshot.close()
    with pytest.raises(ValueError, match="not open for writing"):
        snapshot.write("z", np.ones(1))
    with pytest.raises(ValueError, match="not open for writing"):
        Snapshot(tmp_path / "a", False).write("z", np.ones(1))

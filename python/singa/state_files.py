"""Files that hold named arrays: SINGA's .zip, NumPy's .npz, and .safetensors.

Nothing in such a file is executed, and what a file claims is checked before memory is taken for it.
A file that is damaged, or was made to do harm, raises ValueError with its name.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .training.files import atomic_path, atomic_write

Arrays = dict[str, np.ndarray]
#: Called with the shapes that a file holds before any of its data is read; may raise.
Check = Callable[[dict[str, tuple[int, ...]]], None]

# SINGA's names of the members of its zip files, and the meaning of "state_type" in the second.
_ZIP_ARRAYS, _ZIP_ATTRIBUTES = "tensor_dict.npz", "states_attr.json"
_MODEL_STATE, _AUX_STATE = 0, 1
# What the other formats put before the names of states that are no part of the model.
_AUX = "aux/"
_METADATA = "singa"
_CHECKSUM = "singa_crc32"

_SAFETENSORS_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}


def save_states(
    path: str | os.PathLike[str],
    states: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
    dtypes: Mapping[str, int],
) -> None:
    """Writes states of a model, and others beside them, in the format that the suffix names:
    .npz, .safetensors, anything else SINGA's zip. The old file is there until the new one is whole.

    `dtypes` are the numbers of the tensors' types, which SINGA's format keeps.
    """
    suffix = Path(path).suffix.lower()
    both = {**states, **{_AUX + name: value for name, value in aux.items()}}
    if suffix == ".safetensors":
        save_safetensors(path, both)
        return
    with atomic_write(path) as file:
        if suffix == ".npz":
            _write_npz(file, both)
            return
        attributes = {
            name: {"state_type": kind, "shape": list(value.shape), "dtype": int(dtypes[name])}
            for kind, group in ((_MODEL_STATE, states), (_AUX_STATE, aux))
            for name, value in group.items()
        }
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(_ZIP_ARRAYS, "w", force_zip64=True) as member:
                _write_npz(member, {**states, **aux})
            archive.writestr(_ZIP_ATTRIBUTES, json.dumps(attributes))


def load_states(path: str | os.PathLike[str], check: Check | None = None) -> tuple[Arrays, Arrays]:
    """(states of the model, others) from a file of any of the three formats, whatever its name.

    `check` sees the shapes of the model's states first. Raises ValueError for a damaged file,
    FileNotFoundError for a missing one.
    """
    with open(path, "rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        arrays, _ = load_safetensors(path)
        states, aux = _split_aux(arrays)
        if check:
            check({name: value.shape for name, value in states.items()})
        return states, aux
    with _damage(path), zipfile.ZipFile(path) as archive:
        if _ZIP_ATTRIBUTES not in archive.namelist():
            return _load_npz(archive, _split_aux, check)
        attributes = _attributes(archive)

        def kinds(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            aux = {name for name in arrays if attributes.get(name) == _AUX_STATE}
            return (
                {name: value for name, value in arrays.items() if name not in aux},
                {name: value for name, value in arrays.items() if name in aux},
            )

        with archive.open(_ZIP_ARRAYS) as member, zipfile.ZipFile(member) as inner:
            return _load_npz(inner, kinds, check)


def save_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes arrays, and a JSON object, atomically, with a checksum over both."""
    from safetensors.numpy import save_file

    plain = {name: _stored(value) for name, value in arrays.items()}
    text = {_METADATA: json.dumps(metadata)} if metadata is not None else {}
    text[_CHECKSUM] = _checksum(plain, text.get(_METADATA, ""))
    with atomic_path(path) as temporary:
        save_file(plain, temporary, text)


def load_safetensors(path: str | os.PathLike[str]) -> tuple[Arrays, dict[str, Any]]:
    """(arrays, the JSON object that save_safetensors wrote). bfloat16 becomes float32.

    Raises ValueError for a damaged file. What other programs wrote has no checksum, and loads.
    """
    from safetensors import SafetensorError, deserialize

    data = Path(path).read_bytes()
    stored, bfloat16 = {}, []
    with _damage(path, SafetensorError):
        for name, entry in deserialize(data):
            dtype = _SAFETENSORS_DTYPES.get(entry["dtype"])
            if dtype is None:
                raise ValueError(f"{name} has type {entry['dtype']}, which singa does not have")
            stored[name] = np.frombuffer(entry["data"], dtype).reshape(entry["shape"])
            if entry["dtype"] == "BF16":
                bfloat16.append(name)
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        if _CHECKSUM in header and header[_CHECKSUM] != _checksum(
            stored, header.get(_METADATA, "")
        ):
            raise ValueError("its contents do not have their checksum: the file was damaged")
        metadata = json.loads(header.get(_METADATA, "{}"))
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is no JSON object")
    return stored | {name: _widened(stored[name]) for name in bfloat16}, metadata


def _stored(array: np.ndarray) -> np.ndarray:
    """As it lies in the file: row-major, the least byte first."""
    return np.array(array, array.dtype.newbyteorder("<"), order="C", copy=None)


def _checksum(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """Over `text`, and over the name, type, shape and bytes of each array as it is stored."""
    total = zlib.crc32(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.data, total)
    return f"{total:08x}"


def _widened(bfloat16: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 numbers, which are their upper halves."""
    return (bfloat16.astype(np.uint32) << 16).view(np.float32)


def _split_aux(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {name: value for name, value in arrays.items() if not name.startswith(_AUX)},
        {name[len(_AUX) :]: value for name, value in arrays.items() if name.startswith(_AUX)},
    )


def _attributes(archive: zipfile.ZipFile) -> dict[str, Any]:
    """{name: state_type} of SINGA's attribute file."""
    if archive.getinfo(_ZIP_ATTRIBUTES).file_size > 64 << 20:
        raise ValueError(f"{_ZIP_ATTRIBUTES} is too large")
    attributes = json.loads(archive.read(_ZIP_ATTRIBUTES))
    return {name: value["state_type"] for name, value in attributes.items()}


def _write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    # numpy.savez takes names as keyword arguments, so "file" could not be one.
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=False)


def _load_npz(
    archive: zipfile.ZipFile,
    split: Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]],
    check: Check | None,
) -> tuple[Arrays, Arrays]:
    headers = {}
    for info in archive.infolist():
        if not info.filename.endswith(".npy"):
            raise ValueError(f"member {info.filename!r} is no array")
        with archive.open(info) as member:
            headers[info.filename[:-4]] = (info, *_npy_header(info, member))
    states, aux = split(headers)
    if check:
        check({name: shape for name, (_, shape, _, _, _) in states.items()})
    return (
        {name: _npy_data(archive, *header) for name, header in states.items()},
        {name: _npy_data(archive, *header) for name, header in aux.items()},
    )


def _npy_header(
    info: zipfile.ZipInfo, member: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, Fortran order, type, where the data start). Refuses objects, and more data claimed
    than there are."""
    version = np.lib.format.read_magic(member)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"{info.filename} has unknown version {version}")
    shape, fortran, dtype = read(member)
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds Python objects, which are not loaded")
    start = member.tell()
    if min(shape, default=0) < 0 or start + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(f"{info.filename} does not have the size of its shape {shape}")
    return shape, fortran, dtype, start


def _npy_data(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    shape: tuple[int, ...],
    fortran: bool,
    dtype: np.dtype,
    start: int,
) -> np.ndarray:
    data = archive.read(info)  # to the end, so that the checksum is looked at
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if fortran else "C")


@contextmanager
def _damage(path: str | os.PathLike[str], other: type[Exception] = ValueError) -> Iterator[None]:
    """Turns what the readers raise for a damaged file into a ValueError that names it."""
    try:
        yield
    except UnfitStatesError:
        raise
    except (
        ValueError,  # also UnicodeDecodeError, JSONDecodeError
        TypeError,
        KeyError,
        AttributeError,
        EOFError,
        OSError,
        RuntimeError,  # encrypted members; RecursionError from nested JSON
        NotImplementedError,
        SyntaxError,
        struct.error,
        tokenize.TokenError,
        zipfile.BadZipFile,
        zlib.error,
        other,
    ) as error:
        raise ValueError(
            f"[load_states] {os.fspath(path)}: not a readable file of states: {error}"
        ) from error


class UnfitStatesError(ValueError):
    """A sound file whose states are not those of the model."""


def check_fit(
    path: object, expected: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Raises ValueError that lists missing names, unexpected ones and wrong shapes."""
    missing = [name for name in expected if name not in found]
    unexpected = [name for name in found if name not in expected]
    wrong = [
        f"{name} is {tuple(found[name])} instead of {tuple(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name]) != tuple(shape)
    ]
    complaints = [
        f"{what}: {_listed(names)}"
        for what, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("wrong shape", wrong),
        )
        if names
    ]
    if complaints:
        raise UnfitStatesError(
            f"[load_states] {path} does not fit the model; " + "; ".join(complaints)
        )


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

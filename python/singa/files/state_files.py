"""Files of named arrays: SINGA's .zip, NumPy's .npz, and .safetensors.

Loading executes nothing from a file, and checks sizes in the file before it allocates memory. A
damaged or malicious file raises ValueError with its name.
"""

from __future__ import annotations

import io
import json
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from .atomic import atomic_write
from .beginnings import recognised
from .fit import UnfitStatesError

Arrays = dict[str, np.ndarray]
#: Called with the shapes in a file, by name, before data is read. It raises to reject the file.
Check = Callable[[dict[str, tuple[int, ...]]], None]

# Members of SINGA's zip files, and the values of "state_type" in the second.
_ZIP_ARRAYS, _ZIP_ATTRIBUTES = "tensor_dict.npz", "states_attr.json"
_MODEL_STATE, _AUX_STATE = 0, 1
# Prefix, in the other formats, of names of states that do not belong to the model.
_AUX = "aux/"
_METADATA = "singa"
_CHECKSUM = "singa_crc32"
# Limit of the uncompressed size of a zip: a multiple of the sizes of the file and of the model,
# plus some bytes for headers. Deflate can expand a file a thousand times.
_EXPANSION, _HEADERS = 16, 1 << 20

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
_SAFETENSORS_NAMES = {code: name for name, code in _SAFETENSORS_DTYPES.items() if name != "BF16"}
_LOAD_STATES = "[load_states] {}: not a readable file of states"


def save_states(
    path: str | os.PathLike[str],
    states: Mapping[str, np.ndarray],
    aux: Mapping[str, np.ndarray],
    dtypes: Mapping[str, int],
) -> None:
    """Writes a model's states and further arrays atomically.

    The suffix of `path` chooses the format: .npz, .safetensors, or SINGA's zip for any other.
    `dtypes` are the integers of the tensors' types (see `singa.dtypes`), which SINGA's format has.
    """
    suffix = Path(path).suffix.lower()
    both = {**states, **{_AUX + name: value for name, value in aux.items()}}
    if suffix == ".safetensors":
        save_safetensors(path, both)
        return
    if suffix == ".npz":
        save_npz(path, both)
        return
    with atomic_write(path) as file:
        attributes = {
            name: {"state_type": kind, "shape": list(value.shape), "dtype": int(dtypes[name])}
            for kind, group in ((_MODEL_STATE, states), (_AUX_STATE, aux))
            for name, value in group.items()
        }
        # Stored, not compressed: weights hardly shrink, and many zeros would exceed _EXPANSION.
        with zipfile.ZipFile(file, "w") as archive:
            with archive.open(_ZIP_ARRAYS, "w", force_zip64=True) as member:
                _write_npz(member, {**states, **aux})
            archive.writestr(_ZIP_ATTRIBUTES, json.dumps(attributes))


def load_states(
    path: str | os.PathLike[str], check: Check | None = None, model_bytes: int = 0
) -> tuple[Arrays, Arrays]:
    """Reads (states of the model, other arrays) from a file in any of the three formats.

    The content, not the name, tells the format. `check` gets the shapes of the model's states
    before data is read. Time and memory are bounded by the size of the file plus `model_bytes`.
    Raises ValueError for a damaged file, FileNotFoundError for a missing one.
    """
    with _opened(path, _LOAD_STATES) as file:
        zipped = file.read(4) == b"PK\x03\x04"
    if not zipped:
        arrays, _ = load_safetensors(path)
        states, aux = _split_aux(arrays)
        if check:
            check({name: value.shape for name, value in states.items()})
        return states, aux
    with _archive(path, _LOAD_STATES, model_bytes) as (archive, limit):
        if _ZIP_ATTRIBUTES not in archive.namelist():
            return _load_npz(archive, _split_aux, check)
        attributes = _attributes(archive, os.path.getsize(path))

        def kinds(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            aux = {name for name in arrays if attributes.get(name) == _AUX_STATE}
            return (
                {name: value for name, value in arrays.items() if name not in aux},
                {name: value for name, value in arrays.items() if name in aux},
            )

        # Read at once: seeking backwards in a compressed member inflates it again from the start.
        with zipfile.ZipFile(io.BytesIO(archive.read(_ZIP_ARRAYS))) as inner:
            _check_members(inner, limit)
            return _load_npz(inner, kinds, check)


def save_npz(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays atomically to an .npz file, which numpy.load reads."""
    with atomic_write(path) as file:
        _write_npz(file, arrays)


def load_npz(path: str | os.PathLike[str], complaint: str) -> Arrays:
    """Reads the arrays of an .npz file, in the file's order.

    Time and memory are bounded by the size of the file. Raises ValueError for a damaged file. The
    message begins with `complaint`, in which {} stands for the path.
    """
    with _archive(path, complaint) as (archive, _):
        return _load_npz(archive, lambda arrays: (arrays, {}), None)[0]


def save_safetensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Writes arrays, a JSON object and a checksum of both atomically to a .safetensors file.

    Raises TypeError for element types that singa does not have.
    """
    plain = {name: _stored(value) for name, value in arrays.items()}
    text = {_METADATA: json.dumps(metadata)} if metadata is not None else {}
    text[_CHECKSUM] = _checksum(plain, text.get(_METADATA, ""))
    with atomic_write(path) as file:
        _write_safetensors(file, plain, text)


def _write_safetensors(
    file: IO[bytes], arrays: Mapping[str, np.ndarray], text: Mapping[str, str]
) -> None:
    """Writes one array after the other.

    The library's own functions do not fit. `save_file` writes to a temporary file with other
    permissions, which stays if the process is killed. `save` copies everything.
    """
    # Arrays with the widest elements come first, so that each array is aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": text}
    end = 0
    for name in order:
        array = arrays[name]
        if array.dtype.str not in _SAFETENSORS_NAMES:
            raise TypeError(
                f"[save_states] {name} has type {array.dtype}, which singa does not have"
            )
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[array.dtype.str],
            "shape": array.shape,
            "data_offsets": (start, end),
        }
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    file.write(struct.pack("<Q", len(head)) + head)
    for name in order:
        file.write(arrays[name].data)


def load_safetensors(
    path: str | os.PathLike[str], kind: str = _LOAD_STATES
) -> tuple[Arrays, dict[str, Any]]:
    """Reads (arrays, JSON object) from a .safetensors file. bfloat16 becomes float32.

    The checksum is verified if the file has one; files of other programs have none. Raises
    ValueError for a damaged file. `kind` is the beginning of the message, in which {} stands for
    the path.
    """
    stored, bfloat16, metadata = read_safetensors(path, kind)
    return stored | {name: _widened(stored[name]) for name in bfloat16}, metadata


def read_safetensors(
    path: str | os.PathLike[str], kind: str = _LOAD_STATES
) -> tuple[Arrays, list[str], dict[str, Any]]:
    """As load_safetensors, but bfloat16 arrays are returned as uint16 bits.

    Returns (arrays, names of the bfloat16 arrays, JSON object). `kind` is the beginning of error
    messages, in which {} stands for the path.
    """
    from safetensors import SafetensorError, deserialize

    stored, bfloat16 = {}, []
    with _opened(path, kind) as file, _damage(path, kind):
        data = file.read()
        try:
            entries = deserialize(data)
        except SafetensorError as error:
            raise ValueError(f"{error}{recognised(data)}") from error
        for name, entry in entries:
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
            raise ValueError("its checksum does not match its contents: the file was damaged")
        metadata = json.loads(header.get(_METADATA, "{}"))
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not a JSON object")
    return stored, bfloat16, metadata


def _stored(array: np.ndarray) -> np.ndarray:
    """The array as it is stored: row-major and little-endian."""
    return np.array(array, array.dtype.newbyteorder("<"), order="C", copy=None)


def _checksum(arrays: Mapping[str, np.ndarray], text: str) -> str:
    """CRC-32 of `text` and of the name, type, shape and bytes of each array, as hex digits."""
    total = zlib.crc32(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.data, total)
    return f"{total:08x}"


def _widened(bfloat16: np.ndarray) -> np.ndarray:
    """Converts bfloat16 bits to float32. They are the upper half of its bits."""
    return (bfloat16.astype(np.uint32) << 16).view(np.float32)


def _split_aux(arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {name: value for name, value in arrays.items() if not name.startswith(_AUX)},
        {name[len(_AUX) :]: value for name, value in arrays.items() if name.startswith(_AUX)},
    )


@contextmanager
def _opened(path: str | os.PathLike[str], complaint: str) -> Iterator[IO[bytes]]:
    """Context manager that opens a regular file. A pipe or a device could block or never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(f"{complaint.format(os.fspath(path))}: it is not a regular file")
    with open(path, "rb") as file:
        yield file


@contextmanager
def _archive(
    path: str | os.PathLike[str], complaint: str, model_bytes: int = 0
) -> Iterator[tuple[zipfile.ZipFile, int]]:
    """Context manager that opens a zip. It gives (zip, limit of its uncompressed size in bytes)."""
    with _opened(path, complaint) as file, _damage(path, complaint):
        limit = _EXPANSION * (os.fstat(file.fileno()).st_size + model_bytes) + _HEADERS
        with zipfile.ZipFile(file) as archive:
            _check_members(archive, limit)
            yield archive, limit


def _check_members(archive: zipfile.ZipFile, limit: int) -> None:
    """Raises ValueError if the members exceed `limit` bytes, or use a method other than deflate.

    zipfile reads no more of a member than the size in its header. Other methods may expand one
    chunk beyond memory.
    """
    members = archive.infolist()
    for info in members:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} is compressed by method {info.compress_type}")
    total = sum(info.file_size for info in members)
    if total > limit:
        raise ValueError(f"it would take {total} bytes, more than the limit of {limit}")


def _attributes(archive: zipfile.ZipFile, size: int) -> dict[str, Any]:
    """{name: state_type} from SINGA's attribute file; `size` is the size of the zip in bytes."""
    if archive.getinfo(_ZIP_ATTRIBUTES).file_size > 4 * size + _HEADERS:
        raise ValueError(f"{_ZIP_ATTRIBUTES} is too large")
    attributes = json.loads(archive.read(_ZIP_ATTRIBUTES))
    return {name: value["state_type"] for name, value in attributes.items()}


def _write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    # numpy.savez takes names as keyword arguments, so an array could not be called "file".
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
            raise ValueError(f"member {info.filename!r} is not an array")
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
    """Reads (shape, whether in Fortran order, type, offset of the data) of an .npy member.

    Raises ValueError for Python objects, for types that singa does not have, and if the member's
    size does not fit the shape.
    """
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
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"{info.filename} has type {dtype}, which singa does not have")
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
    array = np.empty(math.prod(shape), dtype)
    with archive.open(info) as member:
        member.read(start)
        # Reading to the end makes zipfile verify the checksum.
        if _fill(array.view(np.uint8), member) or member.read(1):
            raise ValueError(f"{info.filename} does not have the size in its header")
    array = array.astype(dtype.newbyteorder("="), copy=False)
    return array.reshape(shape, order="F" if fortran else "C")


def _fill(data: np.ndarray, file: IO[bytes]) -> int:
    """Reads until `data` is full or the file ends. Returns the number of missing bytes."""
    while len(data) and (chunk := file.read(min(len(data), 1 << 20))):
        data[: len(chunk)] = np.frombuffer(chunk, np.uint8)
        data = data[len(chunk) :]
    return len(data)


@contextmanager
def _damage(path: str | os.PathLike[str], complaint: str) -> Iterator[None]:
    """Context manager that turns errors of the readers into a ValueError that names the file."""
    try:
        yield
    except UnfitStatesError:
        raise
    except MemoryError as error:
        raise MemoryError(f"{complaint.format(os.fspath(path))}: not enough memory") from error
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
    ) as error:
        raise ValueError(f"{complaint.format(os.fspath(path))}: {error}") from error

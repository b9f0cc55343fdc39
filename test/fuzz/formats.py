"""Changes inside known formats that keep lengths and checksums right, so that readers go on."""

from __future__ import annotations

import ast
import gzip
import io
import json
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from mutate import NUMBERS, change_bytes, change_json, change_text, to_json

Change = Callable[[Random, bytes, list[bytes]], bytes]

# Longer inputs find nothing more than short ones.
LONGEST = 1 << 20
_TYPES = (
    *("<f4", "<f8", "<f2", "<i4", "<i8", "|i1", "|u1", "|b1", ">f4", "<c8", "|O", "|S4", "<U3"),
    *("<M8[D]", "|V4", "<f16", "", "f4,i4", ("x", "<f4"), [("x", "<f4")], [("x", "<f4", (2,))]),
)
_SAFE_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8", "BOOL", "U32", "F8_E4M3", "X")


def change_npy(random: Random, data: bytes) -> bytes:
    """Changes the head of an npy file, the text of a dict literal that the reader evaluates."""
    if not data.startswith(b"\x93NUMPY") or random.random() < 0.3:
        return change_bytes(random, data, [])
    wide = data[6:7] != b"\1"
    length = int.from_bytes(data[8 : 12 if wide else 10], "little")
    start = (12 if wide else 10) + length
    text = data[12 if wide else 10 : start].decode("latin-1")
    try:
        head = ast.literal_eval(text.strip())
        way = random.random()
        if way < 0.4:
            shape = list(head.get("shape", ()))
            for _ in range(random.choice((1, 1, 2))):
                at = random.randrange(len(shape) + 1)
                shape[at : at + random.randrange(2)] = [random.choice((*NUMBERS, True, 1.0, "3"))]
            head["shape"] = tuple(shape)
        elif way < 0.7:
            head["descr"] = random.choice(_TYPES)
        elif way < 0.8:
            head["fortran_order"] = random.choice((True, 1, None, "x"))
        elif head:
            head.pop(random.choice(list(head)))
        text = repr(head)
    except (ValueError, SyntaxError, KeyError, TypeError, AttributeError, RecursionError):
        text = ""
    if not text or random.random() < 0.15:
        text = random.choice(
            ("(" * 300, "{'shape': (1,", "{" * 90, text[:-2], "-" * 5000, "'''", "x")
        )
    encoded = text.encode("latin-1", "replace")[:60000] + b"\n"
    version = random.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\4\0"))
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(encoded))
    return b"\x93NUMPY" + version + size + encoded + data[start:]


def change_zip(random: Random, data: bytes, others: list[bytes]) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > LONGEST:
                raise ValueError("large")
            members = [(info.filename, archive.read(info)) for info in infos]
    except Exception:  # zipfile raises exceptions of many types
        return change_bytes(random, data, others)
    if not members:
        return change_bytes(random, data, others)
    at, way = random.randrange(len(members)), random.random()
    name, content = members[at]
    if way < 0.55:
        members[at] = name, _change_member(random, name, content, others)
    elif way < 0.65:
        del members[at]
    elif way < 0.75:
        members.append((name, content))
    elif way < 0.85:
        members[at] = members[at][0], members[random.randrange(len(members))][1]
    else:
        names = ("x", "", "x.npy", ".npy", "aux/x.npy", "aux/.npy", "../x.npy", "states_attr.json")
        members[at] = random.choice((change_text(random, name), *names)), content
    out = io.BytesIO()
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED))
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as archive:
        warnings.simplefilter("ignore")  # about repeated names
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), content, method)
    packed = out.getvalue()
    return change_bytes(random, packed, others) if random.random() < 0.1 else packed


def _change_member(random: Random, name: str, content: bytes, others: list[bytes]) -> bytes:
    if content.startswith(b"PK"):
        return change_zip(random, content, others)
    if content.startswith(b"\x93NUMPY"):
        return change_npy(random, content)
    return change_json_file(random, content, others)


def change_json_file(random: Random, data: bytes, others: list[bytes]) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return change_bytes(random, data, others)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value = change_json(random, value)
    try:
        return to_json(value)
    except (ValueError, RecursionError):
        return change_bytes(random, data, others)


def change_safetensors(random: Random, data: bytes, others: list[bytes]) -> bytes:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        head, payload = json.loads(data[8 : 8 + length]), data[8 + length :]
        assert isinstance(head, dict)
    except (ValueError, struct.error, RecursionError, AssertionError):
        return change_bytes(random, data, others)
    for _ in range(random.choice((1, 1, 1, 2))):
        way = random.random()
        entries = [value for key, value in head.items() if key != "__metadata__"]
        entries = [value for value in entries if isinstance(value, dict)]
        if way < 0.3 and isinstance(head.get("__metadata__"), dict):
            head["__metadata__"] = change_json(random, head["__metadata__"])
        elif way < 0.6 and entries:
            _change_entry(random, random.choice(entries))
        elif way < 0.7:
            payload = change_bytes(random, payload, others)[:LONGEST]
        elif way < 0.8 and len(head) > 1:
            one, two = random.sample(list(head), 2)
            head[one], head[two] = head[two], head[one]
        else:
            head = change_json(random, head)
        if not isinstance(head, dict):
            break
    if isinstance(head, dict) and isinstance(head.get("__metadata__"), dict):
        metadata = dict(head["__metadata__"])
        if "singa_crc32" in metadata and random.random() < 0.9:
            crc = _safetensors_crc(head, payload)
            metadata.pop("singa_crc32")
            head["__metadata__"] = metadata | ({"singa_crc32": crc} if crc else {})
    try:
        text = to_json(head)
    except (ValueError, RecursionError):
        return change_bytes(random, data, others)
    return struct.pack("<Q", len(text)) + text + payload


def _change_entry(random: Random, entry: dict[str, Any]) -> None:
    way = random.random()
    if way < 0.3:
        entry["dtype"] = random.choice(_SAFE_TYPES)
    elif way < 0.5 and isinstance(entry.get("shape"), list):
        random.shuffle(entry["shape"])
    elif way < 0.6:
        # Another shape with the same number of elements.
        shape = entry.get("shape")
        entry["shape"] = [*(shape if isinstance(shape, list) else []), 1]
    elif way < 0.7:
        entry["shape"] = [0]
        entry["data_offsets"] = [0, 0]
    else:
        changed = change_json(random, entry)
        entry.clear()
        entry.update(changed if isinstance(changed, dict) else {"shape": changed})


def _safetensors_crc(head: dict[str, Any], payload: bytes) -> str:
    """The checksum that singa adds (see state_files.py); "" if the file does not allow one."""
    letters = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4"}
    letters |= {"I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
    try:
        total = zlib.crc32(head["__metadata__"].get("singa", "").encode())
        for name in sorted(name for name in head if name != "__metadata__"):
            entry = head[name]
            start, end = entry["data_offsets"]
            text = f"{name} {letters[entry['dtype']]} {tuple(entry['shape'])}"
            total = zlib.crc32(payload[start:end], zlib.crc32(text.encode(), total))
        return f"{total:08x}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""


def change_pickle(random: Random, data: bytes, others: list[bytes]) -> bytes:
    """Removes or repeats whole opcodes, or inserts them from other inputs."""
    if random.random() < 0.3:
        return change_bytes(random, data, others)

    def pieces(pickle: bytes) -> list[bytes]:
        starts = [at for _, _, at in pickletools.genops(pickle) if at is not None]
        return [pickle[a:b] for a, b in zip(starts, [*starts[1:], len(pickle)], strict=True)]

    try:
        own = pieces(data)
        other = pieces(random.choice(others)) if others else own
    except Exception:  # pickletools raises exceptions of many types
        return change_bytes(random, data, others)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = random.randrange(len(own))
        way = random.random()
        if way < 0.25:
            own[at : at + 1] = []
        elif way < 0.45:
            own[at:at] = own[at : at + random.choice((1, 2, 5))] * random.choice((1, 1, 2, 50))
        elif way < 0.6:
            own.insert(at, random.choice(other))
        elif way < 0.8:
            own.insert(at, random.choice(_OPCODES))
        else:
            own[at] = change_bytes(random, own[at], [])
        if not own:
            return b"."
    return b"".join(own)[:LONGEST]


_OPCODES = (
    *(b"0", b"1", b"2", b"(", b"t", b"l", b"d", b"}", b"]", b")", b"e", b"a", b"s", b"u", b"R"),
    *(b"b", b"\x85", b"\x86", b"\x87", b"\x94", b"h\0", b"h\1", b"q\0", b"N", b"\x88", b"K\0"),
    *(b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"\x93"),
    *(b"\x8a\x09" + b"\xff" * 8 + b"\0", b"J\xff\xff\xff\x7f", b"U\1f", b"X\1\0\0\0f", b"I12\n"),
    *(b"c_codecs\nencode\n", b"I" + b"9" * 5000 + b"\n", b"B\4\0\0\0abcd", b"\x8f", b"\x81"),
)  # fmt: skip


def change_gzip(random: Random, data: bytes, others: list[bytes]) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return change_bytes(random, data, others)
    try:
        inner = gzip.decompress(data)
        return gzip.compress(change_bytes(random, inner, others)[:LONGEST], mtime=0)
    except (OSError, EOFError, zlib.error):
        return change_bytes(random, data, others)

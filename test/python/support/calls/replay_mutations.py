"""Malicious replay files: valid files, changed in all possible ways.

Usage: python replay_mutations.py SEEDS COUNT [FIRST]

SEEDS is a folder that replay_calls.save has filled. Runs COUNT mutations of each file, beginning
with number FIRST, and prints each number before the mutation, so that the last number is that of a
crash. Exits with status 1 if a mutation did not raise ValueError and the operation did not run.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
from safetensors.numpy import save as serialize
from singa.files import state_files
from singa.files.replay_file import replay
from singa.files.state_files import Arrays, read_safetensors

_TEXTS = (
    *("", " ", "\0", "(" + "1, " * 12 + "1)"),
    *[
        "x",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "0.5",
        "-0.5",
        "1x",
        "plain",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "5",
        "7",
        "8",
        "15",
        "16",
        "17",
        "64",
        "1000",
        "65536",
    ],
    *[
        "2147483647",
        "2147483648",
        "-9223372036854775808",
        "9223372036854775807",
        "9223372036854775808",
    ],
    *[
        "()",
        "(0,)",
        "(1,)",
        "(-1,)",
        "(2, 2)",
        "(1, 1, 1, 1)",
        "(4, 3)",
        "(0, 1, 2)",
        "(1, 0)",
        "(-8, 1)",
    ],
    *["(2, 16, 6, 6)", "(9223372036854775807, 9223372036854775807)", "(4294967296, 1)"],
    *(
        f"cpu float32 (2, 16, 6, 6) {tag}"
        for tag in ["nChw16c", "nChw8c", "nhwc", "NChw2n3c", "packed", "x"]
    ),
    "cpu float32 (2, 1600, 6, 6) nChw16c",
    "cpu uint8 (2, 16, 6, 6) nhwc",
    "onednn uint8 (1152,) workspace of (2, 16, 6, 6) nChw16c",
    "cpu bfloat16 (3, 4) cn",
    "cudnn float32 (2, 16, 6, 6) nhwc",
)
_DTYPES = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool")
_NUMBERS = (0, 1, -1, 2, 7, -128, 2**31 - 1, -(2**63), 2**63 - 1, np.nan, np.inf, -np.inf, 1e30)

# Reasons for which an implementation does not accept the call of another one.
_ANOTHERS = ("this build has no", "refuses: ", "is not what")

#: The arrays of a file, and its metadata.
File = tuple[Arrays, dict[str, str]]


def mutated(file: File, random: Random) -> File:
    """A copy of a file with one to three changes."""
    arrays, metadata = dict(file[0]), dict(file[1])
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if arrays and random.random() < 0.4:
            _change_tensor(arrays, random)
        else:
            _change_text(metadata, random)
    return arrays, metadata


def _change_text(metadata: dict[str, str], random: Random) -> None:
    names = sorted(metadata)
    name = random.choice(names or ["spec"])
    kind = random.randrange(10)
    if kind == 0:
        metadata.pop(name, None)
    elif kind == 1:
        metadata[random.choice((name + "x", "field.more", "input.0.layout", "input.1.strides"))] = (
            random.choice(_TEXTS)
        )
    elif kind == 2:  # the value of another field, usually of the same kind
        metadata[name] = metadata.get(random.choice(names or ["spec"]), "")
    elif kind == 3 and metadata.get(name, "").lstrip("-").isdigit():
        metadata[name] = str(int(metadata[name]) + random.choice((-2, -1, 1, 2, 1000)))
    elif kind == 4:
        i = random.randrange(4)
        metadata[f"{random.choice(('input', 'output'))}.{i}.strides"] = random.choice(
            ("(1, 3)", "(0, 0)", "(0,)", "(-1,)", "(1, 1)", "(100, 1)", "(16, 1)", "(-4, -1)")
        )
    elif kind == 5:
        metadata[f"output.{random.randrange(4)}.is_input"] = str(random.randrange(-1, 4))
    else:
        metadata[name] = random.choice(_TEXTS)


def _change_tensor(arrays: Arrays, random: Random) -> None:
    name = random.choice(sorted(arrays))
    array = arrays[name]
    kind = random.randrange(9)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[random.choice((name + "0", "input.9", "output.9", "else"))] = array
    elif kind == 2:
        arrays[name] = arrays[random.choice(sorted(arrays))]
    elif kind == 3:
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(random.choice(_DTYPES))
    elif kind == 4:
        arrays[name] = array.reshape(random.choice((array.shape[::-1], (-1,), (1, *array.shape))))
    elif kind == 5:
        arrays[name] = array[: len(array) // 2] if array.ndim else np.zeros((0, 3), array.dtype)
    elif kind == 6:
        arrays[name] = np.zeros(random.choice(((), (0,), (1,), (3,), (1,) * 13)), array.dtype)
    else:
        changed = array.copy()
        flat = changed.reshape(-1)
        with np.errstate(all="ignore"):
            number = np.array(random.choice(_NUMBERS)).astype(array.dtype)
            flat[: random.choice((1, flat.size))] = number
        arrays[name] = changed


def variants(path: Path) -> Iterator[tuple[str, File]]:
    """The call of a file on each implementation that may run it, because their kernels differ."""
    arrays, _, metadata = read_safetensors(path)
    for implementation in ("reference", "cpu", "onednn"):
        described = metadata["description"].removeprefix("wrong ")
        changes = {"implementation": implementation, "description": described}
        yield f"{path.name} on {implementation}", (arrays, metadata | changes)


def save(path: Path, file: File) -> None:
    """Writes a file with a correct checksum. bfloat16 arrays are given as bits."""
    arrays, metadata = file
    text = json.dumps(metadata)
    plain = {name: np.array(array, order="C") for name, array in arrays.items()}
    checksum = state_files._checksum(plain, text)
    content = serialize(plain, {"singa": text, "singa_crc32": checksum})
    (length,) = struct.unpack("<Q", content[:8])
    header = content[8 : 8 + length].replace(b'"U16"', b'"BF16"')
    path.write_bytes(struct.pack("<Q", len(header)) + header + content[8 + length :])


def run(path: Path, file: File) -> str:
    """Replays a file. Returns the reason if it was rejected, otherwise an empty string."""
    save(path, file)
    try:
        replay(path)
    except ValueError as error:
        return str(error)
    except RuntimeError as error:
        if "disagrees with reference" not in str(error):
            raise
    return ""


def main(seeds: str, count: str, first: str = "0") -> int:
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # ASan reserves terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    bad = ran = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.safetensors"
        for seed in sorted(Path(seeds).iterdir()):
            for label, file in variants(seed):
                refused = run(path, file)
                if any(part in refused for part in _ANOTHERS):
                    continue
                if refused:
                    bad += 1
                    print("FAILED", label, "as it is:", refused, flush=True)
                for i in range(int(first), int(first) + int(count)):
                    random = Random(f"{file[1]['spec']} {file[1]['implementation']} {i}")
                    changed = mutated(file, random)
                    print(label, i, flush=True)
                    try:
                        ran += not run(path, changed)
                    except Exception as error:  # any other exception is a defect
                        bad += 1
                        metadata = {k: v for k, v in changed[1].items() if file[1].get(k) != v}
                        print("FAILED", type(error).__name__, error, json.dumps(metadata))
    print("ran", ran, "failed", bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The files that OPCHECK saves: one call of an operation, in a safetensors file.

C++ writes them, where the mismatch was found, and runs them again; what is in them is described in
src/model/operation/replay_file.h. The file is read here, since it is safetensors' and JSON's.
"""

from __future__ import annotations

import os

import numpy as np

from . import singa_wrap as _c
from .state_files import read_safetensors


def replay(path: str | os.PathLike[str]) -> str:
    """Runs the call in the file again, on its implementation and on `reference`, and says what it
    was.

    Raises RuntimeError where they still differ, OSError for a file that cannot be read, ValueError
    for one that is damaged, or holds a call that its operation would not take: nothing runs then.
    """
    arrays, bfloat16, metadata = read_safetensors(path, "[replay] {} is no replay file")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"[replay] {os.fspath(path)} is no replay file: not all of it is text")
    aligned = {name: np.require(array, requirements="A") for name, array in arrays.items()}
    tensors = [_tensor(array, name in bfloat16) for name, array in aligned.items()]
    try:
        return _c.ReplayCall(list(metadata), list(metadata.values()), list(arrays), tensors)
    except (ValueError, TypeError, IndexError) as error:
        # TypeError and IndexError are the operation's own, about what is in the file.
        raise ValueError(f"{error} (in {os.fspath(path)})") from error


def _tensor(array: np.ndarray, is_bfloat16: bool) -> _c.Tensor:
    if array.dtype == np.bool_:
        array = array.view(np.uint8) != 0  # any byte can be in a file
    if not is_bfloat16:
        return _c.from_buffer(array)
    # NumPy has no such type; half the bits of a float32 are those of a bfloat16.
    wide = (array.astype(np.uint32) << 16).view(np.float32)
    return _c.from_buffer(wide).AsType(_c.kBFloat16)

"""Files that OPCHECK saves: one call of an operation, in the safetensors format.

src/model/dispatch/opcheck/replay_file.h describes their content. C++ writes the files and runs the
calls. They are read here, because Python has readers for safetensors and JSON.
"""

from __future__ import annotations

import os

import numpy as np

from .. import singa_wrap as _c
from .state_files import read_safetensors


def replay(path: str | os.PathLike[str]) -> str:
    """Runs a saved call on its implementation and on `reference`, and compares the results.

    Returns a description of the call if they agree. Raises RuntimeError if they differ, OSError if
    the file cannot be read, and ValueError if it is damaged or holds a call that the operation
    rejects; the call is not run then.
    """
    arrays, bfloat16, metadata = read_safetensors(path, "[replay] {} is not a replay file")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(
            f"[replay] {os.fspath(path)} is not a replay file: its metadata is not text"
        )
    aligned = {name: np.require(array, requirements="A") for name, array in arrays.items()}
    tensors = [_tensor(array, name in bfloat16) for name, array in aligned.items()]
    try:
        return _c.ReplayCall(list(metadata), list(metadata.values()), list(arrays), tensors)
    except (ValueError, TypeError, IndexError) as error:
        # Operations raise TypeError and IndexError for wrong arguments, which come from the file.
        raise ValueError(f"{error} (in {os.fspath(path)})") from error


def _tensor(array: np.ndarray, is_bfloat16: bool) -> _c.Tensor:
    if array.dtype == np.bool_:
        array = array.view(np.uint8) != 0  # a file may hold bytes other than 0 and 1
    if not is_bfloat16:
        return _c.from_buffer(array)
    # NumPy has no bfloat16. Its bits are the upper half of a float32.
    wide = (array.astype(np.uint32) << 16).view(np.float32)
    return _c.from_buffer(wide).AsType(_c.kBFloat16)

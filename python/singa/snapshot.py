"""Named tensors in a file, under the name that SINGA scripts use.

The file is a NumPy .npz archive (`numpy.load` reads it), not Apache SINGA's own binary format. For
whole models, with what the optimizer needs, see `Model.save_states`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .state_files import load_npz, save_npz

if TYPE_CHECKING:
    from .tensor import Tensor


class Snapshot:
    """Writes tensors to `f`, or reads them back; ".npz" is added to the name if it is missing.

    mode         True to write, False to read
    buffer_size  accepted for SINGA's sake; nothing depends on it

        with Snapshot("model", True) as snapshot:
            snapshot.write("conv1.W", W)
        for name, value in Snapshot("model", False).read(): ...

    What is written appears in the file when the snapshot is closed (or, in old scripts, deleted),
    all at once; an exception in a `with` block leaves the old file. Raises FileNotFoundError or
    ValueError for a file that is missing or damaged.
    """

    def __init__(self, f: str | os.PathLike[str], mode: bool, buffer_size: int = 10) -> None:
        path = os.fspath(f)
        self.path = path if path.endswith(".npz") else f"{path}.npz"
        self._write = bool(mode)
        self._values: dict[str, NDArray[Any]] = {}
        self._open = True
        if not self._write:
            if not os.path.exists(self.path):
                raise FileNotFoundError(f"[Snapshot] {self.path} does not exist")
            self._values = load_npz(self.path, "[Snapshot] {} cannot be read")

    def write(self, param_name: str, param_val: Tensor | NDArray[Any]) -> None:
        """Adds a tensor (or NumPy array) as it is now. Raises ValueError for a name used before
        or a snapshot that is closed or for reading."""
        if not (self._write and self._open):
            raise ValueError(f"[Snapshot] {self.path} is not open for writing")
        if not param_name or param_name in self._values:
            raise ValueError(f"[Snapshot] {self.path}: the name {param_name!r} is empty or taken")
        if not isinstance(param_val, np.ndarray):
            from . import tensor

            param_val = tensor.to_numpy(param_val)
        if param_val.dtype.kind not in "biuf" or param_val.dtype.itemsize > 8:
            raise TypeError(f"[Snapshot] {param_name}: cannot store {param_val.dtype}")
        self._values[param_name] = param_val.copy()

    def read(self) -> list[tuple[str, Tensor]]:
        """All names and tensors, in the order written. Raises ValueError if `mode` is to write."""
        if self._write:
            raise ValueError(f"[Snapshot] {self.path} is open for writing")
        from . import tensor

        return [(name, tensor.from_numpy(value)) for name, value in self._values.items()]

    def close(self) -> None:
        """Writes the file. May be called more than once."""
        if self._open and self._write:
            save_npz(self.path, self._values)
        self._open = False

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, exc_type: object, *rest: object) -> None:
        if exc_type is not None:
            self._open = False
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()

"""SINGA's Snapshot: named tensors in a file.

The file is a NumPy .npz archive, which `numpy.load` reads; it is not Apache SINGA's binary format.
`Model.save_states` saves whole models.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import tensor
from ..files.state_files import load_npz, save_npz

if TYPE_CHECKING:
    from ..tensor import Tensor


class Snapshot:
    """Writes named tensors to a file, or reads them.

    f            path; ".npz" is added if it is missing
    mode         True to write, False to read
    buffer_size  accepted for SINGA's scripts, without effect

        with Snapshot("model", True) as snapshot:
            snapshot.write("conv1.W", W)
        for name, value in Snapshot("model", False).read().items(): ...

    The file is written atomically when the snapshot is closed, or when the object is deleted. An
    exception in a `with` block leaves the old file. Raises FileNotFoundError if the file to read is
    missing, ValueError if it is damaged.

    >>> from singa import snapshot
    >>> with snapshot.Snapshot("model", True) as file:
    ...     file.write("conv1.W", tensor.ones((2,)))
    ...
    >>> snapshot.Snapshot("model", False).read()
    {'conv1.W': Tensor([1., 1.], dtype=float32)}
    """

    def __init__(self, f: str | os.PathLike[str], mode: bool, buffer_size: int = 10) -> None:
        path = os.fspath(f)
        self.path: str = path if path.endswith(".npz") else f"{path}.npz"
        self._write = bool(mode)
        self._values: dict[str, NDArray[Any]] = {}
        self._open = True
        if not self._write:
            if not os.path.exists(self.path):
                raise FileNotFoundError(f"[Snapshot] {self.path} does not exist")
            self._values = load_npz(self.path, "[Snapshot] {} cannot be read")

    def write(self, param_name: str, param_val: Tensor | NDArray[Any]) -> None:
        """Adds a copy of a tensor or NumPy array.

        Raises ValueError if the name is empty or taken, or if the snapshot is closed or open for
        reading, and TypeError for element types that singa does not have.
        """
        if not (self._write and self._open):
            raise ValueError(f"[Snapshot] {self.path} is not open for writing")
        if not param_name or param_name in self._values:
            raise ValueError(f"[Snapshot] {self.path}: the name {param_name!r} is empty or taken")
        values: np.ndarray[Any, Any] = (
            param_val if isinstance(param_val, np.ndarray) else tensor.to_numpy(param_val)
        )
        if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
            raise TypeError(f"[Snapshot] {param_name}: cannot store {values.dtype}")
        self._values[param_name] = values.copy()

    def read(self) -> dict[str, Tensor]:
        """All tensors by name, in the order in which they were written.

        Raises ValueError if the snapshot is open for writing.
        """
        if self._write:
            raise ValueError(f"[Snapshot] {self.path} is open for writing")
        return {name: tensor.from_numpy(value) for name, value in self._values.items()}

    def close(self) -> None:
        """Writes the file if the snapshot is open for writing. Further calls do nothing."""
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

"""The fuzzing targets. Each has seeds, a function that runs an input, and declared exceptions."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

#: Target → (module, class). Only the worker process imports the module.
TARGETS = {
    "safetensors": ("readers", "Safetensors"),
    "npz": ("readers", "Npz"),
    "zip": ("readers", "Zip"),
    "checkpoint": ("readers", "Checkpoint"),
    "model": ("readers", "ModelFile"),
    "snapshot": ("readers", "SnapshotFile"),
    "tuning": ("readers", "Tuning"),
    "replay": ("readers", "Replay"),
    "cifar_pickle": ("readers", "CifarPickle"),
    "cifar_binary": ("readers", "CifarBinary"),
    "mnist": ("readers", "Mnist"),
    "onnx": ("onnx_models", "OnnxModels"),
    "raw": ("raw_calls", "RawCalls"),
    "program": ("programs", "Programs"),
    "effects": ("effects", "Effects"),
}


class Finding(Exception):  # noqa: N818 - reports a wrong result, not a wrong call
    """A finding of a target other than an undeclared exception."""


class Target:
    """`run` returns a text for the novelty of an input: equal texts mean nothing new."""

    #: The way to change inputs, a key of `__main__.FORMATS`.
    format = "bytes"
    #: Bytes of memory that an input may use; 0: no limit.
    memory = 0
    #: Exceptions that wrong input may raise; subclasses count if singa defines them.
    declared: tuple[type[BaseException], ...] = (ValueError,)
    #: Description of the input for reports.
    note = ""

    def tell(self, note: str) -> None:
        """Describes the input. Also writes a file, because this process may crash."""
        self.note = note
        Path("note").write_text(note[:2000], encoding="utf-8", errors="replace")

    def seeds(self) -> list[bytes]:
        return []

    def run(self, data: bytes) -> str:
        raise NotImplementedError

    def complaint(self, error: BaseException) -> str:
        """What is wrong with `error`; "" if it is declared and has a message."""
        kind = type(error)
        subclass = isinstance(error, self.declared) and (
            kind.__module__.startswith("singa") or isinstance(error, OSError)
        )
        if kind not in self.declared and not subclass:
            return "an exception that is not declared"
        if not str(error).strip():
            return "an exception that says nothing"
        if re.search(r"\b_M_\w+|basic_string::|\w+::at\b|bad_\w+", str(error)):
            return "an exception of the C++ library's own"
        return ""


def make(name: str) -> Any:
    """The target with this name. "module:Class" names a target that is not in TARGETS."""
    module, kind = TARGETS.get(name) or name.split(":")
    return getattr(importlib.import_module(module), kind)()

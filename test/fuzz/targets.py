"""What is fuzzed: for each target its seeds, what runs an input, and which errors are declared."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

#: Target → (module, class). What is loaded is loaded in the worker alone.
TARGETS = {
    "safetensors": ("readers", "Safetensors"),
    "npz": ("readers", "Npz"),
    "zip": ("readers", "Zip"),
    "checkpoint": ("readers", "Checkpoint"),
    "snapshot": ("readers", "SnapshotFile"),
    "tuning": ("readers", "Tuning"),
    "replay": ("readers", "Replay"),
    "cifar_pickle": ("readers", "CifarPickle"),
    "cifar_binary": ("readers", "CifarBinary"),
    "mnist": ("readers", "Mnist"),
    "raw": ("raw_calls", "RawCalls"),
    "program": ("programs", "Programs"),
}


class Finding(Exception):  # noqa: N818 - a result that is wrong, not a call
    """What a target found besides an exception that nobody declared."""


class Target:
    """`run` returns what was new about an input: equal texts are equally interesting."""

    #: How inputs are changed; a key of `__main__.FORMATS`.
    format = "bytes"
    #: Bytes of memory that an input may take; 0: any.
    memory = 0
    #: Exceptions that wrong input may raise, these or subclasses that singa itself defines.
    declared: tuple[type[BaseException], ...] = (ValueError,)
    #: Said of the input, for whoever reads of it.
    note = ""

    def tell(self, note: str) -> None:
        """Says what the input is, in a file too: this process may not come to answer."""
        self.note = note
        Path("note").write_text(note[:2000], encoding="utf-8", errors="replace")

    def seeds(self) -> list[bytes]:
        return []

    def run(self, data: bytes) -> str:
        raise NotImplementedError

    def complaint(self, error: BaseException) -> str:
        """What is wrong with `error`; "" if it is declared and says something."""
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
    """The target of that name; "module:Class" is one that no run takes by itself."""
    module, kind = TARGETS.get(name) or name.split(":")
    return getattr(importlib.import_module(module), kind)()

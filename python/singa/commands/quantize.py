"""`singa quantize`: the same as `singa export --onnx --int8`."""

from __future__ import annotations

from collections.abc import Sequence

from . import export


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit status."""
    return export.main(argv, "quantize")

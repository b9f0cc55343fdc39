"""Alternating measurements in child processes.

A side is a command line that prints one JSON object as its last line of output. Sides are run
A B A B ..., each in a process of its own, so that neither inherits the other's memory, threads or
clock; the figures of a side are the minimum over its processes of the median over its steps. What a
process measures is in `singa.bench`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def cpu_name() -> str:
    """Model name of the processor, and which wide instructions it has."""
    name, flags = platform.processor() or "unknown", set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    except OSError:
        pass
    wide = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if flag in flags]
    return f"{name} ({' '.join(wide)})"


def run_child(command: list[str], environment: dict[str, str] | None = None) -> dict:
    """Runs one side once. Raises RuntimeError with its output when it fails."""
    result = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = result.stdout.strip().splitlines()
    if result.returncode != 0 or not lines:
        output = result.stdout[-2000:] + result.stderr[-4000:]
        raise RuntimeError(f"{' '.join(command)} failed:\n{output}")
    return json.loads(lines[-1])


def alternate(
    sides: dict[str, tuple[list[str], dict[str, str]]],
    rounds: int,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, dict]:
    """Runs the sides in turn, `rounds` times; returns the run with the smallest median of each."""
    runs: dict[str, list[dict]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, (command, environment) in sides.items():
            runs[name].append(run_child(command, environment))
            note(f"round {number + 1}/{rounds} {name}: {runs[name][-1]['ms']:.2f} ms")
    return {
        name: {**min(results, key=lambda r: r["ms"]), "runs_ms": [r["ms"] for r in results]}
        for name, results in runs.items()
    }


def find_library(name: str) -> str | None:
    """Path of a shared library that the system's linker knows, such as libtcmalloc_minimal.so.4."""
    try:
        listing = subprocess.run(
            ["ldconfig", "-p"], capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return None
    for line in listing.splitlines():
        if line.strip().startswith(name):
            return line.split("=>")[-1].strip()
    return None


def table(rows: list[dict[str, str]]) -> str:
    """Rows as a Markdown table."""
    if not rows:
        return ""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in names}
    lines = [
        "| " + " | ".join(name.ljust(widths[name]) for name in names) + " |",
        "|" + "|".join("-" * (widths[name] + 2) for name in names) + "|",
    ]
    lines += [
        "| " + " | ".join(str(row[name]).ljust(widths[name]) for name in names) + " |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit("harness.py is a module; run step.py")

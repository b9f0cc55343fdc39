"""The memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from ..launcher import cores


def machine_memory(
    root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")
) -> int:
    """Bytes of memory that this process may use: all that the machine has, or the least limit of
    its cgroups."""
    bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for folder, version_2 in cores.cgroups("memory", root, process):
        file = folder / ("memory.max" if version_2 else "memory.limit_in_bytes")
        try:
            bytes = min(bytes, int(file.read_text()))
        except (OSError, ValueError):  # there is no such file, or it says "max"
            continue
    return bytes

"""Memory of this process that lies in RAM."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident() -> int:
    """Resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

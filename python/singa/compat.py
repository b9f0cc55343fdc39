"""SINGA's way where it is neither NumPy's nor singa's own: one switch for all such places.

`python -m singa run SCRIPT` turns it on, and so does the environment: SINGA_COMPAT=1. It holds for
the whole process. docs/singa_compat.md lists what it changes, and what differs from SINGA anyway.
"""

from __future__ import annotations

import os

#: Whether SINGA's way holds. Read at each use.
enabled: bool = os.environ.get("SINGA_COMPAT", "") not in ("", "0")


def enable() -> None:
    """Turns it on, here and in processes that are started from here."""
    global enabled
    enabled = True
    os.environ["SINGA_COMPAT"] = "1"

"""How a command of `python -m singa` was started, and starts a script as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_HOME = str(Path(__file__).parents[2])


def interpreter() -> list[str]:
    """This Python, with the options that it was started with."""
    return [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def finding_singa(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that finds this singa.

    With -m, Python puts the working folder first. A script's process does not have it there.
    """
    found = dict(variables)
    if sys.path[0] == _HOME and _HOME not in sys.path[1:]:
        paths = [_HOME, *filter(None, [found.get("PYTHONPATH")])]
        found["PYTHONPATH"] = os.pathsep.join(paths)
    return found

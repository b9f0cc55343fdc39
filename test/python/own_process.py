"""Programs that need a process of their own: what the environment says is read once."""

import os
import subprocess
import sys


def printed_by(program: str, **environment: str) -> str:
    """What the Python program prints, with these variables in its environment."""
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return child.stdout

"""Runs programs in processes of their own, because environment variables are read once per
process."""

import os
import subprocess
import sys


def printed_by(program: str, **environment: str) -> str:
    """The output of a Python program that runs with these environment variables."""
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return child.stdout

"""scripts/faults.py for a few faults; CONTRIBUTING.md says how to draw more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import singa

FAULTS = Path(__file__).resolve().parents[2] / "scripts" / "faults.py"


@pytest.mark.slow
def test_faults(tmp_path):
    child = subprocess.run(
        [sys.executable, FAULTS, "--count", "3", "--seed", "1"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(singa.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.count(": good\n") == 3

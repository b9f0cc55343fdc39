"""The soak for a few seconds: runs that are killed and resumed give the same bits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import singa

SOAK = Path(__file__).resolve().parents[2] / "scripts" / "soak.py"


@pytest.mark.slow
def test_soak(tmp_path):
    child = subprocess.run(
        [sys.executable, SOAK, "--seconds", "5"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(singa.__file__).parents[1])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert re.search(r"soak: [1-9]\d* runs, [1-9]\d* kills; [1-9]\d* rounds", child.stdout)
    assert not list(tmp_path.iterdir())

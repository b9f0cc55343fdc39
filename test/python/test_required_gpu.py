"""SINGA_REQUIRE_GPU: tests that need a GPU fail if they would be skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import singa

HERE = Path(__file__).parent
EMULATED = Path(singa.__file__).parents[2] / "lib" / "libsinga_cuda_emulated.so"
NO_GPU = "/no/such/library.so"


def run(required: str, library: str | os.PathLike[str]) -> tuple[int, str]:
    """Exit status and output of one test on a GPU."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"),
            *("--rootdir", HERE.parents[1], "-c", HERE.parents[1] / "pyproject.toml"),
            HERE / "device/test_gpu.py::test_views_and_conversions",
        ],
        env=os.environ | {"SINGA_REQUIRE_GPU": required, "SINGA_CUDA_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
@pytest.mark.parametrize("required", ["1", "emulated"])
def test_a_missing_gpu_is_an_error(required: str) -> None:
    status, output = run(required, NO_GPU)
    assert status == 1
    assert f"SINGA_REQUIRE_GPU={required}, but there is no GPU: " in output


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_without_it_what_needs_one_is_skipped() -> None:
    status, output = run("0", NO_GPU)
    assert status == 0
    assert "1 skipped" in output


@pytest.mark.skipif(not EMULATED.exists(), reason="this build has no emulated GPU")
def test_the_emulated_gpu_counts_where_it_is_named() -> None:
    status, output = run("1", EMULATED)
    assert status == 1
    assert "SINGA_REQUIRE_GPU=1, but the GPU is emulated" in output
    status, output = run("emulated", EMULATED)
    assert status == 0
    assert "1 passed" in output


def test_another_value_is_refused() -> None:
    status, output = run("yes", NO_GPU)
    assert status != 0
    assert "SINGA_REQUIRE_GPU must be 0, 1 or emulated, got 'yes'" in output

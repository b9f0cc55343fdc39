"""Shared by all Python tests: the PyTorch oracle, the promise that it was there, and a GPU."""

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest


def pytest_configure() -> None:
    """Where there is no GPU, tests that want one get the emulated one of the build folder."""
    found = importlib.util.find_spec("singa")
    if found is None or found.origin is None or Path("/dev/nvidia0").exists():
        return
    library = Path(found.origin).parents[2] / "lib" / "libsinga_cuda_emulated.so"
    if library.exists():
        os.environ.setdefault("SINGA_CUDA_LIBRARY", str(library))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Comparisons with PyTorch skip where it is not installed; CI must not pass that way."""
    if os.environ.get("SINGA_REQUIRE_TORCH") == "1" and importlib.util.find_spec("torch") is None:
        pytest.exit("SINGA_REQUIRE_TORCH=1, but PyTorch is not installed", returncode=1)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle. A test that takes this fixture is skipped where there is none."""
    return pytest.importorskip("torch")

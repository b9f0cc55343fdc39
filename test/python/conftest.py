"""Shared by all Python tests: the PyTorch oracle, and the promise that it was there."""

import importlib.util
import os
from types import ModuleType

import pytest


def pytest_sessionstart(session: pytest.Session) -> None:
    """Comparisons with PyTorch skip where it is not installed; CI must not pass that way."""
    if os.environ.get("SINGA_REQUIRE_TORCH") == "1" and importlib.util.find_spec("torch") is None:
        pytest.exit("SINGA_REQUIRE_TORCH=1, but PyTorch is not installed", returncode=1)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the oracle. A test that takes this fixture is skipped where there is none."""
    return pytest.importorskip("torch")

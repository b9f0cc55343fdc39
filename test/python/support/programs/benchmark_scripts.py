"""The scripts of benchmark/, for tests of them."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]


def script(name: str) -> Any:
    """A fixture: benchmark/NAME.py as a module."""

    @pytest.fixture(scope="module", name=name)
    def imported() -> ModuleType:
        if str(ROOT / "benchmark") not in sys.path:
            sys.path.append(str(ROOT / "benchmark"))
        return importlib.import_module(name)

    return imported

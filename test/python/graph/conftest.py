"""Shared by tests of recorded steps."""

import warnings
from collections.abc import Iterator

import pytest
from singa.graph import GraphWarning


@pytest.fixture
def no_warning() -> Iterator[None]:
    """A step that cannot be replayed is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        yield


@pytest.fixture
def no_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only recordings run the code of a step, so that they can be counted."""
    monkeypatch.setenv("SINGA_AUDIT", "0")

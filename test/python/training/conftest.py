"""Shared by tests of training."""

import pytest
from singa import autograd, training


@pytest.fixture
def tape_off_again():
    yield
    autograd.training = False


@pytest.fixture(scope="module")
def plots():
    """The pictures of curves, which are not drawn: they take most of the time."""
    drawn = []
    draw = lambda *paths, **options: drawn.append((paths, options))  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.trainer, "plot_curves", draw)
        yield drawn

"""Shared by tests of Model."""

import pytest
import singa
from singa import autograd


@pytest.fixture(autouse=True)
def seed_and_mode():
    singa.seed(11)
    yield
    autograd.training = False

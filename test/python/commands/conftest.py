"""Folders of pictures, and what a program may leave behind in this process."""

import pytest
from picture_folders import add_odd_files, write_colours
from program_in_process import as_before, quick, status_of
from singa.commands import train


@pytest.fixture(scope="session")
def colours(tmp_path_factory):
    """A folder with a class for each of three colours, and odd files."""
    folder = write_colours(tmp_path_factory.mktemp("data") / "colours", 15)
    add_odd_files(folder)
    return folder


@pytest.fixture(autouse=True)
def _as_before_each_test():
    with as_before():
        yield


def run_train(*options):
    """The exit status of `python -m singa train`, in this process."""
    return status_of(train.main, options)


@pytest.fixture
def run():
    """run(*options): the exit status of `python -m singa train`."""
    return run_train


@pytest.fixture(scope="session")
def trained(colours, tmp_path_factory):
    """The folder of a run on the colours that was never stopped."""
    out = tmp_path_factory.mktemp("trained") / "run"
    with as_before():
        assert run_train("--data", colours, *quick(4), "--out", out) == 0
    return out

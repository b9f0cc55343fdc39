"""Folders of pictures, and what a program may leave behind in this process."""

import contextlib
import signal

import pytest
from picture_folders import add_odd_files, write_colours
from singa import autograd, device
from singa.commands import train

#: Options of a run of a second.
QUICK = ("--model", "lenet", "--size", "16", "--epochs", "2", "--batch-size", "8", "--threads", "1")


@pytest.fixture(scope="session")
def colours(tmp_path_factory):
    """A folder with a class for each of three colours, and odd files."""
    folder = write_colours(tmp_path_factory.mktemp("data") / "colours", 15)
    add_odd_files(folder)
    return folder


@contextlib.contextmanager
def _as_before():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    autograd.training = False
    device.set_default_device(None)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _as_before_each_test():
    with _as_before():
        yield


def run_train(*options):
    """The exit status of `python -m singa train`, in this process."""
    try:
        return train.main([str(option) for option in options])
    except SystemExit as exit_:
        return exit_.code


@pytest.fixture
def run():
    """run(*options): the exit status of `python -m singa train`."""
    return run_train


@pytest.fixture(scope="session")
def trained(colours, tmp_path_factory):
    """The folder of a run on the colours that was never stopped."""
    out = tmp_path_factory.mktemp("trained") / "run"
    with _as_before():
        assert run_train("--data", colours, *QUICK, "--epochs", 4, "--out", out) == 0
    return out

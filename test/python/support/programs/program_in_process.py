"""Programs that run in the process of the tests."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import singa
from singa import __main__ as command_line
from singa import autograd, device


def status_of(program: Callable[..., int], arguments: Any, *more: Any) -> Any:
    """The exit status of a program, which gets its arguments as texts."""
    try:
        return program([str(argument) for argument in arguments], *more)
    except SystemExit as exit_:
        return exit_.code


def run_singa(*arguments: Any) -> Any:
    """The exit status of `python -m singa`."""
    return status_of(command_line.main, arguments)


@contextlib.contextmanager
def as_before() -> Iterator[None]:
    """Undoes what a program may leave behind and a module may not."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    threads = singa.get_num_threads()
    yield
    singa.set_num_threads(threads)
    autograd.training = False
    device.set_default_device(None)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def quick(epochs: int) -> tuple[object, ...]:
    """Options of `singa train` for a run of a second."""
    given = ("--model", "lenet", "--size", 16, "--batch-size", 8, "--threads", 1)
    return (*given, "--epochs", epochs)

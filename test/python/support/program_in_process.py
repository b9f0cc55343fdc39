"""Programs that run in the process of the tests."""

import contextlib
import signal
from collections.abc import Iterator

import singa
from singa import autograd, device


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

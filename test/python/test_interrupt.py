"""Ctrl-C in an interactive process raises KeyboardInterrupt, and the process can continue."""

import copy
import dis
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
import singa
from bits import bits
from singa import autograd, opt, tensor
from singa.layer.names import LayerNames
from singa.layer.observers import observers
from singa.training import checkpoint
from small_net import Whole, batch


@pytest.fixture
def trained(tmp_path):
    """(net, its checkpoint, losses of the three steps after it)."""
    singa.seed(3)
    net = Whole()
    net.set_optimizer(opt.Adam(0.02, clip_norm=1.0))
    net.compile([batch(0)[0]])
    path = tmp_path / "last.safetensors"
    steps(net, 0, 2)
    checkpoint.save(path, net, net.optimizer)
    yield net, path, steps(net, 2, 5)
    autograd.training = False


def steps(net, start, end):
    return [float(net(*batch(number))[1]) for number in range(start, end)]


class Interrupt:
    """Raises KeyboardInterrupt at the `at`-th line of singa's Python code, as Ctrl-C may between
    any two lines. It does not raise in `__del__`, where Python only reports exceptions, nor where a
    `with` statement is about to call `__exit__`, where Python handles no signal: there it raises at
    the next line. `lines` counts lines."""

    def __init__(self, at=None):
        self.at, self.lines = at, 0

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *error):
        sys.settrace(self._before)

    def _call(self, frame, event, argument):
        if not frame.f_globals.get("__name__", "").startswith("singa"):
            return None
        outer = frame
        while outer is not None and outer.f_code is not steps.__code__:
            if outer.f_code.co_name == "__del__":
                return None
            outer = outer.f_back
        return self._line

    def _line(self, frame, event, argument):
        if event == "line":
            self.lines += 1
            if self.at is not None and self.lines >= self.at and not _leaves_with(frame):
                raise KeyboardInterrupt
        return self._line


def _leaves_with(frame):
    """Whether a frame is at a line that begins with a constant, as the end of a `with` does."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "LOAD_CONST"


def test_at_any_line_of_a_step(trained):
    net, path, expected = trained
    checkpoint.load(path, net, net.optimizer)
    before = bits(net.get_params())
    with Interrupt() as count:
        steps(net, 2, 3)
    after = bits(net.get_params())
    assert count.lines > 300
    interrupted = 0
    for at in range(1, count.lines, 7):
        checkpoint.load(path, net, net.optimizer)
        with pytest.raises(KeyboardInterrupt), Interrupt(at):
            steps(net, 2, 3)
        assert bits(net.get_params()) in (before, after)  # all are as many steps on
        interrupted += 1
        checkpoint.load(path, net, net.optimizer)
        assert steps(net, 2, 5) == expected, f"after an interrupt at line {at} of the step"
    assert interrupted > 40


def test_at_any_line_of_recorded_and_replayed_steps(trained):
    net, path, expected = trained
    checkpoint.load(path, net, net.optimizer)
    allowed = [bits(net.get_params())]
    for number in range(2, 7):
        steps(net, number, number + 1)
        allowed.append(bits(net.get_params()))
    net.graph(True)
    checkpoint.load(path, net, net.optimizer)
    with Interrupt() as count:
        steps(net, 2, 7)
    assert bits(net.get_params()) == allowed[-1]
    assert len(net.memory_plan()["graphs"]) == 1
    interrupted = 0
    for at in range(1, count.lines, count.lines // 24):
        checkpoint.load(path, net, net.optimizer)
        net = copy.deepcopy(net)  # the copy records again
        try:
            with Interrupt(at):
                steps(net, 2, 7)
        except KeyboardInterrupt:
            interrupted += 1
        assert bits(net.get_params()) in allowed
        checkpoint.load(path, net, net.optimizer)
        assert steps(net, 2, 5) == expected, f"after an interrupt at line {at}"
    assert interrupted > 15


def test_goes_on_without_a_checkpoint(trained):
    net, _, _ = trained
    for at in (100, 200, 300):
        with pytest.raises(KeyboardInterrupt), Interrupt(at):
            steps(net, 2, 3)
    losses = [float(net(*batch(2))[1]) for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


@pytest.mark.cpu("calls return before a GPU has computed")
def test_in_the_middle_of_a_long_call(trained):
    """The core finishes a long call before the signal is handled. It releases the interpreter's
    lock in the call, without which the other thread could not send the signal."""
    net, path, expected = trained
    a = tensor.Tensor((900, 900)).gaussian(0, 1)

    def compute():
        end = time.monotonic() + 60
        while time.monotonic() < end:
            computing.set()
            autograd.matmul(a, a)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    computing = threading.Event()

    def send():
        computing.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compute()
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)
    checkpoint.load(path, net, net.optimizer)
    assert steps(net, 2, 5) == expected


def test_who_was_interrupted_in_stop_watches_layers_no_longer():
    class Watcher:
        pass

    interrupted, other = Watcher(), Watcher()
    LayerNames.start(interrupted)
    assert observers
    del interrupted  # without stop()
    LayerNames.start(other)
    LayerNames.stop(other)
    assert observers == []

"""Checkpoints that are written while training goes on."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import singa
from bits import everything
from ranks import in_ranks
from singa import distributed, layer, models, opt, tensor
from singa.training import checkpoint

HERE = os.path.dirname(__file__)
DRAWN = np.random.default_rng(1)
X = DRAWN.normal(size=(4, 5)).astype(np.float32)
Y = DRAWN.integers(0, 3, 4).astype(np.int32)


def new(optimizer=None):
    singa.seed(1)
    net = models.Sequential(layer.Linear(3))
    net.set_optimizer(optimizer or opt.SGD(lr=0.5, momentum=0.9))
    net.compile([tensor.from_numpy(X)])
    return net


def step(net):
    net(tensor.from_numpy(X), tensor.from_numpy(Y))


@pytest.fixture
def slow_disk(monkeypatch):
    """Writing waits for this event."""
    event = threading.Event()
    real = checkpoint.save_safetensors

    def save(*arguments):
        assert event.wait(20)
        real(*arguments)

    monkeypatch.setattr(checkpoint, "save_safetensors", save)
    return event


def test_the_file_has_the_state_of_the_call(tmp_path, slow_disk):
    net = new()
    step(net)
    ema = opt.EMA(net, 0.5)
    ema.update()
    seen = [1]
    with checkpoint.BackgroundSaver() as saver:
        saver.save(tmp_path / "a", net, net.optimizer, ema=ema, seen=seen)
        want = everything(net)
        averages = {name: value.numpy() for name, value in ema.get_states()["averages"].items()}
        seen.append(2)
        for _ in range(3):  # the file is not written yet
            step(net)
            ema.update()
        assert not (tmp_path / "a").exists()
        assert everything(net) != want
        slow_disk.set()
    other = new()
    other_ema = opt.EMA(other, 0.5)
    progress = checkpoint.load(tmp_path / "a", other, other.optimizer, ema=other_ema)
    assert progress == {"seen": [1]}
    assert everything(other) == want
    for name, value in other_ema.get_states()["averages"].items():
        np.testing.assert_array_equal(value.numpy(), averages[name])
    checkpoint.save(tmp_path / "b", other, other.optimizer, ema=other_ema, seen=[1])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_one_file_is_written_at_a_time(tmp_path, slow_disk):
    net = new()
    step(net)
    saver = checkpoint.BackgroundSaver()
    saver.save(tmp_path / "a", net, number=1)
    second = threading.Thread(target=saver.save, args=(tmp_path / "a", net), kwargs={"number": 2})
    second.start()
    second.join(0.05)
    assert second.is_alive()  # it waits for the first file
    slow_disk.set()
    second.join()
    saver.wait()
    assert checkpoint.read_progress(tmp_path / "a") == {"number": 2}


def test_an_error_is_raised_once_at_the_next_call(tmp_path):
    net = new()
    saver = checkpoint.BackgroundSaver()
    saver.save(tmp_path / "missing" / "a", net)
    with pytest.raises(FileNotFoundError, match="missing/a"):
        saver.save(tmp_path / "b", net)
    assert not (tmp_path / "b").exists()
    saver.save(tmp_path / "b", net, number=1)
    saver.wait()
    assert checkpoint.read_progress(tmp_path / "b") == {"number": 1}


def test_an_error_is_raised_at_the_end(tmp_path):
    net, path = new(), tmp_path / "missing" / "a"
    with pytest.raises(FileNotFoundError, match="missing/a"), checkpoint.BackgroundSaver() as saver:
        saver.save(path, net)


def test_another_error_has_a_note(tmp_path):
    def fails():
        with checkpoint.BackgroundSaver() as saver:
            saver.save(tmp_path / "missing" / "a", new())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        fails()
    (note,) = error.value.__notes__
    assert "the last file was not written" in note
    assert "missing/a" in note


def test_what_is_no_json_is_refused_at_once(tmp_path):
    with pytest.raises(TypeError), checkpoint.BackgroundSaver() as saver:
        saver.save(tmp_path / "a", new(), what=object())


KILLED = textwrap.dedent("""
    import os, signal, sys
    from singa import layer, opt, tensor
    from singa.files import state_files
    from singa.training import checkpoint
    from test_background_saver import new, step

    path, at = sys.argv[1], int(sys.argv[2])
    net, saver = new(), checkpoint.BackgroundSaver()
    step(net)
    saver.save(path, net, net.optimizer, number=1)
    saver.wait()

    class Dying:
        def __init__(self, file):
            self.file, self.calls = file, 0

        def write(self, data):
            self.calls += 1
            if self.calls == at:
                self.file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            self.file.write(data)

    write = state_files._write_safetensors
    state_files._write_safetensors = lambda file, *rest: write(Dying(file), *rest)
    saver.save(path, net, net.optimizer, number=2)
    while True:
        step(net)
""")


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_kill_while_it_writes_leaves_the_last_good_file(tmp_path, at):
    path = tmp_path / "a"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, HERE])}
    process = subprocess.run([sys.executable, "-c", KILLED, str(path), str(at)], env=environment)
    assert process.returncode == -signal.SIGKILL
    net = new()
    assert checkpoint.load(path, net, net.optimizer) == {"number": 1}
    step(want := new())
    assert everything(net) == everything(want)


@pytest.mark.cpu("ranks are processes with memory on the CPU")
def test_all_ranks_hear_of_an_error(tmp_path):
    def body(rank, holder):
        net = new(opt.DistOpt(opt.SGD(lr=0.5, momentum=0.9), holder, rank, 2))
        distributed.use(net.optimizer.communicator)
        with checkpoint.BackgroundSaver() as saver:
            step(net)
            saver.save(tmp_path / "good", net, net.optimizer, number=1)
            saver.save(tmp_path / "missing" / "a", net, net.optimizer)
            try:
                saver.save(tmp_path / "good", net, net.optimizer, number=2)
            except (OSError, RuntimeError) as error:
                return type(error).__name__, str(error)

    (kind, text), (other, reason) = in_ranks(2, body)
    assert (kind, other) == ("FileNotFoundError", "RuntimeError")
    assert "missing/a" in text
    assert reason.startswith("[checkpoint.BackgroundSaver] rank 0 failed: FileNotFoundError")
    assert checkpoint.read_progress(tmp_path / "good") == {"number": 1}

"""Errors that end a program are shown without the frames of singa, and keep them."""

import os
import subprocess
import sys
import traceback

import pytest
from singa import autograd, tensor
from singa.raw import tracebacks

PROGRAM = """\
import sys
import numpy as np
from singa import layer, model, tensor


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3)

    def forward(self, x):
        return self.conv(x)


net = Net()
net.compile([tensor.from_numpy(np.zeros((1, 3, 8, 8), np.float32))], is_train=False)
net(tensor.from_numpy(np.zeros((1, 3, 8), np.float32)))
"""


@pytest.fixture
def shown(tmp_path):
    """shown(program, **environment): what a script that fails prints."""

    def run(program, *options, **environment):
        script = tmp_path / "train.py"
        script.write_text(program)
        child = subprocess.run(
            [sys.executable, *options, str(script)],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert child.returncode == 1
        return child.stderr

    return run


def files(text):
    return [line.split('"')[1] for line in text.splitlines() if line.startswith('  File "')]


def test_a_wrong_shape_ends_at_the_users_line(shown):
    text = shown(PROGRAM)
    assert [os.path.basename(name) for name in files(text)] == ["train.py", "train.py"]
    assert ", in forward" in text
    hint, title, *_, message, where = text.splitlines()
    assert title == "Traceback (most recent call last):"
    assert message.startswith("ValueError: [ConvForward] input must be (N, C, H, W)")
    assert where == "in layer conv (Conv2d)"
    count = int(hint.partition(" ")[0])
    assert hint == f"{count} frames of singa left out: SINGA_FULL_TRACEBACK=1 shows them"
    whole = shown(PROGRAM, SINGA_FULL_TRACEBACK="1")
    assert len(files(whole)) == 2 + count
    assert "left out" not in whole
    assert whole.splitlines()[-2:] == [message, where]


def test_causes_are_shown(shown):
    text = shown(
        PROGRAM.replace("\nnet(", "\ntry:\n    net(") + "except ValueError as error:\n"
        "    raise RuntimeError('no batch') from error\n"
    )
    assert "The above exception was the direct cause" in text
    assert text.index("ValueError: [ConvForward]") < text.index("RuntimeError: no batch")
    assert {os.path.basename(name) for name in files(text)} == {"train.py"}
    assert text.count("left out") == 1
    assert text.splitlines()[-1] == "RuntimeError: no batch"


def test_errors_of_others_stay_as_they_are(shown):
    program = "{}def f():\n    raise KeyError('own')\n\nf()\n"
    plain = shown(program.format("import sys\n"))
    assert shown(program.format("from singa import tensor\n")) == plain


def test_the_hook_of_before_is_called(shown):
    hook = "import sys\nsys.excepthook = lambda kind, error, trace: print('own:', error)\n"
    script = hook.replace("print('own:', error)", "print('own:', error, file=sys.stderr)")
    assert shown(script + PROGRAM).splitlines()[1].startswith("own: [ConvForward]")


@pytest.fixture
def in_a_script(monkeypatch):
    """Other tests import the command line."""
    monkeypatch.delitem(sys.modules, "singa.__main__", raising=False)


@pytest.mark.usefixtures("in_a_script")
def test_the_error_keeps_its_frames():
    x = tensor.ones((2, 3))
    with pytest.raises(ValueError, match=r"[Mm]at[Mm]ul") as caught:
        autograd.matmul(x, x)
    error = caught.value
    before, notes = error.__traceback__, getattr(error, "__notes__", [])
    names = [frame.name for frame in traceback.extract_tb(before)]
    assert len(names) > 1
    with tracebacks.folded(error) as hidden:
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == names[:1]
        assert getattr(error, "__notes__", []) == notes
        assert hidden == len(names) - 1
    assert error.__traceback__ is before
    assert getattr(error, "__notes__", []) == notes


@pytest.mark.usefixtures("in_a_script")
def test_an_error_without_a_users_frame_is_shown_whole():
    x = tensor.ones((2, 3))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (which one does not matter)
        autograd.matmul(x, x)
    error = caught.value
    error.__traceback__ = error.__traceback__.tb_next
    before = error.__traceback__
    with tracebacks.folded(error) as hidden:
        assert hidden == 0
        assert error.__traceback__ is before

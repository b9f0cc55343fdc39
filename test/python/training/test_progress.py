"""Progress, with a terminal and without."""

import io
import sys
import types
import warnings

import pytest
from singa.training.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_a_line_now_and_then():
    out = io.StringIO()
    with Progress(3, "epoch 1/2", start=1, file=out, interval=0.0) as bar:
        bar.step(loss=2.30259, top1=0.5)
        bar.step(loss=0.04567, images=128)
    assert out.getvalue() == (
        "epoch 1/2  2/3  loss 2.303  top1 0.500\nepoch 1/2  3/3  loss 0.046  images 128\n"
    )
    with Progress(3, "quiet", file=out, interval=1e9) as bar:
        bar.step()
    assert "quiet" not in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.00012, "0.000"), (9.9996, "10.00"), (40.0406, "40.04"), (106.29, "106.3"),
        (1234.5, "1234"), (-20000.5, "-20000"), (7, "7"), (float("nan"), "nan"),
        (float("inf"), "inf"), (float("-inf"), "-inf"),
    ],
)  # fmt: skip
def test_figures_have_four_digits(value, text):
    out = io.StringIO()
    Progress(1, "t", file=out, interval=0.0).step(x=value)
    assert out.getvalue().split()[-1] == text


def test_several_rounds_at_once_and_a_resumed_bar():
    pytest.importorskip("tqdm")
    out = Terminal()
    with Progress(100, "MB", start=20, file=out) as bar:
        assert bar.done == 20
        bar.step(30, rate=1.5)
        assert bar.done == 50
        bar._bar.refresh()
        bar.close()
    assert "50/100" in out.getvalue()
    assert "rate 1.500" in out.getvalue()


@pytest.fixture
def notebook(monkeypatch):
    """Has the process look like the kernel of a notebook. Its standard error is no terminal."""
    shell = types.SimpleNamespace(config={"IPKernelApp": {}}, execution_count=1)
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shell


def test_a_bar_in_a_notebook(notebook, monkeypatch):
    pytest.importorskip("tqdm")
    out = io.StringIO()  # what is on standard error looks like a failure there
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as about ipywidgets, which are not needed
        with Progress(4, "epoch 1/2", interval=0.0) as bar:
            assert bar._bar is not None
            bar.step(loss=0.5)
            bar._bar.refresh()
    assert "1/4" in out.getvalue()
    log = io.StringIO()
    with Progress(4, "epoch 1/2", file=log, interval=0.0) as bar:
        bar.step(loss=0.5)
    assert log.getvalue() == "epoch 1/2  1/4  loss 0.500\n"  # a file is no notebook
    notebook.config = {}  # IPython in a terminal or a pipe
    monkeypatch.setattr(sys, "stderr", out)
    with Progress(4, "epoch 2/2", interval=0.0) as bar:
        bar.step(loss=0.25)
    assert out.getvalue().endswith("epoch 2/2  1/4  loss 0.250\n")

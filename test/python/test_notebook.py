"""What a notebook shows, run by nbclient."""

import re

import pytest
from browser import need
from html_page import Page

SETUP = """\
import numpy as np
import singa
from singa import data, models, opt, tensor
from singa.training import plot_curves

singa.seed(0)
singa.set_num_threads(1)
random = np.random.default_rng(0)
images = random.random((32, 1, 28, 28), dtype=np.float32)
labels = random.integers(0, 10, 32).astype(np.int32)
net = models.create("lenet")
net.set_optimizer(opt.SGD(lr=0.01))
net.compile([images[:8]], use_graph=True)
"""
#: Cells by name; the last line is what a notebook shows.
CELLS = {
    "setup": SETUP,
    "tensor": "tensor.from_numpy(images)",
    "model": "net",
    "summary": "net.summary()",
    "kept summary": "import io\ntable = net.summary(io.StringIO())\ntable",
    "summary again": "table",
    "fit": "history = net.fit(images, labels, epochs=2, batch_size=8)",
    "curves": 'plot_curves(history, metrics=["train_loss", "lr"])',
    "profile": "x, y = tensor.from_numpy(images[:8]), tensor.from_numpy(labels[:8])\n"
    "with singa.profile() as p:\n    net(x, y)\np",
    "explain": "singa.explain(net, x, y)",
    "plan": "net.memory_plan()",
    "plot": "net.plot()",
    "error": "net(tensor.from_numpy(images[0]), y)",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The outputs of each cell by its name."""
    need("nbclient", "ipykernel")
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    book = nbformat.v4.new_notebook(cells=cells)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name))
        patch.delenv("SINGA_FULL_TRACEBACK", raising=False)
        options = {"timeout": 120, "allow_errors": True, "kernel_name": "python3"}
        NotebookClient(book, resources={"metadata": {"path": str(folder)}}, **options).execute()
    return {name: cell.outputs for name, cell in zip(CELLS, book.cells, strict=True)}


def html(outputs):
    (found,) = [output["data"]["text/html"] for output in outputs if "data" in output]
    return Page(found)


def test_only_the_last_cell_fails(outputs):
    failed = [name for name, found in outputs.items() if kinds(found).count("error")]
    assert failed == ["error"]


def kinds(outputs):
    return [output["output_type"] for output in outputs]


def test_tensors_and_networks(outputs):
    page = html(outputs["tensor"])
    rows = dict(page.tables[0][1:])
    assert rows["shape"] == "(32, 1, 28, 28)"
    assert float(rows["mean"]) == pytest.approx(0.5, abs=0.02)
    assert len(page.images) == 1
    assert "LeNet: 431,080 parameters" in html(outputs["model"]).text
    for cell in ("summary", "kept summary", "summary again"):
        assert kinds(outputs[cell]) in (["display_data"], ["execute_result"])  # once
        rows = html(outputs[cell]).tables[0]
        assert rows[0] == ["layer", "type", "output", "parameters"]
        assert sum(int(row[3].replace(",", "")) for row in rows[1:]) == 431_080


def test_reports(outputs):
    profile, explanation = (html(outputs[name]).tables[0] for name in ("profile", "explain"))
    assert profile[0][:2] == ["operation", "calls"]
    assert any(row[0].startswith("ConvForward") for row in profile)
    assert [row[1] for row in explanation].count("ConvForward") == 2
    for name, words in (("plan", "arena"), ("plot", "LeNet: 431,080 parameters"), ("profile", "")):
        (text,) = [output["data"]["text/html"] for output in outputs[name] if "data" in output]
        assert "<svg" in text
        assert words in text


def test_curves_are_a_picture(outputs):
    (output,) = outputs["curves"]
    assert set(output["data"]) >= {"image/png", "text/plain"}


def test_training_shows_bars(outputs):
    assert set(kinds(outputs["fit"])) == {"stream"}
    assert {output["name"] for output in outputs["fit"]} == {"stdout"}
    text = "".join(output["text"] for output in outputs["fit"])
    assert "Warning" not in text


def test_an_error_ends_at_the_cell(outputs):
    hint, error = outputs["error"]
    assert re.fullmatch(
        r"\d+ frames of singa left out: SINGA_FULL_TRACEBACK=1 shows them\n", hint["text"]
    )
    assert error["ename"] == "ValueError"
    assert error["evalue"].startswith("[ConvForward]")
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(error["traceback"]))
    assert "net(tensor.from_numpy(images[0]), y)" in text
    assert "in layer conv1 (Conv2d)" in text
    assert "left out" not in text
    assert "site-packages" not in text
    assert "singa/model" not in text

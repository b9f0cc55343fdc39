"""plot_curves, checked by the objects of the figure, not by pixels."""

import io
import subprocess
import sys

import numpy as np
import pytest
from singa.training import JsonLinesLog, plot_curves
from singa.training.curves import panels

matplotlib = pytest.importorskip("matplotlib")

RECORDS = [
    {"epoch": 0, "train_loss": 2.0, "test_accuracy": 0.25, "lr": 0.1, "images_per_s": 900},
    {"note": "no epoch here", "train_loss": 9.0},
    {"epoch": 1, "train_loss": None, "test_accuracy": 0.5, "test_top5": 0.75},
    {"epoch": 2, "train_loss": 1.0, "test_accuracy": 0.4, "test_top5": 0.8},
    {"epoch": 2, "train_loss": 0.5, "test_accuracy": 0.6, "test_top5": 0.9},
]


@pytest.fixture
def saved(monkeypatch):
    """The figures that plot_curves saved."""
    from matplotlib.figure import Figure

    figures = []
    real = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (figures.append(self), real(self, *a, **k))[1]
    )
    return figures


def test_draws_losses_and_accuracies(tmp_path, saved):
    path = tmp_path / "curves.png"
    plot_curves(RECORDS, path, title="run 1")
    loss, accuracy = saved[0].axes
    assert saved[0].get_suptitle() == "run 1"
    assert [axes.get_title() for axes in saved[0].axes] == ["loss", "accuracy (%)"]
    (line,) = loss.get_lines()
    np.testing.assert_array_equal(line.get_xydata(), [[0, 2.0], [1, np.nan], [2, 0.5]])
    top1, top5 = accuracy.get_lines()
    np.testing.assert_array_equal(top1.get_xydata(), [[0, 25.0], [1, 50.0], [2, 60.0]])
    np.testing.assert_array_equal(top5.get_xydata(), [[1, 75.0], [2, 90.0]])
    assert top1.get_color() == top5.get_color()
    assert top1.get_linestyle() != top5.get_linestyle()
    assert "best 60.0" in top1.get_label()
    image = matplotlib.image.imread(path)
    assert image.shape[0] > 400
    assert image.shape[1] > 1000


def test_reads_a_log_file_and_leaves_out_an_empty_panel(tmp_path, saved):
    with JsonLinesLog(tmp_path / "log.jsonl") as log:
        log.append(step=10, loss=1.5)
    plot_curves(tmp_path / "log.jsonl", tmp_path / "curves.svg", x="step")
    (axes,) = saved[0].axes
    np.testing.assert_array_equal(axes.get_lines()[0].get_xydata(), [[10, 1.5]])
    assert b"<svg" in (tmp_path / "curves.svg").read_bytes()


def test_any_field_and_a_figure_for_notebooks(tmp_path, saved):
    figure = plot_curves(RECORDS, metrics=["images_per_s", "lr", "test_top5"])
    assert saved == []
    assert [axes.get_title() for axes in figure.axes] == ["accuracy (%)", "lr", "images per s"]
    top5, lr, speed = figure.axes
    np.testing.assert_array_equal(top5.get_lines()[0].get_xydata(), [[1, 75.0], [2, 90.0]])
    np.testing.assert_array_equal(lr.get_lines()[0].get_xydata(), [[0, 0.1]])
    np.testing.assert_array_equal(speed.get_lines()[0].get_xydata(), [[0, 900.0]])
    picture = figure._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert matplotlib.image.imread(io.BytesIO(picture)).shape[1] > 1500
    assert plot_curves(RECORDS, tmp_path / "a.png") is saved[-1]
    with pytest.raises(ValueError, match="no numbers speed, note with a field 'epoch'; it has tra"):
        plot_curves(RECORDS, metrics=["speed", "lr", "note"])


def test_panels():
    assert panels([{"step": 2, "epoch": 1, "loss": 3, "lr": True, "top5": None}], "step") == {
        "loss": {"loss": ([2.0], [3.0])}
    }
    found = panels(RECORDS, "epoch")
    assert list(found) == ["loss", "accuracy", "lr", "images_per_s"]
    assert found["accuracy"]["test_top5"] == ([1.0, 2.0], [0.75, 0.9])
    (xs, ys) = found["loss"]["train_loss"]
    assert xs == [0.0, 1.0, 2.0]
    np.testing.assert_array_equal(ys, [2.0, np.nan, 0.5])


@pytest.mark.parametrize(
    ("records", "name"),
    [(RECORDS, "curves.txt"), (RECORDS, "curves"), ([], "c.png"), ([{"epoch": 1}], "c.png"),
     ([{"epoch": 1, "loss": float("nan")}], "c.png"), ([{"loss": 1.0}], "c.png"),
     ([{"epoch": 1, "loss": "low"}], "c.png")],
)  # fmt: skip
def test_refusals_leave_the_old_picture(tmp_path, records, name):
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(ValueError, match="plot_curves"):
        plot_curves(records, tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"old"


def test_importing_singa_training_does_not_import_matplotlib():
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; import singa.training; "
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

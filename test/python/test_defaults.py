"""benchmark/defaults.py: its sets, and the page that it writes."""

import argparse
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from benchmark_scripts import script

defaults = script("defaults")


def runs(*accuracies: float) -> list[dict]:
    return [{"accuracy": a, "epochs": 10, "seconds": 2.4, "v": "1.2"} for a in accuracies]


def test_page_names_who_is_ahead_by_more_than_noise(defaults: ModuleType) -> None:
    counts = {"train": 1437, "test": 360, "classes": 10, "side": 8}
    results = {
        "digits": {"singa": runs(0.90, 0.91, 0.92), "timm": runs(0.94, 0.95, 0.96)},
        "tiles": {"singa": runs(0.90, 0.91, 0.92), "timm": runs(0.80, 0.90, 1.00)},
        "shapes": {"singa": runs(0.90, 0.91, 0.92), "timm": runs(0.88, 0.92, 0.96)},
    }
    page = defaults.page(dict.fromkeys(results, counts), results)
    assert "| digits | 91.0 ± 0.6 | 95.0 ± 0.6 |" in page
    assert "- digits: timm is ahead by 4.0 points." in page
    assert "tiles: timm" not in page
    assert "shapes: timm" not in page
    assert "| tiles  | 1437  | 360  | 10      | 8    | 10, 2 s | 10, 2 s |" in page
    assert max(len(line) for line in page.splitlines() if line[:1] not in ("|", "-")) <= 120


@pytest.mark.parametrize(("start", "epoch"), [(3.0, 0.1), (0.0, 7.0), (0.5, 40.0)])
def test_others_train_for_the_budget(
    defaults: ModuleType, monkeypatch: pytest.MonkeyPatch, start: float, epoch: float
) -> None:
    clock = [0.0]
    monkeypatch.setattr(defaults.time, "process_time", lambda: clock[0])

    def train(epochs: int) -> float:
        clock[0] += start + epochs * epoch
        return epochs / 1000

    given = argparse.Namespace(budget=30.0, epochs=0)
    found = defaults.trained(given, "1.2", lambda: train)
    expected = max(int((30 - start) / epoch), 1)
    assert abs(found["epochs"] - expected) <= 1
    assert found["accuracy"] == found["epochs"] / 1000
    assert found["seconds"] == pytest.approx(start + found["epochs"] * epoch)
    given.epochs = 5
    assert defaults.trained(given, "1.2", lambda: train)["epochs"] == 5


def test_cifar10_takes_the_first_pictures_of_the_files(
    defaults: ModuleType, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (1100, 3073), np.uint8)
    rows[:, 0] %= 10
    rows[:550].tofile(tmp_path / "data_batch_1.bin")
    rows[550:].tofile(tmp_path / "data_batch_2.bin")
    pictures, labels, train = defaults.SETS["cifar10"](str(tmp_path))
    assert (pictures.shape, len(labels), train) == ((1000, 32, 32, 3), 1000, 500)
    assert pictures[800, 5, 7].tolist() == [rows[800, 1 + c * 1024 + 5 * 32 + 7] for c in range(3)]
    names = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ]
    assert labels[800] == names[rows[800, 0]]


def test_textures_show_their_pattern(defaults: ModuleType) -> None:
    pictures, labels, train = defaults.SETS["textures"]("")
    assert (pictures.shape, pictures.dtype, train) == ((1000, 32, 32, 3), np.uint8, 500)
    assert {labels.count(label) for label in set(labels)} == {125}
    # A straight wave has one peak in its spectrum, a sum of blobs none so sharp.
    spectrum = np.abs(np.fft.fft2(pictures.mean(3) - pictures.mean((1, 2, 3))[:, None, None]))
    sharpness = spectrum.max((1, 2)) / spectrum.mean((1, 2))
    of = {label: sharpness[np.array(labels) == label].mean() for label in ("stripes", "blobs")}
    assert of["stripes"] > 2 * of["blobs"]

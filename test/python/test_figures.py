"""benchmark/figures.py: the page, the picture and README say what benchmark/figures.csv does."""

import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmark_scripts import ROOT, script

figures = script("figures")


def ratios(figures: ModuleType, **fields: str) -> list[float]:
    """The smallest ratio of each case."""
    cases: dict[tuple[str, str], list[float]] = {}
    for row in figures.read():
        if all(row[name] == value for name, value in fields.items()):
            cases.setdefault((row["network"], row["batch"]), []).append(float(row["ratio"]))
    return [min(found) for found in cases.values()]


def test_ratios_are_quotients_of_the_times(figures: ModuleType) -> None:
    rows = [row for row in figures.read() if row["singa_ms"] and row["other_ms"]]
    assert len(rows) > 100
    for row in rows:
        quotient = float(row["other_ms"]) / float(row["singa_ms"])
        assert float(row["ratio"]) == pytest.approx(quotient, rel=0.03), row


def test_the_page_has_the_figures(figures: ModuleType) -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    marks = re.findall(r"<!-- figures: (\w+) (\w+) -->", text)
    assert set(marks) == {(row["processor"], row["task"]) for row in figures.read()}
    assert figures.page(text, figures.read()) == text, "run python benchmark/figures.py"
    (line,) = [
        line for line in text.splitlines() if line.startswith("| vgg16, 32 ") and "7,237" in line
    ]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        *("7,237", "47,967", "31,272", "4.86", "4.32", "3,774", "3,440", "", "99eb421b")
    ]


def test_the_picture_has_the_figures(figures: ModuleType) -> None:
    texts = Counter(
        "".join(element.itertext()).strip()
        for element in ElementTree.parse(ROOT / "docs" / "performance.svg").iter()
        if element.tag.endswith("}text")
    )
    for processor, (title, _, kinds) in figures.PANELS.items():
        assert texts[title] == 1
        for kind in kinds:
            shown = ratios(figures, processor=processor, task="training", dtype=kind)
            assert shown
            texts.subtract(f"{ratio:.2f}" for ratio in shown)
    assert min(texts.values()) >= 0, "run python benchmark/figures.py"


def test_readme_has_the_means(figures: ModuleType) -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    found = re.findall(r"(\d\.\d\d) over (\d+) (?:networks )?with ([\w-]+)", text)
    wanted = [
        (f"{np.exp(np.mean(np.log(values))):.2f}", str(len(values)), name)
        for name, processor in (("AVX2", "avx2"), ("AVX-512", "avx512"))
        for values in [ratios(figures, processor=processor, task="training", dtype="float32")]
    ]
    assert found == wanted


def test_cases_that_are_slower_are_named(figures: ModuleType) -> None:
    rows = figures.select(figures.read(), processor="amx", task="inference")
    assert figures.summary(rows).splitlines() == [
        "- The geometric mean of the smallest ratios is 1.41. singa is slower for lenet, 1 (0.97).",
        "- Commit: dd677caa.",
    ]


def test_peaks_are_a_task_of_their_own(figures: ModuleType, tmp_path: Path) -> None:
    run = {"model": "lenet", "batch": 128, "dtype": "float32", "ms": 9.0}
    result = {
        "singa": [run | {"peak_mib": 40.4}],
        "torch-channels-last": [run | {"peak_mib": 131.0}],
    }
    (tmp_path / "step-lenet-128-float32-torch-channels-last.json").write_text(json.dumps(result))
    (row,) = figures.added([], tmp_path, "avx2", "0123abcd", "memory")
    assert (row["task"], row["singa_ms"], row["other_ms"]) == ("memory", "", "")
    assert (row["ratio"], row["singa_mib"], row["other_mib"]) == ("3.24", "40", "131")
    summary = figures.summary([row | {"ratio": "0.90"}]).splitlines()[0]
    assert summary.endswith("singa needs more for lenet, 128 (0.90).")


def test_results_of_step_take_the_place_of_earlier_ones(
    figures: ModuleType, tmp_path: Path
) -> None:
    run = {"model": "lenet", "batch": 128, "dtype": "float32", "peak_mib": 40.4}
    result = {
        "singa": [run | {"ms": 10.0}, run | {"ms": 9.0}],
        "torch-channels-last": [run | {"ms": 20.25, "peak_mib": 130.6}],
    }
    (tmp_path / "step-lenet-128-float32-torch-channels-last.json").write_text(json.dumps(result))
    before = figures.read()
    after = figures.added(before, tmp_path, "avx2", "0123abcd")
    assert len(after) == len(before)
    assert [row for row in after if row not in before] == [
        {
            "processor": "avx2",
            "task": "training",
            "network": "lenet",
            "batch": "128",
            "dtype": "float32",
            "singa_ms": "9",
            "other": "PyTorch",
            "other_ms": "20.25",
            "ratio": "2.25",
            "singa_mib": "40",
            "other_mib": "131",
            "commit": "0123abcd",
        }
    ]

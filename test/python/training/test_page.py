"""The code in docs/training.md runs."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from singa.training import checkpoint, read_log

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def test_the_code_of_the_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("singa.training.trainer.plot_curves", lambda *_, **__: None)  # slow
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    fit, run, background, callbacks = blocks
    names: dict[str, Any] = {"__name__": "page"}
    exec(fit, names)
    scores, targets = names["scores"], names["y"][500:]
    assert scores.shape == (100, 3)
    assert names["results"]["accuracy"] == np.mean(scores.argmax(1) == targets) > 0.85
    fields = re.findall(r"`(\w+)`", PAGE.read_text().split("a record for each epoch:")[1])
    assert [*names["history"][0]] == fields[:9]
    exec(run, names)
    assert [record["epoch"] for record in read_log("runs/shapes/log.jsonl")] == [1, 2, 3]
    assert Path("best.safetensors").exists()
    exec(background, names)
    assert checkpoint.read_progress("last.safetensors")["epoch"] == 1
    capsys.readouterr()
    exec(callbacks, names)
    assert names["history"][1]["weights"] > 0
    assert re.search("^epoch 1/2  train loss ", capsys.readouterr().out, re.MULTILINE)

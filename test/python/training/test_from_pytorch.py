"""The two scripts of docs/coming_from/pytorch.md run, and compute the same."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import autograd, tensor
from singa.training import read_log

PAGE = Path(__file__).parents[3] / "docs" / "coming_from" / "pytorch.md"


def test_both_scripts_of_the_page(torch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    safetensors = pytest.importorskip("safetensors.torch")
    monkeypatch.setattr("singa.training.trainer.plot_curves", lambda *_, **__: None)  # slow
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    theirs: dict[str, Any] = {"__name__": "theirs"}
    ours: dict[str, Any] = {"__name__": "ours"}
    np.random.seed(0)  # noqa: NPY002 - the script for PyTorch draws from it
    network, *rest = blocks[::2]
    exec(network, theirs)
    torch.manual_seed(1)
    body = {name: value for name, value in theirs["Net"]().state_dict().items() if "fc" not in name}
    torch.save(body, "body.pt")
    safetensors.save_file(body, "body.safetensors")
    for block in rest:
        exec(block, theirs)
    for block in blocks[1::2]:
        exec(block, ours)

    assert theirs["accuracy"] > 0.5
    assert ours["accuracy"] > 0.5
    assert theirs["schedule"].get_last_lr()[0] == pytest.approx(0, abs=1e-9)
    assert ours["net"].optimizer.now("lr") == pytest.approx(0, abs=1e-9)
    assert ours["net"].optimizer.steps == ours["updates"] == theirs["updates"]
    assert len(ours["norms"]) == len(theirs["norms"]) == 1
    assert [record["epoch"] for record in read_log("singa-run/log.jsonl")] == [*range(1, 9)]
    # PyTorch's weights give PyTorch's scores.
    net = ours["Net"]()
    images = theirs["test_x"].numpy()
    net.compile([tensor.from_numpy(images)])
    net.load_torch(theirs["net"].state_dict())
    net.eval()
    theirs["net"].eval()
    with torch.no_grad():
        expected = theirs["net"](theirs["test_x"]).numpy()
    np.testing.assert_allclose(net(tensor.from_numpy(images)).numpy(), expected, 1e-3, 1e-4)
    autograd.training = False

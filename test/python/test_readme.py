"""The README's Python runs as it stands there, on fewer pictures."""

import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"


def test_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program, opcheck, gradcheck = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert program.count("3000") == 1
    names: dict[str, Any] = {"__name__": "readme"}
    exec(program.replace("3000", "100"), names)
    printed = capsys.readouterr().out.splitlines()
    assert [line[:9] for line in printed] == ["epoch 1: ", "epoch 2: ", "epoch 3: "]
    assert (tmp_path / "net.safetensors").stat().st_size > 4 * 16 * 3 * 9
    exec(opcheck, names)
    counts = eval(capsys.readouterr().out)
    assert counts["checked"] == 2  # convolutions of the network
    assert counts["failed"] == 0
    exec(gradcheck, names)

"""The README's Python code runs on fewer images, and its figures are up to date; what the project
tells users to install."""

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
    assert counts["checked"] == 2  # the convolutions of the network
    assert counts["failed"] == 0
    exec(gradcheck, names)


def test_the_figures() -> None:
    readme = README.read_text()
    table = readme[readme.index("| network, batch") : readme.index("docs/performance.md")]
    rows = re.findall(r"^\|.*\d.*\|$", table, re.MULTILINE)
    assert len(rows) == 4
    page = (README.parent / "docs" / "performance.md").read_text().replace("*", "")
    for row in rows:
        assert row in page, "docs/performance.md has the figures, and the README quotes them"


def test_nothing_tells_a_user_to_install_another_project() -> None:
    """The name singa on the package index is not ours, so only a clone has the extras."""
    root = README.parent
    files = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("examples/**/*.md")]
    for folder in ("python", "src", "cmake", "scripts", "examples"):
        for suffix in ("py", "cc", "h", "sh", "cmake"):
            files += root.glob(f"{folder}/**/*.{suffix}")
    assert len(files) > 300
    for path in files:
        if found := re.search(r"pip\s+install\s+['\"]?singa\b.*", path.read_text()):
            pytest.fail(f"{path}: {found[0]}")

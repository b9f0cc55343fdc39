"""The Python code of README and pages runs, and what they quote is up to date; what the project
tells users to install."""

import re
import tomllib
from pathlib import Path

import pytest
import singa
from singa import __main__ as command_line

README = Path(__file__).parents[2] / "README.md"


def _blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = _blocks(README)
    assert (program.count("3000"), program.count("epochs=5")) == (1, 1)
    exec(program.replace("3000", "100").replace("epochs=5", "epochs=1"), {})
    assert "accuracy" in capsys.readouterr().out
    assert singa.load("shapes.singa").architecture["name"] == "resnet20_cifar"


def test_the_examples_of_the_page_on_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    opcheck, _, gradcheck, anomaly, _ = _blocks(README.parent / "docs" / "guides" / "debugging.md")
    exec(opcheck, {})
    counts = eval(capsys.readouterr().out)
    assert (counts["checked"], counts["failed"]) == (1, 0)
    exec(gradcheck, {})
    exec(anomaly, {})
    assert "NaN" in capsys.readouterr().out


def test_the_page_on_the_command_line_has_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["--help"])
    commands = set(re.findall(r"^ {4}([a-z-]+)\b", capsys.readouterr().out, re.MULTILINE))
    assert "train" in commands
    page = (README.parent / "docs" / "reference" / "command_line.md").read_text()
    assert set(re.findall(r"^\| \[`([\w-]+)`\]", page, re.MULTILINE)) == commands
    assert set(re.findall(r"command-help\} ([\w-]+)", page)) == commands


def test_the_documented_install_of_a_wheel_has_what_commands_need() -> None:
    """Pages of `report` and `compare`, curves, bars, and pictures."""
    root = README.parent
    page = (root / "docs" / "start" / "install.md").read_text()
    installs = re.findall(r"pip install .*\[([\w,]+)\]", page)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for extras in installs:
        packages = {
            re.match(r"[\w-]+", each)[0]
            for extra in extras.split(",")
            for each in project["optional-dependencies"][extra]
        }
        assert packages >= {"jinja2", "matplotlib", "pillow", "tqdm"}
    assert len(installs) == 2


def test_nothing_tells_a_user_to_install_another_project() -> None:
    """The name singa on the package index is not ours, so only a clone has the extras."""
    root = README.parent
    files = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    for folder in ("python", "src", "cmake", "scripts", "examples"):
        for suffix in ("py", "cc", "h", "sh", "cmake"):
            files += root.glob(f"{folder}/**/*.{suffix}")
    assert len(files) > 300
    for path in files:
        if found := re.search(r"pip\s+install\s+['\"]?singa\b(?!-\S*\.whl).*", path.read_text()):
            pytest.fail(f"{path}: {found[0]}")

"""The site's pages: each module and header has one, tables of names and short examples are right.

`make docs` builds the site, executes the tutorials, and checks its links.
"""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from picture_folders import coloured, write_colours

DOCS = Path(__file__).parents[3] / "docs"
MODULES = ("autograd", "data", "layer", "models", "model", "opt", "tensor", "training", "metric")
NAME = re.compile(rf"(?<![\w./])(singa|{'|'.join(MODULES)})\.([A-Za-z]\w*)")
PAGES = sorted(
    [*DOCS.glob("coming_from/*.md"), *DOCS.glob("guides/*.md"), *DOCS.glob("start/*.md")]
)


def test_each_public_header_has_a_page() -> None:
    headers = {f"singa/{path.relative_to(DOCS.parent / 'include/singa')}" for path in headers_of()}
    described = set()
    for path in DOCS.glob("reference/cpp/*.rst"):
        described.update(re.findall(r"cpp-header:: (\S+)", path.read_text()))
    assert described == headers - {"singa/core/export.h"}  # a macro


def headers_of() -> list[Path]:
    return sorted((DOCS.parent / "include" / "singa").rglob("*.h"))


def test_each_module_of_the_reference_can_be_imported_and_has_a_page() -> None:
    listed = (DOCS / "_extensions" / "python_reference.py").read_text()
    modules = set(re.findall(r'"(singa(?:\.\w+)*)"', listed.split("MODULES = [")[1].split("]")[0]))
    described = set()
    for path in DOCS.glob("reference/python/*.rst"):
        described.update(re.findall(r"python-module:: (\S+)", path.read_text()))
    assert described == modules
    assert len(modules) > 20
    for module in modules:
        assert importlib.import_module(module).__doc__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_names_of_the_page_exist(page: Path) -> None:
    for module, name in set(NAME.findall("\n".join(code_of(page.read_text())))):
        found = importlib.import_module("singa" if module == "singa" else f"singa.{module}")
        assert hasattr(found, name), f"{page.name}: {module}.{name}"


def code_of(text: str) -> list[str]:
    """What a page shows as code: blocks of Python and words between backticks."""
    blocks = re.findall(r"```(?:python|\{code-cell\}[^\n]*)\n(.*?)```", text, re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_the_example_of_the_first_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    assert program.count("3000") == 1
    exec(program.replace("3000", "100"), {"__name__": "page"})
    assert (tmp_path / "net.singa").exists()


def test_the_example_of_the_page_for_keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "coming_from" / "keras.md").read_text()
    _, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(program, names)
    results = names["net"].evaluate(names["x"][500:], names["y"][500:], metrics=["accuracy"])
    assert results["accuracy"] > 0.5
    assert (tmp_path / "net.singa").exists()


def test_the_example_of_the_page_for_fastai(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_colours(tmp_path / "pets", 10, ("red", "blue"))
    coloured("red", 99).save("cat.jpg")
    text = (DOCS / "coming_from" / "fastai.md").read_text()
    _, program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(program.replace('"resnet18"', '"lenet"').replace(", 32", ", 8"), names)
    assert names["kinds"][0][0] == "red"
    assert (tmp_path / "pets.singa").exists()

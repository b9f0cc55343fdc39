"""The programs of the pages about PyTorch's networks run, and do what the pages say."""

from __future__ import annotations

import csv
import re
import textwrap
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from singa.torch_networks.front import TORCH
from singa.torch_networks.operators import registry

PAGES = Path(__file__).parents[3] / "docs" / "coming_from"
#: The lines of a page that are written.
MARKS = "<!-- operators -->\n", "<!-- end of operators -->\n"
#: Verdicts in the order of the columns of the zoo's counts.
_WIDE = ("right", "wrong", "refused", "failed")
_NARROW = ("right", "strict mode", "in the spread", "beyond")


def _run(page: str) -> dict[str, Any]:
    """The variables of a page's program after it ran."""
    path = PAGES / page
    program = "\n".join(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, path, "exec"), names)
    return names


def test_the_loop(torch: ModuleType) -> None:
    names = _run("pytorch_loops.md")
    assert names["losses"][-1] < names["losses"][0] * 0.7
    with torch.no_grad():
        wanted = names["module"].eval()(names["images"])
    torch.testing.assert_close(names["scores"], wanted, rtol=1e-3, atol=1e-4)


def test_the_program(torch: ModuleType) -> None:
    names = _run("pytorch_modules.md")
    module = names["module"].eval()
    with torch.no_grad():
        wanted = module(torch.from_numpy(names["images"])).numpy()
    np.testing.assert_allclose(names["scores"].numpy(), wanted, rtol=1e-3, atol=1e-5)
    assert int(module[1].norm.num_batches_tracked) == 4


def test_counts_of_the_zoo_are_those_of_its_table() -> None:
    page = (PAGES / "torch_zoo.md").read_text()
    with (PAGES / "torch_zoo.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for package in ("timm", "torchvision", "transformers"):
        lines = re.findall(rf"^\| {package}'.*", page, re.MULTILINE)  # two of timm's
        numbers = [map(int, re.findall(r"\b\d+\b", line)) for line in lines]
        everything, tried, *verdicts = map(sum, zip(*numbers, strict=True))
        own = [row for row in rows if row["network"].startswith(f"{package}/")]
        for kind, words, counts in (
            ("float64", _WIDE, verdicts[:4]),
            ("float32", _NARROW, verdicts[4:]),
        ):
            found = Counter(row[kind] for row in own)
            assert counts == [found[each] for each in words]
        assert tried == len(own) == sum(verdicts[:4])
        assert len(re.findall(rf"\b{package}/\w+", page)) == everything - tried


def _operators() -> str:
    """The operators of the table as people call them, in lines of the page."""
    shown = {TORCH.shown(name).strip("_") for name in registry.names()}
    return "\n".join(textwrap.wrap(", ".join(sorted(shown)), 120))


def test_the_page_has_the_operators(torch: ModuleType) -> None:
    """After a change of the table: python test/python/torch_networks/test_page.py"""
    page = (PAGES / "pytorch_modules.md").read_text()
    first, last = MARKS
    assert page.partition(first)[2].partition(last)[0].strip() == _operators()


if __name__ == "__main__":
    path = PAGES / "pytorch_modules.md"
    before, first, rest = path.read_text().partition(MARKS[0])
    path.write_text(f"{before}{first}\n{_operators()}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")

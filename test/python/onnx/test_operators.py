"""docs/onnx_operators.md lists the operators that singa reads.

After a change of the readers: python test/python/onnx/test_operators.py
"""

from pathlib import Path

import pytest
import singa.onnx.operators
from singa import __main__ as command_line
from singa.onnx.readers.registry import find

_PAGE = Path(__file__).parents[3] / "docs" / "onnx_operators.md"
_FIRST = "| operator | versions | types | gradient |\n"


def _on_page(text: str) -> str:
    """The table, with which the page ends."""
    return text[text.index(_FIRST) :]


def test_the_page_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints it, too."""
    assert command_line.main(["onnx", "--operators"]) == 0
    assert capsys.readouterr().out == _on_page(_PAGE.read_text())


def test_the_table_says_what_the_readers_say() -> None:
    """Some rows, and that each row has its reader."""
    rows = [line.strip("| ").split(" | ") for line in singa.onnx.operators.table().split("\n")[2:]]
    assert ["Gelu", "20", "floats", "yes"] in rows
    assert ["Ceil", "1, 6, 13", "floats", "zero"] in rows
    assert ["ArgMax", "1, 11, 12, 13", "numbers", "no"] in rows
    assert ["Where", "9, 16", "bool", "yes"] in rows
    assert ["StringConcat", "20", "any", "host"] in rows
    assert ["Clip", "1, 6", "floats", "yes"] in rows
    assert ["Clip", "11, 12, 13", "numbers", "yes"] in rows
    for op, versions, _, gradient in rows:
        if op not in ("Shape", "Size"):
            domain, _, name = op.rpartition(".")
            readers = [find(domain, name, int(version)) for version in versions.split(", ")]
            assert all(reader is not None for reader in readers), op
        assert gradient in ("yes", "no", "zero", "host")


if __name__ == "__main__":
    page = _PAGE.read_text()
    _PAGE.write_text(page.replace(_on_page(page), singa.onnx.operators.table() + "\n"))

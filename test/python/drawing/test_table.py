"""Tables as text: how they fit, and when rich prints them."""

import builtins
import io
import re

import pytest
from html_page import Page
from singa.drawing.table import Table, show

HEADS = ["layer", "type", "n"]
ROWS = [("blocks.0.conv", "Conv2d", "1,728"), ("<fc>", "Linear", "10")]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns that shows colours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def test_columns():
    text = str(Table(HEADS, ROWS, numbers=[2], total="2 layers"))
    assert text.splitlines() == [
        "layer          type        n",
        "----------------------------",
        "blocks.0.conv  Conv2d  1,728",
        "<fc>           Linear     10",
        "----------------------------",
        "2 layers",
    ]
    assert str(Table(HEADS, [])).splitlines() == ["layer  type  n", "--------------"]


def test_what_does_not_fit_is_cut():
    rows = [("block." * 9 + "conv", "Convolution" * 3, "7"), ("fc", "Linear", "123,456")]
    table = Table(HEADS, rows, numbers=[2], shrinks=[0, 1], ends=[0])
    for width in (80, 60, 41):
        lines = table.text(width).splitlines()
        assert max(map(len, lines)) <= width
        name, kind, number = lines[2].split()
        assert name.startswith("…")
        assert name.endswith(".conv")
        assert number == "7"
    assert kind == ("Convolution" * 3)[:15] + "…"
    assert len(table.text(20).splitlines()[2]) > 20  # the least of a column
    assert "…" not in table.text(200)


def test_html():
    (rows,) = Page(Table(HEADS, ROWS, [2], "2 layers")._repr_html_()).tables
    assert rows == [HEADS, *map(list, ROWS)]


def test_rich_prints_on_a_terminal(terminal):
    pytest.importorskip("rich")
    show(Table(HEADS, [*ROWS, ("[bold]", "x" * 99, "1")], [2], "3 layers", shrinks=[1]), terminal)
    text = terminal.getvalue()
    assert "\x1b[1;36m" in text  # the heads
    assert "[bold]" in text  # a name is not markup
    assert "<fc>" in text
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    assert plain.splitlines()[-1] == "3 layers"


def test_without_rich_or_a_terminal_it_is_plain(terminal, monkeypatch):
    table = Table(HEADS, ROWS)
    out = io.StringIO()
    show(table, out)
    assert out.getvalue() == f"{table}\n"
    real = builtins.__import__

    def without_rich(name, *arguments):
        if name.startswith("rich"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    show(table, terminal)
    assert terminal.getvalue() == f"{table}\n"

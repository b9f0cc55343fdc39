"""Lines of several processes."""

import contextlib
import itertools
import os
import random
from concurrent.futures import ThreadPoolExecutor

from singa.launcher.output import Lines


def _printed(pieces, prefix="[3] "):
    read, write = os.pipe()
    os.set_blocking(read, False)
    lines, seen = Lines(prefix, write), b""
    for piece in [*pieces, None]:
        lines.end() if piece is None else lines.feed(piece)
        with contextlib.suppress(BlockingIOError):
            seen += os.read(read, 1 << 22)
    os.close(read)
    os.close(write)
    return seen


def test_pieces_become_whole_lines():
    text = b"one\n\ntwo and three\xff\nfour"
    want = b"[3] one\n[3] \n[3] two and three\xff\n[3] four\n"
    draw = random.Random(5)
    for _ in range(50):
        cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(9)))
        ends = [0, *cuts, len(text)]
        assert _printed([text[a:b] for a, b in itertools.pairwise(ends)]) == want


def test_a_line_appears_when_it_is_whole():
    read, write = os.pipe()
    lines = Lines("", write)
    lines.feed(b"be")
    lines.feed(b"gin\nrest")
    assert os.read(read, 100) == b"begin\n"
    os.close(read)
    os.close(write)


def test_nothing_gives_nothing():
    assert _printed([b""]) == b""


def test_an_endless_line_is_cut(monkeypatch):
    monkeypatch.setattr("singa.launcher.output._LONGEST", 10)
    assert _printed([b"0123456789a", b"b", b"c\n"], ">") == b">0123456789a\n>bc\n"


def test_an_output_that_somebody_made_non_blocking():
    """More than a pipe holds, as with an ssh that has the same output."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    text = b"x" * (1 << 18) + b"\n"
    with ThreadPoolExecutor(1) as pool, os.fdopen(read, "rb") as reader:
        got = pool.submit(reader.read)
        try:
            Lines("", write).feed(text)
        finally:
            os.close(write)
        assert got.result() == text

"""`profile.flame`: operations over time, below their layers."""

import numpy as np
import pytest
import singa
from html_page import Page
from singa import autograd, tensor
from singa.report.flame import Span, flame, spans
from singa.report.profiling import Record


def record(op, layer, start, ms, thread=0):
    return Record(op, layer, "how", "", 1000.0 + start, ms, 0, thread=thread)


RECORDS = [
    record("ConvForward", "a.0.conv", 0.0, 2.0),
    record("Reorder", "a.0.conv", 2.0, 1.0),
    record("ReLU", "a.0", 3.5, 0.5),
    record("ConvForward", "a.1", 4.0, 3.0),
    record("ConvBackwardW", "a.1", 8.0, 1.0),
    record("SgdUpdate", "", 9.0, 1.0),
]


def test_layers_last_from_their_first_operation_to_their_last():
    found = [(s.name, s.depth, s.start, s.end, s.kind) for s in spans(RECORDS)]
    assert found == [
        ("a", 0, 0.0, 7.0, "forward"),
        ("a.0", 1, 0.0, 4.0, "forward"),
        ("a.0.conv", 2, 0.0, 3.0, "forward"),
        ("ConvForward", 3, 0.0, 2.0, "forward"),
        ("Reorder", 3, 2.0, 3.0, "reorder"),
        ("ReLU", 2, 3.5, 4.0, "forward"),
        ("a.1", 1, 4.0, 7.0, "forward"),
        ("ConvForward", 2, 4.0, 7.0, "forward"),
        ("a", 0, 8.0, 9.0, "backward"),
        ("a.1", 1, 8.0, 9.0, "backward"),
        ("ConvBackwardW", 2, 8.0, 9.0, "backward"),
        ("SgdUpdate", 0, 9.0, 10.0, "in no layer"),
    ]
    assert isinstance(spans(RECORDS)[0], Span)


def test_picture():
    text = str(flame(RECORDS))
    Page(text)
    assert "Profile: 6 operations, 8.50 ms" in text
    assert "<title>a, forward: 7.000 ms</title>" in text
    assert "<title>ConvBackwardW a.1, how: 1.000 ms</title>" in text
    assert ">thread 0<" not in text
    assert ">thread 7<" in str(flame([*RECORDS, record("AllReduce", "", 5.0, 1.0, thread=7)]))


def test_of_a_profile(tmp_path):
    x = tensor.from_numpy(np.ones((4, 4), np.float32))
    with singa.profile() as p:
        autograd.relu(x)
    picture = p.flame(tmp_path / "flame.svg")
    assert (tmp_path / "flame.svg").read_text() == f"{picture}\n"
    assert f"<title>Relu, {p.records[0].implementation}: {p.records[0].ms:.3f} ms" in str(picture)
    with singa.profile() as empty:
        pass
    with pytest.raises(ValueError, match="has no operations"):
        empty.flame()

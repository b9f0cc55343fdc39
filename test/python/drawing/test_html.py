"""Tables and trees, and what notebooks show."""

import base64
import io

import numpy as np
import pytest
import singa
from html_page import Page
from PIL import Image
from singa import autograd, layer, models, opt, tensor
from singa.drawing.array import array_table
from singa.drawing.html import Markup, table, tree


def test_table():
    text = table(["a", "<b>"], [("x & y", Markup("<i>1</i>")), (None, 2)], "cap <", numbers=[1])
    page = Page(text)
    assert page.tables == [[["a", "<b>"], ["x & y", "1"], ["None", "2"]]]
    assert '<th scope="row" style="text-align:left">x &amp; y</th>' in text
    assert '<td style="text-align:right;white-space:nowrap"><i>1</i></td>' in text
    assert "<caption>cap &lt;</caption>" in text


def test_tree():
    text = tree([("root", [("<leaf>", []), ("inner", [("deep", [])])])])
    Page(text)
    assert "<details open><summary>root</summary>" in text
    assert "<li>&lt;leaf&gt;</li>" in text
    assert "<details><summary>inner</summary>" in text


def rows_of(text):
    (found,) = Page(text).tables
    return dict(found[1:])


def test_statistics_of_an_array():
    array = np.array([[1.0, -2.0, np.nan], [4.0, np.inf, 5.0]], np.float32)
    rows = rows_of(array_table(array, "float32", "cuda:0"))
    assert (rows["shape"], rows["type"], rows["device"]) == ("(2, 3)", "float32", "cuda:0")
    assert (rows["least"], rows["largest"], rows["mean"]) == ("-2", "5", "2")
    assert float(rows["standard deviation"]) == pytest.approx(np.std([1, -2, 4, 5]), rel=1e-5)
    assert (rows["NaN"], rows["infinite"]) == ("1", "1")
    assert rows_of(array_table(np.zeros((0, 3)), "float64")) == {
        "shape": "(0, 3)", "type": "float64"
    }  # fmt: skip
    assert "values" not in rows_of(array_table(np.zeros(33), "float64"))
    assert rows_of(array_table(np.array(7), "int32"))["values"] == "7"


def image_of(text):
    (attributes,) = Page(text).images
    data = attributes["src"].removeprefix("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_images_of_an_array():
    images = np.zeros((10, 3, 96, 96), np.float32)
    images[1, 0], images[2, 1] = -1.0, 3.0
    shown = image_of(array_table(images, "float32"))
    assert shown.shape == (96, 8 * 97, 3)
    assert shown[0, 0].tolist() == [63, 63, 63]  # (0 - least) / (largest - least) of 255
    assert shown[0, 97].tolist() == [0, 63, 63]
    assert shown[0, 2 * 97].tolist() == [63, 255, 63]
    grey = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)
    shown = image_of(array_table(grey, "uint8"))
    assert shown.shape == (96, 108)
    np.testing.assert_array_equal(shown[::12, :96:12], grey[0])
    for other in ((4, 3, 3, 3), (2, 16, 32, 32), (32, 32)):
        assert Page(array_table(np.ones(other), "float64")).images == []


def test_tensors_and_layers():
    x = tensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert rows_of(x._repr_html_())["mean"] == "2.5"
    half = x.as_type(tensor.bfloat16)
    assert rows_of(half._repr_html_())["type"] == str(half.dtype)
    net = models.create("lenet")
    assert "parameters" not in net._repr_html_()  # it has none before compile()
    net.compile([tensor.from_numpy(np.zeros((1, 1, 28, 28), np.float32))], is_train=False)
    text = net._repr_html_()
    Page(text)
    assert "<summary>LeNet: 431,080 parameters</summary>" in text
    for path, child in net._children():
        count = sum(p.size() for p in child.get_params().values())
        named = f"{path} {type(child).__name__}"
        assert f"<li>{named}: {count:,} parameters</li>" in text or f"<li>{named}</li>" in text
    fc = layer.Linear(2)
    fc(x)
    assert "Linear: 8 parameters" in fc._repr_html_()


@pytest.fixture(scope="module")
def lenet():
    net = models.create("lenet")
    net.set_optimizer(opt.SGD(lr=0.1))
    x = tensor.from_numpy(np.ones((2, 1, 28, 28), np.float32))
    y = tensor.from_numpy(np.zeros(2, np.int32))
    net.compile([x], use_graph=True)
    for _ in range(3):
        net(x, y)
    return net, x, y


def test_reports(lenet):
    net, x, y = lenet
    summary = net.summary(io.StringIO())
    (rows,) = Page(summary._repr_html_()).tables
    assert [row[0] for row in rows[1:]] == [row.name for row in summary.rows]
    assert "LeNet: 431,080 parameters" in summary._repr_html_()
    with singa.profile() as p:
        net(x, y)
    (rows,) = Page(p._repr_html_()).tables
    assert sum(int(row[1]) for row in rows[1:]) == len(p.records)
    assert "<svg" in p._repr_html_()
    assert repr(p) == f"<profile: {len(p.records)} operations, {p.total_ms:.3f} ms>"
    plan = net.memory_plan()
    assert plan._repr_html_() == str(plan.plot())
    assert "arena" in repr(plan).split()
    explanation = singa.explain(autograd.relu, x)
    text = explanation._repr_html_()
    (rows,) = Page(text).tables
    assert rows[1][1:3] == [explanation[0]["op"], explanation[0]["description"]]
    assert rows[1][5].startswith("the default")
    explanation[0]["why"] = "SINGA_PREFER is reference"
    assert "SINGA_PREFER is reference" in explanation._repr_html_()
    for name in explanation[0]["refused"]:
        assert f"<li>not {name}: " in text
    with singa.profile() as nothing:
        pass
    assert "<svg" not in nothing._repr_html_()

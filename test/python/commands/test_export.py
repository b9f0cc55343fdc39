"""`python -m singa export` and `quantize`, and `predict` with what they write."""

import json
import re
import shutil
from pathlib import Path

import pytest
from picture_folders import coloured
from program_in_process import run_singa
from singa.training.picture_classifier import PictureClassifier

onnx = pytest.importorskip("onnx")
NAMES = ["blue", "green", "red"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a picture that the network has not seen."""
    monkeypatch.chdir(tmp_path)
    coloured("red", 77).save("a.png")
    return tmp_path


@pytest.mark.parametrize(
    "options", [("export", "--onnx"), ("export", "--onnx", "--int8"), ("quantize",)]
)
def test_a_run_becomes_a_file_that_explains_itself(trained, here, capsys, options):
    command, *flags = options
    assert run_singa(command, trained, *flags) == 0
    name = "run" if flags == ["--onnx"] else "run_int8"
    out = capsys.readouterr().out
    assert f"the network is in {name}.onnx, its description in {name}.json\n" in out
    assert f"predict {name}.onnx PICTURE..." in out
    assert ("36 pictures measured" in out) == (name != "run")

    described = json.loads((here / f"{name}.json").read_text())
    assert described["class_names"] == NAMES
    assert (described["file"], described["size"]) == (f"{name}.onnx", [16, 16])
    assert described["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 3, 16, 16]}]
    metadata = {entry.key: entry.value for entry in onnx.load(f"{name}.onnx").metadata_props}
    assert json.loads(metadata["singa.class_names"]) == NAMES
    assert json.loads(metadata["singa.transform"]) == described["transform"]
    operators = {node.op_type for node in onnx.load(f"{name}.onnx").graph.node}
    assert ("QuantizeLinear" in operators) == (name != "run")

    near = {"abs": 1e-5} if name == "run" else {"abs": 0.1}
    expected = dict(PictureClassifier.load(trained).predict("a.png", 3)[0])
    assert run_singa("predict", f"{name}.onnx", "a.png", "--json") == 0
    found = json.loads(capsys.readouterr().out)["classes"]
    assert next(iter(found)) == "red"
    assert found == pytest.approx(expected, **near)


def test_the_program_of_the_page_needs_only_the_json_file(trained, here):
    pytest.importorskip("onnxruntime")
    assert run_singa("export", trained, "--onnx", "--out", "pets.onnx") == 0
    page = (Path(__file__).parents[3] / "docs/serving.md").read_text()
    (program,) = re.findall(r"```python fragment\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(program, names)
    classifier = PictureClassifier.load(trained)
    coloured("red", 1, 33, 99).rotate(90, expand=True).save("b.png")
    coloured("green", 2, 16, 47).save("c.png")  # cut off at half a pixel
    for picture in ("a.png", "b.png", "c.png"):
        expected = dict(classifier.predict(picture, 3)[0])
        assert names["predict"](picture) == pytest.approx(expected, abs=1e-5)


def test_a_file_is_exported_and_quantised_like_the_run(trained, here, capsys):
    shutil.copy(trained / "model.safetensors", "colours.singa")
    assert run_singa("export", "colours.singa", "--onnx", "--out", "one.onnx") == 0
    assert run_singa("quantize", "one.onnx", "--samples", "a.png") == 0
    assert "1 picture measured" in capsys.readouterr().out
    assert json.loads((here / "one_int8.json").read_text())["class_names"] == NAMES
    assert run_singa("summary", "one_int8.onnx") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("export", "RUN"), 2, "--onnx"),
        (("export", "RUN", "--onnx", "--samples", "a.png"), 2, "--samples is for --int8"),
        (("export", "no", "--onnx"), 1, "[load] no does not exist"),
        (("export", "RUN", "--onnx", "--count", 5), 2, "--count is for --int8"),
        (("export", "RUN", "--onnx", "--tolerance", 0.2), 2, "--tolerance is for --int8"),
        (("export", "RUN", "--onnx", "--out", "net.txt"), 1, "must end in .onnx"),
        (("export", "net.onnx", "--onnx"), 1, "net.onnx is the network itself"),
        (("quantize", "net.onnx"), 1, "give some with --samples FOLDER"),
        (("quantize", "net.onnx", "--samples", "empty"), 1, "empty holds no pictures"),
        (("quantize", "net.onnx", "--samples", "b.png"), 1, "b.png"),
    ],
)
def test_errors(trained, here, capsys, arguments, status, message):
    (here / "empty").mkdir()
    if "net.onnx" in arguments:
        assert run_singa("export", trained, "--onnx", "--out", "net.onnx") == 0
    arguments = [trained if each == "RUN" else each for each in arguments]
    capsys.readouterr()
    assert run_singa(*arguments) == status
    assert message in capsys.readouterr().err


def test_a_network_without_classes(here, capsys):
    """An ONNX file of another program predicts nothing, and says why."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, ["n", 3, 8, 8])],
        [onnx.helper.make_tensor_value_info("y", 1, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), "net.onnx")
    assert run_singa("predict", "net.onnx", "a.png") == 1
    error = capsys.readouterr().err
    assert "the network has no names of classes: set net.class_names = [...]" in error
    assert "net.onnx cannot classify pictures" in error

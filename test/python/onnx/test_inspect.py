"""`python -m singa onnx FILE [--check]`: texts and exit status."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from program_in_process import run_singa

pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx_files import info, network, node

_RANDOM = np.random.default_rng(0)


def _classifier() -> Any:
    """Conv (3 to 4 channels), BatchNormalization, Relu, mean, Gemm to five classes."""
    weights = {
        "conv.weight": _RANDOM.standard_normal((4, 3, 3, 3)),
        "bn.weight": np.ones(4),
        "bn.bias": np.zeros(4),
        "bn.running_mean": np.zeros(4),
        "bn.running_var": np.full(4, 0.7),
        "fc.weight": _RANDOM.standard_normal((5, 4)),
    }
    nodes = [
        node("Conv", "x conv.weight", "c", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c bn.weight bn.bias bn.running_mean bn.running_var", "b"),
        node("Relu", "b", "r"),
        node("GlobalAveragePool", "r", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f fc.weight", "y", transB=1),
    ]
    return network(
        nodes,
        [info("x", ["n", 3, 6, 6])],
        [info("y", ["n", 5])],
        {name: array.astype(np.float32) for name, array in weights.items()},
        producer_name="a test",
        producer_version="2",
    )


def _written(folder: Path, model: Any) -> str:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


_run = partial(run_singa, "onnx")


def test_what_is_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole text. Convolution: 36 pixels · 4 channels · 27 terms; Gemm: 5 · 4; each twice."""
    path = _written(tmp_path, _classifier())
    assert _run(path) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: IR version 10, opset 21, by a test 2",
        "",
        "input   x  float32 (n, 3, 6, 6)",
        "output  y  float32 (n, 5)",
        "",
        "136 parameters (544 B), 8 running statistics",
        "7,816 multiplications and additions of convolutions and products",
        "",
        "6 nodes",
        "  BatchNormalization      1",
        "  Conv                    1",
        "  Flatten                 1",
        "  Gemm                    1",
        "  GlobalAveragePool       1",
        "  Relu                    1",
    ]


def test_what_is_not_supported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1, also with --check, and each node is named."""
    nodes = [node("Relu", "x", "r"), node("RandomNormalLike", "r", "y", "last")]
    path = _written(tmp_path, network(nodes, [info("x", [2, 2])], [info("y", [2, 2])]))
    for options in ((), ("--check",)):
        assert _run(path, *options) == 1
        lines = capsys.readouterr().out.splitlines()
        assert "  RandomNormalLike      1  not supported" in lines
        assert "  Relu                  1" in lines
        last = lines[-1]
        assert lines[-2] == "not supported:"
        assert last.startswith("  node 'last' (RandomNormalLike version 1): "), last


def test_beside_onnx_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The largest difference of each output decides about the status."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = _written(tmp_path, _classifier())
    assert _run(path, "--check") == 0
    *_, title, last = capsys.readouterr().out.splitlines()
    assert title == "beside ONNX Runtime:"
    name, _, rest = last.strip().partition(": largest difference ")
    assert name == "y"
    assert 0 <= float(rest.partition(" ")[0]) < 5e-6
    assert _run(path, "--check", "--tolerance", "-1") == 1


def test_without_onnx_runtime(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contents, and then a line that says what is missing."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    path = _written(tmp_path, _classifier())
    assert _run(path) == 0
    capsys.readouterr()
    assert _run(path, "--check") == 1
    captured = capsys.readouterr()
    assert "6 nodes" in captured.out
    assert captured.err == (
        "python -m singa onnx: [onnx] --check needs ONNX Runtime: pip install onnxruntime\n"
    )


def test_without_onnx(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that says how to get it."""
    path = _written(tmp_path, _classifier())
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert _run(path) == 1
    assert "pip install onnx ml_dtypes" in capsys.readouterr().err


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, and status 1."""
    cut = _classifier().SerializeToString()[:-30]
    for data, words in ((b"\x89PNG\r\n\x1a\n", "not an ONNX file"), (b"", "without a graph")):
        (tmp_path / "bad.onnx").write_bytes(data)
        assert _run(str(tmp_path / "bad.onnx")) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert words in captured.err
        assert captured.err.count("\n") == 1
    (tmp_path / "cut.onnx").write_bytes(cut)
    assert _run(str(tmp_path / "cut.onnx")) == 1
    assert capsys.readouterr().err.startswith("python -m singa onnx: [onnx.load] ")
    assert _run(str(tmp_path / "missing.onnx")) == 1
    assert "missing.onnx" in capsys.readouterr().err
    assert _run(str(tmp_path)) == 1  # a folder
    assert capsys.readouterr().err.count("\n") == 1


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """Help, and what is missing."""
    assert _run("--help") == 0
    text = capsys.readouterr().out
    for option in ("--check", "--tolerance", "--allow-symlinks", "--operators"):
        assert option in text
    assert _run() == 2
    assert "FILE" in capsys.readouterr().err


def test_symbolic_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """External data behind a link needs --allow-symlinks."""
    import onnx

    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="link.bin")
    model = network([node("Add", "x w", "y")], [info("x", [4])], [info("y", [4])])
    model.graph.initializer.append(weight)
    np.arange(4, dtype=np.float32).tofile(tmp_path / "data.bin")
    (tmp_path / "link.bin").symlink_to(tmp_path / "data.bin")
    path = _written(tmp_path, model)
    assert _run(path) == 1
    assert "allow_symlinks=True" in capsys.readouterr().err
    assert _run(path, "--allow-symlinks") == 0
    assert "4 parameters (16 B)" in capsys.readouterr().out


def test_refusals_are_grouped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each operator and reason: how many nodes, and the first."""
    nodes = [node("RandomNormalLike", f"v{i}", f"v{i + 1}", f"n{i}") for i in range(40)]
    nodes.append(node("Pad", "v40 pads", "y", "last", mode="mirror"))
    pads = {"pads": np.array([1, 0, 0, 0])}
    path = _written(tmp_path, network(nodes, [info("v0", [2, 2])], [info("y", [3, 2])], pads))
    assert _run(path) == 1
    lines = capsys.readouterr().out.splitlines()
    first, last = lines[lines.index("not supported:") + 1 :]
    assert first.startswith("  40 nodes, the first of them node 'n0' (RandomNormalLike version 1):")
    assert last == "  node 'last' (Pad version 21): mode 'mirror'"


class _Other:
    """ONNX Runtime with other results."""

    def __init__(self, results: list[Any]) -> None:
        self.results = results

    def run(self, names: Any, inputs: Any) -> list[Any]:
        return self.results


@pytest.mark.parametrize(
    ("wanted", "text", "status"),
    [
        ([np.nan, 1.0, 2.0], "y: largest difference 0 of the largest value", 0),
        ([0.0, 1.0, 2.0], "y: 1 of 3 elements are NaN in singa only", 1),
        ([np.nan, np.nan, 2.0], "y: 1 of 3 elements are NaN in ONNX Runtime only", 1),
        ([np.nan, 1.0, np.inf], "y: 1 of 3 elements are infinity in ONNX Runtime only", 1),
        ([np.nan, 1.0], "y: shape (3,), ONNX Runtime has (2,)", 1),
        ([np.nan, 1.0, 2.5], "y: largest difference 0.2 of the largest value", 1),
    ],
)
def test_values_that_are_no_numbers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    wanted: list[float],
    text: str,
    status: int,
) -> None:
    """NaN on both sides is right, on one side it is not: singa has the square roots -1, 1 and 4."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = _written(tmp_path, network([node("Sqrt", "x", "y")], [info("x", [3])], [info("y", [3])]))
    np.savez(tmp_path / "x.npz", x=np.array([-1, 1, 4], np.float32))
    other = _Other([np.array(wanted, np.float32)])
    monkeypatch.setattr(runtime, "InferenceSession", lambda *arguments, **options: other)
    assert _run(path, "--check", "--inputs", str(tmp_path / "x.npz")) == status
    assert capsys.readouterr().out.splitlines()[-1] == f"  {text}"


def test_sizes_that_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel of 20 x 20 needs an image of that size: `--check` and `summary` find one."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import singa.onnx

    weights = {"w": _RANDOM.standard_normal((2, 3, 20, 20)).astype(np.float32)}
    image, result = info("x", ["n", 3, "h", "w"]), info("y", ["n", 2, "p", "q"])
    model = network([node("Conv", "x w", "y")], [image], [result], weights)
    path = _written(tmp_path, model)
    assert _run(path, "--check") == 0
    net = singa.onnx.load(path)
    summary = net.summary()
    assert [row.output for row in summary.rows] == ["(1, 2, 13, 13)"]
    assert _run(path, "--check", "--shape", "x=1,3,20,24") == 0
    capsys.readouterr()
    assert _run(path, "--check", "--shape", "x=1,3,10,10") == 1
    assert "ONNX Runtime" in capsys.readouterr().err


@pytest.mark.parametrize(
    "last",
    [
        node("Reshape", "x shape", "y"),
        node("MaxPool", "x", "y", kernel_shape=[3], strides=[2]),
    ],
    ids=["a batch of one", "a window that ONNX Runtime takes and singa does not"],
)
def test_sizes_that_both_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], last: Any) -> None:
    """Exporters write the example's batch into shapes, and ONNX Runtime pools what is too small."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    reshaped = last.op_type == "Reshape"
    shape = {"shape": np.array([1, 4, 5])} if reshaped else {}
    lengths = ["n", 4, 5] if reshaped else ["n", 4, "t"]
    path = _written(tmp_path, network([last], [info("x", lengths)], [info("y")], shape))
    assert _run(path, "--check", "--shape", f"x=2,4,{5 if reshaped else 2}") == 1
    capsys.readouterr()
    assert _run(path, "--check") == 0
    assert "y: largest difference 0 of" in capsys.readouterr().out


def test_wrong_shapes_and_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not an input, a shape that cannot be read, and an input of unknown shape."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    path = _written(tmp_path, network([node("Relu", "x", "y")], [info("x")], [info("y")]))
    assert _run(path, "--check", "--shape", "z=2,3") == 1
    assert "[onnx] z: the inputs of the file are x" in capsys.readouterr().err
    assert _run(path, "--check", "--shape", "x=2,a") == 2
    assert "expected NAME=1,3,224,224, got 'x=2,a'" in capsys.readouterr().err
    assert _run(path, "--check") == 1
    assert "the shape of input 'x' is not known: give it with --shape" in capsys.readouterr().err
    assert _run(path, "--check", "--shape", "x=2,3") == 0

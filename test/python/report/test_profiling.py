"""Profiles, names of layers, and explicit layouts."""

import json
from pathlib import Path

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, singa_wrap, tensor
from singa.tensor import Tensor


class Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layer.Conv2d(16, 3, stride=2, padding=1)
        self.fc = layer.Linear(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(autograd.flatten(autograd.relu(self.conv(x))))

    def train_one_batch(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        out = self.forward(x)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


@pytest.fixture
def net() -> tuple[Net, Tensor, Tensor]:
    random = np.random.default_rng(0)
    singa.seed(0)
    x = tensor.from_numpy(random.standard_normal((4, 16, 8, 8)).astype(np.float32))
    y = tensor.from_numpy(np.arange(4, dtype=np.int32))
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x])
    return net, x, y


def test_profile_names_operations_and_layers(net: tuple[Net, Tensor, Tensor]) -> None:
    m, x, y = net
    with singa.profile() as p:
        m(x, y)
    m(x, y)  # not recorded
    operations = {(record.op, record.layer) for record in p.records if record.op != "Reorder"}
    assert {
        ("ConvForward", "conv"),
        ("ConvBackwardW", "conv"),
        ("LinearForward", "fc"),
        ("SgdUpdate", ""),
    } <= operations
    assert len([r for r in p.records if r.op == "ConvForward"]) == 1
    assert all(r.ms > 0 and r.implementation for r in p.records)
    assert p.records == sorted(p.records, key=lambda r: r.start)
    assert p.total_ms == pytest.approx(sum(r.ms for r in p.records))
    conv = next(r for r in p.records if r.op == "ConvForward")
    assert "(4, 16, 8, 8)" in conv.shapes
    assert "(4, 16, 4, 4)" in conv.shapes
    assert not singa_wrap.IsProfiling()
    assert singa_wrap.CurrentLayer() == ""


@pytest.mark.parametrize("graph", [False, True])
def test_profile_counts_bytes_and_products(net: tuple[Net, Tensor, Tensor], graph: bool) -> None:
    m, x, y = net
    m.compile([x], use_graph=graph)
    for _ in range(3):
        m(x, y)
    with singa.profile() as p:
        m(x, y)
    by_op = {record.op: record for record in p.records}
    image, weights, bias, result = 4 * 16 * 8 * 8, 16 * 16 * 3 * 3, 16, 4 * 16 * 4 * 4
    assert by_op["ConvForward"].bytes == 4 * (image + weights + bias + result)
    products = result * 16 * 3 * 3
    assert by_op["ConvForward"].flops == by_op["ConvBackwardW"].flops == 2 * products
    assert by_op["LinearForward"].flops == 2 * 4 * 256 * 4
    assert by_op["SgdUpdate"].flops == 0
    row = next(line for line in str(p).splitlines() if "  LinearForward  " in line)
    gigabytes, gigaflops = (float(column) for column in row.split()[3:5])
    # Both are rounded to one digit after the point.
    expected = by_op["LinearForward"].flops / by_op["LinearForward"].bytes
    assert gigaflops == pytest.approx(expected * gigabytes, abs=0.06 * (1 + expected))


def test_profile_tables_and_trace(net: tuple[Net, Tensor, Tensor], tmp_path: Path) -> None:
    m, x, y = net
    with singa.profile() as p:
        m(x, y)
        with pytest.raises(RuntimeError, match=r"\[profile\]"), singa.profile():
            pass
    lines = str(p).splitlines()
    assert lines[0].split() == ["calls", "ms", "share", "GB/s", "GFLOP/s", "op"]
    assert sum(int(line.split()[0]) for line in lines[1:-1]) == len(p.records)
    assert "conv" in p.table(by="layer")
    assert "... and" in p.table(limit=1)
    with pytest.raises(ValueError, match=r"\[profile\].*'name'"):
        p.table(by="name")
    p.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events] == [record.op for record in p.records]
    assert [event["args"]["bytes"] for event in events] == [record.bytes for record in p.records]
    assert {event["tid"] for event in events} == {record.thread for record in p.records}
    p.chrome_trace(tmp_path / "all.json", all_ranks=True)
    assert (tmp_path / "all.json").read_text() == (tmp_path / "trace.json").read_text()


def test_profile_does_not_change_results(net: tuple[Net, Tensor, Tensor]) -> None:
    m, x, _ = net
    m.eval()
    plain = m(x).numpy().copy()
    with singa.profile():
        profiled = m(x).numpy().copy()
    np.testing.assert_array_equal(plain, profiled)


def test_profile_of_nothing() -> None:
    with singa.profile() as p:
        pass
    assert p.records == []
    assert (p.total_ms, p.gap_ms) == (0, 0)
    assert "in operations" in str(p)


def test_layout_report_names_the_layer(net: tuple[Net, Tensor, Tensor]) -> None:
    m, x, y = net
    singa.layout_report()
    m(x, y)
    report = singa.layout_report(record=False)
    assert all(entry["op"] for entry in report)
    x.to_plain()
    if (
        tensor.from_numpy(x.numpy().copy()).to_blocked().is_blocked
    ):  # the build has a backend with opaque layouts
        assert ("ConvForward", "conv") in {(entry["op"], entry["layer"]) for entry in report}


def test_plain_layout_gives_the_same_training(net: tuple[Net, Tensor, Tensor]) -> None:
    m, x, y = net
    states = {name: value.numpy().copy() for name, value in m.get_states().items()}
    losses: dict[str, list[float]] = {}
    try:
        for mode in ("auto", "plain"):
            singa.set_layout(mode)
            m.set_states(states)
            m.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
            losses[mode] = [float(m(x, y)[1].numpy().reshape(())) for _ in range(4)]
            y_conv = m.conv(x)
            assert mode == "auto" or not y_conv.is_blocked
    finally:
        singa.set_layout("auto")
    np.testing.assert_allclose(losses["plain"], losses["auto"], rtol=1e-4)
    with pytest.raises(ValueError, match=r"\[set_layout\].*'nhwc'"):
        singa.set_layout("nhwc")


def test_a_checkpoint_is_plain_whatever_the_weights_lie_in(
    net: tuple[Net, Tensor, Tensor], tmp_path: Path
) -> None:
    m, x, y = net
    for _ in range(3):
        m(x, y)
    m.save_states(tmp_path / "a.npz")
    m.eval()
    expected = m(x).numpy().copy()
    other = Net()
    other.compile([x])
    other.load_states(tmp_path / "a.npz")
    other.eval()
    np.testing.assert_array_equal(other(x).numpy(), expected)
    for name, value in m.get_states().items():
        np.testing.assert_array_equal(other.get_states()[name].numpy(), value.numpy(), err_msg=name)


def test_to_blocked_and_back() -> None:
    values = np.random.default_rng(0).standard_normal((2, 18, 5, 3)).astype(np.float32)
    t = tensor.from_numpy(values.copy())
    shared = t.detach()
    assert t.to_blocked() is t
    np.testing.assert_array_equal(t.numpy(), values)
    assert not shared.is_blocked
    t.to_blocked()
    block = layer.Sequential(layer.ToBlocked(), layer.ReLU(), layer.ToPlain())
    y = block(t)
    assert not y.is_blocked
    np.testing.assert_array_equal(y.numpy(), np.maximum(values, 0))
    for other in (tensor.ones((3, 4)), tensor.ones((2, 3, 4, 5)).as_type(tensor.float64)):
        assert not other.to_blocked().is_blocked

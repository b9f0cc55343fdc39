"""`singa.advise`: what it tries, what it says of it, and that the model stays as it is."""

import random
import re
from typing import Any

import numpy as np
import pytest
import singa
from bits import everything
from html_page import Page
from singa import autograd, layer, model, opt, singa_wrap, tensor, tuning
from singa.commands import advise as command
from singa.data import DataLoader
from singa.report import advice, grouped, loading, trials
from singa.report.profiling import Record
from singa.report.trials import Comparison, Twin, compare, interval

pytestmark = pytest.mark.cpu("it tries layouts and instructions of the CPU")


class Net(model.Model):
    """Convolutions, one of them of groups, with batch norm and ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(32, 3, padding=1, bias=False)
        self.bn1 = layer.BatchNorm2d()
        self.conv2 = layer.Conv2d(32, 3, padding=1, group=8, bias=False)
        self.bn2 = layer.BatchNorm2d()
        self.drop = layer.Dropout(0.5)
        self.fc = layer.Linear(3)
        self.loss = layer.SoftMaxCrossEntropy()

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.bn1(self.conv1(x), relu=True)
        y = self.bn2(self.conv2(y), relu=True)
        return self.fc(self.drop(autograd.flatten(y)))


def made(net: model.Model | None = None, **options: Any) -> tuple[Any, tensor.Tensor, Any]:
    """A network that has trained for some steps, and a batch."""
    singa.seed(0)
    draw = np.random.default_rng(0)
    x = tensor.from_numpy(draw.standard_normal((4, 3, 12, 12), dtype=np.float32))
    y = tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))
    net = net or Net()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x], **options)
    for _ in range(4):
        net(x, y)
    return net, x, y


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and short turns."""
    monkeypatch.setattr(trials, "_TURNS", 5)
    monkeypatch.setattr(trials, "_TURN", 1e-4)
    tune = tuning.tune
    monkeypatch.setattr(tuning, "tune", lambda *batch, limit: tune(*batch, limit=0))


class Tried(list[Twin]):
    """Takes the place of the timing: each alternative takes `ratio` of the time, per input."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    def __call__(self, base: Twin, other: Twin, *_: float) -> Comparison:
        self.append(other)
        ratio = self.ratio * other.batch[0].shape[0] / base.batch[0].shape[0]
        return Comparison(1.0, ratio, ratio, ratio)


def tried(monkeypatch: pytest.MonkeyPatch, ratio: float) -> Tried:
    found = Tried(ratio)
    monkeypatch.setattr(advice, "compare", found)
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: {"chosen": "default"})
    return found


def by_topic(found: advice.Advice) -> dict[str, advice.Piece]:
    return {piece.topic: piece for piece in found}


# What stays as it is.


def state_of(net: model.Model) -> list[Any]:
    """All that advice must not change, as bytes and plain values."""
    dev = next(iter(net.get_states().values())).device
    return [
        *(everything(net), net.optimizer.steps, dev.random_state()),
        *(np.random.get_state()[1].tobytes(), random.getstate()),  # noqa: NPY002
        *(net.training, autograd.training, net.graph_mode, net._autocast_dtype, net._recompute),
        *(singa_wrap.Selection(), tuning.choices(), singa_wrap.IsProfiling()),
        [id(t.data) for t in net.get_states().values()],
    ]


@pytest.mark.parametrize("plain", [False, True])
def test_the_model_stays_as_it_is(short: None, plain: bool) -> None:
    singa.set_layout("plain" if plain else "auto")
    try:
        net, x, y = made(use_graph=True)
        images = np.zeros((11, 3, 12, 12), np.float32)
        loader = DataLoader((images, np.zeros(11, np.int32)), 4, shuffle=True)
        next(iter(loader))
        recorded, before, place = net._graphs().graphs(), state_of(net), loader.state_dict()
        found = singa.advise(net, x, y, loader=loader, limit=60)
        assert {"batch size", "autotune", "data"} <= by_topic(found).keys() | found.without.keys()
        assert state_of(net) == before
        assert loader.state_dict() == place
        with singa.profile() as profile:
            net(x, y)
        assert profile.records
        assert net._graphs().graphs() == recorded, "the step is not recorded again"
    finally:
        singa.set_layout("auto")


def test_the_mode_of_inference_stays(short: None) -> None:
    net, x, _ = made()
    net.eval()
    expected, before = net(x).numpy(), state_of(net)
    found = singa.advise(net, x, limit=60)
    assert found.step == "step of inference of 4 inputs"
    assert state_of(net) == before
    np.testing.assert_array_equal(net(x).numpy(), expected)


# What is tried, and said.


def test_lines_make_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is code that gives the model the settings of the copy that was timed."""
    net, x, y = made()
    timed = tried(monkeypatch, 0.5)
    monkeypatch.setattr(advice, "cpu_flags", lambda: {"avx512_bf16"})
    found = by_topic(singa.advise(net, x, y))
    assert {"recorded steps", "16 bits", "batch size"} <= found.keys()
    exec(found["recorded steps"].line, {"net": net})
    assert net.graph_mode
    net.graph(False)
    exec(found["16 bits"].line, {"net": net, "x": x})
    assert net._autocast_dtype == tensor.bfloat16
    assert not net.graph_mode
    assert all(piece.time == 0.5 for piece in found.values() if piece.topic != "reorders")
    assert any(twin.model.graph_mode for twin in timed)
    assert any(twin.model._autocast_dtype == tensor.bfloat16 for twin in timed)
    assert "batch_size=8" in found["batch size"].line
    assert {twin.batch[0].shape[0] for twin in timed} == {4, 8, 16}, "16 gain no more than 8"


def test_what_does_not_gain_is_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made()
    tried(monkeypatch, 0.99)
    monkeypatch.setattr(advice, "typical", lambda step: [Record("A", "", "", "", 0.0, 1.0, 0)])
    found = singa.advise(net, x, y)
    assert found == []
    assert found.without["recorded steps"] == "it takes 99% of the time"
    assert found.without["recompute"] == "it is for recorded steps"
    assert "Nothing was found" in str(found)


def test_recompute_says_what_the_plan_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = {}
    for recompute in (False, True):
        net, x, y = made(use_graph=True, recompute=recompute)
        planned[recompute] = net.memory_plan()["planned_bytes"]
    net, x, y = made(use_graph=True)
    tried(monkeypatch, 1.02)
    piece = by_topic(singa.advise(net, x, y))["recompute"]
    assert piece.memory == pytest.approx(1 - planned[True] / planned[False])
    assert piece.memory > 0.05
    assert piece.time == pytest.approx(-0.02)
    exec(piece.line, {"net": net, "x": x})
    assert net._recompute
    assert net.graph_mode
    assert "recompute" not in by_topic(singa.advise(net, x, y))


def tensor_bytes(net: model.Model) -> int:
    """Planned memory without plans, which are no part of a limit."""
    plan = net.memory_plan()
    return int(plan["planned_bytes"] - plan["by_kind"]["plans"])


@pytest.mark.parametrize("named", [True, False])
def test_a_limit_of_memory_is_kept(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """It is that of the argument, or nine tenths of what the process may use."""
    net, x, y = made(use_graph=True)
    need = tensor_bytes(net)
    tried(monkeypatch, 1.04)
    limit = int(0.8 * need)
    if not named:
        monkeypatch.setattr(advice, "machine_memory", lambda: limit / 0.9)
        monkeypatch.setattr(advice, "_UNIT", (0, "B"))
    found = by_topic(singa.advise(net, x, y, memory_limit=limit if named else None))
    piece = found["memory limit"]
    assert piece.time == pytest.approx(-0.04)
    assert piece.memory is not None
    assert piece.memory > 0.1
    assert f"{need / 2**20:.1f} MiB" in piece.finding
    fresh, x, y = made()
    exec(piece.line, {"net": fresh, "x": x})
    for _ in range(4):
        fresh(x, y)
    assert tensor_bytes(fresh) <= limit
    assert fresh.memory_plan()["limit"]["bytes"] == pytest.approx(limit, abs=1)


def test_a_limit_of_memory_that_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made(use_graph=True)
    tried(monkeypatch, 1.0)
    large = singa.advise(net, x, y, memory_limit="1 GiB")
    assert large.without["memory limit"].endswith("of 1024.0 MiB")
    small = singa.advise(net, x, y, memory_limit="1 KiB")
    assert re.match(
        r"cannot be tried: \[compile\] memory_limit is 1.0 KiB, and the step needs",
        small.without["memory limit"],
    )
    assert "memory limit" not in singa.advise(net, x, y).without
    net, x, y = made()
    found = singa.advise(net, x, y, memory_limit="1 KiB")
    assert found.without["memory limit"] == "it is for recorded steps"


def test_options_that_keep_results_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made(recompute=False)
    tried(monkeypatch, 0.5)
    monkeypatch.setattr(advice, "cpu_flags", lambda: {"avx512_bf16"})
    assert "recompute=False" in by_topic(singa.advise(net, x, y))["16 bits"].line


def test_forced_plain_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made()
    tried(monkeypatch, 0.5)
    singa.set_layout("plain")
    try:
        piece = by_topic(singa.advise(net, x, y))["plain layout"]
        exec(piece.line, {"singa": singa})
        assert not singa_wrap.PlainLayouts()
    finally:
        singa.set_layout("auto")


def test_layers_that_force_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reordered(Net):
        def __init__(self) -> None:
            super().__init__()
            self.plain = layer.ToPlain()

        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            return super().forward(self.plain(x))

    net, x, y = made(Reordered())
    timed = tried(monkeypatch, 0.5)
    piece = by_topic(singa.advise(net, x, y))["layers of layouts"]
    assert piece.line == "net.plain = layer.Identity()"
    assert any(twin.model.plain(x) is x for twin in timed)
    exec(piece.line, {"net": net, "layer": layer})
    net(x, y)


def test_reorders_say_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two reorders for one operation of a layer count together; one below 3 % does not."""
    net, x, y = made()
    tried(monkeypatch, 1.0)
    way = "nChw16c to plain"
    records = [
        *(Record("Reorder", "a", way, "", 0, 4.0, 0), Record("Slice", "a", "", "", 0, 40.0, 0)),
        *(Record("Reorder", "a", way, "", 0, 6.0, 0), Record("Slice", "a", "", "", 0, 40.0, 0)),
        *(Record("Reorder", "b", way, "", 0, 2.0, 0), Record("Softmax", "b", "", "", 0, 8.0, 0)),
    ]
    monkeypatch.setattr(advice, "typical", lambda step: records)
    (piece,) = (p for p in singa.advise(net, x, y) if p.topic == "reorders")
    assert (piece.time, piece.how) == (0.1, "at most")
    assert piece.finding.startswith("nChw16c to plain for Slice in layer a takes 10 ms.")
    tried(monkeypatch, 0.9)
    piece = by_topic(singa.advise(net, x, y))["reorders"]
    assert (piece.time, piece.how) == (pytest.approx(0.1), "measured")
    assert piece.line == 'singa.set_layout("plain")'


def test_groups_are_tried_as_depthwise_and_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made()
    timed = tried(monkeypatch, 0.5)
    way = "joined groups, 4 at a time (jit:avx512_core)"
    records = [Record("ConvForward", "conv2", way, "", 0, 4.0, 0)]
    monkeypatch.setattr(advice, "typical", lambda step: records)
    piece = by_topic(singa.advise(net, x, y))["groups"]
    assert piece.finding.startswith("conv2: 3 products of 4 are with zeros")
    assert piece.line.startswith("group=in_channels")
    depthwise = next(twin for twin in timed if twin.model.conv2.group == 32)
    assert depthwise.model.conv2.W.shape == (32, 1, 3, 3)
    _, alone = dict(grouped.changes(net, ["conv2"])).popitem()
    other = Twin(net, (x, y), change=alone)
    assert other.model.conv2.W.shape == (32, 32, 3, 3)
    assert net.conv2.W.shape == (32, 4, 3, 3)


def test_joined_groups_are_recognised() -> None:
    net, x, y = made()
    with singa.profile() as profile:
        net(x, y)
    described = " ".join(record.implementation for record in profile.records)
    found = grouped.joined(profile.records)
    assert found in ({}, {"conv2": 2}, {"conv2": 4}), "vectors of 8 or 16 floats, or none"
    assert bool(found) == ("joined groups" in described)


def test_the_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    net, x, y = made()
    found = singa.advise(net, x, y, limit=0)
    assert found == []
    assert set(found.without.values()) == {"not tried: the time limit was reached"}
    assert command.main(["lenet", "--batch", "2", "--limit", "0"]) == 0
    assert "A training step of 2 inputs takes" in capsys.readouterr().out


def test_a_saved_network_on_the_command_line(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "net.singa")
    small = singa.models.create("lenet")
    small.compile([tensor.from_numpy(np.zeros((1, 1, 28, 28), np.float32))])
    small.save(file)
    assert command.main([file, "--inference", "--batch", "3", "--limit", "0"]) == 0
    assert "A step of inference of 3 inputs takes" in capsys.readouterr().out
    assert command.main([str(tmp_path / "none")]) == 1
    assert "neither a file nor a network" in capsys.readouterr().err


def test_a_step_that_needs_its_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(Net):
        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            return super().forward(autograd.reshape(x, (4, 3, 12, 12)))

    net, x, y = made(Fixed())
    tried(monkeypatch, 0.5)
    found = singa.advise(net, x, y)
    assert found.without["batch size"].startswith("cannot be tried: ")


# The table.


def test_table() -> None:
    found = advice.Advice("training step of 4 inputs", 12.345, 3 * 2**20)
    line = 'net.compile([x], dtype="bfloat16")'
    found.append(advice.Piece("16 bits", "a finding. " * 9, line, 0.25, 0.5, note="Rounds <more>."))
    found.without["autotune"] = "the default choices are the fastest"
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "A training step of 4 inputs takes 12.3 ms and 3.0 MiB." in text
    assert "\n  -25 %   -50 %  16 bits: a finding." in text
    assert f"\n{'':17}{line}\n{'':17}Measured. Rounds <more>.\n" in text
    page = found._repr_html_()
    Page(page)
    assert "Rounds &lt;more&gt;." in page
    assert "-25 %" in page


# Timing.


def test_interval_of_a_median() -> None:
    """Of 25 values the 95 % interval of the median is from the 8th to the 18th (binomial)."""
    values = list(map(float, range(1, 26)))
    random.Random(0).shuffle(values)
    assert interval(values) == (8.0, 18.0)
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


class Clock:
    """A step of which it is known how long it takes."""

    def __init__(self, *seconds: float) -> None:
        self.all, self.calls = seconds, 0

    def seconds(self, steps: int) -> float:
        self.calls += 1
        return self.all[self.calls % len(self.all)]


def test_compare() -> None:
    found = compare(Clock(2.0), Clock(1.0, 1.2), 60)
    assert (found.seconds, found.low, found.high) == (2.0, 0.5, 0.6)
    slow = Clock(3.0)
    assert compare(Clock(2.0), slow, 60).ratio == 1.5
    assert slow.calls == 5, "it stops early"
    once = Clock(1.0)
    compare(Clock(2.0), once, 0)
    assert once.calls == 5


# Data.


class Pass:
    """A loader with a short last batch."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def __iter__(self) -> Any:
        return ((np.zeros((n, 3, 12, 12), np.float32), np.zeros(n, np.int32)) for n in self.sizes)


def test_waiting_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made()
    tried(monkeypatch, 1.0)
    milliseconds = {0: 10.0, 1: 9.0}  # by workers; 8 of more

    def with_data(self: loading.Waiting, loader: Any) -> float:
        return milliseconds.get(getattr(loader, "num_workers", 0), 8.0)

    monkeypatch.setattr(loading.Waiting, "_with_data", with_data)
    monkeypatch.setattr(loading.Waiting, "_alone", lambda self: 4.0)
    monkeypatch.setattr(loading, "get_num_threads", lambda: 2)
    piece = by_topic(singa.advise(net, x, y, loader=Pass([4])))["data"]
    assert (piece.time, piece.how) == (0.6, "at most")
    loader = DataLoader((x.numpy(), y.numpy()), 4, num_workers=0)
    piece = by_topic(singa.advise(net, x, y, loader=loader))["data"]
    assert (piece.time, piece.how) == (pytest.approx(0.2), "measured")
    assert piece.line == "DataLoader(..., num_workers=2)"
    monkeypatch.setattr(loading.Waiting, "_alone", lambda self: 10.0)
    found = singa.advise(net, x, y, loader=loader)
    assert found.without["data"] == "steps wait for it 0.0% of the time"


def test_batches_of_other_sizes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = made()
    batches = loading._endless(Pass([4, 4, 2]), (x, y))
    assert [len(next(batches)[0]) for _ in range(5)] == [4] * 5
    with pytest.raises(ValueError, match="no batch of shapes"):
        next(loading._endless(Pass([2]), (x, y)))
    tried(monkeypatch, 1.0)
    found = singa.advise(net, x, y, loader=iter(Pass([4])))
    assert "an iterator" in found.without["data"]


# What is refused.


def test_wrong_calls() -> None:
    net, x, y = made()
    with pytest.raises(TypeError, match=r"\[advise\] expected a model, got Conv2d"):
        singa.advise(net.conv1, x)
    with pytest.raises(TypeError, match=r"\[advise\] expected the arguments of a step"):
        singa.advise(net)
    with pytest.raises(RuntimeError, match=r"\[advise\].*compile\(\) first"):
        singa.advise(Net(), x, y)
    with pytest.raises(ValueError, match=r"\[advise\] limit is NaN"):
        singa.advise(net, x, y, limit=float("nan"))
    with pytest.raises(RuntimeError, match=r"\[advise\] a profile .* is running"), singa.profile():
        singa.advise(net, x, y)

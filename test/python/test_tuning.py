"""Choices of implementations: forced, measured, saved, loaded, explained."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, singa_wrap, tensor, tuning
from singa.tensor import Tensor
from singa.training import checkpoint

pytestmark = pytest.mark.cpu("implementations by name")

HAS_ONEDNN = singa.doctor()["onednn"] != "not in this build"


class Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layer.Conv2d(16, 3, padding=1)
        self.bn = layer.BatchNorm2d()
        self.conv2 = layer.Conv2d(16, 3, stride=2, padding=1)
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv1(x), relu=True)
        return self.fc(autograd.flatten(autograd.relu(self.conv2(y))))


def make_net() -> tuple[Net, Tensor, Tensor]:
    singa.seed(0)
    random = np.random.default_rng(0)
    x = tensor.from_numpy(random.standard_normal((4, 3, 12, 12)).astype(np.float32))
    y = tensor.from_numpy(np.arange(4, dtype=np.int32))
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x])
    return net, x, y


def images(*shape: int) -> Tensor:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    return tensor.from_numpy(values)


@pytest.fixture(autouse=True)
def empty_table() -> Iterator[None]:
    tuning.clear()
    yield
    tuning.clear()


def force(operation: dict[str, Any], candidate: str) -> None:
    """Chooses an implementation for an operation that was explained."""
    machine = singa_wrap.TuningMachine()
    entry = {"signature": operation["signature"], "candidate": candidate, "machine": machine}
    tuning.add([{**entry, "measured": ""}])


def operations(explanation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in explanation if entry["op"] != "Reorder"]


FAMILIES = {
    "convolution": (lambda: layer.Conv2d(32, 3, padding=1), (images(2, 32, 9, 7),)),
    "maximum": (lambda: layer.MaxPool2d(2, 2), (images(2, 32, 9, 7),)),
    "average": (lambda: layer.AvgPool2d(2, 2), (images(2, 32, 9, 7),)),
    "batch norm": (lambda: layer.BatchNorm2d(), (images(2, 32, 9, 7),)),
    "softmax": (lambda: lambda x: autograd.softmax(x, 1), (images(64, 100),)),
    "matmul": (lambda: autograd.matmul, (images(64, 100), images(100, 50))),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_forced_implementations(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Implementation, workspace and in-place pairs follow the choice; values do not change."""
    monkeypatch.setattr(autograd, "training", True)
    make, inputs = FAMILIES[family]
    call = make()
    if inputs[0].ndim() == 4:
        inputs = tuple(x.to_blocked() for x in inputs)
    call(*inputs)  # creates its parameters
    (default,) = operations(singa.explain(call, *inputs))
    assert default["why"]
    assert "reference" in (default["implementation"], *default["refused"])
    expected = [y.numpy() for y in _results(call, *inputs)]

    force(default, "reference")
    (forced,) = operations(singa.explain(call, *inputs))
    assert forced["implementation"] == "reference"
    assert "in the table" in forced["why"]
    assert not any(":" in result for result in forced["outputs"]), "row-major"
    for got, want in zip(_results(call, *inputs), expected, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-5)

    if default["implementation"] == "reference":
        return  # the build or the CPU has no others
    assert default["description"] != forced["description"]
    if family == "convolution":
        assert forced["workspace"] >= 32 * 9 * 63 * 4, "im2col's columns"
        assert forced["workspace"] != default["workspace"]
    if family == "batch norm":
        assert default["in_place"] == {0: 0}
        assert forced["in_place"] == {}


def _results(call: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    results = call(*inputs)
    return results if isinstance(results, tuple) else (results,)


def test_each_way_of_a_convolution_can_be_forced() -> None:
    call, x = layer.Conv2d(32, 3, padding=1), images(2, 32, 9, 7)
    call(x)
    singa_wrap.SetPreference(singa_wrap.Preference_kAutotune)
    try:
        expected = call(x).numpy()
    finally:
        singa_wrap.SetPreference(singa_wrap.Preference_kFastest)
    (choice,) = tuning.choices()
    names = [text.split(" ", 2)[2] for text in choice["measured"].split(", ")]
    assert "reference" in names
    assert choice["candidate"] in names
    seen = set()
    for name in names:
        (operation,) = operations(singa.explain(call, x))
        force(operation, name)
        (operation,) = operations(singa.explain(call, x))
        assert operation["why"].startswith(f"{name} is in the table")
        assert name.startswith(operation["description"].split()[0])
        seen.add((operation["description"], *operation["outputs"]))
        np.testing.assert_allclose(call(x).numpy(), expected, rtol=2e-4, atol=2e-5)
    assert len(seen) == len(names)


def test_explain_a_model_names_layers_reasons_and_layouts() -> None:
    net, x, y = make_net()
    before = [p.numpy() for p in net.get_params().values()]
    inference = singa.explain(net)
    for param, value in zip(net.get_params().values(), before, strict=True):
        np.testing.assert_array_equal(param.numpy(), value)
    assert [e["layer"] for e in inference if e["op"] == "ConvForward"] == ["conv1", "conv2"]
    assert not any("Backward" in e["op"] for e in inference)
    step = singa.explain(net, x, y)
    assert {"ConvForward", "ConvBackwardX", "ConvBackwardW", "SgdUpdate"} <= {e["op"] for e in step}
    (backward,) = [e for e in step if e["op"] == "ConvBackwardX"]
    assert backward["layer"] == "conv2", "the first layer needs none"
    assert backward["inputs"][0].startswith("(4, 16, 6, 6)")
    assert (backward["input_names"], backward["output_names"]) == (["dy", "W"], ["dx"])
    conv = next(e for e in step if e["op"] == "ConvForward")
    names = {conv["implementation"], *conv["refused"]}
    of_onednn = {"onednn", "joined groups"}
    assert names - of_onednn == {
        *("amx", "tiles", "depthwise", "pointwise", "pairs", "winograd", "cpu", "reference")
    }
    assert names & of_onednn == (of_onednn if HAS_ONEDNN else set())
    assert all(conv["refused"].values())
    update = next(e for e in step if e["op"] == "SgdUpdate")
    assert update["taken"], "parameters are updated in place"
    text = step.table(full=True)
    assert "conv2" in text
    assert "dy (4, 16, 6, 6)" in text
    assert conv["why"] in text
    assert all(f"    not {name}: {reason}" in text for _, _, name, reason in step.refusals())
    assert not singa_wrap.IsProfiling()


def test_a_short_table_of_operations() -> None:
    net, x, y = make_net()
    step = singa.explain(net, x, y)
    heads, rule, *rows, again, total = str(step).splitlines()
    assert heads.split() == ["calls", "ms", "operation", "implementation"]
    assert {rule, again} == {"-" * len(rule)}
    assert max(map(len, (rule, *rows))) <= 80
    assert sum(int(row.split()[0]) for row in rows) == len(step)
    assert len(rows) == len({(e["op"], e["description"]) for e in step})
    times = [float(row.split()[1]) for row in rows]
    assert times == sorted(times, reverse=True)
    assert total.startswith(f"{len(step)} operations, ")
    assert "table(full=True)" in total
    first = step.table(limit=1).splitlines()
    assert first[2].split() == rows[0].split()
    assert first[4] == f"... and {len(rows) - 1} more rows"
    with autograd.no_grad():
        forced = singa.explain(net)
    for entry in forced:
        entry["why"] = "SINGA_PREFER is reference"
    assert str(forced).splitlines()[0].split()[-1] == "why"
    assert "SINGA_PREFER" in str(forced)
    assert str(singa.explain()).endswith("0 operations, 0.000 ms")


def test_explain_as_a_context_and_what_it_refuses() -> None:
    x = images(3, 5)
    with singa.explain() as ops:
        autograd.relu(x)
        autograd.relu(x)
    autograd.relu(x)
    assert [e["op"] for e in ops] == ["Relu", "Relu"]
    assert ops[0]["outputs"] == ["(3, 5)"]
    with pytest.raises(TypeError, match=r"\[explain\].*function"):
        singa.explain(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"\[explain\] call compile"):
        singa.explain(Net())
    with singa.profile(), pytest.raises(RuntimeError, match=r"\[explain\] a profile"):
        singa.explain(autograd.relu, x)
    with pytest.raises(ZeroDivisionError):
        singa.explain(lambda: 1 // 0)
    assert not singa_wrap.IsProfiling()


def _momenta(net: Net) -> dict[str, Tensor]:
    (momenta,) = (v for v in net.optimizer.get_states().values() if isinstance(v, dict))
    return momenta


def test_tune_leaves_the_model_as_it_was_and_covers_it() -> None:
    net, x, y = make_net()
    net(x, y)
    params = {name: p.numpy() for name, p in net.get_params().items()}
    momenta = {name: m.numpy() for name, m in _momenta(net).items()}
    twin, _, _ = make_net()
    twin(x, y)
    report = tuning.tune(net, x, y)
    assert set(report["steps"]) >= {"default", "each by itself", "nhwc"}
    assert report["chosen"] in report["steps"]
    assert report["seconds"] > 0
    for name, p in net.get_params().items():
        np.testing.assert_array_equal(p.numpy(), params[name])
    for name, m in _momenta(net).items():
        np.testing.assert_array_equal(m.numpy(), momenta[name])
    assert singa_wrap.PreferenceName(singa_wrap.GetPreference()) == "fastest"
    table = {c["signature"]: c["candidate"] for c in tuning.choices()}
    convolutions = [e for e in singa.explain(net, x, y) if e["op"].startswith("Conv")]
    assert len(convolutions) == 5
    for entry in convolutions:
        assert entry["signature"] in table
        assert "in the table" in entry["why"]
    twin(x, y)
    for name, p in net.get_params().items():
        np.testing.assert_allclose(p.numpy(), twin.get_params()[name].numpy(), rtol=1e-3, atol=1e-4)


PROGRAM = """
import sys, numpy as np, singa
sys.path.insert(0, sys.argv[1])
from test_tuning import make_net
if sys.argv[2] == "load":
    singa.tuning.load(sys.argv[3])
net, x, y = make_net()
if sys.argv[2] == "force":
    from test_tuning import force
    for _ in range(4):  # each choice changes the layouts of inputs of the next operation
        for entry in singa.explain(net, x, y):
            if entry["op"].startswith("Conv"):
                force(entry, "reference")
    singa.tuning.save(sys.argv[3])
    net, x, y = make_net()
for _ in range(3):
    net(x, y)
ops = {e["implementation"] for e in singa.explain(net, x, y) if e["op"].startswith("Conv")}
print(*ops, *(p.numpy().tobytes().hex() for p in net.get_params().values()))
"""


def run_program(how: str, path: Path) -> str:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", PROGRAM, here, how, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_loaded_choices_give_the_same_bits_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    forced = run_program("force", path)
    assert forced.startswith("reference ")
    assert run_program("load", path) == forced
    if HAS_ONEDNN:
        assert run_program("neither", path).split()[0] != "reference"


def entry(**changes: Any) -> dict[str, Any]:
    whole = {"signature": "Toy a=1", "candidate": "reference", "machine": "m", "measured": ""}
    return whole | changes


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    tuning.add([entry(), entry(signature="Toy a=2", machine="another")])
    tuning.save(path)
    assert path.read_text().startswith("{")
    tuning.clear()
    assert tuning.choices() == []
    tuning.add([entry(candidate="onednn"), entry(signature="Toy a=3")])
    tuning.load(path)
    found = {(c["signature"], c["machine"]): c["candidate"] for c in tuning.choices()}
    assert found == {
        ("Toy a=1", "m"): "reference",
        ("Toy a=2", "another"): "reference",
        ("Toy a=3", "m"): "reference",
    }
    with pytest.raises(FileNotFoundError):
        tuning.load(tmp_path / "nowhere.json")


GOOD = {"format": "singa tuning", "version": 1, "choices": []}
BAD = {
    "empty": b"",
    "truncated": json.dumps(GOOD | {"choices": [entry()]}).encode()[:-20],
    "no text": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "something else": b'{"format": "singa checkpoint"}',
    "another version": json.dumps(GOOD | {"version": 2}).encode(),
    "no choices": json.dumps({"format": "singa tuning", "version": 1}).encode(),
    "choices are no list": json.dumps(GOOD | {"choices": {"a": 1}}).encode(),
    "a choice is a list": json.dumps(GOOD | {"choices": [entry(), []]}).encode(),
    "a field lacks": json.dumps(GOOD | {"choices": [entry(), {"signature": "a"}]}).encode(),
    "a field more": json.dumps(GOOD | {"choices": [entry(), entry(more="")]}).encode(),
    "a number": json.dumps(GOOD | {"choices": [entry(), entry(candidate=1)]}).encode(),
    "an empty name": json.dumps(GOOD | {"choices": [entry(), entry(candidate="")]}).encode(),
    "control characters": json.dumps(GOOD | {"choices": [entry(machine="a\x00b")]}).encode(),
}


@pytest.mark.parametrize("kind", BAD)
def test_damaged_files_change_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "choices.json"
    path.write_bytes(BAD[kind])
    tuning.add([entry(candidate="kept")])
    with pytest.raises(ValueError, match=r"\[tuning.load\].*choices.json"):
        tuning.load(path)
    assert [c["candidate"] for c in tuning.choices()] == ["kept"]


def test_checkpoints_hold_choices(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    net, x, y = make_net()
    net(x, y)
    tuning.add([entry()])
    checkpoint.save(path, net, net.optimizer)
    tuning.clear()
    checkpoint.load(path, net, net.optimizer)
    assert tuning.choices() == [entry()]


def test_other_choices_for_a_while_keep_recorded_steps() -> None:
    """The same choices select the same plans, so steps that were recorded with them still hold."""
    net, x, y = make_net()
    net.compile([x], use_graph=True)
    for _ in range(4):
        net(x, y)
    recorded, selection = net._graphs().graphs(), singa_wrap.Selection()
    signature = next(e for e in singa.explain(net, x, y) if e["op"] == "ConvForward")["signature"]
    entry = {"signature": signature, "candidate": "reference", "measured": ""}
    with tuning.only_choices([{**entry, "machine": singa_wrap.TuningMachine()}]):
        assert singa_wrap.Selection() != selection
        assert [choice["candidate"] for choice in tuning.choices()] == ["reference"]
        net(x, y)
    assert tuning.choices() == []
    assert singa_wrap.Selection() == selection
    net(x, y)
    assert [graph for graph in net._graphs().graphs() if graph in recorded] == recorded
    assert len(net._graphs().graphs()) == 1

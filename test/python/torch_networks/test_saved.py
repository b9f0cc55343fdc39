"""Files and checkpoints of networks of `from_torch`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import singa
from singa import layer, opt
from singa.files.state_files import load_safetensors, save_safetensors
from singa.training import checkpoint

X = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
Y = np.arange(8, dtype=np.int32) % 5


def _module(torch: Any) -> Any:
    """Dropout, statistics, a tied, a frozen and a bfloat16 parameter, tables, two graphs."""
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
            self.other.weight = self.one.weight
            self.head = nn.Linear(36, 5)
            self.conv.bias.requires_grad_(False)
            self.factor = nn.Parameter(torch.rand(5).to(torch.bfloat16))
            self.register_buffer("table", torch.arange(36.0), persistent=False)
            self.register_buffer("turned", torch.arange(5).flip(0), persistent=False)
            self.dropout = nn.Dropout(0.3)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.conv(x)))[:, :, ::2, ::2]
            y = self.other(self.one(y.transpose(1, -1))).reshape(x.shape[0], -1)
            y = self.dropout(y + self.table.sin() * (0.1 if self.training else 0.2))
            y = self.head(y) * self.factor.float()
            return y[:, self.turned].clamp(float("-inf"), 100)

    return Network()


def _trained(net: Any, steps: int = 4, use_graph: bool = True) -> Any:
    net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
    net.compile([X], is_train=True, use_graph=use_graph)
    for _ in range(steps):
        net(X, Y)
    net.eval()
    return net


def _bits(net: Any, x: Any = X) -> str:
    return str(net(x).numpy().tobytes().hex())


_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # importing it fails
import numpy as np, singa
from singa import opt
net = singa.load("net.singa")
x = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
print(net(x).numpy().tobytes().hex())
singa.seed(3)
net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
net.compile([x], is_train=True, use_graph=True)
for _ in range(4):
    net(x, np.arange(8, dtype=np.int32) % 5)
net.eval()
print(net(x).numpy().tobytes().hex())
print(net(x[:3]).numpy().tobytes().hex())
print(type(net).__name__)
"""


def test_it_trains_on_without_pytorch(torch: ModuleType) -> None:
    net = _trained(singa.from_torch(_module(torch), X))
    net.save("net.singa")
    wanted = [_bits(net)]
    singa.seed(3)
    _trained(net)
    wanted += [_bits(net), _bits(net, X[:3]), "TorchModel"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == wanted


def test_what_is_loaded_is_what_was_saved(torch: ModuleType) -> None:
    module = _module(torch)
    net = singa.from_torch(module, X)
    net.save("net.singa")  # needs no compile()
    again = singa.load("net.singa")
    assert {name: (p.dtype, p.stores_grad) for name, p in again.get_states().items()} == {
        name: (p.dtype, p.stores_grad) for name, p in net.get_states().items()
    }
    assert "conv.bias" not in again.get_params()
    _trained(again)
    module.load_state_dict(again.state_dict())
    assert module.one.weight is module.other.weight
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(again(X).numpy(), wanted, rtol=1e-4, atol=1e-5)
    again.save("again.singa")
    metadata = load_safetensors("net.singa")[1]
    assert load_safetensors("again.singa")[1]["network"] == metadata["network"]
    assert not any("test_saved" in str(value) for value in metadata.values())  # no lines of users
    assert net.load_states("again.singa", strict=False).missing == []
    assert _bits(net) == _bits(again)


def _mean(outputs: Any, y: Any) -> Any:
    return outputs["a"].mean()


def test_a_network_of_one_batch(torch: ModuleType) -> None:
    """PyTorch leaves the batch open, but has assumed something of it."""

    class Large(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3, 5)

        def forward(self, x: Any, t: Any) -> Any:
            y = self.head(x.mean((2, 3)).repeat_interleave(2, 0) * t.repeat(2)[:, None])
            return y * 2 if x.shape[0] > 3 else y

    module, t = Large().eval(), np.linspace(0, 1, 8, dtype=np.float32)
    net = singa.from_torch(module, (X, t))
    assert not net.has_open_batch
    net.save("net.singa")
    loaded = singa.load("net.singa")
    wanted = module(torch.from_numpy(X), torch.from_numpy(t)).detach().numpy()
    for each in (net, loaded):
        np.testing.assert_allclose(each(X, t).numpy(), wanted, rtol=1e-5, atol=1e-6)
        with pytest.raises(ValueError, match=r"for this batch alone"):
            each(X[:4], t[:4])


def test_losses(torch: ModuleType) -> None:
    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return {"a": y, "b": (y * 2, y * 3)}

    x = np.ones((2, 3), np.float32)
    singa.from_torch(torch.nn.Linear(3, 2), x, loss=layer.MSELoss()).save("net.singa")
    assert type(singa.load("net.singa").loss) is layer.MSELoss
    net = singa.from_torch(Two(), x, loss=_mean)
    with pytest.warns(UserWarning, match=r"set `loss` of the network that singa\.load returns"):
        net.save("net.singa")
    again = singa.load("net.singa")
    np.testing.assert_array_equal(again(x)["b"][1].numpy(), net(x)["b"][1].numpy())
    again.set_optimizer(opt.SGD(lr=1.0))
    again.train()
    with pytest.raises(RuntimeError, match="the file of this network has no loss"):
        again(x, np.zeros(2, np.int32))
    again.loss = _mean
    again(x, np.zeros(2, np.int32))
    weight = again.get_params()["linear.weight"].numpy()
    np.testing.assert_allclose(net.get_params()["linear.weight"].numpy() - weight, 0.5, rtol=1e-5)


def test_a_run_goes_on_from_its_checkpoint(torch: ModuleType) -> None:
    module = _module(torch)
    x, y = np.concatenate([X, X[::-1]]), np.concatenate([Y, Y[::-1]])

    def fitted(epochs: int, out: str, **options: Any) -> Any:
        singa.seed(1)
        net = singa.from_torch(module, X)
        net.set_optimizer(opt.SGD(lr=0.05, momentum=0.9))
        net.compile([X], is_train=True, use_graph=True)
        net.fit(x, y, epochs=epochs, batch_size=8, verbose=False, out=out, **options)
        net.eval()
        return net

    whole = fitted(4, "whole")
    fitted(2, "parts")
    assert _bits(fitted(4, "parts", resume=True)) == _bits(whole)
    other = singa.from_torch(_module(torch), X)
    checkpoint.save("net.ckpt", whole)
    checkpoint.load("net.ckpt", other)
    assert _bits(other) == _bits(whole)


def test_a_loaded_network_is_described_quantised_and_exported(torch: ModuleType) -> None:
    pytest.importorskip("onnx")
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    net = singa.from_torch(module, X)
    net.save("net.singa")
    again = singa.load("net.singa")
    assert str(again.summary()) == str(net.summary())
    singa.onnx.save(again, "net.onnx", [X])
    wanted = again(X).numpy()
    np.testing.assert_allclose(singa.onnx.load("net.onnx")(X).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(again.quantize([X])(X).numpy() - wanted).max() < 0.1 * np.abs(wanted).max()


Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]
_HOSTILE: list[tuple[Change, str]] = [
    (lambda n, g, a: n.pop("states"), "it lacks 'states'"),
    (lambda n, g, a: n["graphs"].pop("training"), "it lacks 'training'"),
    (lambda n, g, a: a.pop("conv.weight"), "it lacks 'conv.weight'"),
    (lambda n, g, a: a.pop(".constant.0"), "it lacks '.constant.0'"),
    (lambda n, g, a: n["states"].pop("conv.weight"), r"reads \['conv.weight'\], which nothing"),
    (lambda n, g, a: n["states"]["conv.bias"].update(type="object"), "object"),
    (lambda n, g, a: n["states"]["conv.bias"].update(same="x"), "'x'"),
    (
        lambda n, g, a: a.update({"conv.weight": a["conv.weight"][:, :1]}),
        r"'conv.weight' is float32 \(\d, 1, 3, 3\), and not float32 \(\d, \d, 3, 3\)",
    ),
    (lambda n, g, a: n["states"]["conv.bias"].update(type="int32"), "'conv.bias' is int32 "),
    (lambda n, g, a: a.update({".constant.0": np.zeros((7, 7))}), r" is \w+ \(7, 7\), and not "),
    (lambda n, g, a: n.update(loss={"layer": "system", "arguments": {}}), "no layer 'system'"),
    (lambda n, g, a: n.update(module=3), "3 is no text"),
    (lambda n, g, a: g["nodes"].pop(0), "which nothing makes"),
    (lambda n, g, a: g["nodes"].append(g["nodes"][0]), "makes .* again"),
    (lambda n, g, a: g["nodes"][0].update(op="system"), "no such operator"),
    (lambda n, g, a: g["nodes"][0].update(arguments=[{"input": 3}]), "argument is {'input': 3}"),
    (lambda n, g, a: g["nodes"][0].update(arguments=[{"code": 0}]), "argument is {'code': 0}"),
    (lambda n, g, a: g["nodes"][0].update(arguments=3), "damaged"),
    (lambda n, g, a: g["nodes"][0].update(inputs="x"), "damaged"),
    (lambda n, g, a: g.update(outputs=["x"]), r"nothing makes \['x'\]"),
    (lambda n, g, a: g.update(form=7), "the result 7 is not one of 1"),
    (lambda n, g, a: g["written"].update(x=g["outputs"][0]), r"nothing makes \['x'\]"),
    (lambda n, g, a: g["types"].clear(), "damaged"),
    (lambda n, g, a: g["guards"].append(["open", 1]), "it lacks 'open'"),
    (lambda n, g, a: g["guards"].append(["size", 0, 9]), "damaged"),
    (lambda n, g, a: g["inputs"].update(dict.fromkeys(g["inputs"])), "an input has no shape"),
    (
        lambda n, g, a: g["nodes"].append(_of_numbers("pow", [9**9, 9**9])),
        "a size to the power of 387420489",
    ),
    (lambda n, g, a: g["nodes"].append(_of_numbers("mul", [9**18, 9**18])), "a size of 2"),
    (lambda n, g, a: g["nodes"].append(_of_numbers("mul", ["x", 9**18])), "sizes are numbers"),
]


def _of_numbers(op: str, arguments: list[Any]) -> dict[str, Any]:
    node = {"name": "", "op": op, "inputs": [], "outputs": [], "of_numbers": True}
    return node | {"arguments": arguments, "options": {}}


@pytest.mark.parametrize(("change", "message"), _HOSTILE, ids=[m[:30] for _, m in _HOSTILE])
def test_hostile_files(change: Change, message: str) -> None:
    """Of the stored file, so that it needs no PyTorch."""
    file = Path(__file__).parents[2] / "fuzz" / "torch_network.safetensors"
    arrays, metadata = load_safetensors(file)
    network = metadata["network"]
    change(network, network["graphs"]["inference"], arrays)
    save_safetensors("pets.singa", arrays, metadata)
    with pytest.raises(ValueError, match=message) as error:
        singa.load("pets.singa")
    assert "pets.singa" in str(error.value)


def test_a_network_has_inputs() -> None:
    file = Path(__file__).parents[2] / "fuzz" / "torch_network.safetensors"
    arrays, metadata = load_safetensors(file)
    save_safetensors("pets.singa", arrays, metadata | {"inputs": []})
    with pytest.raises(ValueError, match="the network has no inputs"):
        singa.load("pets.singa")

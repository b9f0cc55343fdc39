"""What a network of `from_torch` is: a Model that keeps what the module means, or a refusal."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
from types import ModuleType
from typing import Any

import docstring_examples
import numpy as np
import pytest
import singa
from singa import opt, tensor
from singa.onnx import UnsupportedError
from singa.torch_networks import TorchModel


def _network(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )


def _batch(rows: int = 8) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, 3, 8, 8)).astype(np.float32)
    return x, random.integers(0, 5, rows).astype(np.int32)


def test_the_module_stays_as_it_is(torch: ModuleType) -> None:
    module = _network(torch)
    module[1].eval()
    before = copy.deepcopy(module.state_dict())
    net = singa.from_torch(module, _batch()[0])
    net.set_optimizer(opt.SGD(lr=0.1))
    net.train()
    net(*_batch())
    assert [part.training for part in module] == [True, False, True, True, True]
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert module.training


def test_a_step_of_the_default_loss_is_pytorchs(torch: ModuleType) -> None:
    module = _network(torch)
    x, y = _batch()
    net = singa.from_torch(module, x[:1])
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True)
    _, loss = net(x, y)
    wanted = torch.nn.functional.cross_entropy(
        module.train()(torch.from_numpy(x)), torch.from_numpy(y).long()
    )
    assert float(loss) == pytest.approx(wanted.item(), rel=1e-5)


def test_it_fits_and_goes_back(torch: ModuleType) -> None:
    module = _network(torch)
    x, y = _batch(32)
    net = singa.from_torch(module, x)
    net.set_optimizer(opt.Adam(lr=0.01))
    history = net.fit(x, y, epochs=4, batch_size=8, verbose=False)
    assert history[-1]["train_loss"] < history[0]["train_loss"]
    net.eval()
    net.to_torch(module)
    assert int(module[1].num_batches_tracked) == 16
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(net(x).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_inputs_as_one_argument(torch: ModuleType) -> None:
    class Sum(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, first: Any, *others: Any) -> Any:
            return self.linear(first) + sum(others)

    module, x = Sum(), torch.randn(4, 3)
    net = singa.from_torch(module, (x, x[:, :2], x[:, 1:]))
    assert net.has_open_batch
    found = net(x[:3].numpy(), x[:3, :2].numpy(), x[:3, 1:].numpy())
    wanted = module(x[:3], x[:3, :2], x[:3, 1:]).detach()
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)


def test_names_of_states(torch: ModuleType) -> None:
    module = _network(torch)
    module[0].weight.requires_grad_(False)
    net = singa.from_torch(module, _batch()[0])
    assert (
        list(net.get_states())
        == [
            *("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"),
            *("1.running_mean", "1.running_var", "1.num_batches_tracked"),
        ]
        or net.get_states().keys() == module.state_dict().keys()
    )
    assert "0.weight" not in net.get_params()


def test_states_are_saved(torch: ModuleType) -> None:
    net, other = (singa.from_torch(_network(torch), _batch()[0]) for _ in range(2))
    x = _batch()[0]
    assert not np.array_equal(net(x).numpy(), other(x).numpy())
    net.save_states("net.npz")
    other.load_states("net.npz")
    np.testing.assert_array_equal(net(x).numpy(), other(x).numpy())


def test_copies(torch: ModuleType) -> None:
    net = singa.from_torch(_network(torch), _batch()[0])
    x = _batch()[0]
    np.testing.assert_array_equal(copy.deepcopy(net)(x).numpy(), net(x).numpy())


def test_dropout_follows_singas_seed(torch: ModuleType) -> None:
    x, y = np.ones((400, 100), np.float32), np.zeros(1, np.float32)
    net = singa.from_torch(_Dropping(torch), x, loss=_first)
    net.set_optimizer(opt.SGD(lr=0.0))
    drawn = []
    for _ in range(2):
        singa.seed(3)
        net.train()
        drawn.append(net(x, y)[0].numpy())
    np.testing.assert_array_equal(*drawn)
    assert np.unique(drawn[0]).tolist() == [0.0, np.float32(4 / 3)]
    assert abs((drawn[0] == 0).mean() - 0.25) < 0.01
    net.eval()
    np.testing.assert_array_equal(net(x).numpy(), x)


def _Dropping(torch: Any) -> Any:  # noqa: N802 - makes a class
    class Dropping(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.factor = torch.nn.Parameter(torch.ones(()))
            self.dropout = torch.nn.Dropout(0.25)

        def forward(self, x: Any) -> Any:
            return self.dropout(x * self.factor)

    return Dropping()


def _first(out: Any, y: Any) -> Any:
    return out.mean()


def test_dropout_differs_between_replays(torch: ModuleType) -> None:
    x, y = np.ones((40, 10), np.float32), np.zeros(1, np.float32)
    net = singa.from_torch(_Dropping(torch), x, loss=_first)
    net.set_optimizer(opt.SGD(lr=0.0))
    net.compile([x], is_train=True, use_graph=True)
    drawn = [net(x, y)[0].numpy().tobytes() for _ in range(6)]
    assert len(set(drawn)) == 6


def test_missing_operators_are_listed_with_their_lines(torch: ModuleType) -> None:
    class Missing(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            y = torch.special.i0(x)
            return torch.linalg.svdvals(y) if self.training else torch.special.i1(y)

    with pytest.raises(UnsupportedError) as caught:
        singa.from_torch(Missing(), np.ones((2, 3), np.float32))
    found = {problem.operator: problem.reason for problem in caught.value.problems}
    assert {"i0", "special_i1"} < found.keys()
    assert "test_module.py line" in found["i0"]
    assert str(caught.value).startswith("[from_torch] ")


def test_control_flow_by_values_is_refused(torch: ModuleType) -> None:
    class Branch(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(
        UnsupportedError, match=r"test_module.py line \d+: what Python does depends on elements"
    ):
        singa.from_torch(Branch(), np.ones((2, 3), np.float32))


def test_gradients_that_export_would_lose_are_refused(torch: ModuleType) -> None:
    class Rounded(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    def in_inference_mode(x: Any) -> Any:
        with torch.inference_mode():
            return x * 2

    def hooked(x: Any) -> Any:
        x.register_hook(lambda dy: dy * 2)
        return x

    class Calls(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.linear, self.function = torch.nn.Linear(3, 3), function

        def forward(self, x: Any) -> Any:
            return self.function(self.linear(x)) + x

    x = np.ones((2, 3), np.float32)
    for function, words in (
        (Rounded.apply, "Rounded is a custom autograd.Function"),
        (in_inference_mode, "inference_mode"),
        (hooked, "register_hook"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            singa.from_torch(Calls(function), x)
    module = Calls(torch.nn.Identity())
    module.linear.weight.register_hook(lambda dy: dy * 2)
    with pytest.raises(UnsupportedError, match=r"linear\.weight"):
        singa.from_torch(module, x)
    assert Rounded.apply(torch.tensor(0.7)).item() == 1.0  # all is as before
    with torch.inference_mode():
        assert torch.is_inference_mode_enabled()


def test_buffers_that_a_module_changes(torch: ModuleType) -> None:
    class Counts(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.register_buffer("seen", torch.zeros(3))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                self.seen.mul_(0.5).add_(x.mean(0))
            self.calls += 1
            return self.linear(x) + self.seen

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    module = Counts()
    net = singa.from_torch(module, x, loss=_first)
    net.set_optimizer(opt.SGD(lr=0.0))
    assert net.state_dict()["calls"] == 0
    for use_graph, train in ((False, False), (True, True), (True, False)):
        net.graph(use_graph)
        net.train(train)
        module.train(train)
        for _ in range(5):
            out = net(x, np.zeros(1, np.float32))[0] if train else net(x)
            wanted = module(torch.from_numpy(x))
            np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=1e-5)
    assert net.state_dict()["calls"] == module.calls == 15


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x[:, :2], "has shape (?, 3, 8, 8), got (4, 2, 8, 8)"),
        (lambda x: x.astype(np.int32), "has type float32, got int32"),
        (lambda x: x[0], "got (3, 8, 8)"),
    ],
)
def test_wrong_inputs(torch: ModuleType, make: Any, words: str) -> None:
    net = singa.from_torch(_network(torch), _batch()[0])
    with pytest.raises((TypeError, ValueError)) as caught:
        net(make(_batch(4)[0]))
    assert words in str(caught.value)


def test_what_is_no_module(torch: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        singa.from_torch(len, np.ones((2, 3), np.float32))
    with pytest.raises(TypeError, match="example inputs"):
        singa.from_torch(_network(torch), "x")


def test_several_outputs_need_a_loss(torch: ModuleType) -> None:
    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return (y, y * 2) if self.training else y

    net = singa.from_torch(Two(), np.ones((2, 3), np.float32))
    net.set_optimizer(opt.SGD(lr=0.1))
    net.train()
    with pytest.raises(TypeError, match="give from_torch a loss"):
        net(np.ones((2, 3), np.float32), np.zeros(2, np.int32))
    net.eval()
    assert isinstance(net(np.ones((2, 3), np.float32)), tensor.Tensor)


def test_a_network_for_one_batch_alone(torch: ModuleType) -> None:
    class Fixed(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.reshape(2, -1).sum(1) + (x * torch.ones(3, 1)).mean()

    net = singa.from_torch(Fixed(), np.ones((3, 4), np.float32))
    assert net(np.ones((3, 4), np.float32)).numpy().tolist() == [7.0, 7.0]
    with pytest.raises(ValueError, match=r"has shape \(3, 4\), got \(6, 4\)\. PyTorch .* len\(x\)"):
        net(np.ones((6, 4), np.float32))


def test_a_norm_and_an_activation_are_one_step(torch: ModuleType) -> None:
    net = singa.from_torch(_network(torch), _batch()[0])
    net.compile([_batch()[0]])
    assert [row.kind for row in net.summary().rows][:2] == [
        "conv2d",
        "batch_norm+relu",
    ]


def test_examples_do_what_they_say(torch: ModuleType) -> None:
    for value in (
        TorchModel,
        TorchModel.has_open_batch,
        TorchModel.state_dict,
        TorchModel.to_torch,
    ):
        doc = inspect.getdoc(value) or ""
        assert ">>>" in doc
        assert not docstring_examples.run(doc, str(value))


def test_singa_does_not_load_pytorch(torch: ModuleType) -> None:
    code = "import singa, sys; singa.from_torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

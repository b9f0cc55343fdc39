"""Executed predictions keep weights in the layouts in which operations read them, until something
writes them."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor
from singa.tensor import Tensor

CHANNELS = 48


class Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.narrow = layer.Conv2d(CHANNELS, 1)
        self.strided = layer.Conv2d(CHANNELS, 3, stride=2, padding=1)
        self.wider = layer.ConvTranspose2d(CHANNELS, CHANNELS, 2, stride=2)
        self.rnn = layer.CudnnRNN(8, return_sequences=True)
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: Tensor) -> Tensor:
        x = self.wider(autograd.relu(self.strided(autograd.relu(self.narrow(x)))))
        rows = autograd.reshape(x, (x.shape[0], CHANNELS, -1))
        return self.fc(autograd.flatten(self.rnn(rows)))


def images(count: int = 2) -> Tensor:
    values = np.random.default_rng(count).standard_normal((count, CHANNELS, 6, 6))
    return tensor.from_numpy(values.astype(np.float32))


def compiled(use_graph: bool = False) -> Net:
    singa.seed(1)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.compile([images()], is_train=False, use_graph=use_graph)
    return net


def weight_reorders(net: Net, x: Tensor) -> list[str]:
    """The layers whose weights one call moves to another layout."""
    singa.layout_report()
    net(x)
    sizes = {value.memsize() for name, value in net.get_params().items() if name.endswith("W")}
    return [
        entry["layer"] for entry in singa.layout_report(record=False) if entry["bytes"] in sizes
    ]


def fresh(net: Net, tmp_path: Path) -> Net:
    """A network with the same states that has not predicted yet."""
    net.save_states(tmp_path / "net.npz")
    other = compiled()
    other.load_states(tmp_path / "net.npz")
    return other


def same(net: Net, other: Net) -> None:
    for count in (2, 5):
        x = images(count)
        np.testing.assert_array_equal(net(x).numpy(), other(x).numpy())


def test_weights_are_moved_once(tmp_path: Path) -> None:
    net, x = compiled(), images()
    first = net(x).numpy().copy()
    net(x)
    assert weight_reorders(net, x) == []
    np.testing.assert_array_equal(net(x).numpy(), first)
    same(net, fresh(net, tmp_path))


def overwrite(net: Net) -> None:
    for value in net.get_params().values():
        value.copy_from_numpy(np.full(value.shape, 0.01, np.float32))


def through_an_array(net: Net) -> None:
    array = np.asarray(net.narrow.W)
    net(images())
    array[0] = 7
    net(images())
    net(images())
    array[1] = -7  # while it is still there


def through_dlpack(net: Net) -> None:
    shared = tensor.from_dlpack(net.narrow.W)
    for value in (3.0, 4.0):
        shared.set_value(value)
        for _ in range(3):
            net(images())
    shared.set_value(5.0)


def through_a_view(net: Net) -> None:
    net.strided.W[1:3] = 0.5


def of_imported_memory(net: Net) -> None:
    memory = np.full(net.narrow.W.shape, 0.25, np.float32)
    net.narrow.W.data = tensor.from_dlpack(memory).data
    for _ in range(3):
        net(images())
    memory[:] = 0.125


def load(net: Net) -> None:
    other = compiled()
    overwrite(other)
    other.save_states("other.npz")
    net.load_states("other.npz")


def set_states(net: Net) -> None:
    net.set_states({name: value.numpy() * 2 for name, value in net.get_states().items()})


def train(net: Net, steps: int = 2) -> None:
    net.train()
    for _ in range(steps):
        net(images(), tensor.from_numpy(np.arange(2, dtype=np.int32)))
    net.eval()


def replay(net: Net) -> None:
    net.graph(True)
    train(net, 6)
    net.graph(False)


def change_the_type(net: Net) -> None:
    net.to_type("float64")
    net.to_type("float32")


def move(net: Net) -> None:
    net.to_blocked()
    net(images())
    net.to_plain()


CHANGES: list[Callable[[Net], Any]] = [
    overwrite,
    through_an_array,
    through_dlpack,
    through_a_view,
    of_imported_memory,
    load,
    set_states,
    train,
    replay,
    change_the_type,
    move,
]


def _as_parameter(change: Callable[[Net], Any]) -> Any:
    marks = [pytest.mark.cpu("only its memory is shared")] if change is through_dlpack else []
    return pytest.param(change, id=change.__name__, marks=marks)


@pytest.mark.parametrize("change", list(map(_as_parameter, CHANGES)))
def test_a_weight_that_was_written_is_read_anew(
    change: Callable[[Net], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    net, x = compiled(), images()
    for _ in range(3):
        net(x)
    change(net)
    for _ in range(3):
        same(net, fresh(net, tmp_path))


def test_a_write_frees_what_was_kept() -> None:
    net = compiled()
    weights = [value.data for value in net.get_params().values()]
    assert sum(raw.copied_bytes() for raw in weights) == 0
    for _ in range(3):
        net(images())
    for raw in weights:
        assert raw.copied_bytes() in (0, raw.bytes()) or raw.rank() == 1  # gates are padded
    overwrite(net)
    assert sum(raw.copied_bytes() for raw in weights) == 0


def test_threads_share_what_is_kept(tmp_path: Path) -> None:
    net, x = compiled(), images()
    expected = net(x).numpy().copy()
    results: list[np.ndarray] = []

    def predict() -> None:
        results.extend(net(x).numpy().copy() for _ in range(5))

    net = fresh(net, tmp_path)
    net.eval()
    threads = [threading.Thread(target=predict) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.cpu("blocks of channels are layouts of the CPU, which alone shares memory")
def test_a_model_moves_its_weights_and_back() -> None:
    net, x = compiled(), images()
    expected = net(x).numpy().copy()
    values = {name: value.numpy().copy() for name, value in net.get_states().items()}
    assert not net.is_blocked
    assert net.to_blocked() is net
    for name, value in net.get_states().items():
        np.testing.assert_array_equal(value.numpy(), values[name], err_msg=name)
    if x.to_blocked().is_blocked:  # the build has a backend with opaque layouts
        assert net.is_blocked
    x.to_plain()
    np.testing.assert_array_equal(net(x).numpy(), expected)
    assert net.to_plain() is net
    assert not net.is_blocked
    np.testing.assert_array_equal(net(x).numpy(), expected)


@pytest.mark.cpu("blocks of channels are layouts of the CPU, which alone shares memory")
def test_weights_that_were_moved_need_no_copies() -> None:
    net, x = compiled(), images()
    net.to_blocked()
    convolutions = (net.narrow, net.strided, net.wider)
    for _ in range(3):
        net(x)
    assert [each.W.data.copied_bytes() for each in convolutions] == [0, 0, 0]


@pytest.mark.cpu("blocks of channels are layouts of the CPU, which alone shares memory")
def test_what_shares_memory_stays_plain() -> None:
    net = compiled()
    arrays = [np.asarray(value) for value in net.get_params().values()]
    assert not net.to_blocked().is_blocked
    arrays[0][:] = 0
    np.testing.assert_array_equal(next(iter(net.get_params().values())).numpy(), arrays[0])


@pytest.mark.parametrize(("method", "words"), [("to_blocked", "compile"), ("to_plain", "compile")])
def test_there_must_be_parameters(method: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=rf"\[{method}\].*{words}"):
        getattr(Net(), method)()

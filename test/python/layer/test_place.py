"""Where a model lives: found once, and again when what was found is not in the model any more."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from singa import device, layer, model, tensor
from singa.layer.base import Layer
from singa.model.place import Place

HERE = device.get_default_device()
THERE = device.create_cpu_device(separate=True)


def linear(place: Any) -> layer.Linear:
    made = layer.Linear(2)
    made(tensor.zeros((1, 3), place))
    return made


class Net(model.Model):
    """Its first parameters are in a list of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [[linear(HERE)], {"more": linear(HERE)}]
        self.last = linear(HERE)

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        return self.last(x)


def everything(net: Net) -> list[tensor.Tensor]:
    return list(net.get_params().values())


def _move(net: Net) -> None:
    for param in everything(net):
        param.to_device(THERE)


def _replace_in_list(net: Net) -> None:
    net.blocks[0][0] = linear(THERE)


def _replace_list(net: Net) -> None:
    net.blocks = [[linear(THERE)]]


def _insert(net: Net) -> None:
    net.blocks[0].insert(0, linear(THERE))


def _remove(net: Net) -> None:
    del net.blocks[0]
    net.blocks[0] = {"other": linear(THERE)}


def _bypass(net: Net) -> None:
    vars(net)["blocks"] = []
    vars(net)["last"] = linear(THERE)


CHANGES = [_move, _replace_in_list, _replace_list, _insert, _remove, _bypass]


@pytest.mark.parametrize("change", CHANGES)
def test_the_device_is_that_of_the_first_parameter(change: Callable[[Net], None]) -> None:
    net, place = Net(), Place()
    assert place.device(net).id() == HERE.id()
    change(net)
    assert place.device(net).id() == THERE.id() == everything(net)[0].device.id()


def test_no_parameters_live_nowhere() -> None:
    net, place = Net(), Place()
    assert place.device(layer.ReLU()) is None
    assert place.device(net) is not None
    net.blocks, net.last = [], layer.ReLU()
    assert place.device(net) is None
    net.last = linear(THERE)
    assert place.device(net).id() == THERE.id()


def test_a_call_with_arrays_walks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, walks = Net(), []
    net.eval()
    collect = Layer._collect
    x = np.ones((1, 3), np.float32)
    net(x)
    monkeypatch.setattr(
        Layer, "_collect", lambda self, *rest: walks.append(1) or collect(self, *rest)
    )
    assert net(x).device.id() == HERE.id()
    assert not walks
    _move(net)
    walks.clear()
    assert net(x).device.id() == THERE.id()
    assert not walks


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.ones((1, 3), np.float64), tensor.float32),
        (np.ones((1, 3), np.float16), tensor.float16),
        (np.ones((3, 1), np.float32).T, tensor.float32),
        (np.ma.masked_equal(np.ones((1, 3), np.float32), 0), tensor.float32),
        (np.ones((1, 3), np.int64), tensor.int32),
        (np.full((1, 3), 1 << 40), tensor.int64),
        (np.ones((1, 3), bool), tensor.bool_),
    ],
)
def test_arrays_become_tensors_as_from_numpy_makes_them(array: Any, dtype: Any) -> None:
    class Echo(model.Model):
        def forward(self, x: tensor.Tensor, more: Any) -> Any:
            return x, more

    net = Echo()
    net.own = linear(THERE)
    net.eval()
    array.flags.writeable = False
    found, (other, number) = net(array, [array, 3])
    for each in (found, other):
        assert each.device.id() == THERE.id()
        assert each.dtype == dtype
        np.testing.assert_array_equal(each.numpy(), array)
    assert number == 3

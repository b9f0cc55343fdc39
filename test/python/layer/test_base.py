"""Layers: names, deferred parameters, states, copies."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import singa
from arrays import image
from singa import autograd, layer, tensor


class Block(layer.Layer):
    def __init__(self, channels):
        super().__init__()
        self.conv = layer.Conv2d(channels, 3, padding=1, bias=False)
        self.bn = layer.BatchNorm2d()

    def forward(self, x):
        return autograd.relu(self.bn(self.conv(x)))


class Net(layer.Layer):
    def __init__(self):
        super().__init__()
        self.block1 = Block(4)
        self.tail = layer.Sequential(Block(3), layer.Flatten(), layer.Linear(5))

    def forward(self, x):
        return self.tail(self.block1(x))


# --- names, states


def test_names_follow_the_attributes():
    net = Net()
    assert net.get_params() == {}
    net(image(2, 3, 6, 6))
    params = [
        *("block1.conv.W", "block1.bn.scale", "block1.bn.bias"),
        *("tail.0.conv.W", "tail.0.bn.scale", "tail.0.bn.bias", "tail.2.W", "tail.2.b"),
    ]
    assert list(net.get_params()) == params
    assert set(net.get_states()) == {
        *params,
        *("block1.bn.running_mean", "block1.bn.running_var"),
        *("tail.0.bn.running_mean", "tail.0.bn.running_var"),
    }
    assert net.block1.conv.W.name == "block1.conv.W"
    assert [each.name for each in net.sublayers()][:3] == ["block1", "block1.conv", "block1.bn"]


def test_layer_by_itself_has_short_names():
    linear = layer.Linear(3)
    linear(image(2, 4))
    assert set(linear.get_params()) == {"W", "b"}


def test_named_late():
    linear = layer.Linear(3)
    linear(image(2, 4))  # parameters first, then the place in the tree
    net = Net()
    net.tail = linear
    assert linear.W.name == "tail.W"
    assert set(net.get_params()) == {"tail.W", "tail.b"}


def test_register_layers():
    class Listed(layer.Layer):
        def __init__(self, *args):
            super().__init__()
            self.register_layers(*args)

    listed = Listed(layer.Linear(3), layer.ReLU(), layer.Linear(2))
    assert [each.name for each in listed.sublayers()] == ["Linear_0", "ReLU_1", "Linear_2"]
    listed.register_layers(layer.Linear(4))
    assert listed.Linear_3.name == "Linear_3"
    named = Listed(OrderedDict(first=layer.Linear(3), second=layer.Linear(2)))
    assert [each.name for each in named.sublayers()] == ["first", "second"]


def test_replaced_and_deleted_attributes_leave_no_layer_behind():
    net = Net()
    net.block1 = None
    assert next(net.sublayers()).name == "tail"
    del net.tail
    assert list(net.sublayers()) == []
    with pytest.raises(AttributeError):
        _ = net.tail


def test_forgotten_super_init():
    class Wrong(layer.Layer):
        def __init__(self):
            self.conv = layer.Conv2d(3, 3)

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\)"):
        Wrong()


def test_numbers_that_a_type_does_not_hold_are_refused():
    linear = layer.Linear(1, bias=False)
    linear(tensor.zeros((1, 3), dtype="float16"))
    for value in (np.float32, lambda values: tensor.Tensor(data=values, dtype="bfloat16")):
        with pytest.raises(ValueError, match=r"\[set_params\] W: .* would be infinite in float16"):
            linear.set_params({"W": value([[1.0], [1e5], [0.0]])})
    linear.set_params({"W": np.array([[np.inf], [np.nan], [65519.0]])})
    np.testing.assert_array_equal(linear.W.numpy().reshape(-1), [np.inf, np.nan, 65504.0])


@pytest.mark.parametrize("function", ["set_params", "set_states"])
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (np.ones(4), ValueError),
        (np.array([1.0, -1e39, 0.0]), ValueError),
        (tensor.Tensor(data=[1.0, 1e39, 0.0], dtype="float64"), ValueError),
        (np.ones(3, np.complex64), TypeError),
        (tensor.ones((4,)), ValueError),
        ("text", TypeError),
        ([[1], [1, 2]], ValueError),
    ],
)
def test_nothing_is_set_unless_all_fits(function, wrong, error):
    """The last of several layers, after values that fit."""

    class Net(layer.Layer):
        def __init__(self):
            super().__init__()
            self.block, self.last = Block(2), layer.Linear(3)

        def forward(self, x):
            return self.last(autograd.flatten(self.block(x)))

    net = Net()
    net(image(2, 2, 4, 4))
    before = {name: value.numpy() for name, value in net.get_states().items()}
    names = net.get_params() if function == "set_params" else net.get_states()
    values = {name: np.full_like(before[name], 7) for name in names}
    assert list(values)[-1] == "last.b"
    with pytest.raises(error):
        getattr(net, function)({**values, "last.b": wrong})
    for name, value in net.get_states().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)
    getattr(net, function)(values)
    for name, value in net.get_params().items():
        np.testing.assert_array_equal(value.numpy(), values[name], err_msg=name)


@pytest.mark.parametrize("dtype", [">f4", "u2", "u8", ">i2", np.longdouble])
def test_set_states_converts_numbers_of_any_type(dtype):
    net = layer.Linear(2)
    net(image(1, 3))
    net.set_states({"W": np.arange(6, dtype=dtype).reshape(3, 2), "b": np.array([1, 2], dtype)})
    np.testing.assert_array_equal(net.W.numpy(), np.arange(6).reshape(3, 2))
    np.testing.assert_array_equal(net.b.numpy(), [1, 2])


def test_a_state_of_integers_takes_what_integers_can_be():
    class Counted(layer.Layer):
        state_names = ("count",)

        def initialize(self, x):
            self.scale = tensor.Tensor((1,), stores_grad=True)
            self.count = tensor.Tensor((1,), dtype=tensor.int32, requires_grad=False)

        def forward(self, x):
            return x * self.scale

    net = Counted()
    net(image(1))
    with pytest.raises(ValueError, match=r"count: .* do not fit int32"):
        net.set_states({"scale": np.ones(1), "count": np.array([np.nan])})
    assert net.scale.numpy() == 0
    net.set_states({"scale": np.ones(1), "count": np.array([5.0])})
    assert net.count.numpy() == 5


def test_set_states_copies_by_name():
    singa.seed(1)
    one, other, x = Net(), Net(), image(2, 3, 6, 6)
    one(x), other(x)
    one.block1.bn.running_mean.set_value(0.25)
    assert not np.array_equal(one(x).numpy(), other(x).numpy())
    other.set_states(one.get_states())
    np.testing.assert_array_equal(one(x).numpy(), other(x).numpy())
    values = {"tail.2.b": np.full(5, 3, np.float32), "unknown": np.zeros(1)}
    with pytest.raises(ValueError, match=r"missing: block1.conv.W, .*unexpected: unknown"):
        other.set_params(values)
    assert np.any(other.tail[2].b.numpy() != 3)
    missing, unexpected = other.set_params(values, strict=False)
    assert missing == [name for name in other.get_params() if name != "tail.2.b"]
    assert unexpected == ["unknown"]
    np.testing.assert_array_equal(other.tail[2].b.numpy(), np.full(5, 3))
    with pytest.raises(ValueError, match=r"tail\.2\.b: shape \(4,\) does not fit \(5,\)"):
        other.set_params({"tail.2.b": np.zeros(4, np.float32)})


def test_layer_of_a_script_with_its_own_parameters():
    class Scale(layer.Layer):
        def initialize(self, x):
            self.factor = tensor.Tensor((x.shape[1],), requires_grad=True, stores_grad=True)
            self.factor.set_value(2.0)

        def forward(self, x):
            return autograd.mul(x, self.factor)

    class Holder(layer.Layer):
        def __init__(self):
            super().__init__()
            self.scale = Scale()

        def forward(self, x):
            return self.scale(x)

    holder, x = Holder(), image(3, 4)
    np.testing.assert_array_equal(holder(x).numpy(), 2 * x.numpy())
    assert set(holder.get_params()) == {"scale.factor"}


def test_initialize_runs_once_and_off_the_tape(training):
    calls = []

    class Counting(layer.Layer):
        def initialize(self, x):
            calls.append(autograd.is_recording())

        def forward(self, x):
            return autograd.relu(x)

    counting, x = Counting(), image(2, 2)
    counting(x), counting(x)
    assert calls == [False]


def test_errors_name_the_layer():
    net = Net()
    net(image(2, 3, 6, 6))
    with pytest.raises(ValueError, match=r"\(2, 4, 6, 6\)") as caught:
        net(image(2, 4, 6, 6))
    assert "in layer block1.conv (Conv2d)" in caught.value.__notes__
    assert len(caught.value.__notes__) == 1


# --- types, devices, copies


class Counting(layer.Layer):
    """Has a parameter, counts its calls, and may fail."""

    def __init__(self, error=None):
        super().__init__()
        self.calls, self.error = 0, error

    def initialize(self, x):
        self._new_param("scale", (x.shape[-1],), x, lambda t: t.set_value(2.0))

    def forward(self, x):
        self.calls += 1
        if self.error:
            raise self.error
        return autograd.mul(x, self.scale)


def other_device(x):
    return x.clone().to_device(singa.device.create_cpu_device(separate=True))


OTHERS = {
    "float64": lambda x: x.as_type(tensor.float64),
    "float16": lambda x: x.as_type(tensor.float16),
    "device": other_device,
}


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("error", [ValueError("mine"), RuntimeError("mine"), None])
def test_a_layer_never_runs_twice(how, error):
    counting, x = Counting(), image(2, 4)
    counting(x)
    counting.error = error
    if error:
        with pytest.raises(type(error), match="mine") as caught:
            counting(OTHERS[how](x))
        assert caught.value is error
        assert caught.value.__context__ is None
    else:  # the operator promotes
        widest = tensor.float64 if how == "float64" else tensor.float32
        assert counting(OTHERS[how](x)).dtype == widest
    assert counting.calls == 2
    assert counting.scale.dtype == tensor.float32


def test_parameters_follow_to_another_device_and_back():
    linear, x = layer.Linear(3), image(2, 4)
    y = linear(x).numpy()
    for given in (other_device(x), x, other_device(x)):
        out = linear(given)
        assert out.device.id() == given.device.id()
        assert linear.W.device.id() == given.device.id()
        np.testing.assert_allclose(out.numpy(), y, rtol=0, atol=1e-6)  # GPUs sum in another order


def test_integers_do_not_change_the_parameters():
    linear = layer.Linear(3)
    linear(image(2, 4))
    with pytest.raises(TypeError, match=r"int32"):
        linear(tensor.from_numpy(np.ones((2, 4), np.int32)))
    assert linear.W.dtype == tensor.float32


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies(how):
    net, x = Net(), image(2, 3, 6, 6)
    y = net(x).numpy()
    twin = copy.deepcopy(net) if how == "deepcopy" else pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(twin(x).numpy(), y)
    assert list(twin.get_states()) == list(net.get_states())
    twin.block1.conv.W.set_value(0.0)
    np.testing.assert_array_equal(net(x).numpy(), y)
    for original in (net, twin):  # a part of it
        original.block1.conv.more = layer.ReLU()
        assert original.block1.conv.more.name == "block1.conv.more"


def test_copy_of_a_part_is_not_a_copy_of_all():
    net = Net()
    net(image(2, 3, 6, 6))
    part = copy.deepcopy(net.block1.conv)
    part.more = layer.ReLU()
    assert part.more.name == "more"
    assert len(pickle.dumps(part)) < len(pickle.dumps(net)) / 2


def test_freeze(training):
    net, x = Net(), image(2, 3, 6, 6)
    net(x)
    net.block1.freeze()
    grads = autograd.gradients(autograd.reduce_mean(net(x), keepdims=0))
    assert {t.name for t in grads.tensors()} == {
        n for n in net.get_params() if n.startswith("tail")
    }
    net.block1.freeze(False)
    grads = autograd.gradients(autograd.reduce_mean(net(x), keepdims=0))
    assert {t.name for t in grads.tensors()} == set(net.get_params())

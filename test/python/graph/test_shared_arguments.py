"""Arguments that share memory with each other, with a larger tensor or with a tensor of the model.
A step that writes to such memory is executed, with a warning; others are recorded."""

import warnings

import numpy as np
import pytest
from recorded import graphs
from singa import autograd, model, tensor
from singa.graph import GraphWarning


def batch(i, rows=4):
    return tensor.from_numpy(np.random.default_rng([1, i]).standard_normal((rows, 3)).astype("f4"))


class Net(model.Model):
    not_settings = ("runs",)

    def __init__(self):
        super().__init__()
        self.state = tensor.zeros((6, 3))
        self.window = self.state[1:5]
        self.whole = self.state.detach()
        for t in (self.state, self.window, self.whole):
            t.requires_grad = False
        self.runs = 0

    def forward(self, x, z):
        self.runs += 1
        return autograd.add(x, z)


class WritesArgument(Net):
    def forward(self, x, z):
        x *= 2.0
        return super().forward(x, z)


class WritesState(Net):
    def forward(self, x, z):
        self.state += 1.0
        return super().forward(x, z)


class CopiesToView(Net):
    def forward(self, x, z):
        y = super().forward(x, self.state[1:5])
        self.window.copy_data(x)
        return y


class CopiesToAlias(Net):
    def forward(self, x, z):
        y = super().forward(x, self.state[1:5])
        self.whole.copy_data(batch(9, 6))
        return y


def twice(m, i):
    x = batch(i)
    return [x, x], [x]


def rows(m, i):
    larger = batch(i, 6)
    return [larger[1:5], batch(i + 1)], [larger]


def columns(m, i):
    larger = tensor.from_numpy(np.random.default_rng([2, i]).standard_normal((4, 5)).astype("f4"))
    return [larger[:, 1:4], batch(i + 1)], [larger]


def of_state(m, i):
    return [m.state[0:4], batch(i)], [m.state]


def apart(m, i):
    return [batch(i), batch(i + 1)], []


def run(net, arguments, use_graph, steps=8, training=True):
    m = net()
    m.compile([batch(0), batch(1)], is_train=False, use_graph=use_graph)
    m.eval()
    m.state.set_value(0.0)
    found = []
    for i in range(steps):
        given, shared = arguments(m, i)
        found += [m(*given).numpy(), *[t.numpy() for t in (*given, *shared, m.state)]]
    return m, found


def same(net, arguments):
    """Runs executed and recorded steps with the same results. Returns the recorded model and the
    warnings."""
    _, expected = run(net, arguments, False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        m, found = run(net, arguments, True)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    return m, [str(w.message) for w in caught if w.category is GraphWarning]


@pytest.mark.parametrize(
    ("net", "arguments"),
    [
        (WritesArgument, twice),
        (WritesArgument, rows),
        (WritesArgument, columns),
        (WritesArgument, of_state),
        (WritesState, of_state),
    ],
)
def test_a_step_that_writes_to_shared_memory_is_executed(net, arguments):
    m, messages = same(net, arguments)
    (message,) = messages
    assert "the step writes to an argument that shares memory with another tensor" in message
    assert not graphs(m)


@pytest.mark.parametrize(
    ("net", "arguments"),
    [
        *[(Net, arguments) for arguments in (twice, rows, columns, of_state)],
        *[(net, apart) for net in (WritesArgument, WritesState)],
    ],
)
def test_other_steps_are_replayed(net, arguments):
    m, messages = same(net, arguments)
    assert not messages
    assert len(graphs(m)) == 1
    assert m.runs < 1 + 8


@pytest.mark.parametrize("net", [WritesArgument, WritesState])
@pytest.mark.parametrize("later", [twice, rows, columns, of_state])
def test_arguments_may_begin_to_share_memory(net, later):
    """What was recorded for arguments apart is not replayed for others."""
    if net is WritesState and later is not of_state:
        later = apart
    same(net, lambda m, i: (apart if i < 4 else later)(m, i))


@pytest.mark.parametrize("net", [CopiesToView, CopiesToAlias])
def test_copy_data_takes_a_view_out_of_the_memory_it_shared(net):
    same(net, apart)


def test_a_tensor_of_the_model_may_be_an_argument_of_some_calls():
    def arguments(m, i):
        return [m.state[0:4] * 1.0 if i % 3 else m.whole[0:4], batch(i)], []

    same(WritesState, arguments)

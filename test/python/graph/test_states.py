"""Recorded steps that write states of the network."""

import numpy as np
import pytest
from bits import bits
from recorded import graphs
from singa import autograd, layer, model, opt, tensor


class Carries(model.Model):
    """A recurrent network whose state is created by the first forward and outlives the step."""

    not_settings = ("calls",)

    def __init__(self, fail_at: int = -1) -> None:
        super().__init__()
        self.cell = layer.Linear(4)
        self.out = layer.Linear(1)
        self.loss = layer.MeanSquareError()
        self.calls, self.fail_at = [0], fail_at

    def initialize(self, x: tensor.Tensor) -> None:
        self.h = tensor.zeros((x.shape[0], 4))

    def get_states(self) -> dict[str, tensor.Tensor]:
        return super().get_states() | {"h": self.h}

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        for _ in range(2):  # the state changes twice in a step
            h = autograd.tanh(self.cell(autograd.cat((x, self.h), 1)))
            self.h.copy_data(h)
        return self.out(h)

    def train_one_batch(self, x: tensor.Tensor, y: tensor.Tensor) -> tuple[tensor.Tensor, ...]:
        out = self.forward(x)
        self.calls[0] += 1
        if self.calls[0] == self.fail_at:
            raise ValueError("as it was told")
        loss = self.loss(out, y)
        self.optimizer(loss)
        return out, loss


def data(steps: int) -> list[tuple[tensor.Tensor, tensor.Tensor]]:
    rng = np.random.default_rng(0)
    return [
        tuple(
            tensor.from_numpy(rng.standard_normal(shape).astype(np.float32))
            for shape in ((3, 2), (3, 1))
        )
        for _ in range(steps)
    ]


def make(graph: bool, **kwargs: int) -> Carries:
    net = Carries(**kwargs)
    net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
    net.graph(graph)  # without compile(), the first step is also the first forward
    return net


def test_a_state_that_a_step_writes_is_replayed() -> None:
    nets, losses = [], []
    for graph in (False, True):
        tensor.zeros((1,)).device.SetRandSeed(1)
        net = make(graph)
        losses.append([net(x, y)[1].numpy().tobytes() for x, y in data(9)])
        nets.append(net)
    executed, replayed = nets
    assert losses[0] == losses[1]
    assert bits(executed) == bits(replayed)
    assert np.abs(replayed.h.numpy()).min() > 0
    assert len(replayed.memory_plan()["graphs"]) == 1


def test_states_may_be_placed_and_reset_between_replays() -> None:
    net = make(True)
    seen = []
    for x, y in data(6):
        net(x, y)
        for t in net.get_states().values():  # with their current device and value
            t.to_device(x.device)
            t.to_type(tensor.float32)
        net.h.set_value(0.0)
        seen.append(graphs(net))
    assert len(seen[3]) == 1
    assert seen[3][0] is seen[5][0]


def test_a_step_that_fails_leaves_the_state() -> None:
    net = make(True, fail_at=2)
    (x, y), *_ = data(1)
    net(x, y)
    before = net.h.numpy()
    with pytest.raises(ValueError, match="as it was told"):
        net(x, y)
    assert net.h.numpy().tobytes() == before.tobytes()
    for _ in range(4):
        net(x, y)
    assert len(net.memory_plan()["graphs"]) == 1


def test_get_states_is_not_asked_before_the_first_forward() -> None:
    class Outer(model.Model):
        """Has a sublayer with states of its own; the loss is called separately."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = Carries()
            self.fc = layer.Linear(1)

        def forward(self, x: tensor.Tensor) -> tensor.Tensor:
            return self.fc(self.inner(x))

    net = Outer()
    net.eval()
    net.inner.eval()
    net.graph()
    x = tensor.ones((3, 2))
    assert [net(x).shape for _ in range(3)] == [(3, 1)] * 3
    assert sorted(net.get_states()) == [
        "fc.W", "fc.b", "inner.cell.W", "inner.cell.b", "inner.h", "inner.out.W", "inner.out.b"
    ]  # fmt: skip


def test_results_of_a_recorded_step_have_no_tape() -> None:
    net = make(True)
    for x, y in data(5):
        out, loss = net(x, y)
        assert out.is_dummy()
        assert loss.is_dummy()
        with pytest.raises(RuntimeError, match="was not computed on the tape"):
            loss.creator.backward(loss.data)

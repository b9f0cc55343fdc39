"""Device.EnableGraph, RunGraph and ResetGraph: operations are buffered, run together and run
again."""

import threading

import numpy as np
import pytest
import singa
from singa import autograd, device, layer, model, opt, tensor


@pytest.fixture
def dev():
    d = device.get_default_device()
    yield d
    d.EnableGraph(False)
    d.ResetGraph()


def vector(*values):
    return tensor.from_numpy(np.float32(values))


def test_what_is_buffered_runs_again_on_what_its_inputs_hold_then(dev):
    x = vector(1, 2, 3)
    dev.EnableGraph(True)
    assert dev.graph_enabled()
    y = autograd.relu(x * 2.0 - 3.0)
    dev.EnableGraph(False)
    assert not dev.graph_enabled()
    dev.RunGraph()
    np.testing.assert_array_equal(y.numpy(), [0, 1, 3])
    x.copy_from_numpy(np.float32([5, 0, 2]))
    np.testing.assert_array_equal(y.numpy(), [0, 1, 3])
    dev.RunGraph()
    np.testing.assert_array_equal(y.numpy(), [7, 0, 1])
    z = y + 1.0  # not buffered
    dev.RunGraph(True)
    np.testing.assert_array_equal(z.numpy(), [8, 1, 2])


def test_nothing_runs_before_it_is_asked_for_and_then_once(dev):
    count = vector(0)
    dev.EnableGraph(True)
    count += 1.0
    dev.EnableGraph(False)
    dev.RunGraph()
    assert count.numpy() == 1
    for n in (2, 3):
        dev.RunGraph()
        assert count.numpy() == n


@pytest.mark.parametrize("enabled", [True, False])
def test_who_looks_before_gets_the_result(dev, enabled):
    x, count = vector(1, 2), vector(0)
    dev.EnableGraph(True)
    y = x * 3.0
    count += 1.0
    dev.EnableGraph(enabled)
    np.testing.assert_array_equal(y.numpy(), [3, 6])
    dev.RunGraph()
    assert count.numpy() == 1
    dev.RunGraph()
    assert count.numpy() == 2


def test_operations_are_added_until_the_graph_is_reset(dev):
    a, b = vector(0), vector(0)
    dev.EnableGraph(True)
    a += 1.0
    dev.RunGraph()
    b += 1.0
    dev.RunGraph()
    assert (a.numpy(), b.numpy()) == (2, 1)
    dev.EnableGraph(False)
    a += 10.0
    dev.EnableGraph(True)
    b += a
    dev.EnableGraph(False)
    dev.RunGraph()
    assert (a.numpy(), b.numpy()) == (13, 15)
    dev.ResetGraph()
    dev.RunGraph()
    assert (a.numpy(), b.numpy()) == (13, 15)


def test_random_numbers_are_drawn_anew(dev):
    x = tensor.from_numpy(np.ones(64, np.float32))
    singa.seed(4)
    want = []
    drop, with_masks = layer.Dropout(0.5), autograd.training
    autograd.training = True
    try:
        for _ in range(3):
            want.append(drop(x).numpy())
        singa.seed(4)
        dev.EnableGraph(True)
        y = drop(x)
        dev.EnableGraph(False)
    finally:
        autograd.training = with_masks
    for expected in want:
        dev.RunGraph()
        np.testing.assert_array_equal(y.numpy(), expected)
    assert (want[0] != want[1]).any()


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.conv = layer.Conv2d(4, 3, padding=1)
        self.bn = layer.BatchNorm2d()
        self.fc = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.fc(autograd.flatten(autograd.relu(self.bn(self.conv(x)))))


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_training_step_that_is_buffered(dev, use_graph):
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((4, 2, 6, 6)).astype(np.float32) for _ in range(5)]
    y = tensor.from_numpy(np.array([0, 1, 2, 0], np.int32))

    def compiled():
        singa.seed(2)
        net = Net()
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        net.compile([tensor.from_numpy(batches[0])], is_train=True, use_graph=use_graph)
        return net

    net = compiled()
    want = [net(tensor.from_numpy(b), y)[1].numpy() for b in batches]
    weights = {name: t.numpy() for name, t in net.get_states().items()}

    net, got = compiled(), []
    x = tensor.from_numpy(batches[0])
    dev.EnableGraph(True)
    _, loss = net(x, y)
    dev.EnableGraph(False)
    for b in batches:
        x.copy_from_numpy(b)
        dev.RunGraph()
        got.append(loss.numpy())
    np.testing.assert_array_equal(got, want)
    for name, t in net.get_states().items():
        np.testing.assert_array_equal(t.numpy(), weights[name], err_msg=name)


def test_one_thread_buffers(dev):
    errors, results = [], []

    def other():
        results.append((vector(1, 2) + 1.0).numpy().tolist())
        for call in (lambda: dev.EnableGraph(True), dev.RunGraph, dev.ResetGraph):
            try:
                call()
            except RuntimeError as error:
                errors.append(str(error))

    dev.EnableGraph(True)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert results == [[2, 3]]
    assert len(errors) == 3
    assert all("another thread" in error for error in errors)


def test_a_device_that_is_closed_forgets_its_buffer():
    d = device.create_cpu_device(separate=True)
    x = tensor.Tensor((3,), d)
    d.EnableGraph(True)
    y = x + 1.0
    d.EnableGraph(False)
    d.Close()
    with pytest.raises(RuntimeError, match="closed"):
        y.numpy()

"""What the host reads and writes beside the operations of a recorded step: arguments, parameters,
gradients, memory that NumPy and PyTorch have."""

import warnings

import numpy as np
import pytest
import singa
from bits import bits
from recorded import graphs
from singa import autograd, layer, model, opt, tensor
from singa.graph import GraphWarning

pytestmark = pytest.mark.usefixtures("no_warning")


def numbers(seed, *shape):
    return tensor.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


class Net(model.Model):
    """A network whose forward gets a second argument, and whose step may have its own rule."""

    def __init__(self, read=lambda k: 1.0):
        super().__init__()
        self.conv, self.norm = layer.Conv2d(8, 2, stride=2, padding=1), layer.BatchNorm2d()
        self.conv2, self.fc = layer.Conv2d(5, 1, bias=False), layer.Linear(3)
        self.read = read

    def forward(self, x, k=None):
        h = self.conv2(self.norm(self.conv(x)))
        scale = 1.0 if k is None else self.read(k)
        return self.fc(autograd.flatten(autograd.relu(h))) * scale

    def train_one_batch(self, x, y, k=None):
        out = self.forward(x, k)
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def compiled(use_graph, net=Net, is_train=False, **arguments):
    singa.seed(3)
    made = net(**arguments)
    made.set_optimizer(opt.SGD(lr=0.1))
    made.compile([images()], is_train=is_train, use_graph=use_graph)
    return made


def images(seed=0):
    return numbers(seed, 2, 3, 6, 6)


def labels():
    return tensor.from_numpy(np.int32([0, 2]))


# Arguments.

READS = {
    "to_numpy": lambda k: 2.0 if tensor.to_numpy(k)[0] > 0 else 0.5,
    "numpy of a view": lambda k: float(k[:1].numpy().sum()),
    "float": lambda k: float(k[0]),
    "item": lambda k: k[0].item(),
    "branch": lambda k: 2.0 if k[0] > 0 else 0.5,
    "index": lambda k: [0.5, 2.0, 3.0][int(k[1])],
}


@pytest.mark.parametrize("is_train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", READS)
def test_each_value_that_the_host_reads_is_a_kind_of_step(name, is_train):
    values = (1, 1, 1, 1, 2, 2, 2, 1, 2, 0, 0, 0)
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, is_train=is_train, read=READS[name])
        with warnings.catch_warnings():
            if name != "to_numpy":  # a view is computed, and reading it ends the recording
                warnings.simplefilter("ignore", GraphWarning)
            outs = []
            for i, v in enumerate(values):
                k = tensor.from_numpy(np.float32([v, v]))
                out = net(images(i), labels(), k)[0] if is_train else net(images(i), k)
                outs.append(out.numpy())
        results.append(outs)
    executed, recorded = results
    for one, two in zip(executed, recorded, strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=0 if is_train else 1e-5)
    if name == "to_numpy":
        assert len(graphs(net)) == 3


def test_an_argument_with_ever_new_values_is_executed_with_one_warning():
    read = READS["to_numpy"]
    net, executed = compiled(True, read=read), compiled(False, read=read)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GraphWarning)
        for i in range(40):
            k = tensor.from_numpy(np.float32([i - 20]))
            np.testing.assert_allclose(
                net(images(), k).numpy(), executed(images(), k).numpy(), rtol=0, atol=1e-5
            )
    assert ["change too often" in str(w.message) for w in caught] == [True]


class Watches(Net):
    def train_one_batch(self, x, y, k=None):
        self.read = 2.0 if self.fc.W.numpy().sum() > 0 else 1.0
        out = self.forward(x) * self.read
        loss = autograd.softmax_cross_entropy(out, y)
        self.optimizer(loss)
        return out, loss


def test_a_parameter_that_the_host_reads_and_the_step_updates_is_warned_of_once():
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, Watches, is_train=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GraphWarning)
            results.append([net(images(i), labels())[1].numpy().tobytes() for i in range(12)])
        assert ["the host reads" in str(w.message) for w in caught] == [True] * use_graph
    assert results[0] == results[1]


@pytest.mark.cpu("NumPy writes to memory of the CPU")
def test_a_table_that_the_host_reads_may_change_between_steps():
    table = tensor.from_numpy(np.float32([1.0, 2.0]))
    net = compiled(True, read=lambda k: float(table.numpy()[1]))
    seen = []
    for i in range(12):
        if i == 6:
            np.asarray(table)[1] = 3.0
        seen.append(net(images(), numbers(0, 1)).numpy())
    np.testing.assert_allclose(seen[-1], seen[0] * 1.5, rtol=1e-4)
    assert len(graphs(net)) == 1


def test_a_large_argument_that_the_host_reads_is_an_obstacle():
    net = compiled(True, read=lambda k: float(k.numpy().max()))
    with pytest.warns(GraphWarning, match="the host reads the elements of"):
        net(images(), numbers(0, 2000))


def test_a_gradient_that_goes_back_through_a_view_reaches_the_layers_before():
    """A computed argument that does not lie densely is copied, which must not cut the tape."""
    first = numbers(7, 6, 12)
    updates = []
    for use_graph in (False, True):
        weight = tensor.from_numpy(first.numpy())
        weight.stores_grad = True
        net = compiled(use_graph, is_train=True)
        net.weight = weight  # the optimizer trains what the model has
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            for i in range(5):
                net(autograd.matmul(images(i), weight)[:, :, :, ::2], labels())
        updates.append(weight.numpy())
    assert np.abs(updates[0] - first.numpy()).max() > 1e-3
    assert updates[0].tobytes() == updates[1].tobytes()


class Appends(Net):
    def train_one_batch(self, x, y, k=None):
        out, loss = super().train_one_batch(x, y)
        k.append(loss)
        return out, loss


def test_a_list_among_the_arguments_is_the_callers_own():
    net, losses = compiled(True, Appends, is_train=True), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        for _ in range(5):
            losses.clear()
            net(images(), labels(), losses)
            assert len(losses) == 1
    assert "changes one of its arguments" in net._graphs().reasons()[0]


# Modes.


class Ends(Net):
    def train_one_batch(self, x, y, k=None):
        result = super().train_one_batch(x, y)
        self.eval()
        return result


def test_a_step_that_ends_training_does_so_each_time():
    net = compiled(True, Ends, is_train=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        for _ in range(5):
            net.train()
            net(images(), labels())
            assert not net.training
    assert "the mode" in net._graphs().reasons()[0]


# Gradients.


class Backward(Net):
    """The gradients are in `grad`; the program updates."""

    def train_one_batch(self, x, y, k=None):
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        loss.backward()
        return loss


def kept(p):
    pass


def dropped(p):
    p.grad = None


def zeroed(p):
    p.grad.set_value(0.0)


def replaced(p):
    p.grad = tensor.Tensor(p.shape).set_value(0.5)


@pytest.mark.parametrize(
    ("after", "replays"), [(kept, True), (zeroed, True), (dropped, False), (replaced, False)]
)
def test_gradients_set_between_steps_count(after, replays):
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, Backward, is_train=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if not replays else "error", GraphWarning)
            losses = []
            for i in range(8):
                losses.append(net(images(i), labels()).numpy().tobytes())
                for p in net.get_params().values():
                    p.copy_from_numpy(p.numpy() - 0.1 * p.grad.numpy())
                    after(p)
        results.append((losses, bits(net)))
    assert results[0] == results[1]
    assert bool(graphs(net)) == replays


class Returns(Net):
    """A training step that updates nothing."""

    def train_one_batch(self, x, y, k=None):
        loss = autograd.softmax_cross_entropy(self.forward(x), y)
        given = autograd.gradients(loss)
        return [loss, *[given[p] for p in self.get_params().values()]]


def by_numpy(p, gradient):
    np.asarray(p)[...] -= 0.1 * gradient.numpy()


def by_torch(p, gradient):
    torch = pytest.importorskip("torch")
    torch.from_dlpack(p).sub_(torch.from_numpy(gradient.numpy()), alpha=0.1)


def by_copy(p, gradient):
    p.copy_from_numpy(p.numpy() - 0.1 * gradient.numpy())


@pytest.mark.cpu("NumPy writes to memory of the CPU")
@pytest.mark.parametrize("update", [by_numpy, by_torch, by_copy])
def test_a_step_without_an_update_has_the_bits_of_the_executed_one(update):
    results = []
    for use_graph in (False, True):
        net = compiled(use_graph, Returns, is_train=True)
        seen = []
        for i in range(8):
            loss, *found = net(images(i), labels())
            seen.append(loss.numpy().tobytes())
            for p, gradient in zip(net.get_params().values(), found, strict=True):
                seen.append(gradient.numpy().tobytes())
                if i % 3 == 2:
                    update(p, gradient)
        results.append((seen, bits(net)))
    assert results[0] == results[1]
    assert len(graphs(net)) == 1


# Memory that others have.


def gone(t):
    np.asarray(t)[...] *= 1.5


def gone_with_another(t):
    array = np.asarray(t)
    np.from_dlpack(t)
    np.multiply(array, 1.5, out=array)


def gone_tensor(t):
    torch = pytest.importorskip("torch")
    torch.from_dlpack(t).mul_(1.5)


def gone_memoryview(t):
    memoryview(np.asarray(t)).cast("B").cast("f")[0] = 3.0


@pytest.mark.cpu("NumPy writes to memory of the CPU")
@pytest.mark.parametrize("write", [gone, gone_with_another, gone_tensor, gone_memoryview])
@pytest.mark.parametrize(
    "name", ["conv.W", "conv.b", "norm.scale", "norm.running_mean", "norm.running_var", "fc.W"]
)
def test_what_is_written_through_an_array_that_is_gone_is_seen(write, name):
    net = compiled(True)
    for t in net.get_states().values():
        t.copy_from_numpy(np.random.default_rng(1).uniform(0.5, 1.5, t.shape).astype(np.float32))
    for _ in range(4):
        before = net(images()).numpy()
    for _ in range(2):
        write(net.get_states()[name])
        got = net(images()).numpy()
        with net.executed():
            np.testing.assert_allclose(got, net(images()).numpy(), rtol=1e-5, atol=1e-4)
        if write is not gone_memoryview:  # which sets the same element again
            assert np.abs(got - before).max() > 1e-4
        before = got
    assert len(graphs(net)) == 1


@pytest.mark.cpu("NumPy writes to memory of the CPU")
def test_weights_are_prepared_again_only_where_an_array_has_changed_them():
    net = compiled(True)
    for _ in range(4):
        net(images())

    def prepared():
        with singa.profile() as seen:
            net(images())
        return len(seen.records) - usual

    usual = 0
    usual = prepared()
    assert prepared() == 0
    np.asarray(net.conv.W)
    held = np.asarray(net.conv2.W)
    assert prepared() == prepared() == 0
    held[...] *= 2.0
    one = prepared()
    assert one > 0 == prepared()
    np.asarray(net.conv.W)[...] *= 2.0
    held[...] *= 2.0
    assert prepared() > one
    assert prepared() == 0

"""A model that is dropped is freed at once, without the collector of cycles."""

import copy
import gc
import weakref

import numpy as np
import pytest
import singa
from singa import layer, model, models, opt, tensor

pytestmark = pytest.mark.usefixtures("quick_collections")


class Net(model.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layer.Sequential(layer.Linear(6), layer.ReLU()) for _ in range(2)]
        self.head, self.loss = layer.Linear(3), layer.SoftMaxCrossEntropy()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class OwnOptimizer(opt.Optimizer):
    """Whose updates the host makes in each replay."""

    def apply(self, name, param, grad):
        param.copy_from(param - grad * 0.1)


def data():
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    return tensor.from_numpy(x), tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))


def trained(graph=False, optimizer=None):
    net, (x, y) = Net(), data()
    net.set_optimizer(optimizer or opt.SGD(lr=0.1, momentum=0.9))
    net.compile([x], is_train=True, use_graph=graph)
    for _ in range(4):
        net(x, y)
    return net


def infers(graph):
    net = trained(graph)
    net.eval()
    for _ in range(4):
        net(data()[0])
    return net


def fails(graph):
    net = trained(graph)
    with pytest.raises(ValueError, match="LinearForward"):
        net(tensor.Tensor((4, 7)), data()[1])
    return net


def inside_another(graph):
    net = trained(graph)
    outer = layer.Sequential(net.head)
    outer(data()[0])
    net.again = outer
    return net


def changes_settings(graph):
    net, (x, y) = trained(graph), data()
    for rate in (0.1, 0.2):
        net.rate = rate
        for _ in range(3):
            net(x, y)
    return net


def reports(graph):
    net = trained(graph)
    net.summary(), singa.explain(net)
    if graph:
        net.memory_plan()
    return net


def averages(graph):
    net = trained(graph)
    ema = opt.EMA(net)
    ema.update()
    with ema.applied():
        net(*data())
    return net


MODELS = {
    "momentum": trained,
    "adam": lambda graph: trained(graph, opt.Adam(lr=0.1)),
    "accumulate": lambda graph: trained(graph, opt.SGD(lr=0.1, accumulate=2)),
    "scaler": lambda graph: trained(graph, opt.SGD(lr=0.1, scaler=opt.GradScaler())),
    "own optimizer": lambda graph: trained(graph, OwnOptimizer(0.1)),
    "DistOpt": lambda graph: trained(graph, opt.DistOpt(opt.SGD(lr=0.1))),
    "inference": infers,
    "error": fails,
    "two owners": inside_another,
    "settings": changes_settings,
    "reports": reports,
    "averages": averages,
    "copy": lambda graph: copy.deepcopy(trained(graph)),
}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_a_dropped_model_is_freed(kind, graph, capsys):
    gc.collect()
    gc.disable()
    try:
        net = MODELS[kind](graph)
        freed = [weakref.ref(net), *map(weakref.ref, net.get_states().values())]
        freed += map(weakref.ref, net.sublayers())
        del net
        assert [ref() for ref in freed] == [None] * len(freed)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["lenet", "vit_tiny_cifar"])
def test_networks_are_freed(name):
    gc.collect()
    gc.disable()
    try:
        net = models.create(name)
        x = tensor.Tensor((1, 1, 28, 28) if name == "lenet" else (1, 3, 32, 32))
        net.compile([x], is_train=False, use_graph=True)
        net(x), net(x), net(x)
        freed = [weakref.ref(net), *map(weakref.ref, net.get_states().values())]
        del net
        assert [ref() for ref in freed] == [None] * len(freed)
    finally:
        gc.enable()


def test_an_imported_network_is_freed(tmp_path):
    pytest.importorskip("onnx")
    net = trained()
    net.eval()
    singa.onnx.save(net, tmp_path / "net.onnx", [data()[0]])
    gc.collect()
    gc.disable()
    try:
        net = singa.onnx.load(tmp_path / "net.onnx")
        net.graph()
        for _ in range(4):
            net(data()[0])
        network = net.network()
        freed = [weakref.ref(net), weakref.ref(network), *map(weakref.ref, network.main.steps)]
        freed += map(weakref.ref, net.get_states().values())
        del net, network
        assert [ref() for ref in freed] == [None] * len(freed)
    finally:
        gc.enable()


def test_a_kept_layer_outlives_its_model():
    net, x = trained(graph=True), data()[0]
    block = net.blocks[0]
    wanted = block(x).numpy()
    del net
    np.testing.assert_array_equal(block(x).numpy(), wanted)

"""New heads, frozen batch norms, and weights that fit in part."""

import copy
import pickle

import numpy as np
import pytest
import singa
from network_table import ALL_NETWORKS, LARGER
from recorded import graphs
from singa import autograd, layer, models, opt, tensor
from singa.layer import freeze_statistics
from small_net import Net

#: Sizes of images that all poolings pass, of networks for larger ones.
SIZES = {"googlenet": 64, "inception_bn": 64, "inception_v3": 96, "inception_v4": 96}
#: The head depends on the size of the images.
FIXED = {"alexnet": 224, "lenet": 28, "vgg16": 224, "vgg19": 224}
QUICK = {
    *("convnext_cifar", "lenet", "mobilenet_v3_small", "resnet20_cifar", "shufflenet_v2_x1_0"),
    *("squeezenet1_1", "vit_tiny_cifar"),
}
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
    for name in models.names()
    if name != "gpt_small" and (ALL_NETWORKS or name not in LARGER | {"vgg16"})
]


def images(*shape, seed=0):
    return tensor.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_every_network_gets_a_new_head(name):
    net = models.create(name)
    size = FIXED.get(name, SIZES.get(name, 32))
    x = images(1, net.image_shape[0], size, size)
    net.compile([x], is_train=False)
    before = {path: p.numpy() for path, p in net.get_params().items()}
    outputs = net(x).shape
    net.class_names = [str(i) for i in range(net.num_classes)]
    paths = net.replace_head(7)
    assert [path.rpartition(".")[2] for path in paths] == ["W", "b"]
    scores = net(x)
    assert scores.shape == (1, 7, *outputs[2:])
    after = net.get_params()
    assert list(after) == list(before)
    for path, value in before.items():
        if path in paths:
            assert 7 in after[path].shape
            assert not path.endswith("W") or after[path].numpy().std() > 0
        else:
            np.testing.assert_array_equal(after[path].numpy(), value, path)
    assert net.num_classes == 7
    assert net.class_names is None
    again = models.create(net.architecture["name"], **net.architecture["arguments"])
    assert again.num_classes == 7


def test_training_of_a_new_head_alone():
    """Also with recorded steps and an optimizer that has state of the old head."""

    def losses(graph):
        singa.seed(3)
        net = models.create("resnet20_cifar")
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        x, y = images(4, 3, 16, 16), tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))
        net.compile([x], use_graph=graph)
        for _ in range(4):
            net(x, y)
        net.freeze()
        net.replace_head(3)
        body = net.layer3[0].conv1.W.numpy()
        result = [float(net(x, y)[1]) for _ in range(6)]
        np.testing.assert_array_equal(net.layer3[0].conv1.W.numpy(), body)
        assert len(graphs(net)) == int(graph)
        assert net.optimizer.get_states()["moments"]["fc.W"].shape == (64, 3)
        return result

    expected = losses(False)
    assert expected[-1] < expected[0]
    assert losses(True) == expected


def test_a_head_that_is_none():
    x = images(2, 3, 4, 4)
    net = Net()
    with pytest.raises(RuntimeError, match=r"\[replace_head\] call compile\(\) first"):
        net.replace_head(4)
    net.compile([x])
    with pytest.raises(ValueError, match=r"\[replace_head\] num_outputs"):
        net.replace_head(0)
    net.norm = layer.LayerNorm(3)
    fc = net.fc
    net.forward = lambda x: net.norm(fc(autograd.flatten(net.conv(x))))
    net.compile([x])
    with pytest.raises(ValueError, match=r"\(2, 3\) of Net come from LayerNorm norm, and not"):
        net.replace_head(4)

    tied = models.create("gpt_small")
    tied.compile([tensor.from_numpy(np.zeros((1, 4), np.int32))])
    with pytest.raises(ValueError, match="of GPT come from"):
        tied.replace_head(4)


def test_a_head_with_a_shared_weight():
    class Shared(Net):
        def __init__(self):
            super().__init__()
            self.first, self.fc = layer.Linear(3), layer.Linear(3)

        def forward(self, x):
            y = self.first(x)
            if not self.fc._initialized:
                self.fc(y)
                self.fc.W = self.first.W
            return self.fc(y)

    net = Shared()
    net.compile([images(2, 3)])
    with pytest.raises(ValueError, match=r"Linear fc shares its weight with others: fc.W, first.W"):
        net.replace_head(4)


def test_frozen_statistics_like_torch(torch):
    """A batch norm in the mode of inference inside of a network that trains, as its eval() does."""
    ours = layer.Sequential(layer.Linear(4), layer.BatchNorm2d(momentum=0.1), layer.ReLU())
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    x = images(5, 3)
    ours(x)
    rng = np.random.default_rng(1)
    with torch.no_grad():
        theirs[1].running_mean += torch.from_numpy(rng.standard_normal(4))
        theirs[1].running_var += 0.5
        theirs[1].weight += torch.from_numpy(rng.standard_normal(4) / 4)
    ours[0].W.set_value(theirs[0].weight.detach().numpy().T)
    ours[0].b.set_value(theirs[0].bias.detach().numpy())
    for name, other in (("scale", "weight"), ("bias", "bias"), *[(n, n) for n in STATISTICS]):
        getattr(ours[1], name).set_value(getattr(theirs[1], other).detach().numpy())
    before = {name: getattr(ours[1], name).numpy() for name in STATISTICS}
    freeze_statistics(ours)
    theirs.train()
    theirs[1].eval()
    autograd.training = True
    try:
        loss = (ours(x) * ours(x)).sum()
        gradients = {p.name: g.numpy() for p, g in autograd.backward(loss)}
        assert autograd.training
    finally:
        autograd.training = False
    expected = (theirs(torch.from_numpy(x.numpy())) ** 2).sum()
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradients["0.W"], theirs[0].weight.grad.numpy().T, atol=1e-4)
    np.testing.assert_allclose(gradients["1.scale"], theirs[1].weight.grad.numpy(), atol=1e-4)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(ours[1], name).numpy(), value)


STATISTICS = ("running_mean", "running_var")


def test_frozen_statistics_in_recorded_steps():
    def states(graph):
        singa.seed(3)
        net = models.create("resnet20_cifar")
        net.set_optimizer(opt.SGD(lr=0.1, momentum=0.9))
        x, y = images(4, 3, 16, 16), tensor.from_numpy(np.array([0, 1, 2, 1], np.int32))
        net.compile([x], use_graph=graph)
        for _ in range(3):
            net(x, y)
        freeze_statistics(net, "layer[12].*")
        kept = net.layer1[0].bn1.running_mean.numpy()
        moving = net.bn1.running_mean.numpy()
        for _ in range(4):
            net(x, y)
        np.testing.assert_array_equal(net.layer1[0].bn1.running_mean.numpy(), kept)
        assert (net.bn1.running_mean.numpy() != moving).all()
        assert len(graphs(net)) == int(graph)
        freeze_statistics(net, frozen=False)
        net(x, y)
        assert (net.layer1[0].bn1.running_mean.numpy() != kept).all()
        return [t.numpy() for t in net.get_states().values()]

    for ours, replayed in zip(states(False), states(True), strict=True):
        np.testing.assert_array_equal(ours, replayed)


def test_copies_keep_frozen_statistics():
    x = images(4, 3)
    norm = layer.BatchNorm2d()
    norm(x)
    norm.frozen_statistics = True
    for other in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert other.frozen_statistics
        autograd.training = True
        try:
            y = other(x)
        finally:
            autograd.training = False
        np.testing.assert_array_equal(y.numpy(), other(x).numpy())
        assert (other.running_mean.numpy() == 0).all()


def test_no_batch_norm_to_freeze():
    with pytest.raises(ValueError, match=r"no batch norm matches 'layer9.\*'"):
        freeze_statistics(layer.Sequential(layer.BatchNorm2d()), "layer9.*")


def test_unfreeze():
    net = layer.Sequential(layer.Linear(2), layer.Linear(2))
    net(images(1, 2))
    net.freeze()
    net.unfreeze("1.*")
    assert [p.requires_grad for p in net.get_params().values()] == [False, False, True, True]
    net.unfreeze()
    assert all(p.requires_grad for p in net.get_params().values())


def test_load_torch_of_another_network_is_an_error_without_strict_too():
    net = Net()
    net.compile([images(2, 3, 4, 4)])
    values = {"encoder.weight": np.zeros((2, 2), np.float32)}
    with pytest.raises(ValueError, match=r"none of its 1 values fits .* conv.weight .* encoder"):
        net.load_torch(values, strict=False)
    head = {"fc.weight": np.ones((3, 64), np.float32), "other": np.ones(1, np.float32)}
    missing, unexpected = net.load_torch(head, strict=False)
    assert missing == ["conv.weight", "conv.bias", "fc.bias"]
    assert unexpected == ["other"]
    assert (net.fc.W.numpy() == 1).all()

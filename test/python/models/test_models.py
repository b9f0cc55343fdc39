"""The networks: published numbers of parameters; scores, gradients and training compared with
PyTorch.

torch_models.py says which networks of torchvision and timm are compared with, and has those that
neither has.
"""

import math

import numpy as np
import pytest
import singa
from network_table import ALL_NETWORKS, CASES, LARGER
from singa import autograd, models, opt, tensor
from torch_pairs import torch_network

# Without running statistics. singa/models/__init__.py has the source of each number.
PARAMETERS = {
    "alexnet": 61_100_840,
    "googlenet": 6_624_904,
    "inception_bn": 11_295_240 - 10_016,
    "inception_v3": 23_834_568,
    "inception_v4": 42_679_816,
    "lenet": 431_080,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet18": 11_689_512,
    "resnet18_cifar": 11_173_962,
    "resnet20_cifar": 269_722,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet50_cifar": 23_520_842,
    "vgg16": 138_357_544,
    "vgg16_cifar": 14_728_266,
    "vgg19": 143_667_240,
}
# Networks with global average pooling accept any size. This is the smallest that passes all
# poolings.
SMALL = {
    "googlenet": 64,
    "inception_bn": 64,
    "inception_v3": 96,
    "inception_v4": 96,
    "resnet18": 64,
    "resnet34": 64,
    "resnet50": 64,
    "resnet101": 64,
    "resnet152": 64,
}
SLOW = {"inception_v4", "resnet101", "resnet152", "vgg16", "vgg19"}
ALL = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PARAMETERS]


def shape_of(net, name, batch):
    channels, height, width = net.image_shape
    return (batch, channels, SMALL.get(name, height), SMALL.get(name, width))


def images(shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


def singa_tensor(array):
    return tensor.Tensor(data=array, dtype=array.dtype.name, requires_grad=False)


def test_names():
    assert models.names() == sorted([*PARAMETERS, *CASES])


@pytest.mark.parametrize("name", ALL)
def test_parameters_and_scores_like_torch(torch, name):
    net = models.create(name)
    x = images(shape_of(net, name, 2))
    net.compile([singa_tensor(x[:1])], is_train=False)
    assert sum(p.size() for p in net.get_params().values()) == PARAMETERS[name]
    if name in LARGER and not ALL_NETWORKS:
        return

    torch.manual_seed(0)
    theirs = torch_network(name, net.num_classes).eval()
    assert sum(p.numel() for p in theirs.parameters()) == PARAMETERS[name]
    for buffer in theirs.buffers():  # distinct, so that exchanged ones are detected
        if buffer.dtype == torch.float32:
            buffer.uniform_(0.8, 1.2)
    net.load_torch(theirs.state_dict())
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x)).numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(net(singa_tensor(x)).numpy(), expected, atol=1e-4 * scale)


def test_other_names():
    net = models.create("vit_tiny_patch16_224", num_classes=3)
    assert net.architecture == {"name": "vit_tiny_16", "arguments": {"num_classes": 3}}


def pair_in_float64(torch, name, shape):
    torch.manual_seed(1)
    theirs = torch_network(name, 10).double()
    ours = models.create(name, num_classes=10)
    ours.compile([tensor.Tensor(shape, dtype="float64")])
    ours.load_torch(theirs.state_dict())
    return ours, theirs


def torch_name(name):
    layer, _, leaf = name.rpartition(".")
    return f"{layer}.{'weight' if leaf in ('W', 'scale') else 'bias'}"


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet20_cifar", (3, 3, 16, 16)),
        ("vgg16_cifar", (3, 3, 32, 32)),
        pytest.param("resnet18_cifar", (3, 3, 16, 16), marks=pytest.mark.slow),
        pytest.param("resnet50_cifar", (3, 3, 32, 32), marks=pytest.mark.slow),
        pytest.param("inception_bn", (3, 3, 64, 64), marks=pytest.mark.slow),
    ],
)
def test_every_gradient_like_torch(torch, name, shape):
    # In float64, because in float32 any two programs differ at ReLUs whose input is almost 0.
    ours, theirs = pair_in_float64(torch, name, shape)
    x, labels = images(shape, np.float64), np.arange(shape[0]) % 10
    loss = torch.nn.functional.cross_entropy(
        theirs(torch.from_numpy(x)), torch.from_numpy(labels), label_smoothing=0.1
    )
    loss.backward()
    ours.label_smoothing = 0.1
    got = ours.loss(ours.forward(singa_tensor(x)), singa_tensor(labels.astype(np.int32)))
    assert float(got) == pytest.approx(loss.item(), rel=1e-12)
    expected = dict(theirs.named_parameters())
    seen = 0
    for param, gradient in autograd.backward(got):
        other = expected[torch_name(param.name)].grad.numpy()
        other = other.T if gradient.ndim() == 2 else other
        scale = np.abs(other).max()
        np.testing.assert_allclose(
            gradient.numpy(), other, atol=1e-10 * scale + 1e-14, err_msg=param.name
        )
        seen += 1
    assert seen == len(expected)
    autograd.training = False


def torch_step(torch, net, optimizer, x, labels):
    """The loss of a training step in PyTorch."""
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(labels))
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize(
    ("name", "batch"),
    [("resnet20_cifar", 8), pytest.param("vgg16_cifar", 8, marks=pytest.mark.slow)],
)
def test_training_like_torch(torch, name, batch):
    shape, steps = (batch, 3, 32, 32), 6
    ours, theirs = pair_in_float64(torch, name, shape)
    ours.set_optimizer(opt.SGD(lr=0.05, momentum=0.9, weight_decay=5e-4))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    random = np.random.default_rng(2)
    for step in range(steps):
        x, labels = random.standard_normal(shape), random.integers(0, 10, batch)
        expected = torch_step(torch, theirs, optimizer, x, labels)
        _, loss = ours(singa_tensor(x), singa_tensor(labels.astype(np.int32)))
        # Rounding errors grow about tenfold per step in an untrained network.
        limit = 1e-14 * 10 ** (step + 1)
        assert float(loss) == pytest.approx(expected, rel=limit), f"step {step}"
    state = theirs.state_dict()
    for stage in ("bn1.running_mean", "bn1.running_var"):
        if stage in state:
            np.testing.assert_allclose(
                ours.get_states()[stage].numpy(), state[stage].numpy(), rtol=1e-9, atol=1e-12
            )
    autograd.training = False


@pytest.mark.parametrize("name", ["resnet20_cifar", "vgg16_cifar"])
def test_first_losses_in_float32_like_torch(torch, name):
    # With usual learning rates, PyTorch in float32 differs from float64 by 1e-2 after twenty steps.
    torch.manual_seed(1)
    theirs = torch_network(name, 10)
    ours = models.create(name)
    ours.set_optimizer(opt.SGD(lr=1e-4, momentum=0.9, weight_decay=5e-4))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    ours.compile([tensor.Tensor((2, 3, 32, 32))])
    ours.load_torch(theirs.state_dict())
    random = np.random.default_rng(2)
    for _ in range(5 if name == "vgg16_cifar" else 20):
        x = random.standard_normal((16, 3, 32, 32)).astype(np.float32)
        labels = random.integers(0, 10, 16)
        expected = torch_step(torch, theirs, optimizer, x, labels)
        _, loss = ours(singa_tensor(x), singa_tensor(labels.astype(np.int32)))
        assert float(loss) == pytest.approx(expected, rel=1e-3)
    autograd.training = False


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet20_cifar", (2, 3, 32, 32)),
        ("vgg16_cifar", (2, 3, 32, 32)),
        ("inception_bn", (1, 3, 96, 96)),
    ],
)
def test_opcheck_finds_nothing(name, shape):
    """It also checks batch norm with residual and ReLU in one operation, where rounding near zero
    must not cause a mismatch."""
    singa.seed(0)
    net = models.create(name, num_classes=10)
    net.set_optimizer(opt.SGD(lr=0.01, momentum=0.9, weight_decay=5e-4))
    x = singa_tensor(images(shape))
    y = singa_tensor((np.arange(shape[0]) % 10).astype(np.int32))
    net.compile([x], is_train=True)
    with singa.opcheck(every=1, action="raise") as check:
        for _ in range(2):
            net(x, y)
    assert check.stats()["BatchNormBackward"]["checked"] >= 26
    assert sum(row["failed"] for row in check.stats().values()) == 0


def test_start_values():
    singa.seed(4)
    net = models.create("resnet50_cifar")
    net.compile([tensor.Tensor((1, 3, 8, 8))])
    W = net.layer3[0].conv2.W
    assert W.numpy().std() == pytest.approx(math.sqrt(2 / (W.shape[0] * 9)), rel=0.02)
    limit = 1 / math.sqrt(net.fc.in_features)
    assert np.abs(net.fc.W.numpy()).max() == pytest.approx(limit, rel=0.01)
    assert float(net.bn1.scale.numpy().min()) == 1
    assert net.bn1.momentum == 0.1
    np.testing.assert_array_equal(net.fc.b.numpy(), np.zeros(10))


def test_label_smoothing_and_classes():
    net = models.create("lenet", num_classes=3, label_smoothing=0.2)
    net.compile([tensor.Tensor((2, 1, 28, 28))], is_train=False)
    out = net(singa_tensor(images((2, 1, 28, 28))))
    assert out.shape == (2, 3)
    scores = out.numpy().astype(np.float64)
    logp = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    target = 0.8 * np.eye(3)[[2, 0]] + 0.2 / 3
    loss = net.loss(out, singa_tensor(np.array([2, 0], np.int32)))
    assert float(loss) == pytest.approx(-(target * logp).sum(1).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: models.create("resnet21"), ValueError, "no model 'resnet21'; there are alexnet"),
        (lambda: models.create("lenet", classes=3), TypeError, "classes"),
        (
            lambda: models.create("lenet", num_classes=0),
            ValueError,
            "num_classes must be at least 1",
        ),
        (lambda: models.create("lenet", label_smoothing=1), ValueError, "label_smoothing"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()

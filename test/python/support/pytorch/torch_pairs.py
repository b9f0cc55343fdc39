"""Networks of singa.models beside PyTorch's: the same random weights, scores, gradients and losses.

torch_models.py says which networks of torchvision and timm are compared with, and has those that
neither has.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import singa
from recorded import graphs
from singa import autograd, model, models, opt, tensor
from singa.layer.torch_weights import _places

#: Arguments of PyTorch's constructors that turn off what is drawn at random in training.
NOTHING_DROPPED = {
    "convnext_cifar": {"stochastic_depth_prob": 0.0},
    "convnext_tiny": {"stochastic_depth_prob": 0.0},
    "efficientnet_b0": {"stochastic_depth_prob": 0.0, "dropout": 0.0},
    "mobilenet_v2": {"dropout": 0.0},
    "mobilenet_v3_large": {"dropout": 0.0},
    "mobilenet_v3_small": {"dropout": 0.0},
    "squeezenet1_1": {"dropout": 0.0},
    "swin_tiny": {"stochastic_depth_prob": 0.0},
}


def torch_network(name, classes, **options):
    """PyTorch's network; the test is skipped where torchvision or timm is not installed."""
    import torch_models

    try:
        return torch_models.create(name, classes, **options)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")


def randomise(torch, network, x):
    """Draws all parameters, those with a special initial value as well, and running statistics.

    Matrices and kernels keep the size of what passes through them, scales are about 1, biases about
    0. Running statistics are about those of the batch x, so that images make a difference.
    """
    generator = torch.Generator().manual_seed(0)

    def fill(t, mean, std):
        t.copy_(torch.randn(t.shape, generator=generator, dtype=torch.float64) * std + mean)

    with torch.no_grad():
        norms = [m for m in network.modules() if hasattr(m, "eps")]
        scales = {id(norm.weight) for norm in norms}
        gain = 1.0 if norms else 2**0.5  # what ReLU takes away, norms restore
        for name, parameter in network.named_parameters():
            leaf = name.rpartition(".")[2]
            if id(parameter) in scales or leaf == "layer_scale":
                fill(parameter, 1.0, 0.2)
            elif parameter.ndim == 1 or leaf == "relative_position_bias_table":
                fill(parameter, 0.0, 0.3 if norms else 0.1)
            elif leaf in ("cls_token", "pos_embed"):
                fill(parameter, 0.0, 1.0)
            else:
                fill(parameter, 0.0, gain * parameter[0].numel() ** -0.5)
        batch_norms = [norm for norm in norms if hasattr(norm, "running_mean")]
        before = [norm.momentum for norm in batch_norms]
        for norm in batch_norms:
            norm.momentum = 1.0
        network.train()(x)
        for norm, momentum in zip(batch_norms, before, strict=True):
            norm.momentum = momentum
            noise = torch.empty((2, *norm.running_var.shape))
            fill(noise, 0.0, 0.2)
            norm.running_mean += noise[0] * norm.running_var.sqrt()
            norm.running_var *= noise[1].exp()


def inputs(net, shape, seed=5):
    """A batch of standard normal images, or of tokens for shapes (N, L), and labels."""
    random = np.random.default_rng(seed)
    if len(shape) == 2:
        x = random.integers(0, net.num_classes, shape)
        return x, random.integers(0, net.num_classes, shape)
    labels = (shape[0], *shape[2:]) if net.label_shape else shape[:1]
    return random.standard_normal(shape), random.integers(0, net.num_classes, labels)


def as_tensor(array, dtype):
    """An array as a tensor: class indices as int32, others as `dtype`."""
    dtype = "int32" if array.dtype.kind == "i" else dtype
    return tensor.Tensor(data=array.astype(dtype), dtype=dtype, requires_grad=False)


def as_torch(torch, array, dtype):
    t = torch.from_numpy(array)
    return t if array.dtype.kind == "i" else t.to(getattr(torch, dtype))


def pair(torch, name, shape, dtype, ours=None, theirs=None):
    """(singa's network, PyTorch's) with the same random weights, in training mode.

    ours, theirs: further arguments of the constructors
    """
    net = models.create(name, **(ours or {}))
    options = NOTHING_DROPPED.get(name, {}) | (theirs or {})
    other = torch_network(name, net.num_classes, **options)
    x, _ = inputs(net, shape)
    randomise(torch, other, as_torch(torch, x, "float32"))
    other = other.to(getattr(torch, dtype))
    net.compile([as_tensor(x, dtype)])
    for param in net.get_params().values():
        param.to_type(dtype)  # embeddings do not follow the type of the tokens
    net.load_torch(other.state_dict())
    return net, other


def torch_loss(torch, out, labels):
    """Cross-entropy, where the classes of (N, L, C) are the last axis."""
    out = out.flatten(0, 1) if out.ndim == 3 else out
    labels = labels.flatten() if out.ndim == 2 else labels
    return torch.nn.functional.cross_entropy(out, labels)


def changed_by_a_rounding(x):
    """The images with each number moved to the next one, up and down."""
    return [np.nextafter(x.astype(np.float32), np.float32(end)) for end in (np.inf, -np.inf)]


def check_scores(torch, name, shape, parameters, ours=None, theirs=None):
    """The number of parameters, and scores in float32 beside PyTorch's in float64: within 1e-5 of
    the largest, or three times as far as PyTorch's in float32 where random weights amplify rounding
    errors. How much they do shows in several runs, of which the others have inputs that are changed
    by one rounding."""
    net, other = pair(torch, name, shape, "float32", ours, theirs)
    own = net.get_params()
    assert sum(p.size() for p in own.values()) == parameters
    assert sum(p.numel() for p in other.parameters()) == parameters
    x, _ = inputs(net, shape)
    net.eval()
    same = [x] if x.dtype.kind == "i" else [x, *changed_by_a_rounding(x)]
    with torch.no_grad():
        runs = [other.eval()(as_torch(torch, each, "float32")).numpy() for each in same]
        expected = other.double()(as_torch(torch, x, "float64")).numpy()
    rounding = max(np.abs(run - expected).max() for run in runs)
    got = net(as_tensor(x, "float32")).numpy()
    spread = np.abs(expected - expected.mean(0)).max()
    assert spread > 1e-2 * np.abs(expected).max(), "the inputs do not matter to these weights"
    limit = max(1e-5 * np.abs(expected).max(), 3 * rounding)
    assert np.abs(got - expected).max() <= limit


def check_training(torch, name, shape, ours=None, theirs=None, lr=1e-3):
    """Training in float64: the gradients, then the losses of three steps of SGD with momentum."""
    net, other = pair(torch, name, shape, "float64", ours, theirs)
    _check_gradients(torch, net, other, shape)
    _check_losses(torch, net, other, shape, lr)
    autograd.training = False


def _check_gradients(torch, net, other, shape, tolerance=1e-8):
    """The loss and the gradients of all parameters."""
    x, labels = inputs(net, shape)
    theirs_out = other(as_torch(torch, x, "float64"))
    expected_loss = torch_loss(torch, theirs_out, torch.from_numpy(labels))
    expected_loss.backward()
    loss = net.loss(net.forward(as_tensor(x, "float64")), as_tensor(labels, "float64"))
    assert float(loss) == pytest.approx(expected_loss.item(), rel=1e-10)
    expected = dict(other.named_parameters())
    largest = max(float(p.grad.abs().max()) for p in expected.values())
    names = {id(own): (name, turned) for name, (own, turned) in _places(net).items()}
    seen = set()
    for param, gradient in autograd.backward(loss):
        torch_name, turned = names[id(param)]
        theirs_gradient = expected[torch_name].grad.numpy()
        theirs_gradient = theirs_gradient.T if turned else theirs_gradient
        scale = np.abs(theirs_gradient).max()
        atol = tolerance * scale + 1e-13 * largest  # some are rounding errors of zero
        np.testing.assert_allclose(gradient.numpy(), theirs_gradient, atol=atol, err_msg=torch_name)
        seen.add(torch_name)
    assert seen == set(expected)


def _check_losses(torch, net, other, shape, lr, steps=3):
    """Losses of a few steps of SGD with momentum."""
    net.set_optimizer(opt.SGD(lr=lr, momentum=0.9, weight_decay=5e-4))
    sgd = torch.optim.SGD(other.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    losses = []
    for step in range(steps):
        x, labels = inputs(net, shape, seed=step)
        sgd.zero_grad()
        out = other(as_torch(torch, x, "float64"))
        expected = torch_loss(torch, out, torch.from_numpy(labels))
        expected.backward()
        sgd.step()
        _, loss = net(as_tensor(x, "float64"), as_tensor(labels, "float64"))
        assert float(loss) == pytest.approx(expected.item(), rel=1e-8), f"step {step}"
        losses.append(float(loss))
    assert len(set(losses)) == steps


@dataclass
class Trained:
    """A network that has made a few steps of SGD in float32 from fixed random weights."""

    name: str
    shape: tuple
    losses: list
    states: dict
    net: model.Model


def train(name, shape, steps=3, ours=None, **options):
    """A network after a few steps. `options` are those of `Model.compile`."""
    singa.seed(3)
    net = models.create(name, **(ours or {}))
    net.set_optimizer(opt.SGD(lr=0.003, momentum=0.9))
    x, labels = (as_tensor(each, "float32") for each in inputs(net, shape))
    net.compile([x], **options)
    losses = [float(net(x, labels)[1]) for _ in range(steps)]
    autograd.training = False
    states = {key: t.numpy() for key, t in net.get_states().items()}
    return Trained(name, shape, losses, states, net)


def check_replays(executed):
    """Replayed steps give the executed bits, with stochastic depth and dropout as they are."""
    replayed = train(executed.name, executed.shape, use_graph=True)
    assert len(graphs(replayed.net)) == 1
    assert executed.losses == replayed.losses
    for key, value in executed.states.items():
        np.testing.assert_array_equal(value, replayed.states[key], err_msg=key)


def check_bfloat16(executed, ours):
    """Training under autocast begins with the loss of float32, and each step changes the weights.

    ours: arguments of the constructor that leave nothing to chance; where there are none, the
    executed network begins with that loss
    """
    name, shape = executed.name, executed.shape
    exact = train(name, shape, steps=1, ours=ours) if ours else executed
    narrow = train(name, shape, ours=ours, dtype="bfloat16", use_graph=True)
    assert all(math.isfinite(loss) for loss in narrow.losses)
    assert narrow.losses[0] == pytest.approx(exact.losses[0], rel=0.05)
    assert len(set(narrow.losses)) == len(narrow.losses)
    assert all(np.isfinite(value).all() for value in narrow.states.values())
    assert all(value.dtype == np.float32 for value in narrow.states.values())


def check_files(executed, path, capsys):
    """A model loads the file of another, and `summary` counts its parameters."""
    executed.net.save_states(path)
    other = models.create(executed.name)
    x, _ = inputs(other, executed.shape)
    other.compile([as_tensor(x, "float32")], is_train=False)
    other.load_states(path)
    for key, value in other.get_states().items():
        np.testing.assert_array_equal(value.numpy(), executed.states[key], err_msg=key)
    summary = other.summary()
    assert sum(row.params for row in summary.rows) == summary.params
    assert summary.params == sum(p.size() for p in other.get_params().values())
    assert f"{type(other).__name__}: {summary.params:,} parameters" in capsys.readouterr().out

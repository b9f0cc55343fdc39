"""Views of images joined by channels with the result of a convolution, which lies in a layout of
its own. An image of one channel is row-major and channels-last at once, so that only its strides
tell a view from it."""

import numpy as np
import pytest
import singa
from singa import autograd, layer, model, opt, tensor

X = np.random.default_rng(0).standard_normal((4, 3, 6, 8)).astype(np.float32)

#: Views of X, for tensors and arrays alike.
VIEWS = {
    "first channel": lambda x: x[:, :1],
    "last channel": lambda x: x[:, 2:],
    "flipped": lambda x: x[:, :1, :, ::-1],
    "backwards": lambda x: x[:, 2:, ::-1, ::-1],
    "every second row": lambda x: x[:, 1:2, ::2],
    "every second image": lambda x: x[::2, :1],
    "last image": lambda x: x[3:, 2:, ::-1],
    "two channels": lambda x: x[:, :2],
    "every second channel": lambda x: x[:, ::2],
}


def transposed(x):
    x, axes = x[:, :1, :, :6], (0, 1, 3, 2)
    return x.transpose(axes) if isinstance(x, np.ndarray) else autograd.transpose(x, axes)


def one_row_everywhere(x):
    row = x[:1, :1, :1]
    if isinstance(x, np.ndarray):
        return np.broadcast_to(row, (4, 1, 6, 8))
    return autograd.expand(row, (4, 1, 6, 8))


VIEWS |= {"transposed": transposed, "one row everywhere": one_row_everywhere}


def features(like, channels, dtype):
    """The result of a convolution, of the same images and pixels."""
    draw = np.random.default_rng(1)
    shape = (like.shape[0], 3, *like.shape[2:])
    x = tensor.from_numpy(draw.standard_normal(shape).astype(np.float32)).as_type(dtype)
    return layer.Conv2d(channels, 3, padding=1)(x)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("channels", [8, 20])
@pytest.mark.parametrize("name", VIEWS)
def test_join(name, channels, dtype):
    x = tensor.from_numpy(X).as_type(dtype)
    view, expected = VIEWS[name](x), VIEWS[name](x.numpy())
    other = features(expected, channels, dtype)
    others = other.numpy()
    with singa.opcheck():
        for tensors, arrays in (
            ([other, view], [others, expected]),
            ([view, other], [expected, others]),
            ([other, view, other], [others, expected, others]),
        ):
            joined = autograd.cat(tensors, 1)
            np.testing.assert_array_equal(joined.numpy(), np.concatenate(arrays, 1))


class Net(model.Model):
    """A depth channel beside features."""

    def __init__(self):
        super().__init__()
        self.first = layer.Conv2d(8, 3, padding=1)
        self.second = layer.Conv2d(4, 3, padding=1)
        self.classify = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        features = autograd.relu(self.first(x))
        return self.classify(autograd.flatten(self.second(autograd.cat([features, x[:, :1]], 1))))


@pytest.mark.parametrize("use_graph", [False, True])
def test_losses_of_a_network_like_torch(torch, use_graph):
    singa.seed(0)
    x, y = tensor.from_numpy(X), np.array([0, 1, 2, 1], np.int32)
    net = Net()
    net.set_optimizer(opt.SGD(lr=0.05))
    net.compile([x], use_graph=use_graph)
    params = {
        name: torch.tensor(value.numpy(), dtype=torch.float64, requires_grad=True)
        for name, value in net.get_params().items()
    }
    functional = torch.nn.functional
    for _ in range(6):
        images = torch.tensor(X, dtype=torch.float64)
        h = functional.relu(
            functional.conv2d(images, params["first.W"], params["first.b"], padding=1)
        )
        h = torch.cat([h, images[:, :1]], 1)
        h = functional.conv2d(h, params["second.W"], params["second.b"], padding=1).flatten(1)
        scores = h @ params["classify.W"] + params["classify.b"]
        loss = functional.cross_entropy(scores, torch.tensor(y, dtype=torch.int64))
        np.testing.assert_allclose(float(net(x, tensor.from_numpy(y))[1]), loss.item(), rtol=1e-5)
        gradients = torch.autograd.grad(loss, list(params.values()))
        for param, gradient in zip(params.values(), gradients, strict=True):
            param.data -= 0.05 * gradient

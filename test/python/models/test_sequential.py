"""models.Sequential, beside PyTorch's."""

import numpy as np
import pytest
from singa import autograd, layer, models, opt, tensor


def test_it_trains_like_pytorchs(torch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 5)).astype(np.float32)
    y = rng.integers(0, 3, 6)
    theirs = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    net = models.Sequential(layer.Linear(4), layer.ReLU(), layer.Linear(3))
    net.set_optimizer(opt.SGD(lr=0.5))
    net.compile([tensor.from_numpy(x)], is_train=True, use_graph=True)
    net.load_torch(theirs.state_dict())
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        expected.backward()
        optimizer.step()
        _, loss = net(x, y.astype(np.int32))
        np.testing.assert_allclose(float(loss), expected.item(), rtol=1e-5)
    net.eval()
    with torch.no_grad():
        np.testing.assert_allclose(net(x).numpy(), theirs(torch.tensor(x)), rtol=1e-4, atol=1e-5)


def test_another_loss_and_its_weight():
    x, y = np.float32([[1, 2]]), np.float32([[3]])
    steps = []
    for weight in (1.0, 0.5):
        net = models.Sequential(layer.Linear(1, bias=False), loss=layer.MSELoss())
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([tensor.from_numpy(x)], is_train=True)
        net.set_params({"0.W": np.float32([[1], [0.5]])})
        _, loss = net(x, y, weight=weight)
        np.testing.assert_allclose(float(loss), 1.0)
        steps.append(net.get_params()["0.W"].numpy() - np.float32([[1], [0.5]]))
    np.testing.assert_allclose(steps[0], [[0.2], [0.4]], rtol=1e-5)  # -lr · 2 (2 - 3) x
    np.testing.assert_allclose(steps[1], steps[0] / 2, rtol=1e-5)


@pytest.mark.parametrize("way", ["constructor", "attribute", "fit"])
@pytest.mark.parametrize(
    "loss", [layer.MSELoss(), lambda out, y: autograd.mse_loss(out, y)], ids=["layer", "function"]
)
def test_a_loss_is_a_layer_or_a_function(way, loss):
    x, y = np.float32([[1, 2]]), np.float32([[3]])
    made = {"loss": loss} if way == "constructor" else {}
    net = models.Sequential(layer.Linear(1, bias=False), **made)
    if way == "attribute":
        net.loss = loss
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True, use_graph=True)
    net.set_params({"0.W": np.float32([[1], [0.5]])})
    given = {"loss": loss} if way == "fit" else {}
    (record,) = net.fit(x, y, verbose=False, **given)
    np.testing.assert_allclose(record["train_loss"], 1.0)
    np.testing.assert_allclose(net.get_params()["0.W"].numpy(), [[1.2], [0.9]], rtol=1e-5)
    assert len(net) == 1  # the loss is no link of the chain
    assert list(net.get_params()) == ["0.W"]


def test_another_loss_counts_in_recorded_steps():
    x, y = np.float32([[1, 2]]), np.float32([[3]])
    net = models.Sequential(layer.Linear(1, bias=False), loss=layer.MSELoss())
    net.set_optimizer(opt.SGD(lr=0.0))
    net.compile([x], is_train=True, use_graph=True)
    net.set_params({"0.W": np.float32([[1], [0.5]])})
    y += 1
    assert [float(net(x, y)[1]) for _ in range(4)] == [4.0] * 4
    net.loss = layer.L1Loss()
    assert [float(net(x, y)[1]) for _ in range(4)] == [2.0] * 4


def test_what_it_is_made_of():
    net = models.Sequential(layer.Linear(4), layer.ReLU())
    assert len(net) == 2
    assert type(net[1]) is layer.ReLU
    with pytest.raises(TypeError, match="expected layers, got int"):
        models.Sequential(3)
    assert type(models.Sequential(loss="mse").loss) is layer.MSELoss
    with pytest.raises(TypeError, match=r"\[Sequential\] loss: expected a layer or .*got 3"):
        models.Sequential(loss=3)
    with pytest.raises(AttributeError, match="no attribute 'Parallel'"):
        models.Parallel  # noqa: B018

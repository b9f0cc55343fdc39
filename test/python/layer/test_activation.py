"""Activation layers beside PyTorch's, and drop path."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from singa import autograd, layer, models, opt, tensor

# Without 0 and 6, where the derivative of ReLU6 is a choice.
_X = np.linspace(-40, 40, 400, dtype=np.float32)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GELU", {}),
        ("GELU", {"approximate": "tanh"}),
        ("SiLU", {}),
        ("Hardsigmoid", {}),
        ("Hardswish", {}),
        ("Mish", {}),
        ("ReLU6", {}),
        ("Tanh", {}),
        ("Hardtanh", {}),
        ("LeakyReLU", {}),
        ("ELU", {}),
        ("SELU", {}),
        ("GLU", {}),
        ("Softplus", {}),
        ("Softplus", {"beta": 0.5, "threshold": 3.0}),
    ],
)
def test_like_torch_far_from_zero_too(
    name: str, options: dict[str, float], torch: ModuleType, training: None
) -> None:
    x = tensor.Tensor(data=_X, stores_grad=True)
    y = getattr(layer, name)(**options)(x)
    px = torch.from_numpy(_X.astype(np.float64)).requires_grad_()
    py = getattr(torch.nn, name)(**options)(px)
    py.sum().backward()
    np.testing.assert_allclose(y.numpy(), py.detach().numpy(), rtol=2e-6, atol=1e-6)
    ((_, dx),) = autograd.backward(y, np.ones(y.shape, np.float32))
    np.testing.assert_allclose(dx.numpy(), px.grad.numpy(), rtol=2e-6, atol=2e-6)


def test_relu6_is_flat_at_its_limits(torch: ModuleType) -> None:
    values = np.array([-1.0, 0.0, 1e-3, 3.0, 6.0, 7.0], np.float32)
    for ours, theirs in [
        (layer.ReLU6(), torch.nn.functional.relu6),
        (lambda x: autograd.clip(x, 0.0, 6.0), lambda x: torch.clamp(x, 0.0, 6.0)),
    ]:
        x = tensor.Tensor(data=values, stores_grad=True)
        px = torch.tensor(values, requires_grad=True)
        with autograd.enable_grad():
            ((_, dx),) = autograd.backward(ours(x), np.ones_like(values))
        theirs(px).sum().backward()
        assert dx.numpy().tolist() == px.grad.tolist()


@pytest.mark.parametrize("options", [{}, {"use_graph": True}, {"use_graph": True, "fuse": True}])
def test_relu6_of_a_batch_norm_is_flat_at_its_limits(options: dict[str, bool]) -> None:
    x = tensor.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype("f4"))
    # The results of its batch norm are 0, 6 and 3 in the three channels.
    loss = lambda y, _: autograd.reduce_mean(y)  # noqa: E731
    net = models.Sequential(layer.BatchNorm2d(), layer.ReLU6(), loss=loss)
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], **options)
    scale, bias = (p for p in net.get_params().values())
    scale.set_value(0.0)
    bias.copy_from_numpy(np.array([0.0, 6.0, 3.0], np.float32))
    for _ in range(4):
        net(x, x)
    # The mean over three channels has slope 1/3 for the third bias.
    np.testing.assert_allclose(bias.numpy(), [0, 6, 3 - 4 * 0.1 / 3], rtol=1e-6)


def test_gelu_refuses_other_approximations() -> None:
    with pytest.raises(ValueError, match="approximate must be 'none' or 'tanh', got 'erf'"):
        layer.GELU("erf")
    with pytest.raises(ValueError, match="approximate must be"):
        autograd.gelu(tensor.Tensor((2,)), "fast")


def test_drop_path_drops_whole_samples(training: None) -> None:
    x = tensor.from_numpy(np.ones((4000, 2, 3), np.float32))
    y = layer.DropPath(0.25)(x).numpy()
    samples = y[:, 0, 0]
    assert (y == samples[:, None, None]).all()
    assert set(np.unique(samples)) == {np.float32(0), np.float32(1) / np.float32(0.75)}
    # 4000 draws: a standard deviation of 0.007.
    assert abs((samples == 0).mean() - 0.25) < 0.035


def test_drop_path_passes_gradients_of_kept_samples(training: None) -> None:
    x = tensor.Tensor(data=np.ones((64, 3), np.float32), stores_grad=True)
    y = layer.DropPath(0.5)(x)
    ((_, dx),) = autograd.backward(y, np.ones((64, 3), np.float32))
    np.testing.assert_array_equal(dx.numpy(), y.numpy())


def test_drop_path_is_identity_in_evaluation(training: None) -> None:
    autograd.training = False  # the fixture restores it
    x = tensor.from_numpy(np.ones((4, 3), np.float32))
    assert layer.DropPath(0.5)(x) is x


def test_limits_and_numbers_of_parameters() -> None:
    x = tensor.from_numpy(np.float32([-3, 0.5, 9]))
    np.testing.assert_array_equal(layer.Hardtanh(0, 6)(x).numpy(), [0, 0.5, 6])
    with pytest.raises(ValueError, match="above"):
        layer.Hardtanh(1, 0)
    with pytest.raises(ValueError, match="2 parameters for 3 channels"):
        layer.PReLU(2)(x.reshape((1, 3)))


def test_dropout_of_channels(training: None) -> None:
    x = tensor.Tensor(data=np.ones((20, 30, 3, 2)), stores_grad=True)
    drop = layer.Dropout2d(0.25)
    y = drop(x)
    values = y.numpy().reshape(600, 6)
    assert set(np.unique(values).tolist()) == {0.0, np.float32(1 / 0.75)}
    assert (values == values[:, :1]).all()
    assert 0.15 < (values[:, 0] == 0).mean() < 0.35
    np.testing.assert_array_equal(autograd.gradients(y.sum())[x].numpy(), y.numpy())
    autograd.training = False
    assert drop(x) is x
    assert layer.Identity("any", argument=1)(x) is x

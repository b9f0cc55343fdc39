"""Losses as layers, compared with PyTorch's of the same names."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from singa import autograd, layer, model, opt, tensor
from singa.tensor import Tensor

_RANDOM = np.random.default_rng(1)
_X = _RANDOM.standard_normal((3, 4, 2, 5)).astype(np.float32)
_LOGS = (_X - np.log(np.exp(_X).sum(1, keepdims=True))).astype(np.float32)
_CLASSES = _RANDOM.integers(0, 4, (3, 2, 5)).astype(np.int64)
_SOFT = _RANDOM.dirichlet(np.ones(4), (3, 2, 5)).transpose(0, 3, 1, 2).astype(np.float32)
_WEIGHT = [1.0, 0.5, 2.0, 0.25]

#: name: (arguments, x, t)
LOSSES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "CrossEntropyLoss": (
        {"weight": _WEIGHT, "ignore_index": 1, "label_smoothing": 0.2},
        _X,
        _CLASSES,
    ),
    "NLLLoss": ({"weight": _WEIGHT, "reduction": "sum"}, _LOGS, _CLASSES),
    "BCEWithLogitsLoss": ({"pos_weight": [[[2.0]]], "reduction": "none"}, _X, _SOFT),
    "KLDivLoss": ({"reduction": "batchmean"}, _LOGS, _SOFT),
    "L1Loss": ({}, _X, _SOFT),
    "MSELoss": ({"reduction": "sum"}, _X, _SOFT),
    "HuberLoss": ({"delta": 0.5}, _X, _SOFT),
    "SmoothL1Loss": ({"beta": 0.5}, _X, _SOFT),
}


@pytest.mark.parametrize("name", LOSSES)
def test_like_torch(name: str, torch: ModuleType) -> None:
    arguments, x, t = LOSSES[name]
    ours = getattr(layer, name)(**arguments)
    loss = ours(tensor.from_numpy(x), tensor.from_numpy(t))
    given = {k: torch.tensor(v) if "weight" in k else v for k, v in arguments.items()}
    truth = getattr(torch.nn, name)(**given)(torch.tensor(x), torch.tensor(t)).numpy()
    np.testing.assert_allclose(loss.numpy(), truth.reshape(loss.shape), rtol=3e-6)
    assert ours.get_params() == {}


def test_losses_of_masks() -> None:
    x, t = tensor.from_numpy(_X), tensor.from_numpy(_CLASSES)
    masks = tensor.from_numpy((_SOFT > 0.3).astype(np.float32))
    dice = layer.DiceLoss(smooth=0.5, reduction="none")(x, t)
    np.testing.assert_array_equal(
        dice.numpy(), autograd.dice_loss(x, t, 0.5, reduction="none").numpy()
    )
    assert dice.shape == (3, 4)
    focal = layer.FocalLoss(alpha=0.5, gamma=1.0)(x, masks)
    np.testing.assert_array_equal(
        focal.numpy(), autograd.sigmoid_focal_loss(x, masks, 0.5, 1.0).numpy()
    )


class _Net(model.Model):
    def __init__(self) -> None:
        super().__init__()
        self.fc = layer.Linear(3)
        self.loss = layer.CrossEntropyLoss(weight=[1.0, 2.0, 0.5], ignore_index=-100)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc(x)
        return y

    def train_one_batch(self, x: Tensor, t: Tensor) -> Tensor:
        loss: Tensor = self.loss(self.forward(x), t)
        self.optimizer(loss)
        return loss


@pytest.mark.filterwarnings("error")
def test_weights_are_replayed() -> None:
    """A list of weights becomes a tensor once. A new weight is recorded again."""
    x = tensor.from_numpy(_RANDOM.standard_normal((6, 4)).astype(np.float32))
    t = tensor.from_numpy(np.array([0, 1, 2, -100, 1, 0], np.int32))
    found = []
    for use_graph in (False, True):
        net = _Net()
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([x], is_train=True, use_graph=use_graph)
        net.fc.W.set_value(0.125)
        losses = [net(x, t).item() for _ in range(4)]
        net.loss.weight = tensor.from_numpy(np.array([0.0, 1.0, 3.0], np.float32))
        found.append(losses + [net(x, t).item() for _ in range(4)])
    assert found[0] == found[1]
    assert net.memory_plan()["planned_bytes"] > 0

"""Sequential: a chain of layers as a Model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import layer, model
from ..layer import Layer
from ..layer.named_losses import named_loss
from ..tensor import Tensor

_Loss = Callable[[Tensor, Tensor], Tensor]


class Sequential(layer.Sequential, model.Model):
    """A chain of layers that can be trained, saved and loaded as a whole.

        net = models.Sequential(
            layer.Conv2d(16, 3, padding=1), layer.BatchNorm2d(), layer.ReLU(), layer.MaxPool2d(2),
            layer.Flatten(), layer.Linear(10),
        )
        net.set_optimizer(opt.SGD(lr=0.1))
        net.compile([x], is_train=True)
        out, loss = net(x, y)

    loss  a layer or a function that gives the loss of outputs and targets, or a name as `fit` takes
          it (default: softmax cross-entropy of scores (N, classes) for class indices (N), averaged
          over the batch). It may also be set later: `net.loss = layer.MSELoss()`, or
          `net.fit(x, y, loss=...)`

    Parameters have the names "0.W", "1.scale", ... A call in inference mode takes the input of the
    first layer. `train_one_batch(x, y, weight=1.0)` returns (output, loss); `weight` is a factor of
    the gradients, as in `models.common.Classifier`. Raises TypeError for what is no layer.

    >>> net = models.Sequential(layer.Linear(8), layer.ReLU(), layer.Linear(2))
    >>> net.compile([tensor.zeros((1, 4))])
    >>> net.eval()
    >>> net(tensor.ones((3, 4))).shape
    (3, 2)
    """

    def __init__(self, *layers: Layer, loss: _Loss | None = None) -> None:
        super().__init__(*layers)
        # In a dict of its own: `layers`, lengths and positions are those of the chain.
        self._loss = {
            "loss": layer.CrossEntropyLoss() if loss is None else named_loss(loss, "Sequential")
        }

    @property
    def loss(self) -> _Loss:
        """The loss of outputs for targets: a layer, or a function."""
        return self._loss["loss"]

    @loss.setter
    def loss(self, loss: _Loss) -> None:
        self._loss = {"loss": named_loss(loss, "Sequential")}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss":  # a layer, too, is no link of the chain
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def train_one_batch(self, x: Tensor, y: Tensor, weight: float = 1.0) -> tuple[Tensor, Tensor]:
        """Trains on inputs x and targets y; returns (output, loss)."""
        return super().train_one_batch(x, y, weight=weight)

"""Model: a layer that can be trained, saved and loaded as a whole.

    class Net(model.Model):
        def __init__(self):
            super().__init__()
            self.fc = layer.Linear(10)
            self.loss = layer.CrossEntropyLoss()

        def forward(self, x):
            return self.fc(x)

        def train_one_batch(self, x, y):
            out = self.forward(x)
            loss = self.loss(out, y)
            self.optimizer(loss)
            return out, loss

    net = Net()
    net.set_optimizer(opt.SGD(lr=0.1))
    net.compile([x], is_train=True)
    out, loss = net(x, y)

Calls after `net.eval()` infer: `out = net(x)`.
"""

from typing import TYPE_CHECKING, Any

from ..raw import calls, words
from .base import Model, ModelMeta
from .states import LoadedStates

__all__ = ["LoadedStates", "Model", "ModelMeta"]

if not TYPE_CHECKING:
    calls.answers_calls([LoadedStates])

    def __getattr__(name: str) -> Any:
        return words.missing(__name__, name)

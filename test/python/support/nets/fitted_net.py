"""A small network and data for tests of Trainer. As a program it is a job of several ranks."""

import json
import sys

import numpy as np
import singa
from singa import autograd, data, distributed, layer, metric, model, opt, tensor, training

ROWS, BATCH = 22, 8  # the last batch of an epoch is short


class Net(model.Model):
    """With batch norm and dropout, so that statistics and random numbers have to go on, too."""

    def __init__(self):
        super().__init__()
        self.hidden = layer.Linear(6)
        self.norm = layer.BatchNorm2d()
        self.drop = layer.Dropout(0.2)
        self.out = layer.Linear(3)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x):
        return self.out(self.drop(autograd.relu(self.norm(self.hidden(x)))))


class Affine(model.Model):
    """A matrix and a bias for regression. It starts from zeros."""

    def __init__(self, outputs=1):
        super().__init__()
        self.fc = layer.Linear(outputs)
        self.loss = autograd.mse_loss

    def forward(self, x):
        return self.fc(x)

    def start(self, x):
        self.compile([tensor.from_numpy(x)], use_graph=True)
        for param in self.get_params().values():
            param.set_value(0.0)
        return self


def classes(rows=ROWS, seed=0):
    """Points (rows, 4) and their classes, which can be learned."""
    rng = np.random.default_rng(seed)
    y = (np.arange(rows) % 3).astype(np.int32)
    x = rng.standard_normal((rows, 4)).astype(np.float32)
    x[np.arange(rows), y] += 3
    return x, y


def loader(x, y, batch=BATCH, shuffle=True, **options):
    return data.DataLoader(data.ArrayDataset(x, y), batch, shuffle, seed=1, **options)


def states(net):
    return {name: value.numpy() for name, value in net.get_states().items()}


def made(optimizer=None, seed=3):
    """A network with the same weights each time, and its optimizer."""
    singa.seed(seed)
    net = Net()
    net.set_optimizer(optimizer or opt.SGD(0.05, momentum=0.9))
    return net


class Given(training.Callback):
    """Gives the records values."""

    def __init__(self, *values):
        self.values = values

    def on_epoch_end(self, trainer, record):
        record["val_loss"] = self.values[trainer.epoch - 1]


def main():
    """Prints what rank 0 has come to."""
    net = made()
    metrics = {"accuracy": metric.count_top_k, "f1": metric.F1(3)}
    history = net.fit(
        *classes(), epochs=2, batch_size=BATCH, seed=1, validation=classes(9, 1), metrics=metrics
    )
    if distributed.is_main():
        kept = {name: value.tolist() for name, value in states(net).items()}
        print(json.dumps([history, kept]))


if __name__ == "__main__":
    training.trainer.say = lambda *words: print(*words, file=sys.stderr)
    main()

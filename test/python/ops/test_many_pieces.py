"""split and cat with more pieces than a shape can have axes, forward and backward, executed and
recorded."""

import numpy as np
import pytest
from bits import check_replays
from singa import autograd, layer, model, opt, tensor

COUNTS = (13, 20, 200)
every_count = pytest.mark.parametrize("count", COUNTS)


@every_count
@pytest.mark.usefixtures("training")
def test_pieces_come_back_in_another_order(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.standard_normal((2, 2 * count)).astype(np.float32)
    x = tensor.Tensor(data=values, stores_grad=True)
    pieces = autograd.split(x, 1, [2] * count)
    assert [piece.shape for piece in pieces] == [(2, 2)] * count
    y = autograd.cat(list(pieces)[::-1], 1)
    turned = np.concatenate(np.split(values, count, 1)[::-1], 1)
    np.testing.assert_array_equal(y.numpy(), turned)
    dy = rng.standard_normal(y.shape).astype(np.float32)
    dx = autograd.gradients(y, dy)[x]
    np.testing.assert_array_equal(dx.numpy(), np.concatenate(np.split(dy, count, 1)[::-1], 1))


@every_count
def test_equal_pieces(count: int) -> None:
    values = np.arange(3.0 * count, dtype=np.float32).reshape(3, count)
    pieces = autograd.split(tensor.from_numpy(values), 1, None, count)
    for piece, column in zip(pieces, values.T, strict=True):
        np.testing.assert_array_equal(piece.numpy()[:, 0], column)


class Joined(model.Model):
    """Several convolutions of one image, concatenated along the channels."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.conv = layer.Conv2d(16, 3, padding=1)
        self.fc = layer.Linear(3)
        self.count = count
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        y = self.conv(x)
        y = autograd.cat([autograd.relu(y) for _ in range(self.count)], 1)
        parts = autograd.split(y, 1, [16] * self.count)
        y = autograd.cat([autograd.tanh(part) for part in parts], 1)
        return self.fc(autograd.flatten(autograd.globalaveragepool(y)))


class Recurrent(model.Model):
    """SINGA's LSTM over a list of steps, whose outputs are concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = layer.LSTM(4, 8)
        self.cat = layer.Cat()
        self.fc = layer.Linear(4)
        self.loss = autograd.softmax_cross_entropy

    def forward(self, x: tensor.Tensor) -> tensor.Tensor:
        zeros = tensor.zeros((1, 8), x.device)
        outputs, _, _ = self.rnn([x[i : i + 1] for i in range(20)], (zeros, zeros))
        return self.fc(self.cat(outputs))


@every_count
def test_many_images_are_joined_and_cut(count: int) -> None:
    x = np.random.default_rng(7).standard_normal((2, 16, 5, 5)).astype(np.float32)
    losses = check_replays(lambda: Joined(count), [(x, np.int32([0, 2]))] * 5)
    assert losses[-1] < losses[0]


def test_lstm_of_twenty_steps_trains() -> None:
    letters = np.arange(21) % 4
    one_hot = np.eye(4, dtype=np.float32)[letters]
    batch = one_hot[:-1], letters[1:].astype(np.int32)
    losses = check_replays(Recurrent, [batch] * 40, optimizer=lambda: opt.SGD(0.3, momentum=0.9))
    assert losses[-1] < 0.1 < 1 < losses[0]
